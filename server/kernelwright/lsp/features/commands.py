"""Commands: decisions on proposals, and the long jobs for clients that have only LSP.

pygls runs a command to its end even when its request is cancelled, so awaiting the client is safe here, and a long job
is started in the background with a progress of the server's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from kernelwright.errors import KernelwrightError, StaleProposal, UsageError
from kernelwright.lsp import work
from kernelwright.lsp.convert import text_edits
from kernelwright.lsp.documents import Snapshot
from kernelwright.lsp.protocol import CommandResult, GenerateResult, RecheckResult, write
from kernelwright.lsp.session import KernelwrightServer
from kernelwright.model import Json
from kernelwright.source.edit import Edit

Long = Callable[[KernelwrightServer, str, str, str | None], Awaitable[GenerateResult | RecheckResult]]
GOOD = frozenset({"proposed", "kept", "passed"})


def register(server: KernelwrightServer) -> None:
    """Register the commands and the cancelling of our own progress."""

    @server.command("kernelwright.server.accept")
    async def accept(ls: KernelwrightServer, *arguments: Any) -> Json:
        (proposal_id,) = strings(arguments, 1)
        return answer(ls, await accept_proposal(ls, proposal_id))

    @server.command("kernelwright.server.reject")
    async def reject(ls: KernelwrightServer, *arguments: Any) -> Json:
        (proposal_id,) = strings(arguments, 1)
        return answer(ls, reject_proposal(ls, proposal_id))

    @server.command("kernelwright.server.remove")
    async def remove(ls: KernelwrightServer, *arguments: Any) -> Json:
        uri, qualname = strings(arguments, 2)
        return answer(ls, await remove_kernel(ls, uri, qualname))

    @server.command("kernelwright.server.generate")
    async def generate(ls: KernelwrightServer, *arguments: Any) -> None:
        uri, qualname = strings(arguments, 2)
        ls.jobs.start(in_background(ls, uri, qualname, generate_job))

    @server.command("kernelwright.server.recheck")
    async def recheck(ls: KernelwrightServer, *arguments: Any) -> None:
        uri, qualname = strings(arguments, 2)
        ls.jobs.start(in_background(ls, uri, qualname, work.recheck))

    @server.feature(lsp.WINDOW_WORK_DONE_PROGRESS_CANCEL)
    def cancel(ls: KernelwrightServer, params: lsp.WorkDoneProgressCancelParams) -> None:
        ls.jobs.cancel_token(params.token)


async def accept_proposal(server: KernelwrightServer, proposal_id: str) -> CommandResult:
    """Put a proposal into the document as it is now, as one undo step."""
    proposal = server.proposals.get(proposal_id)
    if proposal is None:
        return CommandResult(False, "this proposal is gone: generate the kernel again")
    if proposal.state in ("accepted", "rejected"):
        return CommandResult(False, f"this proposal was already {proposal.state}")
    try:
        snapshot = work.require(server, proposal.uri)
        edit = snapshot.core.edit(proposal.outcome, snapshot.document)
        problem = await apply(server, snapshot, edit, f"Accept the Triton kernel for {proposal.qualname}")
    except KernelwrightError as error:
        if isinstance(error, StaleProposal):
            server.proposals.decide(proposal, "stale")
            server.announce(proposal.uri)
        return CommandResult(False, str(error))
    if problem:
        return CommandResult(False, problem)
    server.announce(proposal.uri, [server.proposals.decide(proposal, "accepted")])
    return CommandResult(True, f"{proposal.qualname} now has a checked kernel")


def reject_proposal(server: KernelwrightServer, proposal_id: str) -> CommandResult:
    """Put a proposal aside."""
    proposal = server.proposals.get(proposal_id)
    if proposal is None or proposal.state in ("accepted", "rejected"):
        return CommandResult(False, "there is no such proposal to reject")
    server.announce(proposal.uri, [server.proposals.decide(proposal, "rejected")])
    return CommandResult(True, f"the kernel for {proposal.qualname} was rejected")


async def remove_kernel(server: KernelwrightServer, uri: str, qualname: str) -> CommandResult:
    """Take an accepted kernel out of the document again."""
    try:
        snapshot = work.require(server, uri)
        edit = snapshot.core.restore(snapshot.document, qualname)
        problem = await apply(server, snapshot, edit, f"Remove the kernel of {qualname}")
    except KernelwrightError as error:
        return CommandResult(False, str(error))
    if problem:
        return CommandResult(False, problem)
    server.redraw(uri)
    return CommandResult(True, f"the kernel of {qualname} was removed")


async def apply(server: KernelwrightServer, snapshot: Snapshot, edit: Edit, label: str) -> str:
    """Have the client make an edit, if it still has the version that the edit was made for; what went wrong, or ""."""
    change = workspace_edit(server.client_capabilities.workspace, snapshot, edit)
    answer = await server.workspace_apply_edit_async(lsp.ApplyWorkspaceEditParams(change, label))
    if answer.applied:
        return ""
    return answer.failure_reason or "the editor did not make the edit: the file changed meanwhile; try again"


def workspace_edit(client: lsp.WorkspaceClientCapabilities | None, snapshot: Snapshot, edit: Edit) -> lsp.WorkspaceEdit:
    """An edit as LSP's: versioned where the client can, with the sibling file written first where there is one.

    Raises:
        UsageError: there is a sibling file, and the client cannot create files.
    """
    document, edits = snapshot.document, text_edits(snapshot.positions, edit)
    can = client.workspace_edit if client else None
    if edit.sibling and not (can and can.document_changes and "create" in (can.resource_operations or ())):
        raise UsageError("this editor cannot create files for a kernel: set kernelwright.placement to inline")
    if not can or not can.document_changes:
        return lsp.WorkspaceEdit(changes={document.uri: edits})
    versioned = lsp.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
    changes: list[lsp.CreateFile | lsp.TextDocumentEdit] = []
    if edit.sibling:
        path, text = edit.sibling
        uri = Path(path).as_uri()
        start = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
        changes.append(lsp.CreateFile(uri, options=lsp.CreateFileOptions(overwrite=True)))
        fresh = lsp.OptionalVersionedTextDocumentIdentifier(uri, None)
        changes.append(lsp.TextDocumentEdit(fresh, [lsp.TextEdit(start, text)]))
    return lsp.WorkspaceEdit(document_changes=[*changes, lsp.TextDocumentEdit(versioned, edits)])


async def in_background(server: KernelwrightServer, uri: str, qualname: str, job: Long) -> None:
    """Run a long job under a progress of our own, and show how it ended."""
    token = None
    window = server.client_capabilities.window
    if window and window.work_done_progress:
        token = uuid4().hex
        # Awaited before the job exists, so cancelling the job cannot cancel this wait.
        await server.window_work_done_progress_create_async(lsp.WorkDoneProgressCreateParams(token))
    result = await job(server, uri, qualname, token)
    kind = lsp.MessageType.Info if result.outcome in GOOD else lsp.MessageType.Warning
    server.window_show_message(lsp.ShowMessageParams(kind, result.message))


async def generate_job(server: KernelwrightServer, uri: str, qualname: str, token: str | None) -> GenerateResult:
    """`work.generate` with nothing given."""
    return await work.generate(server, uri, qualname, None, "", token)


def answer(server: KernelwrightServer, result: CommandResult) -> Json:
    """A command's answer; a plain client shows no answers, so there a failure is shown as a message."""
    if not result.applied and not server.options.client_commands:
        server.show_warning(result.message)
    return write(result)


def strings(arguments: tuple[Any, ...], count: int) -> tuple[str, ...]:
    """The first arguments, which must be strings. Lenses may pass more.

    Raises:
        JsonRpcInvalidParams: there are fewer, or others.
    """
    given = arguments[:count]
    if len(given) < count or not all(isinstance(argument, str) for argument in given):
        raise JsonRpcInvalidParams(f"{count} string arguments needed, not {arguments!r}")
    return given
