"""A client for the scripted server: remembers what it says, waits for events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.protocol import default_converter
from pytest_lsp import LanguageClient
from pytest_lsp.client import register_lsp_features
from pytest_lsp.protocol import LanguageClientProtocol

WAIT_S = 20.0


class WatchedProtocol(LanguageClientProtocol):
    """Wakes whoever waits, after each message. Code actions stay raw: lsprotocol reads one with a command as a Command."""

    def get_result_type(self, method: str) -> Any:
        return None if method == lsp.TEXT_DOCUMENT_CODE_ACTION else super().get_result_type(method)

    def handle_message(self, message: Any) -> None:
        super().handle_message(message)
        self._server.arrived()


class Client(LanguageClient):
    """pytest-lsp's client with our messages, and `until` in place of sleeping."""

    def __init__(self, log: Path, configuration: dict[str, Any] | None = None) -> None:
        super().__init__(protocol_cls=WatchedProtocol, converter_factory=default_converter, configuration=configuration)
        register_lsp_features(self)
        self.log = log
        self.changes: list[Any] = []
        self.edits: list[lsp.ApplyWorkspaceEditParams] = []
        self.refreshes: list[str] = []
        self.accept_edits = True
        self.answered = 0
        """How often the server asked for settings."""
        self.initialized_with: Any = None
        self._waiters: list[asyncio.Event] = []
        self.feature("kernelwright/proposalsChanged")(lambda params: self.changes.append(params))
        self.feature(lsp.WORKSPACE_APPLY_EDIT)(lambda params: self._apply(params))
        self.feature(lsp.WORKSPACE_CODE_LENS_REFRESH)(lambda params: self.refreshes.append("codeLens"))
        self.feature(lsp.CLIENT_REGISTER_CAPABILITY)(lambda params: None)

    def get_configuration(self, *, section: str | None = None, scope_uri: str | None = None) -> Any:
        # The server asks for each folder and for none at once; the one for none comes first.
        self.answered += scope_uri is None
        return super().get_configuration(section=section, scope_uri=scope_uri)

    def arrived(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    async def until(self, condition: Callable[[], Any], seconds: float = WAIT_S) -> Any:
        """Wait until a message makes the condition true."""
        woken = asyncio.Event()
        self._waiters.append(woken)
        try:
            while not (value := condition()):
                await asyncio.wait_for(woken.wait(), seconds)
                woken.clear()
            return value
        finally:
            self._waiters.remove(woken)

    async def ask(self, method: str, params: dict[str, Any], msg_id: str | None = None) -> Any:
        """Send a request of ours; its answer as plain JSON."""
        if isinstance(params, dict) and "workDoneToken" in params:
            self.progress_reports.setdefault(params["workDoneToken"], [])
        answer = await asyncio.wait_for(
            self.protocol.send_request_async(f"kernelwright/{method}", params, msg_id), WAIT_S
        )
        return plain(answer)

    async def command(self, name: str, *arguments: str) -> Any:
        """Execute a command of the server's."""
        params = lsp.ExecuteCommandParams(f"kernelwright.server.{name}", list(arguments))
        return plain(await asyncio.wait_for(self.workspace_execute_command_async(params), WAIT_S))

    def open(self, uri: str, text: str, version: int = 1, language: str = "python") -> None:
        item = lsp.TextDocumentItem(uri, language, version, text)
        self.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    def change(self, uri: str, text: str, version: int) -> None:
        """Replace a document's whole text."""
        self.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(version, uri), [lsp.TextDocumentContentChangeWholeDocument(text)]
            )
        )

    async def lenses(self, uri: str) -> list[lsp.CodeLens]:
        params = lsp.CodeLensParams(lsp.TextDocumentIdentifier(uri))
        return list(await self.text_document_code_lens_async(params) or ())

    async def actions(self, uri: str, line: int, **context: Any) -> list[Any]:
        where = lsp.Range(lsp.Position(line, 0), lsp.Position(line, 0))
        found = lsp.CodeActionContext(context.pop("diagnostics", []), **context)
        params = lsp.CodeActionParams(lsp.TextDocumentIdentifier(uri), where, found)
        return list(await self.text_document_code_action_async(params) or ())

    async def hover(self, uri: str, line: int, column: int = 5) -> str | None:
        params = lsp.HoverParams(lsp.TextDocumentIdentifier(uri), lsp.Position(line, column))
        answer = await self.text_document_hover_async(params)
        return answer.contents.value if answer else None

    def pushed(self, uri: str) -> list[lsp.Diagnostic] | None:
        """The diagnostics last pushed for a document, None before the first time."""
        return list(self.diagnostics[uri]) if uri in self.diagnostics else None

    def said(self, token: int | str) -> list[str]:
        """The messages that a progress has reported so far."""
        reports: list[Any] = self.progress_reports.get(token, [])
        return [value.message for value in reports if value.kind == "report"]

    def ended(self, token: int | str) -> bool:
        """Whether a progress has ended."""
        reports: list[Any] = self.progress_reports.get(token, [])
        return bool(reports) and reports[-1].kind == "end"

    def logged(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def _apply(self, params: lsp.ApplyWorkspaceEditParams) -> lsp.ApplyWorkspaceEditResult:
        self.edits.append(params)
        return lsp.ApplyWorkspaceEditResult(applied=self.accept_edits)


def plain(value: Any) -> Any:
    """pygls hands unknown results over as nested named tuples."""
    if hasattr(value, "_asdict"):
        return {key: plain(item) for key, item in value._asdict().items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


FULL = lsp.ClientCapabilities(
    workspace=lsp.WorkspaceClientCapabilities(
        apply_edit=True,
        configuration=True,
        workspace_folders=True,
        workspace_edit=lsp.WorkspaceEditClientCapabilities(document_changes=True),
        code_lens=lsp.CodeLensWorkspaceClientCapabilities(refresh_support=True),
        diagnostics=lsp.DiagnosticWorkspaceClientCapabilities(refresh_support=True),
        did_change_configuration=lsp.DidChangeConfigurationClientCapabilities(dynamic_registration=True),
    ),
    text_document=lsp.TextDocumentClientCapabilities(
        diagnostic=lsp.DiagnosticClientCapabilities(), code_lens=lsp.CodeLensClientCapabilities()
    ),
    notebook_document=lsp.NotebookDocumentClientCapabilities(lsp.NotebookDocumentSyncClientCapabilities()),
    window=lsp.WindowClientCapabilities(work_done_progress=True),
)
"""What VS Code can do."""

PLAIN = lsp.ClientCapabilities(
    workspace=lsp.WorkspaceClientCapabilities(apply_edit=True),
    window=lsp.WindowClientCapabilities(work_done_progress=True),
)
"""What a small editor can do: no pulling, no configuration, no refresh."""

Start = Callable[..., Any]
