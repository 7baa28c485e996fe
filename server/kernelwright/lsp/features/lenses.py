"""The lens above each function that uses torch."""

from __future__ import annotations

from lsprotocol import types as lsp

from kernelwright.lsp.features.menu import Action, State, actions_for, command, state_of
from kernelwright.lsp.session import KernelwrightServer


def register(server: KernelwrightServer) -> None:
    """Answer textDocument/codeLens."""

    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    def code_lens(ls: KernelwrightServer, params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        uri = params.text_document.uri
        snapshot = ls.snapshot(uri) if ls.settings_for(uri).code_lens else None
        if snapshot is None:
            return []
        lenses = []
        for target in snapshot.targets:
            state = state_of(ls, snapshot, target)
            for action in actions_for(state):
                shown = command(ls, action, title(action, state), state)
                if shown:
                    lenses.append(lsp.CodeLens(snapshot.positions.name(target), shown))
        return lenses


def title(action: Action, state: State) -> str:
    """What a lens says."""
    kernel = "✓ checked kernel"
    if state.stale:
        kernel = "kernel was checked against other text"
    elif state.unused:
        kernel = "checked kernel without its decorator: not used"
    titles: dict[Action, str] = {
        "generate": "Generate Triton kernel",
        "review": "Review kernel",
        "accept": "Accept",
        "reject": "Reject",
        "recheck": f"{kernel} · Re-check",
        "remove": "Remove",
    }
    return titles[action]
