"""Lowerings of pointwise ops. Compound activations are spelt out in float32 and rounded once, as eager's kernels do."""

from __future__ import annotations

import math
from collections.abc import Callable

from kernelwright.model import Node
from kernelwright.providers.builtin.ir import FLOATS, INTEGERS, Expr, Unsupported, Value
from kernelwright.providers.builtin.lowering import Context, Operand, Runtime, lowers, promote
from kernelwright.providers.builtin.ops_complex import COMPLEX, multiply
from kernelwright.providers.builtin.sizes import Size

# Ops whose float32 result of narrower operands is already exact in the narrower dtype: no rounding follows.
EXACT = {"neg", "abs", "relu", "floor", "ceil", "trunc", "round", "sign", "maximum", "minimum", "where", "square_sign"}


def combine(context: Context, node: Node, kind: str, operands: tuple[Operand, ...], common: str | None = None) -> Value:
    """`kind` over broadcast operands brought to `common`, the node's dtype when left out, then rounded to the node's."""
    build, dtype = context.builder, str(node.dtype)
    shared = common or dtype

    def at(index: tuple[Size, ...]) -> Expr:
        parts = tuple(context.element(operand, index, shared) for operand in operands)
        if kind in EXACT and all(part.dtype == dtype or part.kind == "constant" for part in parts):
            return build.make(kind, parts, dtype, name=node.name)
        wide = "float32" if dtype in FLOATS else dtype
        return build.cast(build.make(kind, parts, wide, name=node.name), dtype)

    return context.value(context.shape(node.shape or ()), dtype, at)


def compound(context: Context, node: Node, formula: Callable[..., Expr], *operands: Operand) -> Value:
    """A formula over float32 expressions, rounded once to the node's dtype."""
    build, dtype = context.builder, str(node.dtype)

    def at(index: tuple[Size, ...]) -> Expr:
        parts = [context.element(operand, index, "float32") for operand in operands]
        return build.cast(formula(Algebra(context), *parts), dtype)

    return context.value(context.shape(node.shape or ()), dtype, at)


class Algebra:
    """Float32 expressions by name: `m("mul", a, b)`; plain numbers become constants."""

    def __init__(self, context: Context) -> None:
        self._build = context.builder

    def __call__(self, kind: str, *parts: Expr | float, dtype: str = "float32") -> Expr:
        made = tuple(part if isinstance(part, Expr) else self._build.constant(part, "float32") for part in parts)
        return self._build.make(kind, made, dtype)


