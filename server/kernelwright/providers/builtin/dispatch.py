"""Choosing the launcher of a call's variant: by what is None, fixed values, ranks, fixed sizes, dtypes and guards."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from kernelwright.model import Graph, Json, Placeholder, Target
from kernelwright.providers.builtin.launcher import Module
from kernelwright.providers.builtin.texts import fold

Made = Sequence[tuple[Graph, Module]]


def dispatch(target: Target, made: Made, names: Sequence[str]) -> list[str]:
    """The lines that pass a call on. The last launcher is the rest: the guard admits no other calls."""
    order = sorted(range(len(made)), key=lambda position: -_fixed_sizes(made[position][0]))
    lines: list[str] = []
    call = ", ".join(_argument(parameter.name, parameter.kind) for parameter in target.parameters)
    for rank, position in enumerate(order):
        tests = _tests(made, position)
        words = f"return {names[position]}({call})"
        if rank == len(order) - 1 or not tests:
            return [*lines, *fold("    " + words)]
        lines += fold(f"    if {' and '.join(tests)}:") if len(tests) < 3 else _several(tests)
        lines += fold("        " + words)
    return lines


def _several(tests: list[str]) -> list[str]:
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


def _tests(made: Made, position: int) -> list[str]:
    """What tells this variant from the others."""
    graph = made[position][0]
    others = [other for number, (other, _) in enumerate(made) if number != position]
    tests: list[str] = []
    tensors = {placeholder.path: placeholder for placeholder in graph.placeholders}
    for path, placeholder in tensors.items():
        for other in others:
            tests += _against(path, placeholder, other)
    for fixed in graph.fixed:
        if any(_value(other, fixed.path) != ("fixed", repr(fixed.value)) for other in others):
            tests.append(_equals(fixed.path, fixed.value))
    shared = set(graph.guards).intersection(*(set(other.guards) for other in others))
    own = [guard for guard in graph.guards if guard not in shared]
    tests += [words for words in (_guard(graph, guard) for guard in own) if words]
    return list(dict.fromkeys(tests))


def _value(graph: Graph, path: str) -> tuple[str, str]:
    for fixed in graph.fixed:
        if fixed.path == path:
            return "fixed", repr(fixed.value)
    return "other", ""


def _against(path: str, mine: Placeholder, other: Graph) -> list[str]:
    theirs = next((placeholder for placeholder in other.placeholders if placeholder.path == path), None)
    if theirs is None:
        null = any(fixed.path == path and fixed.value is None for fixed in other.fixed)
        return [f"{path} is not None"] if null else []
    tests: list[str] = []
    if len(theirs.shape) != len(mine.shape):
        return [f"{path}.dim() == {len(mine.shape)}"]
    if theirs.dtype != mine.dtype and not (theirs.dtype.startswith(("float", "bf")) and _uniform(other)):
        tests.append(f"{path}.dtype == torch.{mine.dtype}")
    for axis, (here, there) in enumerate(zip(mine.shape, theirs.shape, strict=True)):
        if isinstance(here, int) and here != there:
            tests.append(f"{path}.shape[{axis}] == {here}")
    return tests


def _uniform(graph: Graph) -> bool:
    from kernelwright.providers.builtin.provider import main_dtype

    return main_dtype(graph) is not None


def _equals(path: str, value: Json) -> str:
    if value is None or isinstance(value, bool):
        return f"{path} is {value}"
    if isinstance(value, dict):
        if "dtype" in value:
            return f"{path} == torch.{value['dtype']}"
        if "float" in value:
            return f'{path} == float("{value["float"]}")'
        return ""
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
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if not names <= places.keys():
        return None

    class Paths(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.parse(places[node.id], mode="eval").body

    return ast.unparse(Paths().visit(tree))
