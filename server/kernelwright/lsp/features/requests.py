"""Our own requests. The long ones are coroutines, which `$/cancelRequest` cancels in flight."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from pygls.exceptions import JsonRpcInvalidParams

from kernelwright.errors import BadInputs, InputsNeeded, KernelwrightError, StaleProposal, TargetNotFound
from kernelwright.lsp import protocol, work
from kernelwright.lsp.documents import root_of
from kernelwright.lsp.session import KernelwrightServer
from kernelwright.model import Json
from kernelwright.source.inputs import inputs_from_spec

P = TypeVar("P")


def register(server: KernelwrightServer) -> None:
    """Answer `kernelwright/*`."""
    serve(server, protocol.GENERATE, protocol.GenerateParams, generate)
    serve(server, protocol.RECHECK, protocol.RecheckParams, recheck)
    serve(server, protocol.PROPOSALS, protocol.ProposalsParams, proposals)
    serve(server, protocol.INPUTS, protocol.InputsParams, inputs)
    serve(server, protocol.VALIDATE_INPUTS, protocol.ValidateInputsParams, validate_inputs)
    serve(server, protocol.STATUS, protocol.StatusParams, status)
    serve(server, protocol.TARGET_AT, protocol.TargetAtParams, target_at)


def serve(
    server: KernelwrightServer,
    method: str,
    kind: type[P],
    handler: Callable[[KernelwrightServer, P], Awaitable[Any]],
) -> None:
    """Register a handler whose params are read, and whose result is written, as `protocol` says."""

    @server.feature(method)
    async def handle(ls: KernelwrightServer, params: object) -> Json:
        try:
            read = protocol.read(kind, params)
        except ValueError as error:
            raise JsonRpcInvalidParams(f"{method}: {error}") from error
        return protocol.write(await handler(ls, read))


async def generate(server: KernelwrightServer, params: protocol.GenerateParams) -> protocol.GenerateResult:
    """Generate a kernel for a target."""
    instruction = params.instruction or ""
    return await work.generate(
        server, params.uri, params.qualname, params.inputs or None, instruction, params.work_done_token
    )


async def recheck(server: KernelwrightServer, params: protocol.RecheckParams) -> protocol.RecheckResult:
    """Check an accepted kernel again."""
    return await work.recheck(server, params.uri, params.qualname, params.work_done_token)


async def proposals(server: KernelwrightServer, params: protocol.ProposalsParams) -> protocol.ProposalsResult:
    """The proposals that can be accepted as the documents are now."""
    found = []
    for proposal in tuple(server.proposals.open_in(params.uri)):
        try:
            found.append(work.proposal_info(server, proposal))
        except (StaleProposal, TargetNotFound):
            continue
    return protocol.ProposalsResult(tuple(found))


async def inputs(server: KernelwrightServer, params: protocol.InputsParams) -> protocol.InputsResult:
    """What a target is known to be called with, or what to suggest."""
    try:
        snapshot = work.require(server, params.uri)
        target = snapshot.target(params.qualname)
        if target is None:
            raise TargetNotFound(f"{params.qualname} is not in the file, or does not use torch")
        known = snapshot.core.inputs_for(target)
    except InputsNeeded as needed:
        return protocol.InputsResult("", "", needed.suggestion)
    except KernelwrightError as error:
        return protocol.InputsResult("", "", "", problem=str(error))
    return protocol.InputsResult(known.spec, known.origin, known.spec)


async def validate_inputs(
    server: KernelwrightServer, params: protocol.ValidateInputsParams
) -> protocol.ValidateInputsResult:
    """Whether an input description parses."""
    try:
        inputs_from_spec(params.text)
    except BadInputs as error:
        return protocol.ValidateInputsResult(str(error))
    return protocol.ValidateInputsResult()


async def status(server: KernelwrightServer, params: protocol.StatusParams) -> protocol.StatusResult:
    """What the status item shows."""
    core = server.cores.get(root_of("", server.roots()))
    if core is None:
        return protocol.StatusResult("problem", "", "", "see the log", server.jobs.count)
    said, jobs = core.status(), server.jobs.count
    state: Literal["ready", "busy", "problem"] = "busy" if jobs else "problem" if server.problem else "ready"
    message = server.problem or said.get("note") or ""
    return protocol.StatusResult(state, said.get("provider", ""), said.get("interpreter", ""), message, jobs)


async def target_at(server: KernelwrightServer, params: protocol.TargetAtParams) -> protocol.TargetAtResult:
    """The innermost target around a position, or the place of a named one."""
    snapshot = server.snapshot(params.uri)
    target = None
    if snapshot and params.qualname is not None:
        target = snapshot.target(params.qualname)
    elif snapshot and isinstance(params.position, dict):
        target = snapshot.target_at(int(params.position.get("line", -1)))
    if snapshot is None or target is None:
        return protocol.TargetAtResult()
    start = snapshot.positions.name(target).start
    return protocol.TargetAtResult(target.qualname, {"line": start.line, "character": start.character})
