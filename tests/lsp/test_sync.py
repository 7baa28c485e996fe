"""The server's text stays the editor's, whatever is typed: a wrong column would misplace every later edit."""

from __future__ import annotations

import random

import pytest
from lsprotocol import types as lsp
from pygls.workspace import PositionCodec

from kernelwright.lsp.endpoint import LineDocument, split_lines

PIECES = ["a", "é", "😀", "\n", "\r\n", "\x0c", "\u2028", " "]
UNITS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


def position(text: str, offset: int, encoding: str) -> lsp.Position:
    """Where an offset in code points lies, as an editor counts."""
    before = split_lines(text[:offset])
    codec, size = UNITS[encoding]
    if not before or before[-1].endswith(("\n", "\r")):
        return lsp.Position(len(before), 0)
    return lsp.Position(len(before) - 1, len(before[-1].encode(codec)) // size)


@pytest.mark.parametrize("encoding", UNITS)
def test_any_edits(encoding: str) -> None:
    generator = random.Random(1)
    text = ""
    document = LineDocument("file:///a.py", text, 0, position_codec=PositionCodec(encoding))
    for step in range(2000):
        starts, ends = (generator.randint(0, len(text)) for _ in range(2))
        start, end = sorted((starts, min(ends, starts + 4)))
        # Between the two characters of a Windows line end there is no position.
        if any(text[at - 1 : at + 1] == "\r\n" for at in (start, end) if at):
            continue
        new = "".join(generator.choices(PIECES, k=generator.randrange(4)))
        where = lsp.Range(position(text, start, encoding), position(text, end, encoding))
        changed = text[:start] + new + text[end:]
        document.apply_change(lsp.TextDocumentContentChangePartial(where, new))
        assert document.source == changed, (step, text, where, new)
        text = changed if len(changed) < 200 else ""
        if text == "" != changed:
            document.apply_change(lsp.TextDocumentContentChangeWholeDocument(""))
