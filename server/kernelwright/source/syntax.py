"""A Python text as lines and as a tree, also while it is half written. Pure; nothing is imported or run.

Lines are counted as Python and the editor count them: they end at \\n, \\r\\n or \\r, never at a form feed.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from kernelwright.model import Span

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_MAGIC = re.compile(r"([ \t\f]*)(?:[%!?]|\w+[ \t]*=[ \t]*[%!]|[\w.]+\?{1,2}[ \t]*\Z)")
_CONTINUES = re.compile(r"(?:else|elif|except|finally)\b|[)\]}#]|\Z")
_BLOCK = re.compile(r"(?:async[ \t]+)?(class|def|if|elif|else|for|while|try|except|finally|with|match|case)\b")
_MERGE_LIMIT = 60


class Broken(ast.AST):
    """Marks a function or class of which only intact members were recovered; set as its `broken` attribute."""


@dataclass(frozen=True)
class Text:
    """A text with its lines; positions are 0-based lines and code-point columns."""

    value: str

    @cached_property
    def lines(self) -> list[str]:
        """The lines with their ends."""
        return _LINE.findall(self.value)

    @cached_property
    def offsets(self) -> list[int]:
        """Where each line starts in the text, and the text's length."""
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line))
        return starts

    @cached_property
    def line_end(self) -> str:
        """The line end that the text uses most; "\\n" where there is none."""
        counts = {end: self.value.count(end) for end in ("\r\n", "\n", "\r")}
        counts["\n"] -= counts["\r\n"]
        counts["\r"] -= counts["\r\n"]
        return max(("\n", "\r\n", "\r"), key=lambda end: counts[end])

    def bare(self, line: int) -> str:
        """A line without its end."""
        return self.lines[line].rstrip("\r\n")

    def offset(self, line: int, column: int) -> int:
        """The index in the text of a position; a line past the end is the end."""
        return self.offsets[min(line, len(self.lines))] + (column if line < len(self.lines) else 0)

    def column(self, line: int, utf8: int) -> int:
        """The code-point column of one that `ast` counts in bytes of UTF-8."""
        text = self.lines[line] if line < len(self.lines) else ""
        if text.isascii():
            return utf8
        if line == 0 and text.startswith("\ufeff") and utf8:
            return 1 + len(text[1:].encode("utf-8", "surrogatepass")[: utf8 - 1].decode("utf-8", "ignore"))
        return len(text.encode("utf-8", "surrogatepass")[:utf8].decode("utf-8", "surrogatepass"))

    def span(self, node: ast.expr | ast.stmt) -> Span:
        """Where a node stands."""
        last = (node.end_lineno or node.lineno) - 1
        return Span(
            node.lineno - 1,
            self.column(node.lineno - 1, node.col_offset),
            last,
            self.column(last, node.end_col_offset or 0),
        )

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        span = self.span(node)
        start = self.offset(span.start_line, span.start_column)
        return self.value[start : self.offset(span.end_line, span.end_column)]


def parse(text: Text) -> ast.Module:
    """The tree of a text: whole where it parses, else what is intact of it. Positions are those of the text."""
    # A form feed keeps the columns where a byte order mark stood, and Python lets it start a line.
    lines = [line.rstrip("\r\n") for line in text.lines]
    if lines and lines[0].startswith("\ufeff"):
        lines[0] = "\f" + lines[0][1:]
    whole = _parse(lines)
    if isinstance(whole, ast.Module):
        return whole
    masked = [_without_magic(line) for line in lines]
    if masked != lines:
        whole = _parse(masked)
    if isinstance(whole, ast.Module):
        return whole
    starts = _whole_strings(masked, _starts(masked, 0, len(masked), ""))
    return ast.Module(_around(masked, starts, "", whole), [])


