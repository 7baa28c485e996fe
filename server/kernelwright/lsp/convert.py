"""The words of the project → LSP's types and Markdown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lsprotocol import types as lsp
from pygls.workspace import PositionCodec, ServerTextPosition

from kernelwright.model import Json, Span, Target
from kernelwright.source.edit import Edit


@dataclass(frozen=True)
class Positions:
    """Columns in code points ↔ the client's units, for one text."""

    codec: PositionCodec
    lines: Sequence[str]

    def range(self, span: Span) -> lsp.Range:
        """A span as the client counts."""
        return lsp.Range(
            self._position(span.start_line, span.start_column), self._position(span.end_line, span.end_column)
        )

    def line(self, number: int) -> lsp.Range:
        """The text of a 0-based line, without its indentation and its end."""
        text = self.lines[number] if number < len(self.lines) else ""
        start = len(text) - len(text.lstrip())
        return self.range(Span(number, start, number, max(start, len(text.rstrip()))))

    def name(self, target: Target) -> lsp.Range:
        """The target's name on its `def` line; the whole line where it stands on a later one."""
        text = self.lines[target.def_line] if target.def_line < len(self.lines) else ""
        before, found, _ = text.partition(f"def {target.name}")
        if not found:
            return self.line(target.def_line)
        start = len(before) + len("def ")
        return self.range(Span(target.def_line, start, target.def_line, start + len(target.name)))

    def _position(self, line: int, column: int) -> lsp.Position:
        if 0 < line == len(self.lines) and not self.lines[-1].endswith(("\n", "\r")):
            # The start of the line after a last one without an end: that is where the last one stops.
            line, column = line - 1, len(self.lines[-1])
        if line >= len(self.lines):
            return lsp.Position(line, 0)
        return self.codec.position_to_client_units(self.lines, ServerTextPosition(line, column))


def text_edits(positions: Positions, edit: Edit) -> list[lsp.TextEdit]:
    """An edit's changes of its document as the client counts."""
    return [lsp.TextEdit(positions.range(change.span), change.text) for change in edit.changes]


# --- Markdown --------------------------------------------------------------------------------------------------------


def evidence_table(evidence: Mapping[str, Any]) -> str:
    """`history.evidence_record` → a compact Markdown table. Rows of which nothing is known are left out."""
    hardware = evidence.get("hardware") or {}
    rows = {
        "provider": " ".join(part for part in (evidence.get("provider"), evidence.get("model")) if part),
        "checked on": hardware.get("gpu") or "CPU, in Triton's interpreter",
        "cases": _join(evidence.get("cases"), _rounds(evidence.get("rounds"))),
        "max error": _number(evidence.get("max_error")),
        "domain": evidence.get("domain_in_words") or "",
        "compiled for": ", ".join(evidence.get("architectures") or ()),
        "inputs": f"`{evidence['inputs']}`" if evidence.get("inputs") else "",
        "versions": _versions(hardware),
        "times": times_text(evidence.get("measurement")),
        "date": evidence.get("created") or "",
        "evidence": f"`{evidence['id']}`" if evidence.get("id") else "",
    }
    lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items() if value]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def times_text(measurement: Json) -> str:
    """Device times in milliseconds, or "" where nothing was timed."""
    if not measurement:
        return ""
    names = {"kernel_ms": "kernel", "compile_ms": "torch.compile", "eager_ms": "eager", "floor_ms": "floor"}
    parts = [f"{label} {measurement[key]:.4g} ms" for key, label in names.items() if measurement.get(key)]
    return f"{' · '.join(parts)} on {measurement.get('gpu', 'a GPU')}"


def counterexample_text(counterexample: Json) -> str:
    """`model.Counterexample` as JSON → the failing call in one line."""
    arguments = []
    for argument in counterexample.get("arguments") or ():
        tensor = argument.get("tensor")
        if tensor:
            arguments.append(f"{argument['path']}: {tensor['dtype']}[{', '.join(map(str, tensor['shape']))}]")
        else:
            arguments.append(f"{argument['path']}={argument.get('value')!r}")
    parts = [f"with {', '.join(arguments)}"] if arguments else []
    if counterexample.get("index"):
        parts.append(f"at {counterexample['output'] or 'output'}[{', '.join(map(str, counterexample['index']))}]")
    if counterexample.get("got") or counterexample.get("expected"):
        parts.append(f"got {counterexample.get('got')}, expected {counterexample.get('expected')}")
    return ", ".join(parts)


def _versions(hardware: Mapping[str, Any]) -> str:
    names = ("python", "torch", "triton")
    return ", ".join(f"{name} {hardware[name]}" for name in names if hardware.get(name))


def _rounds(rounds: object) -> str:
    return f"round {rounds}" if isinstance(rounds, int) and rounds > 1 else ""


def _join(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part)


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else ""


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
