"""Indentation: putting source text one level deeper in another file's own style. Pure."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable

from kernelwright.source.syntax import Text

_STRING_STARTS = {tokenize.STRING} | {value for name, value in vars(tokenize).items() if name.endswith("STRING_START")}
_STRING_ENDS = {tokenize.STRING} | {value for name, value in vars(tokenize).items() if name.endswith("STRING_END")}
_SILENT = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def indent_unit(text: Text) -> str:
    """One level of indentation as the text has it; four spaces where it has none."""
    counts: dict[str, int] = {}
    opened: str | None = None
    for number in range(len(text.lines)):
        line = text.bare(number)
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        lead = line[: len(line) - len(line.lstrip())]
        if opened is not None and lead.startswith(opened) and lead != opened:
            unit = lead[len(opened) :]
            counts[unit] = counts.get(unit, 0) + 1
        opened = lead if re.match(r"\s*(?:async\s+)?(?:def|class|if|for|while|with|try|else)\b.*:\s*\Z", line) else None
    return max(counts, key=lambda unit: counts[unit], default="    ")


def indented(source: str, unit: str, depth: int, whole: Iterable[tuple[int, int]] = ()) -> list[str]:
    """The lines of `source`, `depth` levels deeper, each of its own levels as one `unit`.

    The lines inside a multi-line string stay as they are, since they are its value, unless the string is a docstring
    or stands in one of the 1-based line ranges `whole`: Triton dedents a kernel's text before it compiles it, and only
    text that is indented throughout comes out the same.
    """
    lines = source.split("\n")
    levels, fixed = _levels(source, tuple(whole))
    result = []
    for number, line in enumerate(lines, 1):
        if number in fixed:
            result.append(line)
        elif not line.strip():
            result.append("")
        else:
            level, old = levels.get(number, (0, ""))
            rest = line[len(old) :] if line.startswith(old) else line.lstrip()
            result.append(unit * (depth + level) + rest)
    return result


def _levels(source: str, whole: tuple[tuple[int, int], ...]) -> tuple[dict[int, tuple[int, str]], set[int]]:
    """For each line the level of its logical line and that line's old indentation; and the lines to leave alone."""
    levels: dict[int, tuple[int, str]] = {}
    fixed: set[int] = set()
    stack = [0]
    lines = source.split("\n")
    logical: tuple[int, str] | None = None
    began = 0
    opened: tuple[int, bool] | None = None
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        row, column = token.start
        if token.type == tokenize.INDENT:
            stack.append(len(token.string))
        elif token.type == tokenize.DEDENT:
            stack.pop()
        elif token.type == tokenize.COMMENT and logical is None:
            depth = sum(width <= column for width in stack) - 1 + (column > stack[-1])
            levels[row] = (depth, lines[row - 1][:column])
        if token.type in _SILENT:
            continue
        first = logical is None
        if logical is None:
            logical, began = (len(stack) - 1, lines[row - 1][:column]), row
        if token.type in _STRING_STARTS and opened is None:
            opened = (row, first or any(start <= row <= end for start, end in whole))
        if token.type in _STRING_ENDS and opened is not None:
            if not opened[1]:
                fixed.update(range(opened[0] + 1, token.end[0] + 1))
            opened = None
        for line in range(row, token.end[0] + 1):
            levels.setdefault(line, logical)
        if token.type == tokenize.NEWLINE:
            # Comment lines inside brackets belong to their logical line.
            levels.update({line: logical for line in range(began, row) if line not in levels})
            logical = None
    return levels, fixed


def ranges(nodes: Iterable[ast.stmt]) -> list[tuple[int, int]]:
    """The 1-based line ranges of statements."""
    return [(node.lineno, node.end_lineno or node.lineno) for node in nodes]
