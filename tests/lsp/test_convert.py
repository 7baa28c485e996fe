"""Texts, positions and Markdown, without a server."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp
from pygls.workspace import PositionCodec

from kernelwright.history import to_json
from kernelwright.lsp.convert import Positions, counterexample_text, evidence_table, text_edits, times_text
from kernelwright.lsp.endpoint import split_lines
from kernelwright.model import (
    Argument,
    Case,
    Counterexample,
    Document,
    Domain,
    Evidence,
    Hardware,
    Span,
    Target,
    TensorDomain,
    TensorSpec,
    Variant,
)
from kernelwright.source.edit import Edit, TextChange


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ()),
        ("a", ("a",)),
        ("a\nb", ("a\n", "b")),
        ("a\r\nb\rc\n", ("a\r\n", "b\r", "c\n")),
        ("\n\r\n\r", ("\n", "\r\n", "\r")),
        ("a\x0cb\x85c\u2028d\x1ce\n", ("a\x0cb\x85c\u2028d\x1ce\n",)),
    ],
)
def test_split_lines(text: str, lines: tuple[str, ...]) -> None:
    assert split_lines(text) == lines


def apply(text: str, edits: list[lsp.TextEdit]) -> str:
    """Apply edits as a client does: all ranges are of the text before, none overlap."""
    lines = [*split_lines(text), ""]
    starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
    offsets = [
        (starts[edit.range.start.line] + edit.range.start.character,
         starts[edit.range.end.line] + edit.range.end.character, edit.new_text)
        for edit in edits
    ]  # fmt: skip
    for start, end, new in sorted(offsets, reverse=True):
        text = text[:start] + new + text[end:]
    return text


BEFORE = "import torch\n\n\ndef f(x):\n    return x\n\n\ndef g(x):\n    return x\n"

EDITS = [
    (BEFORE, BEFORE, 0),
    (BEFORE, "# block\n" + BEFORE, 1),
    (BEFORE, BEFORE.replace("def g", "# block\n\n\n@deco\ndef g"), 1),
    (BEFORE, BEFORE.replace("def f", "# block\ndef f").replace("def g", "@deco\ndef g"), 1),
    (BEFORE, BEFORE + "end\n", 1),
    (BEFORE.rstrip("\n"), BEFORE.rstrip("\n") + "\nend", 1),
    (BEFORE, BEFORE.rstrip("\n"), 1),
    (BEFORE.replace("\n", "\r\n"), BEFORE.replace("def g", "@deco\ndef g").replace("\n", "\r\n"), 1),
    ("", BEFORE, 1),
    (BEFORE, "", 1),
    ("x = '😀'", "y = 1\nx = '😀😀'", 1),
]


def make_edit(before: str, after: str) -> Edit:
    """An edit with one change for all that differs, in whole lines as `source.edit` makes them."""
    old, new = split_lines(before), split_lines(after)
    same = [one == other for one, other in zip(old, new, strict=False)]
    head = same.index(False) if False in same else min(len(old), len(new))
    changes = (TextChange(Span(head, 0, len(old), 0), "".join(new[head:])),) if before != after else ()
    return Edit("a.py", before, after, changes, "")


@pytest.mark.parametrize(("before", "after", "count"), EDITS)
def test_text_edits(before: str, after: str, count: int) -> None:
    edits = text_edits(Positions(PositionCodec("utf-32"), split_lines(before)), make_edit(before, after))
    assert (apply(before, edits), len(edits)) == (after, count)


def target(source: str, def_line: int) -> Target:
    return Target(Document("file:///a.py", "/a.py", source), "f", source, Span(0, 0, 9, 0), def_line, ())


@pytest.mark.parametrize(
    ("line", "encoding", "start", "end"),
    [
        ("def f(x): pass\n", "utf-16", 4, 5),
        ("    async def f(x): pass\n", "utf-16", 14, 15),
        ("'😀'; \\\n", "utf-16", 0, 7),
        ("    def  f(x): pass\r\n", "utf-16", 4, 19),
        ("if 1: '😀'; def f(): pass\n", "utf-8", 18, 19),
        ("if 1: '😀'; def f(): pass\n", "utf-16", 16, 17),
        ("if 1: '😀'; def f(): pass\n", "utf-32", 15, 16),
    ],
)
def test_the_name_of_a_target(line: str, encoding: str, start: int, end: int) -> None:
    found = Positions(PositionCodec(encoding), split_lines(line)).name(target(line, 0))
    assert found == lsp.Range(lsp.Position(0, start), lsp.Position(0, end))


EVIDENCE = Evidence(
    id="0123456789abcdef",
    provider="anthropic",
    model="claude",
    created="2026-12-01",
    hardware=Hardware("NVIDIA H200", ("sm_90",), "2.13.0", "3.7.1", "3.11.7"),
    source_hash="h",
    domain=Domain("cuda", (Variant((TensorDomain("x", ("bfloat16", "float32"), ("s0", 4096)),)), Variant(()))),
    cases=212,
    max_error=1.19e-7,
    architectures=("sm_80", "sm_90"),
    inputs="literal: x: bf16[8 | 4096]",
    rounds=2,
)


def test_the_evidence_table() -> None:
    assert evidence_table({**to_json(EVIDENCE), "domain_in_words": "bfloat16/float32, x [s0, 4096]"}).splitlines() == [
        "| | |",
        "| --- | --- |",
        "| provider | anthropic claude |",
        "| checked on | NVIDIA H200 |",
        "| cases | 212, round 2 |",
        "| max error | 1.19e-07 |",
        "| domain | bfloat16/float32, x [s0, 4096] |",
        "| compiled for | sm_80, sm_90 |",
        "| inputs | `literal: x: bf16[8 \\| 4096]` |",
        "| versions | python 3.11.7, torch 2.13.0, triton 3.7.1 |",
        "| date | 2026-12-01 |",
        "| evidence | `0123456789abcdef` |",
    ]


def test_evidence_that_says_little() -> None:
    assert evidence_table({"provider": "builtin"}).splitlines()[2:] == [
        "| provider | builtin |",
        "| checked on | CPU, in Triton's interpreter |",
    ]


@pytest.mark.parametrize(
    ("measurement", "text"),
    [
        (None, ""),
        (
            {"gpu": "H200", "eager_ms": 1.05, "compile_ms": 0.068, "kernel_ms": 0.0651234, "floor_ms": 0.063},
            "kernel 0.06512 ms · torch.compile 0.068 ms · eager 1.05 ms · floor 0.063 ms on H200",
        ),
    ],
)
def test_times(measurement: object, text: str) -> None:
    assert times_text(measurement) == text


@pytest.mark.parametrize(
    ("example", "text"),
    [
        (
            Counterexample(
                Case(0), (Argument("x", TensorSpec("float32", (3, 1))), Argument("eps", value=1e-6)),
                "out", (2, 0), "inf", "1.0",
            ),
            "with x: float32[3, 1], eps=1e-06, at out[2, 0], got inf, expected 1.0",
        ),
        (Counterexample(Case(0), ()), ""),
    ],
)  # fmt: skip
def test_counterexamples(example: Counterexample, text: str) -> None:
    assert counterexample_text(to_json(example)) == text
