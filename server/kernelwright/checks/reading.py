"""What the checks share: a candidate's tree, its kernels and launchers, and what dotted names mean. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property, lru_cache

from kernelwright.model import Candidate, Finding, Task
from kernelwright.source.module import is_jit, kernels
from kernelwright.source.names import imported

LIBDEVICE = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")


class Reading:
    """A candidate that parses."""

    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)

    @cached_property
    def imports(self) -> dict[str, str]:
        """Imported name → what it means: "tl" → "triton.language"."""
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        return {name: origin for node in nodes for name, origin in imported(node)}

    @cached_property
    def kernels(self) -> dict[str, ast.FunctionDef]:
        """The functions under triton.jit, helpers that kernels call included."""
        return {node.name: node for node in kernels(self.tree)}

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        """The module-level functions that run on the host."""
        found = [node for node in self.tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        return {node.name: node for node in found if node.name not in self.kernels}

    def dotted(self, node: ast.expr) -> str | None:
        """`tl.math.exp` as "triton.language.math.exp"; None for what does not start at an imported name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.imports:
            return None
        return ".".join([self.imports[node.id], *reversed(parts)])

    def host_nodes(self) -> Iterator[ast.AST]:
        """Every node that runs on the host: the launchers and what stands at module level, kernels' bodies left out."""
        for node in self.tree.body:
            if not (isinstance(node, ast.FunctionDef) and node.name in self.kernels):
                yield from ast.walk(node)

    def reachable(self, entry: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        """The host functions that a call of the entry may run."""
        found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        pending = [entry]
        while pending:
            name = pending.pop()
            node = self.functions.get(name)
            if node is None or name in found:
                continue
            found[name] = node
            pending += [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        return found


@lru_cache(maxsize=4)
def read(source: str) -> Reading:
    """The reading of a candidate's source.

    Raises:
        SyntaxError, ValueError: it does not parse; the first check says so.
    """
    return Reading(source)


def entry_name(candidate: Candidate, task: Task) -> str:
    """The function that is called: the candidate's own word for it, else the target's name."""
    return candidate.entry or task.target.name


def finding(code: str, message: str, node: ast.AST | int | None = None) -> Finding:
    """A finding at a node's line."""
    line = node if isinstance(node, int) or node is None else getattr(node, "lineno", None)
    return Finding(code, message, line)


__all__ = ["LIBDEVICE", "Reading", "entry_name", "finding", "is_jit", "read"]
