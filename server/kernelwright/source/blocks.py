"""The marker comments around what is written into a user's file, and finding it again."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelwright.model import Span
from kernelwright.source.syntax import Text

DECORATOR = "_kernelwright_"
"""How the name of a dispatch decorator of ours begins; `Target.source_hash` is blind to its line."""

_START = re.compile(r"# >>> kernelwright: (\S+) · evidence (\w+) · source (\w+)\s*\Z")
_END = re.compile(r"# <<< kernelwright: (\S+)\s*\Z")
_NAME = re.compile(rf"\b({DECORATOR}\w+)\b(?=\(original|\Z)")


@dataclass(frozen=True)
class Block:
    """A block of ours; `span` is its lines from marker to marker, `decorator` the name that it defines."""

    qualname: str
    evidence_id: str
    source_hash: str
    span: Span
    decorator: str


def start_marker(qualname: str, evidence_id: str, source_hash: str) -> str:
    return f"# >>> kernelwright: {qualname} · evidence {evidence_id} · source {source_hash}"


def end_marker(qualname: str) -> str:
    return f"# <<< kernelwright: {qualname}"


def find_blocks(text: Text) -> tuple[Block, ...]:
    """The blocks of a text in order. One whose end marker is gone is not a block any more."""
    if "# >>> kernelwright: " not in text.value:
        return ()
    found: list[Block] = []
    opened: tuple[int, re.Match[str]] | None = None
    for number in range(len(text.lines)):
        line = text.bare(number).removeprefix("\ufeff")
        start, end = _START.match(line), _END.match(line)
        if start:
            opened = (number, start)
        elif end and opened and opened[1][1] == end[1]:
            found.append(_block(text, opened[0], number, opened[1]))
            opened = None
    return tuple(found)


def _block(text: Text, first: int, last: int, match: re.Match[str]) -> Block:
    names = [name for number in range(first, last) for name in _NAME.findall(text.bare(number))]
    return Block(match[1], match[2], match[3], Span(first, 0, last + 1, 0), names[-1] if names else "")
