"""Choosing the launcher of a call's variant: by what is None, fixed values, ranks, dtypes, fixed sizes and guards."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from kernelwright.model import Graph, Json, Target
from kernelwright.providers.builtin.ir import FLOATS
from kernelwright.providers.builtin.texts import fold


def dispatch(target: Target, graphs: Sequence[Graph], names: Sequence[str]) -> list[str]:
    """The lines that pass a call on. The last launcher is the rest: the guard admits no other calls."""
    order = sorted(range(len(graphs)), key=lambda position: -_fixed_sizes(graphs[position]))
    lines: list[str] = []
    call = ", ".join(_argument(parameter.name, parameter.kind) for parameter in target.parameters)
    for rank, position in enumerate(order):
        words = f"return {names[position]}({call})"
        left = [graphs[other] for other in order[rank + 1 :] if names[other] != names[position]]
        if not left:
            return [*lines, *fold("    " + words)]
        lines += [*_if(_tests(graphs[position], left)), *fold("        " + words)]
    return lines


def _tests(graph: Graph, others: Sequence[Graph]) -> list[str]:
    """The fewest tests that tell this variant from each of the others.

    One suffices where no call fits both variants; else (a size of 1 is one that others take too) every difference counts.
    """
    chosen: list[str] = []
    for other in others:
        exclusive = [words for words in _exclusive(graph, other) if words]
        if exclusive:
            chosen += [] if any(words in chosen for words in exclusive) else exclusive[:1]
        else:
            chosen += [words for words in _narrower(graph, other) if words]
    return list(dict.fromkeys(chosen)) or ["True"]


def _exclusive(graph: Graph, other: Graph) -> Iterator[str]:
    """Tests that hold for every call of `graph` and for none of `other`."""
    theirs = {placeholder.path: placeholder for placeholder in other.placeholders}
    fixed = {item.path: item.value for item in other.fixed}
    mine = {placeholder.path: placeholder for placeholder in graph.placeholders}
    for path in mine:
        if path in fixed and fixed[path] is None:
            yield f"{path} is not None"
    for item in graph.fixed:
        if item.path in theirs or (item.path in fixed and repr(fixed[item.path]) != repr(item.value)):
            yield _equals(item.path, item.value)
    for path in mine:
        if path in theirs and len(mine[path].shape) != len(theirs[path].shape):
            yield f"{path}.dim() == {len(mine[path].shape)}"
    yield from _dtypes(graph, other)


def _narrower(graph: Graph, other: Graph) -> Iterator[str]:
    """What `graph` asks of sizes and numbers that `other` does not."""
    theirs = {placeholder.path: placeholder for placeholder in other.placeholders}
    for placeholder in graph.placeholders:
        if placeholder.path in theirs:
            for axis, (here, there) in enumerate(zip(placeholder.shape, theirs[placeholder.path].shape, strict=False)):
                if isinstance(here, int) and here != there:
                    yield f"{placeholder.path}.shape[{axis}] == {here}"
    for guard in graph.guards:
        if guard not in other.guards:
            yield _guard(graph, guard) or ""


def _dtypes(graph: Graph, other: Graph) -> Iterator[str]:
    """A variant whose floating arguments share a dtype serves every floating dtype: their equality is what tells."""
    mine = {placeholder.path: placeholder.dtype for placeholder in graph.placeholders}
    theirs = {placeholder.path: placeholder.dtype for placeholder in other.placeholders}
    floating = [path for path in mine if mine[path] in FLOATS and theirs.get(path) in FLOATS]
    uniform, other_uniform = (len({dtypes[path] for path in floating}) <= 1 for dtypes in (mine, theirs))
    for path in floating:
        if uniform and not other_uniform and theirs[path] != theirs[floating[0]]:
            yield f"{path}.dtype == {floating[0]}.dtype"
        if other_uniform and not uniform and mine[path] != mine[floating[0]]:
            yield f"{path}.dtype != {floating[0]}.dtype"
    for path, dtype in mine.items():
        if theirs.get(path, dtype) == dtype or (uniform and other_uniform and path in floating):
            continue
        if dtype in FLOATS and theirs[path] not in FLOATS:
            yield f"{path}.is_floating_point()"
        else:
            yield f"{path}.dtype == torch.{dtype}"


def _if(tests: list[str]) -> list[str]:
    joined = f"    if {' and '.join(tests)}:"
    if len(joined) <= 100:
        return [joined]
    return ["    if (", f"        {tests[0]}", *(f"        and {test}" for test in tests[1:]), "    ):"]


def _argument(name: str, kind: str) -> str:
    if kind == "keyword_only":
        return f"{name}={name}"
    return {"var_positional": "*", "var_keyword": "**"}.get(kind, "") + name


def _fixed_sizes(graph: Graph) -> int:
    return sum(isinstance(dim, int) for placeholder in graph.placeholders for dim in placeholder.shape)


def _equals(path: str, value: Json) -> str:
    if value is None or isinstance(value, bool):
        return f"{path} is {value}"
    if isinstance(value, dict):
        if "float" in value:
            return f'{path} == float("{value["float"]}")'
        known = str(value.get("dtype") or value.get("repr") or "").removeprefix("torch.")
        return f"{path} == torch.{known}" if known.isidentifier() else ""
    return f"{path} == {value!r}"


def _guard(graph: Graph, guard: str) -> str | None:
    """The guard over arguments instead of symbols; None where an argument does not show a symbol by itself."""
    places = {
        dim: f"{placeholder.path}.shape[{axis}]"
        for placeholder in graph.placeholders
        for axis, dim in enumerate(placeholder.shape)
        if isinstance(dim, str)
    }
    places |= {scalar.name: scalar.path for scalar in graph.scalars}
    tree = ast.parse(guard, mode="eval")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {"max", "min", "abs"}
    if not names <= places.keys():
        return None

    class Paths(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.parse(places[node.id], mode="eval").body if node.id in places else node

    return ast.unparse(Paths().visit(tree))
