"""Diagnostics: why there is no kernel, and evidence that no longer matches the function.

Pulled where the client pulls and can be told to pull again, pushed to any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lsprotocol import types as lsp

from kernelwright.lsp.documents import Snapshot
from kernelwright.lsp.features.menu import state_of
from kernelwright.lsp.proposals import RefusalRecord
from kernelwright.lsp.session import KernelwrightServer
from kernelwright.lsp.work import declined_text, failed_text
from kernelwright.model import Declined, Target

SOURCE = "kernelwright"
STALE_EVIDENCE = "stale-evidence"
Severity = lsp.DiagnosticSeverity


def register(server: KernelwrightServer) -> None:
    """Push diagnostics when a document is updated, unless the client pulls."""
    server.on_update(push)


def client_pulls(capabilities: lsp.ClientCapabilities) -> bool:
    """Whether the client pulls diagnostics and can be told to do so again."""
    text, workspace = capabilities.text_document, capabilities.workspace
    refresh = workspace.diagnostics.refresh_support if workspace and workspace.diagnostics else False
    return bool(text and text.diagnostic and refresh)


def register_pull(server: KernelwrightServer) -> None:
    """Answer textDocument/diagnostic. Called before the capabilities are announced, for a client that pulls."""
    server.pulls_diagnostics = True
    options = lsp.DiagnosticOptions(inter_file_dependencies=False, workspace_diagnostics=False, identifier=SOURCE)

    @server.feature(lsp.TEXT_DOCUMENT_DIAGNOSTIC, options)
    def pull(ls: KernelwrightServer, params: lsp.DocumentDiagnosticParams) -> lsp.RelatedFullDocumentDiagnosticReport:
        return lsp.RelatedFullDocumentDiagnosticReport(items=list(diagnostics_of(ls, params.text_document.uri)))


def push(server: KernelwrightServer, uri: str) -> None:
    """Publish a document's diagnostics."""
    snapshot = None if server.pulls_diagnostics else server.snapshot(uri)
    if snapshot:
        items = list(diagnostics_of(server, uri))
        server.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri, items, version=snapshot.document.version)
        )


def diagnostics_of(server: KernelwrightServer, uri: str) -> Iterator[lsp.Diagnostic]:
    """What is to be said of a document now."""
    snapshot = server.snapshot(uri)
    for target in snapshot.targets if snapshot else ():
        assert snapshot is not None
        refusal = server.refusals.of(target)
        if refusal:
            yield refused(snapshot, target, refusal)
        if state_of(server, snapshot, target).stale:
            message = (
                f"{target.qualname} changed since its kernel was checked, and calls still go to that kernel: "
                "re-check it or remove it"
            )
            yield diagnostic(snapshot.positions.line(target.def_line), Severity.Warning, message, STALE_EVIDENCE)


def refused(snapshot: Snapshot, target: Target, record: RefusalRecord) -> lsp.Diagnostic:
    """A refusal: on the line that stops it where that is known, moved along with the function."""
    outcome = record.outcome
    if isinstance(outcome, Declined):
        line = target.def_line
        if outcome.refusal.line is not None:
            line = outcome.refusal.line - 1 + target.span.start_line - record.start_line
        return diagnostic(snapshot.positions.line(line), Severity.Information, declined_text(outcome), "declined")
    code = outcome.last.finding.code
    return diagnostic(snapshot.positions.line(target.def_line), Severity.Warning, failed_text(outcome), code)


def diagnostic(where: lsp.Range, severity: lsp.DiagnosticSeverity, message: str, code: str) -> lsp.Diagnostic:
    """One diagnostic; findings link to their page where the documentation is at hand."""
    page = findings_page()
    link = lsp.CodeDescription(f"{page}#{code.lower()}") if page and code.startswith("K") else None
    return lsp.Diagnostic(where, message, severity, code, link, SOURCE)


def findings_page() -> str | None:
    """docs/findings.md beside the server, in a checkout as in the .vsix; None where only the package is installed."""
    for folder in Path(__file__).resolve().parents[3:6]:
        page = folder / "docs" / "findings.md"
        if page.is_file():
            return page.as_uri()
    return None
