"""Names from the user's function: a graph node takes the name of the variable that its line assigns."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence

from kernelwright.model import Graph, Json, Target

RESERVED = {
    "row",
    "col",
    "mask",
    "row_mask",
    "col_mask",
    "start",
    "pid",
    "part",
    "tl",
    "torch",
    "triton",
    "math",
    "libdevice",
}
_VIEWS = ("view", "reshape", "unsqueeze", "squeeze", "expand", "_to_copy", "clone", "permute", "alias", "detach")


def parse(target: Target) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The target's own definition, its lines counted from 1 at the first line of `target.source`."""
    try:
        tree = ast.parse(textwrap.dedent(target.source))
    except SyntaxError:
        return None
    body = tree.body[0] if tree.body else None
    return body if isinstance(body, ast.FunctionDef | ast.AsyncFunctionDef) else None


def user_names(target: Target, graph: Graph) -> dict[str, str]:
    """Node name → the variable that its line assigns: the last node of the line, and what it only reshapes."""
    function = parse(target)
    if function is None:
        return {}
    first = target.span.start_line
    by_line: dict[int, str] = {}
    for statement in ast.walk(function):
        name = _assigned(statement)
        if name and isinstance(statement, ast.stmt):
            for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
                by_line[first + line] = name
    last: dict[str, str] = {}
    for node in graph.nodes:
        if node.line in by_line:
            last[by_line[node.line]] = node.name
    names = {node: name for name, node in last.items() if name not in RESERVED and not name.startswith("__")}
    _through_views(graph, names)
    return names


def _assigned(statement: ast.AST) -> str | None:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return name
        case ast.AugAssign(target=ast.Name(id=name)):
            return name
    return None


def _through_views(graph: Graph, names: dict[str, str]) -> None:
    nodes = {node.name: node for node in graph.nodes}
    for name in list(names):
        node = nodes.get(name)
        while node is not None and any(node.op.startswith(f"aten.{view}") for view in _VIEWS) and node.args:
            source = node.args[0]["node"] if isinstance(node.args[0], dict) and "node" in node.args[0] else ""
            if source in names or source not in nodes:
                break
            names[source] = names[name]
            node = nodes[source]


def output_names(target: Target, tree: Json) -> dict[str, str]:
    """Output node → name: the variable that is returned, else "out" (numbered where there are several)."""
    leaves = list(dict.fromkeys(_leaves(tree)))
    function = parse(target)
    returned: Sequence[ast.expr] = ()
    if function is not None:
        values = [s.value for s in ast.walk(function) if isinstance(s, ast.Return) and s.value is not None]
        if values:
            value = values[-1]
            returned = value.elts if isinstance(value, ast.Tuple) else (value,)
    names: dict[str, str] = {}
    for position, leaf in enumerate(leaves):
        name = "out" if len(leaves) == 1 else f"out_{position}"
        if len(returned) == len(leaves):
            word = _returned_name(returned[position])
            if word and word not in RESERVED | set(names.values()):
                name = word
        names[leaf] = name
    return names


_CASTS = {
    "to",
    "type_as",
    "float",
    "half",
    "bfloat16",
    "contiguous",
    "view",
    "reshape",
    "squeeze",
    "unsqueeze",
    "flatten",
}


def _returned_name(expression: ast.expr) -> str | None:
    """A returned variable's name, also under casts and views; of another method call the method's name."""
    match expression:
        case ast.Name(id=name):
            return name
        case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in _CASTS:
            return _returned_name(value)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=method)) if module not in ("F", "torch"):
            return method
    return None


def _leaves(tree: Json) -> list[str]:
    if "node" in tree:
        return [tree["node"]]
    for kind in ("tuple", "list"):
        if kind in tree:
            return [leaf for item in tree[kind] for leaf in _leaves(item)]
    if "dict" in tree:
        return [leaf for item in tree["dict"].values() for leaf in _leaves(item)]
    return []


def identifier(path: str, taken: Mapping[str, object] | set[str]) -> str:
    """A variable name for an argument's path: "self.norm.weight" → "weight"."""
    words = "".join(c if c.isalnum() or c == "_" else "_" for c in path.rsplit(".", 1)[-1]).strip("_") or "x"
    base = words if not words[0].isdigit() else f"x_{words}"
    name, number = base, 2
    while name in taken or name in RESERVED:
        name, number = f"{base}_{number}", number + 1
    return name
