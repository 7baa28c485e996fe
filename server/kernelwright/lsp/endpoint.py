"""pygls as we need it: what is changed here, and why, is all that depends on its inside.

- Custom requests keep their params as plain objects; `protocol.read` judges them where an answer can still be sent.
- `shutdown` walks a copy of the running requests: a future that ends meanwhile changes the table (pygls 2.1.1).
- An answer to a request of ours that was cancelled is dropped; pygls would fail on it.
- Lines end at "\\n", "\\r\\n" and "\\r" only, as LSP and Python say; `str.splitlines` also splits at form feeds and more.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Any

import attrs
from lsprotocol import types as lsp
from pygls.protocol import LanguageServerProtocol, lsp_method
from pygls.workspace import TextDocument, Workspace

from kernelwright.lsp.protocol import REQUESTS

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z")


@attrs.define
class CustomRequest:
    """A request of ours as it came in."""

    id: int | str
    method: str
    jsonrpc: str
    params: Any = None


class Endpoint(LanguageServerProtocol):
    """One side of the connection, with the changes above."""

    def get_message_type(self, method: str) -> type[Any] | None:  # type: ignore[override]  # cached there, cheap here
        """The class that a message of this method is read into."""
        return CustomRequest if method in REQUESTS else super().get_message_type(method)

    @lsp_method(lsp.INITIALIZE)
    def lsp_initialize(self, params: lsp.InitializeParams) -> Generator[Any, Any, lsp.InitializeResult]:
        """As pygls does it, with our workspace in place before the first handler runs."""
        steps = super().lsp_initialize(params)
        step = next(steps)
        made = self.workspace
        self._workspace = LineWorkspace(
            made.root_uri, self._server._text_document_sync_kind, tuple(made.folders.values()), made.position_encoding
        )
        result: lsp.InitializeResult
        try:
            while True:
                step = steps.send((yield step))
        except StopIteration as stop:
            result = stop.value
        return result

    @lsp_method(lsp.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> Generator[Any, Any, None]:
        """Let the user's handler end the jobs, then cancel whatever is still running."""
        if (handler := self.fm.features.get(lsp.SHUTDOWN)) is not None:
            yield handler, args, None
        for message_id, future in tuple(self._request_futures.items()):
            if message_id != self.msg_id and not future.done():
                future.cancel()
        self._shutdown = True

    def _handle_response(self, msg_id: int | str, result: Any = None, error: lsp.ResponseError | None = None) -> None:
        future = self._request_futures.get(msg_id)
        if future is not None and future.done():
            self._request_futures.pop(msg_id, None)
            return
        super()._handle_response(msg_id, result, error)


class LineDocument(TextDocument):
    """A text document whose lines are LSP's."""

    @property
    def lines(self) -> Sequence[str]:
        """The lines with their endings."""
        return split_lines(self.source)


class LineWorkspace(Workspace):
    """A workspace of such documents."""

    def _create_text_document(
        self, doc_uri: str, source: str | None = None, version: int | None = None, language_id: str | None = None
    ) -> TextDocument:
        return LineDocument(
            doc_uri,
            source=source,
            version=version,
            language_id=language_id,
            sync_kind=self._sync_kind,
            position_codec=self._position_codec,
        )


def split_lines(text: str) -> tuple[str, ...]:
    """Split at LSP's line ends, keeping them."""
    return tuple(_LINE.findall(text))
