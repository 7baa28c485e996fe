"""Lowerings of reductions, scans and top-k: accumulation in float32 (int64 for whole numbers), rounded at the end."""

from __future__ import annotations

from dataclasses import replace

from kernelwright.model import Node
from kernelwright.providers.builtin.ir import FLOATS, Expr, Unsupported, Value
from kernelwright.providers.builtin.lowering import Context, Lowered, Operand, lowers
from kernelwright.providers.builtin.ops_views import reshaped
from kernelwright.providers.builtin.sizes import ONE, Size, product, size

UNROLLED = 8
"""Reductions over at most this many elements, a number fixed in the trace, are written out."""
TOP = 8
"""The largest k of top-k: each costs a pass over the row in registers."""

Index = tuple[Size, ...]


def accumulator(dtype: str) -> str:
    return "float32" if dtype in FLOATS else "int64"


def reduce(
    context: Context, node: Node, kind: str, source: Value, dims: tuple[int, ...], name: str | None = None
) -> Value:
    """The reduction over `dims`, unrounded, without the reduced dims. `name`: what it is called, if not as the node."""
    extents = tuple(source.shape[axis] for axis in dims)
    if not dims:
        return source
    count = product(extents).constant
    if count == 0:
        return _nothing(context, kind, source, dims)
    if count is not None and 1 <= count <= UNROLLED and kind in COMBINE and len(dims) == 1:
        return _unrolled(context, kind, source, dims[0], count, name or node.name)
    collective = context.collect(kind, source, dims, replace(node, name=name or node.name))
    return context.gather_results(collective, 0, source.dtype)


COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}


def _nothing(context: Context, kind: str, source: Value, dims: tuple[int, ...]) -> Value:
    """The reduction of no elements."""
    neutral = {"sum": 0, "prod": 1, "any": False, "all": True}
    if kind not in neutral:
        raise Unsupported(f"the {kind} of no elements")
    number: float = neutral[kind]
    shape = tuple(extent for axis, extent in enumerate(source.shape) if axis not in dims)
    typed = float(number) if source.dtype in FLOATS else number
    return context.value(shape, source.dtype, lambda index: context.builder.constant(typed, source.dtype))


def _unrolled(context: Context, kind: str, source: Value, axis: int, count: int, name: str) -> Value:
    build = context.builder

    def at(index: Index) -> Expr:
        parts = [source.at((*index[:axis], size(place), *index[axis:])) for place in range(count)]
        result = parts[0]
        for part in parts[1:]:
            result = build.make(COMBINE[kind], (result, part), source.dtype, name=name)
        return result

    shape = source.shape[:axis] + source.shape[axis + 1 :]
    return context.value(shape, source.dtype, at)


def cast(context: Context, source: Value, dtype: str) -> Value:
    build = context.builder
    return context.value(source.shape, dtype, lambda index: build.cast(source.at(index), dtype), source.name)


def each(context: Context, kind: str, dtype: str, *operands: Operand, name: str = "") -> Value:
    """A pointwise op over values of one shape, in float32."""
    build = context.builder
    first = next(operand for operand in operands if isinstance(operand, Value))

    def at(index: Index) -> Expr:
        return build.make(kind, tuple(context.element(operand, index, dtype) for operand in operands), dtype, name=name)

    return context.value(first.shape, dtype, at)


def keep(context: Context, reduced: Value, shape: tuple[Size, ...]) -> Value:
    """The reduced value in the shape that the node has, with dims of one element where it keeps them."""
    return reduced if reduced.shape == shape else reshaped(context, reduced, shape)


def finish(context: Context, node: Node, reduced: Value) -> Value:
    return cast(context, keep(context, reduced, context.shape(node.shape or ())), str(node.dtype))


def widened(context: Context, source: Value, dtype: str) -> Value:
    """The source as it enters an accumulator for results of `dtype`."""
    return cast(context, cast(context, source, dtype) if dtype in FLOATS else source, accumulator(dtype))


