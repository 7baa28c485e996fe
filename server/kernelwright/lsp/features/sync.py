"""Documents open, change and close; what is remembered of their functions follows."""

from __future__ import annotations

from lsprotocol import types as lsp

from kernelwright.lsp.session import KernelwrightServer

QUIET_S = 0.1
"""How long typing must pause before a document is looked at unasked."""


def register(server: KernelwrightServer) -> None:
    """Follow text documents and notebook cells."""
    server.on_update(refresh_proposals)
    register_notebooks(server)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(ls: KernelwrightServer, params: lsp.DidOpenTextDocumentParams) -> None:
        ls.documents.forget(params.text_document.uri)
        ls.update_soon(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(ls: KernelwrightServer, params: lsp.DidChangeTextDocumentParams) -> None:
        ls.update_soon(params.text_document.uri, QUIET_S)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(ls: KernelwrightServer, params: lsp.DidCloseTextDocumentParams) -> None:
        close_one(ls, params.text_document.uri)


def register_notebooks(server: KernelwrightServer) -> None:
    """Follow notebooks: pygls keeps their cells as documents of their own."""

    @server.feature(lsp.NOTEBOOK_DOCUMENT_DID_OPEN)
    def notebook_opened(ls: KernelwrightServer, params: lsp.DidOpenNotebookDocumentParams) -> None:
        for cell in params.cell_text_documents:
            ls.documents.forget(cell.uri)
            ls.update_soon(cell.uri)

    @server.feature(lsp.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def notebook_changed(ls: KernelwrightServer, params: lsp.DidChangeNotebookDocumentParams) -> None:
        cells = params.change.cells
        for text in (cells.text_content or ()) if cells else ():
            ls.update_soon(text.document.uri, QUIET_S)
        structure = cells.structure if cells else None
        for cell in (structure.did_open or ()) if structure else ():
            ls.documents.forget(cell.uri)
            ls.update_soon(cell.uri)
        for gone in (structure.did_close or ()) if structure else ():
            close_one(ls, gone.uri)

    @server.feature(lsp.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def notebook_closed(ls: KernelwrightServer, params: lsp.DidCloseNotebookDocumentParams) -> None:
        for cell in params.cell_text_documents:
            close_one(ls, cell.uri)


def close_one(server: KernelwrightServer, uri: str) -> None:
    """A closed document's proposals stay: the file may be opened again, and Accept works on the file."""
    server.documents.forget(uri)
    if not server.pulls_diagnostics:
        server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))


def refresh_proposals(server: KernelwrightServer, uri: str) -> None:
    """Mark proposals stale whose function changed, and pending again whose function is what it was."""
    if not any(server.proposals.open_in(uri)):
        return
    snapshot = server.snapshot(uri)
    hashes = {target.qualname: target.source_hash for target in snapshot.targets} if snapshot else {}
    if server.proposals.refresh(uri, hashes):
        server.announce(uri)
