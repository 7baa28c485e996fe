"""Expressions over symbols and scalars, such as "s0 // 2" or "s1 % 2 == 0": evaluated without `eval`."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CALLS: dict[str, Callable[..., Any]] = {"max": max, "min": min, "abs": abs, "floor": math.floor, "ceil": math.ceil}


def evaluate(expression: int | str, values: Mapping[str, float]) -> Any:
    """The value of `expression` with its names taken from `values`.

    Raises:
        KeyError: a name that `values` lacks.
        ValueError: anything but arithmetic, comparisons and the calls above.
        ZeroDivisionError, OverflowError: as in Python.
    """
    if isinstance(expression, int):
        return expression
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"not an expression: {expression!r}") from error
    return _evaluate(tree.body, values)


def names(expression: int | str) -> frozenset[str]:
    """The names that an expression reads."""
    if isinstance(expression, int):
        return frozenset()
    found = {node.id for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Name)}
    return frozenset(found - _CALLS.keys())


def _evaluate(node: ast.expr, values: Mapping[str, float]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.UnaryOp(op=unary, operand=operand) if type(unary) in _UNARY:
            return _UNARY[type(unary)](_evaluate(operand, values))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_evaluate(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_evaluate(part, values) for part in parts)
        case ast.Compare(left=first, ops=ops, comparators=rest):
            operands = [_evaluate(operand, values) for operand in (first, *rest)]
            return all(_COMPARE[type(op)](a, b) for op, a, b in zip(ops, operands, operands[1:], strict=False))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _CALLS:
            return _CALLS[name](*(_evaluate(argument, values) for argument in arguments))
    raise ValueError(f"not allowed in an expression: {ast.unparse(node)}")