@lowers("aten.sum", "aten.prod")
def total(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    dims = context.axes(_dims(node), len(source.shape))
    kind = node.op.split(".")[1]
    return finish(context, node, reduce(context, node, kind, widened(context, source, str(node.dtype)), dims))


def _dims(node: Node) -> object:
    if node.op.endswith(".default") and not node.op.startswith(("aten.amax", "aten.amin")):
        return None
    return node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")


@lowers("aten.mean")
def mean(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    dims = context.axes(_dims(node), len(source.shape))
    return finish(context, node, average(context, node, widened(context, source, str(node.dtype)), dims))


def average(context: Context, node: Node, source: Value, dims: tuple[int, ...], correction: int = 0) -> Value:
    """sum / (count - correction); 0 / 0 is NaN, as in eager."""
    summed = reduce(context, node, "sum", source, dims, "total")
    count = product(tuple(source.shape[axis] for axis in dims))
    if count == ONE and correction == 0:
        return summed
    return each(context, "div", "float32", summed, count - correction, name=node.name)


@lowers("aten.amax", "aten.amin", "aten.any", "aten.all")
def extreme(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    dims = context.axes(_dims(node), len(source.shape))
    kind = {"amax": "max", "amin": "min"}.get(node.op.split(".")[1], node.op.split(".")[1])
    if kind in ("any", "all"):
        build, raw = context.builder, source
        zero = build.constant(0.0 if raw.dtype in FLOATS else 0, "float32" if raw.dtype in FLOATS else raw.dtype)
        if raw.dtype != "bool":
            source = context.value(raw.shape, "bool", lambda index: build.make("ne", (raw.at(index), zero), "bool"))
    return finish(context, node, reduce(context, node, kind, source, dims))


@lowers("aten.max", "aten.min", "aten.aminmax", "aten.argmax", "aten.argmin")
def extreme_and_place(context: Context, node: Node) -> Lowered:
    """max.dim gives values and positions; argmax positions; both take the first place and let NaN win."""
    source, kind = context.tensor(node.args[0]), node.op.split(".")[1]
    rank = len(source.shape)
    if kind == "aminmax":
        dims = context.axes(node.kwargs.get("dim"), rank)
        shape = context.shape(node.results[0][0])
        pair = (reduce(context, node, part, source, dims) for part in ("min", "max"))
        return tuple(keep(context, value, shape) for value in pair)
    if kind.startswith("arg"):
        dim = context.argument(node, 1, "dim")
        if dim is None:
            source = reshaped(context, source, (product(source.shape),))
        axis = context.axis(dim or 0, len(source.shape))
        return finish(context, node, _places(context, node, kind, source, axis))
    if node.op.endswith(".default"):
        return finish(context, node, reduce(context, node, kind, source, tuple(range(rank))))
    if node.op.endswith(".dim"):
        axis = context.axis(context.argument(node, 1, "dim"), rank)
        shape = context.shape(node.results[0][0])
        values = reduce(context, node, kind, source, (axis,))
        places = _places(context, node, "arg" + kind, source, axis)
        return keep(context, values, shape), keep(context, places, shape)
    raise Unsupported("max or min of two tensors in this form")


def _places(context: Context, node: Node, kind: str, source: Value, axis: int) -> Value:
    if source.dtype == "bool":
        source = cast(context, source, "int32")
    return context.gather_results(context.collect(kind, source, (axis,), node), 0, "int64")


@lowers("aten.var", "aten.var_mean", "aten.std", "aten.std_mean")
def variance(context: Context, node: Node) -> Lowered:
    """In two passes, sum((x - mean)^2) / (count - correction): exact where the spread is small beside the mean."""
    source = context.tensor(node.args[0])
    dtype = str(node.dtype or node.results[0][1])
    dims = context.axes(context.argument(node, 1, "dim"), len(source.shape))
    correction = node.kwargs.get("correction", 1)
    if isinstance(correction, dict):
        raise Unsupported("a correction that is not a fixed number")
    shape = context.shape(node.shape if node.shape is not None else node.results[0][0])
    spread, middle = moments(
        context, node, widened(context, source, dtype), dims, 1 if correction is None else correction
    )
    if "std" in node.op:
        spread = each(context, "sqrt", "float32", spread)
    spread = cast(context, keep(context, spread, shape), dtype)
    if "mean" not in node.op:
        return spread
    return spread, cast(context, keep(context, middle, shape), dtype)


def moments(
    context: Context, node: Node, source: Value, dims: tuple[int, ...], correction: float
) -> tuple[Value, Value]:
    """Variance and mean over `dims`, in float32, without the reduced dims."""
    if not float(correction).is_integer():
        raise Unsupported("a correction that is not a whole number")
    middle = average(context, node, source, dims)
    build = context.builder

    def deviation(index: Index) -> Expr:
        row = tuple(step for axis, step in enumerate(index) if axis not in dims)
        gap = build.make("sub", (source.at(index), middle.at(row)), "float32")
        return build.make("square", (gap,), "float32")

    squares = context.value(source.shape, "float32", deviation)
    return average(context, node, squares, dims, int(correction)), middle


@lowers("aten.linalg_vector_norm")
def norm(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    order = context.operand(context.argument(node, 1, "ord", 2))
    dims = context.axes(context.argument(node, 2, "dim"), len(source.shape))
    wide = widened(context, source, str(node.dtype))
    if order == 2:
        squares = reduce(context, node, "sum", each(context, "square", "float32", wide), dims)
        return finish(context, node, each(context, "sqrt", "float32", squares))
    size_of = each(context, "abs", "float32", wide)
    kind = {1: "sum", float("inf"): "max", float("-inf"): "min"}.get(order) if isinstance(order, int | float) else None
    if kind is None:
        raise Unsupported("a norm of an order other than 1, 2 and infinity")
    return finish(context, node, reduce(context, node, kind, size_of, dims))


@lowers("aten.logsumexp")
def logsumexp(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    dims = context.axes(node.args[1], len(source.shape))
    wide = widened(context, source, str(node.dtype))
    peak, powers = _powers(context, node, wide, dims, guard=True)
    log = each(context, "log", "float32", reduce(context, node, "sum", powers, dims))
    return finish(context, node, each(context, "add", "float32", log, peak))


@lowers("aten._softmax", "aten._log_softmax", "aten._safe_softmax", "aten.softmax", "aten.log_softmax")
def softmax(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    dims = (context.axis(node.args[1], len(source.shape)),)
    if "_safe" in node.op:
        raise Unsupported("the softmax that maps masked rows to zeros")
    wide = cast(context, source, "float32")
    build = context.builder
    peak, powers = _powers(context, node, wide, dims)
    summed = reduce(context, node, "sum", powers, dims)

    def at(index: Index) -> Expr:
        row = tuple(step for axis, step in enumerate(index) if axis not in dims)
        if "log" not in node.op:
            return build.make("div", (powers.at(index), summed.at(row)), "float32", name=node.name)
        shifted = build.make("sub", (wide.at(index), peak.at(row)), "float32")
        return build.make("sub", (shifted, build.make("log", (summed.at(row),), "float32")), "float32", name=node.name)

    return cast(context, context.value(source.shape, "float32", at), str(node.dtype))


def _powers(
    context: Context, node: Node, wide: Value, dims: tuple[int, ...], guard: bool = False
) -> tuple[Value, Value]:
    """The row's largest value and exp(x - largest). `guard`: an infinite largest value is not subtracted."""
    build = context.builder
    peak = reduce(context, node, "max", wide, dims)
    if guard:
        raw = peak

        def bounded(index: Index) -> Expr:
            infinite = build.make("isinf", (raw.at(index),), "bool")
            return build.make("where", (infinite, build.constant(0.0, "float32"), raw.at(index)), "float32")

        peak = context.value(raw.shape, "float32", bounded)

    def at(index: Index) -> Expr:
        row = tuple(step for axis, step in enumerate(index) if axis not in dims)
        return build.make("exp", (build.make("sub", (wide.at(index), peak.at(row)), "float32"),), "float32")

    return peak, context.value(wide.shape, "float32", at)


@lowers("aten.native_layer_norm")
def layer_norm(context: Context, node: Node) -> Lowered:
    source = context.tensor(node.args[0])
    weight, bias = (context.tensor(item) if item is not None else None for item in node.args[2:4])
    dims = tuple(range(len(source.shape) - len(node.args[1]), len(source.shape)))
    dtype = node.results[0][1]
    wide, build, eps = cast(context, source, "float32"), context.builder, context.operand(node.args[4])
    spread, middle = moments(context, node, wide, dims, 0)
    scale = each(context, "rsqrt", "float32", each(context, "add", "float32", spread, eps))

    def at(index: Index) -> Expr:
        row = tuple(step for axis, step in enumerate(index) if axis not in dims)
        gap = build.make("sub", (wide.at(index), middle.at(row)), "float32")
        result = build.make("mul", (gap, scale.at(row)), "float32", name=node.name)
        for kind, parameter in (("mul", weight), ("add", bias)):
            if parameter is not None:
                result = build.make(kind, (result, context.element(parameter, index, "float32")), "float32")
        return build.cast(result, dtype)

    kept = context.shape(node.results[1][0])
    statistics = (keep(context, cast(context, value, node.results[1][1]), kept) for value in (middle, scale))
    return (context.value(source.shape, dtype, at), *statistics)


@lowers("aten.cumsum", "aten.cumprod")
def scan(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    if not source.shape:
        return cast(context, source, str(node.dtype))
    axis = context.axis(context.argument(node, 1, "dim"), len(source.shape))
    wide = widened(context, source, str(node.dtype))
    collective = context.collect(node.op.split(".")[1], wide, (axis,), node)
    return cast(context, context.gather_results(collective, 0, wide.dtype), str(node.dtype))


@lowers("aten.topk")
def top_k(context: Context, node: Node) -> Lowered:
    source, count = context.tensor(node.args[0]), context.number(node.args[1])
    axis = context.axis(context.argument(node, 2, "dim", -1), len(source.shape))
    if not context.argument(node, 3, "largest", True):
        raise Unsupported("the k smallest")
    if not 1 <= count <= TOP:
        raise Unsupported(f"top-k with k = {count}, more than {TOP}")
    if source.dtype not in FLOATS:
        source = cast(context, source, "int64")
    collective = context.collect("topk", source, (axis,), node, count)
    return tuple(
        _ranked(context, [context.gather_results(collective, 2 * j + part, dtype) for j in range(count)], axis)
        for part, dtype in ((0, source.dtype), (1, "int64"))
    )


def _ranked(context: Context, ranked: list[Value], axis: int) -> Value:
    """Values of one row each, stacked along `axis`."""
    build, first = context.builder, ranked[0]

    def at(index: Index) -> Expr:
        row, place = (*index[:axis], *index[axis + 1 :]), index[axis]
        if place.constant is not None:
            return ranked[place.constant].at(row)
        result = ranked[-1].at(row)
        for rank in reversed(range(len(ranked) - 1)):
            before = build.less(place, size(rank + 1))
            result = build.make("where", (before, ranked[rank].at(row), result), first.dtype)
        return result

    shape = (*first.shape[:axis], size(len(ranked)), *first.shape[axis:])
    return context.value(shape, first.dtype, at)
