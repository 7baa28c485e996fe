"""What a document's own names are, so that generated code can share an import and shadow nothing. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from kernelwright.source.syntax import Text, parse

_WORD = re.compile(r"[^\W\d]\w*")
OTHER = "?"


@dataclass(frozen=True)
class UserNames:
    """The names of one document."""

    text: Text

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of the text, comments and strings included: none of them is free for a new name."""
        return frozenset(_WORD.findall(self.text.value))

    @cached_property
    def tree(self) -> ast.Module:
        return parse(self.text)

    @cached_property
    def bindings(self) -> dict[str, set[str]]:
        """Module-level name → the modules that imports bind it to; `OTHER` stands for anything else."""
        found: dict[str, set[str]] = {}
        for name, origin in _bindings(self.tree.body):
            found.setdefault(name, set()).add(origin)
        if "global " in self.text.value:
            for node in ast.walk(self.tree):
                for name in node.names if isinstance(node, ast.Global) else ():
                    found.setdefault(name, set()).add(OTHER)
        return found

    def means(self, name: str, origin: str, line: int) -> bool:
        """Whether the name is free or means this module throughout, so that importing it above `line` changes nothing.

        A star import may bind anything: then only a name that the text never uses is free, and none above a star import.
        """
        if not self.bindings.get(name, set()) <= {origin}:
            return False
        return self._last_star < 0 or (self._last_star < line and name not in self.words)

    @cached_property
    def _last_star(self) -> int:
        """The 0-based line of the last star import at module level; -1 where there is none."""
        stars = [node.lineno - 1 for node in self.tree.body if "*" in dict(_bindings([node]))]
        return max(stars, default=-1)

    def imported_before(self, name: str, line: int) -> bool:
        """Whether a plain statement above a 0-based line imports the name."""
        above = [node for node in self.tree.body if node.lineno - 1 < line]
        imports = [node for node in above if isinstance(node, ast.Import | ast.ImportFrom)]
        return any(bound == name for bound, _ in _bindings(imports))


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """(bound name, what it means) of an import: "import a.b" binds `a` to "a", "from a import b as c" `c` to "a.b"."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            root = alias.name.split(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (root, root)
        else:
            module = "." * node.level + (node.module or "")
            yield ("*" if alias.name == "*" else alias.asname or alias.name), f"{module}.{alias.name}"


def _bindings(body: list[ast.stmt] | list[ast.Import | ast.ImportFrom]) -> Iterator[tuple[str, str]]:
    """What statements bind in the module's own scope."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, OTHER
        else:
            yield from _inside(node)


def _inside(node: ast.AST) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield from _bindings([child])
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store | ast.Del):
            yield child.id, OTHER
        elif not isinstance(child, ast.Lambda):
            if isinstance(child, ast.ExceptHandler) and child.name:
                yield child.name, OTHER
            yield from _inside(child)
