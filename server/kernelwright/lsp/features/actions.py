"""Code actions: the same as the lens, where the cursor is; and quick fixes for stale evidence."""

from __future__ import annotations

from collections.abc import Sequence

from lsprotocol import types as lsp

from kernelwright.lsp.features.diagnostics import STALE_EVIDENCE
from kernelwright.lsp.features.menu import Action, State, actions_for, command, state_of
from kernelwright.lsp.session import KernelwrightServer

REWRITE = lsp.CodeActionKind.RefactorRewrite
FIX = lsp.CodeActionKind.QuickFix


def register(server: KernelwrightServer) -> None:
    """Answer textDocument/codeAction."""
    options = lsp.CodeActionOptions(code_action_kinds=[REWRITE, FIX])

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, options)
    def code_action(ls: KernelwrightServer, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        snapshot = ls.snapshot(params.text_document.uri)
        target = snapshot.target_at(params.range.start.line) if snapshot else None
        if snapshot is None or target is None:
            return []
        state = state_of(ls, snapshot, target)
        only, actions = params.context.only, []
        if wanted(REWRITE, only):
            actions += [one(ls, action, state, REWRITE) for action in actions_for(state)]
        stale = [item for item in params.context.diagnostics if item.code == STALE_EVIDENCE]
        if stale and wanted(FIX, only):
            actions += [one(ls, action, state, FIX, stale) for action in ("recheck", "remove")]
        return [action for action in actions if action]


def wanted(kind: str, only: Sequence[str] | None) -> bool:
    """Whether the client asks for this kind: kinds are hierarchical, "refactor" includes "refactor.rewrite"."""
    return only is None or any(kind == asked or kind.startswith(f"{asked}.") or not asked for asked in only)


def one(
    server: KernelwrightServer,
    action: Action,
    state: State,
    kind: lsp.CodeActionKind,
    diagnostics: Sequence[lsp.Diagnostic] | None = None,
) -> lsp.CodeAction | None:
    """One code action, or None where this client has no command for it."""
    name = state.target.name
    titles: dict[Action, str] = {
        "generate": f"Generate Triton kernel for `{name}`",
        "review": f"Review the Triton kernel for `{name}`",
        "accept": f"Accept the Triton kernel for `{name}`",
        "reject": f"Reject the Triton kernel for `{name}`",
        "recheck": f"Re-check the kernel of `{name}`",
        "remove": f"Remove the kernel of `{name}`",
    }
    run = command(server, action, titles[action], state)
    return lsp.CodeAction(titles[action], kind=kind, command=run, diagnostics=diagnostics) if run else None
