"""Argument paths ("x", "self.proj.weight", "cache[0]") and symbol expressions as Python text. Pure."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterable, Mapping

from kernelwright.model import Parameter, Target

_FUNCTIONS = {"floor": "math.floor", "ceil": "math.ceil", "max": "max", "min": "min", "abs": "abs"}
_ALLOWED = (
    ast.Expression | ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare | ast.Constant | ast.Load | ast.operator
    | ast.unaryop | ast.boolop | ast.cmpop
)  # fmt: skip
_PORTABLE = frozenset({"torch", "math", "float", "int", "bool", "str", "tuple", "None", "True", "False"})


class Names:
    """Local names for a piece of generated code: readable, and none of them taken twice."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {*taken, *keyword.kwlist, *dir(builtins), "torch", "triton", "math"}

    def fresh(self, wanted: str) -> str:
        """`wanted` made an identifier, with a number behind it where it is taken."""
        plain = re.sub(r"\W+", "_", wanted).rstrip("_") or "value"
        plain = plain if not plain[0].isdigit() else f"_{plain}"
        name, number = plain, 2
        while name in self._taken:
            name, number = f"{plain}_{number}", number + 1
        self._taken.add(name)
        return name


def slug(qualname: str) -> str:
    """A qualified name as one identifier: "Norm.forward" → "Norm_forward"."""
    return qualname.replace(".<locals>.", ".").replace(".", "_")


def access(path: str, target: Target) -> str | None:
    """The path as an expression over the target's parameters; None when it does not start at one."""
    try:
        node = ast.parse(path, mode="eval").body
    except SyntaxError:
        return None
    root: ast.expr = node
    while isinstance(root, ast.Attribute | ast.Subscript):
        if isinstance(root, ast.Subscript) and not isinstance(root.slice, ast.Constant):
            return None
        root = root.value
    names = [parameter.name for parameter in target.parameters]
    if not isinstance(root, ast.Name):
        return None
    if root.id in names:
        return path
    # The wire calls the object that a method is bound to "self", whatever the method calls it.
    if root.id == "self" and target.kind in ("method", "classmethod") and names:
        return names[0] + path.removeprefix("self")
    return None


def expression(text: int | str, names: Mapping[str, str]) -> str:
    """An expression over symbols and scalars as Python, its names replaced.

    Raises:
        ValueError: it holds a name that `names` lacks, or more than arithmetic and comparisons.
    """
    tree = ast.parse(str(text), mode="eval")
    return ast.unparse(_Rename(names).visit(tree))


def can_divide_by_zero(text: int | str) -> bool:
    """Whether evaluating the expression may divide by something that is no constant."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod | ast.Pow)
        and not isinstance(node.right, ast.Constant)
        for node in ast.walk(ast.parse(str(text), mode="eval"))
    )


class _Rename(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, _ALLOWED):
            raise ValueError(f"not allowed in an expression: {ast.unparse(node)}")
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id not in self._names:
            raise ValueError(f"unknown name in an expression: {node.id}")
        return ast.Name(self._names[node.id])

    def visit_Call(self, node: ast.Call) -> ast.Call:
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords:
            raise ValueError(f"not allowed in an expression: {ast.unparse(node)}")
        return ast.Call(ast.Name(_FUNCTIONS[node.func.id]), [self.visit(part) for part in node.args], [])


# --- signatures ------------------------------------------------------------------------------------------------------


def portable_default(text: str | None) -> bool:
    """Whether a default's text means the same in another module that imports torch and math."""
    if text is None:
        return True
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in _PORTABLE:
            return False
        if isinstance(node, ast.List | ast.Dict | ast.Set | ast.Lambda | ast.ListComp | ast.NamedExpr | ast.Await):
            return False  # one object for all calls, or no plain value
    return True


def signature(parameters: Iterable[Parameter], default: Mapping[str, str] | None = None) -> str:
    """The parameters as a `def` takes them, without annotations. `default` replaces defaults by parameter name."""
    parts: list[str] = []
    star = slash = False
    for parameter in parameters:
        if slash and parameter.kind != "positional_only":
            parts.append("/")
        slash = parameter.kind == "positional_only"
        if parameter.kind == "keyword_only" and not star:
            parts.append("*")
        star = star or parameter.kind in ("keyword_only", "var_positional")
        prefix = {"var_positional": "*", "var_keyword": "**"}.get(parameter.kind, "")
        value = (default or {}).get(parameter.name, parameter.default)
        parts.append(f"{prefix}{parameter.name}" + (f"={value}" if parameter.default is not None else ""))
    return ", ".join([*parts, "/"] if slash else parts)


def portable_signature(target: Target) -> str:
    """The target's parameters for another module: a default that means nothing there becomes `...`, which fits nothing."""
    strange = {parameter.name: "..." for parameter in target.parameters if not portable_default(parameter.default)}
    return signature(target.parameters, strange)


def forwarded(parameters: Iterable[Parameter]) -> str:
    """The parameters as a call hands them on."""
    form = {"var_positional": "*{0}", "keyword_only": "{0}={0}", "var_keyword": "**{0}"}
    return ", ".join(form.get(parameter.kind, "{0}").format(parameter.name) for parameter in parameters)
