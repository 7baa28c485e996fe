"""Hovering over a function's `def` line shows the evidence of its kernel."""

from __future__ import annotations

from itertools import takewhile

from lsprotocol import types as lsp

from kernelwright.lsp.convert import evidence_table
from kernelwright.lsp.documents import Snapshot
from kernelwright.lsp.features.menu import State, state_of
from kernelwright.lsp.session import KernelwrightServer
from kernelwright.lsp.work import proposal_summary
from kernelwright.source.edit import AcceptedKernel


def register(server: KernelwrightServer) -> None:
    """Answer textDocument/hover."""

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(ls: KernelwrightServer, params: lsp.HoverParams) -> lsp.Hover | None:
        snapshot = ls.snapshot(params.text_document.uri)
        target = snapshot.target_at(params.position.line) if snapshot else None
        if snapshot is None or target is None or target.def_line != params.position.line:
            return None
        text = describe(snapshot, state_of(ls, snapshot, target))
        if not text:
            return None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), snapshot.positions.name(target))


def describe(snapshot: Snapshot, state: State) -> str:
    """The evidence of the pending proposal or of the accepted kernel, in Markdown; "" where there is neither."""
    if state.pending:
        return f"{proposal_summary(state.pending)}\n\nNot yet accepted."
    if state.kernel is None:
        return ""
    evidence = snapshot.core.history.evidence(state.kernel.evidence_id)
    parts = [f"**Checked Triton kernel of `{state.target.qualname}`**"]
    if state.stale:
        parts.append("The function changed since: this evidence is for another text. Re-check it or remove it.")
    if evidence:
        parts.append(evidence_table(evidence))
    else:
        parts.append(header(snapshot, state.kernel))
        parts.append(f"Evidence `{state.kernel.evidence_id}` was made on another machine.")
    return "\n\n".join(parts)


def header(snapshot: Snapshot, kernel: AcceptedKernel) -> str:
    """What the comment at the head of a kernel's block says of it."""
    lines = snapshot.positions.lines[kernel.span.start_line + 1 : kernel.span.end_line]
    comment = takewhile(lambda line: line.startswith("# "), lines)
    return " ".join(line[2:].strip() for line in comment)
