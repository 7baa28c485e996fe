"""Code out of a model's reply: fences, prose around them, truncation, refusal. Pure."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Code:
    """The module found in a reply. `complete` is False where the reply stopped before its fence closed."""

    source: str
    complete: bool


def find_code(reply: str, entry: str) -> Code | None:
    """The module in `reply` that defines `entry`, or the longest piece of code; None where there is none.

    Of several fences the last that defines the entry counts: models correct themselves below.
    """
    blocks = [(match[3], match[0].rstrip().endswith(match[1])) for match in _FENCE.finditer(reply)]
    if not blocks:
        return Code(reply.strip() + "\n", True) if _defines(reply, entry) else None
    defining = [block for block in blocks if re.search(rf"^\s*(async\s+)?def\s+{re.escape(entry)}\b", block[0], re.M)]
    text, closed = (defining or [max(blocks, key=lambda block: len(block[0]))])[-1]
    return Code(text.rstrip() + "\n", closed) if text.strip() else None


def _defines(text: str, entry: str) -> bool:
    """Whether unfenced text is itself a module with the entry."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == entry for node in tree.body)