def _parse(lines: list[str]) -> ast.Module | int:
    """The tree, or the 1-based line at which it stops parsing (0 where Python does not say)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's "\d" in a plain string is not our business
            return ast.parse("\n".join(lines) + "\n")
    except SyntaxError as error:
        return error.lineno or 0
    except (ValueError, RecursionError, MemoryError):
        return 0


def _without_magic(line: str) -> str:
    match = _MAGIC.match(line)
    return f"{match[1]}pass" if match else line


# --- recovery: block by block, so that one unfinished function hides no other -----------------------------------------


def _intact(lines: list[str], starts: list[int], indent: str) -> list[ast.stmt]:
    """The intact statements between the first and the last of `starts`."""
    if len(starts) < 2:
        return []
    statements = _block(lines, starts[0], starts[-1], indent)
    return _around(lines, starts, indent, statements) if isinstance(statements, int) else statements


def _around(lines: list[str], starts: list[int], indent: str, stop: int) -> list[ast.stmt]:
    """The intact statements before, in and after the one that holds the 1-based line at which parsing stops."""
    at = min(max(bisect_right(starts, stop - 1) - 1, 0), len(starts) - 2)
    if at < 0:
        return []
    found = _intact(lines, starts[: at + 1], indent)
    found += _one(lines, starts[at], starts[at + 1], indent)
    return found + _intact(lines, starts[at + 1 :], indent)


def _one(lines: list[str], start: int, end: int, indent: str) -> list[ast.stmt]:
    """What is intact of one statement, with the lines after it that may be the rest of a string."""
    statements = _block(lines, start, end, indent)
    if not isinstance(statements, int):
        return statements
    inside = _starts(lines, start, end, indent)
    if len(inside) > 2:  # joined for the sake of a string that turns out not to end
        return _intact(lines, inside, indent)
    # An `else` or a bracket that belongs to nothing is no part of the statement before it.
    strays = (number for number in range(start + 1, end) if _stray(lines[number], indent))
    for stray in strays:
        statements = _block(lines, start, stray, indent)
        if not isinstance(statements, int):
            return statements
    return _members(lines, start, end, indent)


def _stray(line: str, indent: str) -> bool:
    rest = line[len(indent) :]
    return line.startswith(indent) and bool(rest.strip()) and rest[0] != "#" and bool(_CONTINUES.match(rest))


def _whole_strings(lines: list[str], starts: list[int]) -> list[int]:
    """`starts` without those that lie in a triple-quoted string with text at the left margin."""
    kept: list[int] = []
    open_since: int | None = None
    for index, start in enumerate(starts):
        if open_since is None or index - open_since > _MERGE_LIMIT or start == starts[-1]:
            kept.append(start)
            open_since = None
        if index + 1 < len(starts) and _odd_quotes(lines[start : starts[index + 1]]):
            open_since = index if open_since is None else None
    return kept


def _starts(lines: list[str], first: int, last: int, indent: str) -> list[int]:
    """The lines at which statements at `indent` begin (a decorated one at its first decorator), and `last`."""
    starts: list[int] = []
    decorated = False
    for number in range(first, last):
        line = lines[number].lstrip("\f")
        if not line.startswith(indent) or line[len(indent) : len(indent) + 1] in (" ", "\t", ""):
            continue
        rest = line[len(indent) :]
        if _CONTINUES.match(rest):
            continue
        if not decorated:
            starts.append(number)
        decorated = rest.startswith("@")
    return [*starts, last]


def _odd_quotes(lines: list[str]) -> bool:
    return any("".join(lines).count(quotes) % 2 for quotes in ('"""', "'''"))


def _block(lines: list[str], start: int, end: int, indent: str) -> list[ast.stmt] | int:
    """The statements of lines [start, end), which stand at `indent`; the line where they stop parsing if they do."""
    above = [*[""] * (start - 1), "if 1:"] if indent else [""] * start
    tree = _parse([*above, *lines[start:end]])
    if isinstance(tree, int):
        return tree
    if not indent:
        return tree.body
    return [statement for outer in tree.body if isinstance(outer, ast.If) for statement in outer.body]


def _members(lines: list[str], start: int, end: int, indent: str) -> list[ast.stmt]:
    """What is intact inside a compound statement that does not parse as a whole, in a node that stands for it."""
    head = next((number for number in range(start, end) if not lines[number].lstrip().startswith("@")), end)
    match = _BLOCK.match(lines[head].strip()) if head < end else None
    if match is None:
        return []
    inner = next(
        (line[: len(line) - len(line.lstrip())] for line in lines[head + 1 : end] if _deeper(line, indent)), None
    )
    if inner is None:
        return []
    members = _intact(lines, _whole_strings(lines, _starts(lines, head + 1, end, inner)), inner)
    node = _header(lines, head, indent, match[1]) or ast.If(ast.Constant(True), [], [])
    node.body = members
    node.lineno, node.col_offset = head + 1, len(indent)
    node.end_lineno, node.end_col_offset = end, len(lines[end - 1].encode())
    node.broken = Broken()  # type: ignore[union-attr]
    return [node] if members else []


def _deeper(line: str, indent: str) -> bool:
    rest = line[len(indent) :]
    return line.startswith(indent) and rest[:1] in (" ", "\t") and bool(rest.strip()) and rest.lstrip()[0] != "#"


def _header(lines: list[str], head: int, indent: str, word: str) -> ast.ClassDef | ast.FunctionDef | None:
    """The class or function that a line opens, without its body."""
    text = lines[head].strip().split("#")[0].rstrip()
    name = re.match(r"(?:async[ \t]+)?(?:class|def)[ \t]+(\w+)", text)
    if word not in ("class", "def") or not name:
        return None
    tree = _parse([f"{text} pass"])
    if isinstance(tree, int):
        tree = _parse([f"{word} {name[1]}{'' if word == 'class' else '()'}: pass"])
    node = tree.body[0] if isinstance(tree, ast.Module) and tree.body else None
    return node if isinstance(node, ast.ClassDef | ast.FunctionDef) else None