UNARY = [
    "neg",
    "abs",
    "floor",
    "ceil",
    "trunc",
    "sign",
    "exp",
    "exp2",
    "log",
    "log2",
    "log10",
    "log1p",
    "expm1",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "tanh",
    "sigmoid",
    "erf",
    "erfc",
]
BINARY = ["mul", "maximum", "minimum", "atan2", "fmod", "remainder"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


def _unary(context: Context, node: Node) -> Value:
    return combine(context, node, node.op.split(".")[1], (context.operand(node.args[0]),))


def _binary(context: Context, node: Node) -> Value:
    if node.dtype == COMPLEX:
        if not node.op.startswith("aten.mul"):
            raise Unsupported("complex arithmetic other than products")
        return multiply(context, node)
    return combine(context, node, node.op.split(".")[1], tuple(map(context.operand, node.args[:2])))


def _compare(context: Context, node: Node) -> Value:
    operands = tuple(map(context.operand, node.args[:2]))
    return combine(context, node, node.op.split(".")[1], operands, promote(operands))


lowers(*(f"aten.{name}" for name in UNARY))(_unary)
lowers(*(f"aten.{name}" for name in BINARY))(_binary)
lowers(*(f"aten.{name}" for name in COMPARISONS))(_compare)


@lowers("aten.relu")
def relu(context: Context, node: Node) -> Value:
    return combine(context, node, "maximum", (context.operand(node.args[0]), 0))


@lowers("aten.round")
def round_half_to_even(context: Context, node: Node) -> Value:
    if context.argument(node, 1, "decimals", 0):
        raise Unsupported("rounding to decimals")
    return combine(context, node, "round", (context.operand(node.args[0]),))


@lowers("aten.add", "aten.sub", "aten.rsub")
def add(context: Context, node: Node) -> Value:
    """a + alpha * b, the product unrounded as in eager's kernels."""
    left, right = map(context.operand, node.args[:2])
    kind = node.op.split(".")[1]
    if kind == "rsub":
        left, right, kind = right, left, "sub"
    alpha = context.operand(context.argument(node, 2, "alpha", 1))
    if alpha == 1:
        return combine(context, node, kind, (left, right))
    if node.dtype not in FLOATS:
        raise Unsupported("whole numbers with alpha")
    shape, dtype, build = context.shape(node.shape or ()), str(node.dtype), context.builder

    def at(index: tuple[Size, ...]) -> Expr:
        a, b = context.element(left, index, dtype), context.element(right, index, dtype)
        scaled = build.make("mul", (b, context.element(alpha, index, "float32")), "float32")
        return build.cast(build.make(kind, (a, scaled), "float32", name=node.name), dtype)

    return context.value(shape, dtype, at)


@lowers("aten.div", "aten.true_divide", "aten.floor_divide")
def divide(context: Context, node: Node) -> Value:
    operands = tuple(map(context.operand, node.args[:2]))
    mode = context.argument(node, 2, "rounding_mode") if not node.op.startswith("aten.floor_divide") else "floor"
    if mode is None:
        return combine(context, node, "div", operands)
    whole = node.dtype in INTEGERS
    if whole:
        return combine(context, node, "div_floor" if mode == "floor" else "div_trunc", operands)
    build, dtype = context.builder, str(node.dtype)
    inner = combine(context, node, "div", operands)

    def at(index: tuple[Size, ...]) -> Expr:
        return build.make("floor" if mode == "floor" else "trunc", (inner.at(index),), dtype, name=node.name)

    return context.value(inner.shape, dtype, at)


@lowers("aten.pow")
def power(context: Context, node: Node) -> Value:
    base, exponent = map(context.operand, node.args[:2])
    if isinstance(exponent, Size):
        exponent = exponent.constant if exponent.constant is not None else exponent
    if node.dtype not in FLOATS:
        if isinstance(exponent, int) and 1 <= exponent <= 4:
            return _repeated(context, node, base, exponent)
        raise Unsupported("a power of whole numbers")
    simple = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    if not isinstance(exponent, Value | Runtime | Size):
        if exponent in simple:
            return combine(context, node, simple[exponent], (base,))
        if exponent == 1:
            return combine(context, node, "where", (True, base, base))
        if exponent == 3:
            return _repeated(context, node, base, 3)
    return combine(context, node, "pow", (base, exponent))


def _repeated(context: Context, node: Node, base: Operand, exponent: int) -> Value:
    build, dtype = context.builder, str(node.dtype)

    def at(index: tuple[Size, ...]) -> Expr:
        part = context.element(base, index, dtype)
        result = part
        for _ in range(exponent - 1):
            result = build.make("mul", (result, part), "float32" if dtype in FLOATS else dtype)
        return build.cast(result, dtype)

    return context.value(context.shape(node.shape or ()), dtype, at)


@lowers("aten._to_copy", "aten.to", "prims.convert_element_type", "aten.type_as", "aten.float", "aten.half")
def convert(context: Context, node: Node) -> Value:
    source, dtype = context.tensor(node.args[0]), str(node.dtype)
    build = context.builder

    def at(index: tuple[Size, ...]) -> Expr:
        return build.cast(source.at(index), dtype)

    return context.value(source.shape, dtype, at)


@lowers("aten.clone", "aten.alias", "aten.detach", "aten.lift_fresh", "aten.contiguous", "aten.copy")
def same(context: Context, node: Node) -> Value:
    if node.op.startswith("aten.copy"):
        source = context.tensor(node.args[1])
        return combine(context, node, "where", (True, source, source))
    source = context.tensor(node.args[0])
    return Value(source.shape, source.dtype, source.at)


@lowers("aten.where", "aten.masked_fill")
def where(context: Context, node: Node) -> Value:
    condition, left, right = node.args[:3]
    if node.op.startswith("aten.masked_fill"):
        condition, left, right = node.args[1], node.args[2], node.args[0]
    test, yes, no = map(context.operand, (condition, left, right))
    build, dtype = context.builder, str(node.dtype)

    def at(index: tuple[Size, ...]) -> Expr:
        parts = tuple(context.element(operand, index, dtype) for operand in (yes, no))
        parts = tuple(build.cast(part, dtype) for part in parts)
        return build.make("where", (context.element(test, index, "bool"), *parts), dtype, name=node.name)

    return context.value(context.shape(node.shape or ()), dtype, at)


@lowers("aten.clamp", "aten.clamp_min", "aten.clamp_max", "aten.hardtanh")
def clamp(context: Context, node: Node) -> Value:
    """Bounds may be None, numbers or tensors; NaN stays."""
    low = context.argument(node, 1, "min", context.argument(node, 1, "min_val"))
    high = context.argument(node, 2, "max", context.argument(node, 2, "max_val"))
    if "clamp_max" in node.op:
        low, high = None, node.args[1]
    if "hardtanh" in node.op:
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    value: Operand = context.operand(node.args[0])
    for kind, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            value = combine(context, node, kind, (value, context.operand(bound)))
    if not isinstance(value, Value):
        raise Unsupported("a clamp of a number")
    return value


@lowers("aten.logical_and", "aten.logical_or", "aten.logical_xor", "aten.logical_not")
def logical(context: Context, node: Node) -> Value:
    kind = {"and": "and", "or": "or", "xor": "xor", "not": "not"}[node.op.split(".")[1].split("_")[1]]
    return combine(context, node, kind, tuple(map(context.operand, node.args[:2])), "bool")


@lowers("aten.bitwise_and", "aten.bitwise_or", "aten.bitwise_xor", "aten.bitwise_not", "aten.__and__", "aten.__or__")
def bitwise(context: Context, node: Node) -> Value:
    kind = node.op.split(".")[1].removeprefix("bitwise_").strip("_")
    if kind == "not" and node.dtype != "bool":
        kind = "invert"
    return combine(context, node, kind, tuple(map(context.operand, node.args[:2])))


@lowers("aten.isnan", "aten.isinf", "aten.isfinite")
def classify(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    if source.dtype not in FLOATS:
        raise Unsupported("a test for NaN or infinity of whole numbers")
    return combine(context, node, node.op.split(".")[1], (source,), source.dtype)


# --- Activations and other compounds ---------------------------------------------------------------------------------


@lowers("aten.silu")
def silu(context: Context, node: Node) -> Value:
    return compound(context, node, lambda m, x: m("mul", x, m("sigmoid", x)), context.tensor(node.args[0]))


@lowers("aten.gelu")
def gelu(context: Context, node: Node) -> Value:
    """Hendrycks & Gimpel 2016 (arXiv 1606.08415), exact or by its tanh approximation."""

    def exact(m: Algebra, x: Expr) -> Expr:
        half = m("mul", x, 0.5)
        return m("mul", half, m("add", m("erf", m("mul", x, math.sqrt(0.5))), 1.0))

    def by_tanh(m: Algebra, x: Expr) -> Expr:
        cubed = m("mul", m("mul", x, x), x)
        inner = m("mul", m("add", x, m("mul", cubed, 0.044715)), math.sqrt(2 / math.pi))
        return m("mul", m("mul", x, 0.5), m("add", m("tanh", inner), 1.0))

    approximate = context.argument(node, 1, "approximate", "none")
    return compound(context, node, by_tanh if approximate == "tanh" else exact, context.tensor(node.args[0]))


@lowers("aten.leaky_relu")
def leaky_relu(context: Context, node: Node) -> Value:
    slope = context.operand(context.argument(node, 1, "negative_slope", 0.01))

    def formula(m: Algebra, x: Expr, a: Expr) -> Expr:
        return m("where", m("gt", x, 0.0, dtype="bool"), x, m("mul", x, a))

    return compound(context, node, formula, context.tensor(node.args[0]), slope)


@lowers("aten.elu")
def elu(context: Context, node: Node) -> Value:
    alpha, scale, input_scale = (
        context.operand(context.argument(node, position, name, 1.0))
        for position, name in ((1, "alpha"), (2, "scale"), (3, "input_scale"))
    )

    def formula(m: Algebra, x: Expr, a: Expr, s: Expr, i: Expr) -> Expr:
        negative = m("mul", m("mul", m("expm1", m("mul", x, i)), a), s)
        return m("where", m("gt", x, 0.0, dtype="bool"), m("mul", x, s), negative)

    return compound(context, node, formula, context.tensor(node.args[0]), alpha, scale, input_scale)


@lowers("aten.softplus")
def softplus(context: Context, node: Node) -> Value:
    beta = context.operand(context.argument(node, 1, "beta", 1.0))
    threshold = context.operand(context.argument(node, 2, "threshold", 20.0))

    def formula(m: Algebra, x: Expr, b: Expr, t: Expr) -> Expr:
        scaled = m("mul", x, b)
        soft = m("div", m("log1p", m("exp", scaled)), b)
        return m("where", m("gt", scaled, t, dtype="bool"), x, soft)

    return compound(context, node, formula, context.tensor(node.args[0]), beta, threshold)


@lowers("aten.hardsigmoid", "aten.hardswish")
def hard(context: Context, node: Node) -> Value:
    def formula(m: Algebra, x: Expr) -> Expr:
        gate = m("div", m("minimum", m("maximum", m("add", x, 3.0), 0.0), 6.0), 6.0)
        return gate if "hardsigmoid" in node.op else m("mul", x, gate)

    return compound(context, node, formula, context.tensor(node.args[0]))


@lowers("aten.addcmul", "aten.addcdiv")
def add_product(context: Context, node: Node) -> Value:
    kind = "mul" if "addcmul" in node.op else "div"
    scale = context.operand(context.argument(node, 3, "value", 1))

    def formula(m: Algebra, a: Expr, b: Expr, c: Expr, v: Expr) -> Expr:
        return m("add", a, m("mul", v, m(kind, b, c)))

    return compound(context, node, formula, *map(context.operand, node.args[:3]), scale)


@lowers("aten.lerp")
def lerp(context: Context, node: Node) -> Value:
    """The two-sided form of eager's kernels: exact at both ends."""

    def formula(m: Algebra, a: Expr, b: Expr, w: Expr) -> Expr:
        gap = m("sub", b, a)
        near = m("add", a, m("mul", w, gap))
        far = m("sub", b, m("mul", gap, m("sub", 1.0, w)))
        return m("where", m("lt", m("abs", w), 0.5, dtype="bool"), near, far)

    return compound(context, node, formula, *map(context.operand, node.args[:3]))


@lowers("aten.scalar_tensor")
def scalar_tensor(context: Context, node: Node) -> Value:
    return fill(context, node, context.operand(node.args[0]))


@lowers("aten.full", "aten.full_like", "aten.new_full")
def full(context: Context, node: Node) -> Value:
    return fill(context, node, context.operand(context.argument(node, 2 if "new_full" in node.op else 1, "fill_value")))


@lowers("aten.zeros", "aten.ones", "aten.zeros_like", "aten.ones_like", "aten.new_zeros", "aten.new_ones")
def ones(context: Context, node: Node) -> Value:
    return fill(context, node, 1 if "ones" in node.op else 0)


@lowers("aten.empty", "aten.empty_like", "aten.empty_permuted", "aten.new_empty")
def empty(context: Context, node: Node) -> Value:
    """Uninitialised memory has no value to keep to: zeros are as good as any."""
    return fill(context, node, 0)


def fill(context: Context, node: Node, number: Operand) -> Value:
    build, dtype = context.builder, str(node.dtype)

    def at(index: tuple[Size, ...]) -> Expr:
        return build.cast(context.element(number, index, dtype), dtype)

    return context.value(context.shape(node.shape or ()), dtype, at)


@lowers("aten.arange", "prims.iota")
def arange(context: Context, node: Node) -> Value:
    build, dtype = context.builder, str(node.dtype)
    if node.op.startswith("prims"):
        start, step = context.operand(node.kwargs["start"]), context.operand(node.kwargs["step"])
    else:
        start = context.operand(node.args[0]) if len(node.args) > 1 else 0
        step = context.operand(node.args[2]) if len(node.args) > 2 else 1

    def at(index: tuple[Size, ...]) -> Expr:
        place = index[0]
        if all(isinstance(part, int | Size) for part in (start, step)):
            return build.cast(build.size(place * step + start), dtype)  # type: ignore[operator]
        first, stride = (context.element(part, (), "float32") for part in (start, step))
        count = build.cast(build.size(place), "float32")
        moved = build.make("mul", (count, stride), "float32")
        return build.cast(build.make("add", (first, moved), "float32"), dtype)

    return context.value(context.shape(node.shape or ()), dtype, at)
