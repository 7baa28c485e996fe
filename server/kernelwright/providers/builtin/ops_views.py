"""Lowerings of views, concatenation, padding and indexing: transformations of the index, without memory."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.model import Json, Node
from kernelwright.providers.builtin.ir import INTEGERS, Expr, Unsupported, Value
from kernelwright.providers.builtin.lowering import Context, Lowered, lowers
from kernelwright.providers.builtin.sizes import (
    ONE,
    ZERO,
    Size,
    nonnegative,
    product,
    ravel,
    size,
    unravel,
)

Index = tuple[Size, ...]


def reindex(context: Context, source: Value, shape: tuple[Size, ...], move: Callable[[Index], Index]) -> Value:
    """The value whose element at an index is the source's at `move(index)`."""
    return context.value(shape, source.dtype, lambda index: source.at(move(index)), source.name)


@lowers("aten.view", "aten.reshape", "aten._unsafe_view", "aten.flatten", "aten.squeeze", "aten.unsqueeze")
def reshape(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    if node.dtype != source.dtype:
        raise Unsupported("a view as another dtype")
    return reshaped(context, source, context.shape(node.shape or ()))


def reshaped(context: Context, source: Value, shape: tuple[Size, ...]) -> Value:
    """Row-major reshape; groups of dims with equal products are handled apart, so most stay as they are."""
    groups = regroup(shape, source.shape)

    def move(index: Index) -> Index:
        moved: list[Size] = []
        for new, old in groups:
            inside = tuple(shape[axis] for axis in new)
            if len(new) == len(old) == 1:
                moved.append(index[new[0]])
                continue
            position = ravel(tuple(index[axis] for axis in new), inside)
            moved += unravel(position, tuple(source.shape[axis] for axis in old))
        return tuple(moved)

    return reindex(context, source, shape, move)


def regroup(new: tuple[Size, ...], old: tuple[Size, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Dims of two shapes of equal product, cut into the smallest consecutive groups of equal product."""
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    a = b = 0
    while a < len(new) or b < len(old):
        ends = (
            (i, j)
            for total in range(1, len(new) - a + len(old) - b + 1)
            for i in range(max(a, a + total - (len(old) - b)), min(len(new), a + total) + 1)
            for j in (b + total - (i - a),)
            if product(new[a:i]) == product(old[b:j])
        )
        i, j = next(ends, (len(new), len(old)))
        groups.append((tuple(range(a, i)), tuple(range(b, j))))
        a, b = i, j
    return groups


@lowers("aten.permute", "aten.transpose", "aten.t")
def permute(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    rank = len(source.shape)
    order = list(range(rank))
    if "permute" in node.op:
        order = [context.axis(axis, rank) for axis in node.args[1]]
    elif "transpose" in node.op:
        a, b = (context.axis(axis, rank) for axis in node.args[1:3])
        order[a], order[b] = order[b], order[a]
    else:
        order.reverse()
    shape = tuple(source.shape[axis] for axis in order)
    return reindex(context, source, shape, lambda index: tuple(index[order.index(axis)] for axis in range(rank)))


@lowers("aten.expand", "aten.broadcast_to")
def expand(context: Context, node: Node) -> Value:
    source, shape = context.tensor(node.args[0]), context.shape(node.shape or ())

    def move(index: Index) -> Index:
        tail = index[len(index) - len(source.shape) :]
        return tuple(ZERO if extent == ONE else step for step, extent in zip(tail, source.shape, strict=True))

    return reindex(context, source, shape, move)


@lowers("aten.select")
def select(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    axis, place = context.axis(node.args[1], len(source.shape)), context.integer(node.args[2])
    if place.constant is not None and place.constant < 0:
        place = place + source.shape[axis]
    shape = source.shape[:axis] + source.shape[axis + 1 :]
    return reindex(context, source, shape, lambda index: (*index[:axis], place, *index[axis:]))


@lowers("aten.slice")
def slice_(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    axis = context.axis(context.argument(node, 1, "dim", 0), len(source.shape))
    start = _start(context, context.argument(node, 2, "start"), source.shape[axis])
    step = context.number(context.argument(node, 4, "step", 1))
    shape = context.shape(node.shape or ())

    def move(index: Index) -> Index:
        return (*index[:axis], index[axis] * step + start, *index[axis + 1 :])

    return reindex(context, source, shape, move)


def _start(context: Context, argument: Json, extent: Size) -> Size:
    if argument is None:
        return ZERO
    start = context.integer(argument)
    if start.constant is None:
        return start
    if start.constant < 0:
        start = start + extent
        if not nonnegative(start):
            raise Unsupported("a slice that starts before a dimension that may be shorter")
    return start


@lowers("aten.as_strided")
def as_strided(context: Context, node: Node) -> Value:
    """As tracing writes a chunk: a window of the row-major order, whatever the tensor's own strides are."""
    source, shape = context.tensor(node.args[0]), context.shape(node.shape or ())
    strides = [context.integer(stride) for stride in node.args[2]]
    offset = context.integer(context.argument(node, 3, "storage_offset") or 0)

    def move(index: Index) -> Index:
        position = offset
        for step, stride in zip(index, strides, strict=True):
            position = position + step * stride
        return unravel(position, source.shape)

    return reindex(context, source, shape, move)


@lowers("aten.split", "aten.split_with_sizes", "aten.chunk", "aten.unbind", "aten.tensor_split")
def split(context: Context, node: Node) -> Lowered:
    """The results' own shapes say where the pieces lie."""
    source = context.tensor(node.args[0])
    unbinds = "unbind" in node.op
    axis = context.axis(context.argument(node, 1 if unbinds else 2, "dim", 0), len(source.shape))
    pieces: list[Value] = []
    offset = ZERO
    for number, (dims, _) in enumerate(node.results):
        shape = context.shape(dims)
        if unbinds:
            place = size(number)
            move = lambda index, place=place: (*index[:axis], place, *index[axis:])  # noqa: E731
        else:
            move = lambda index, offset=offset: (*index[:axis], index[axis] + offset, *index[axis + 1 :])  # noqa: E731
            offset = offset + shape[axis]
        pieces.append(reindex(context, source, shape, move))
    return tuple(pieces)


@lowers("getitem")
def getitem(context: Context, node: Node) -> Value:
    pieces = context.values[node.args[0]["node"]]
    if not isinstance(pieces, tuple):
        raise Unsupported("an item of a single tensor")
    piece = pieces[context.number(node.args[1])]
    return Value(piece.shape, piece.dtype, piece.at)


@lowers("aten.flip")
def flip(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    axes = context.axes(node.args[1], len(source.shape)) if node.args[1] else ()

    def move(index: Index) -> Index:
        return tuple(
            source.shape[axis] - 1 - step if axis in axes and source.shape[axis] != ONE else step
            for axis, step in enumerate(index)
        )

    return reindex(context, source, source.shape, move)


@lowers("aten.roll")
def roll(context: Context, node: Node) -> Value:
    source = context.tensor(node.args[0])
    shifts = node.args[1] if isinstance(node.args[1], list) else [node.args[1]]
    dims = context.argument(node, 2, "dims", [])
    if not dims:
        raise Unsupported("a roll of the flattened tensor")
    by_axis = {
        context.axis(dim, len(source.shape)): context.integer(shift)
        for dim, shift in zip(dims if isinstance(dims, list) else [dims], shifts, strict=True)
    }

    def move(index: Index) -> Index:
        return tuple(
            (step - by_axis[axis] + source.shape[axis] * _turns(by_axis[axis])) % source.shape[axis]
            if axis in by_axis
            else step
            for axis, step in enumerate(index)
        )

    return reindex(context, source, source.shape, move)


def _turns(shift: Size) -> int:
    """Whole turns that keep index - shift from going below zero, whatever the extent is (at least 1)."""
    if shift.constant is None:
        raise Unsupported("a roll by a shift that depends on a size")
    return max(shift.constant, 0)


@lowers("aten.repeat")
def repeat(context: Context, node: Node) -> Value:
    source, shape = context.tensor(node.args[0]), context.shape(node.shape or ())

    def move(index: Index) -> Index:
        tail = index[len(index) - len(source.shape) :]
        return tuple(step % extent for step, extent in zip(tail, source.shape, strict=True))

    return reindex(context, source, shape, move)


@lowers("aten.cat", "aten.concat")
def cat(context: Context, node: Node) -> Value:
    parts = [part for part in context.tensors(node.args[0]) if not (len(part.shape) == 1 and part.shape[0] == ZERO)]
    shape, dtype = context.shape(node.shape or ()), str(node.dtype)
    axis = context.axis(context.argument(node, 1, "dim", 0), len(shape))
    build = context.builder
    offsets = [ZERO]
    for part in parts:
        offsets.append(offsets[-1] + part.shape[axis])

    def piece(number: int, index: Index) -> Expr:
        step = index[axis] - offsets[number]
        if parts[number].shape[axis] == ONE:
            step = ZERO
        return build.cast(parts[number].at((*index[:axis], step, *index[axis + 1 :])), dtype)

    def at(index: Index) -> Expr:
        return _choose(context, index[axis], offsets, lambda number: piece(number, index), dtype, node.name)

    return context.value(shape, dtype, at)


def _choose(
    context: Context,
    place: Size,
    offsets: list[Size],
    piece: Callable[[int], Expr],
    dtype: str,
    name: str,
    first: int = 0,
) -> Expr:
    """The piece in whose range `place` lies, the others' loads masked off."""
    build, last = context.builder, len(offsets) - 2
    if first == last or nonnegative(offsets[first + 1] - 1 - place):
        return piece(first)
    if nonnegative(place - offsets[first + 1]):
        return _choose(context, place, offsets, piece, dtype, name, first + 1)
    before = build.less(place, offsets[first + 1])
    with build.under(before):
        left = piece(first)
    with build.under(build.make("not", (before,), "bool")):
        right = _choose(context, place, offsets, piece, dtype, name, first + 1)
    return build.make("where", (before, left, right), dtype, name=name)


@lowers("aten.stack")
def stack(context: Context, node: Node) -> Value:
    parts, shape, dtype = context.tensors(node.args[0]), context.shape(node.shape or ()), str(node.dtype)
    axis = context.axis(context.argument(node, 1, "dim", 0), len(shape))
    offsets = [size(number) for number in range(len(parts) + 1)]

    def at(index: Index) -> Expr:
        inside = (*index[:axis], *index[axis + 1 :])
        return _choose(
            context,
            index[axis],
            offsets,
            lambda number: context.builder.cast(parts[number].at(inside), dtype),
            dtype,
            node.name,
        )

    return context.value(shape, dtype, at)


@lowers("aten.constant_pad_nd")
def pad(context: Context, node: Node) -> Value:
    source, shape, dtype = context.tensor(node.args[0]), context.shape(node.shape or ()), str(node.dtype)
    widths = [context.number(width) for width in node.args[1]]
    number = context.operand(context.argument(node, 2, "value", 0))
    build, rank = context.builder, len(shape)
    before = {rank - 1 - position: widths[2 * position] for position in range(len(widths) // 2)}

    def at(index: Index) -> Expr:
        moved = tuple(step - before.get(axis, 0) for axis, step in enumerate(index))
        tests = []
        for step, extent in zip(moved, source.shape, strict=True):
            if not nonnegative(step):
                tests.append(build.make("not", (build.less(step, ZERO),), "bool"))
            if not nonnegative(extent - 1 - step):
                tests.append(build.less(step, extent))
        with build.under(*tests):
            inside = source.at(tuple(ZERO if e == ONE else s for s, e in zip(moved, source.shape, strict=True)))
        outside = build.cast(context.element(number, index, dtype), dtype)
        for test in tests:
            inside = build.make("where", (test, inside, outside), dtype, name=node.name)
        return inside

    return context.value(shape, dtype, at)


# --- Indexing by values ----------------------------------------------------------------------------------------------


def bounded(context: Context, position: Expr, extent: Size, wraps: bool) -> tuple[Size, tuple[Expr, ...]]:
    """A value as an index, and the conditions that keep a load inside the tensor."""
    build = context.builder
    position = build.cast(position, "int64")
    if wraps:
        wrapped = build.make("add", (position, build.size(extent)), "int64")
        negative = build.make("lt", (position, build.constant(0, "int64")), "bool")
        position = build.make("where", (negative, wrapped, position), "int64")
    low = build.make("ge", (position, build.constant(0, "int64")), "bool")
    high = build.make("lt", (position, build.size(extent)), "bool")
    return build.opaque(position, extent), (low, high)


@lowers("aten.gather")
def gather(context: Context, node: Node) -> Value:
    source, positions = context.tensor(node.args[0]), context.tensor(node.args[2])
    if not source.shape:
        return reindex(context, source, positions.shape, lambda index: ())
    axis = context.axis(node.args[1], len(source.shape))

    def at(index: Index) -> Expr:
        place, inside = bounded(context, positions.at(index), source.shape[axis], wraps=False)
        with context.builder.under(*inside):
            return source.at((*index[:axis], place, *index[axis + 1 :]))

    return context.value(positions.shape, source.dtype, at)


@lowers("aten.index_select", "aten.embedding")
def index_select(context: Context, node: Node) -> Value:
    if "embedding" in node.op:
        source, axis, positions = context.tensor(node.args[0]), 0, context.tensor(node.args[1])
    else:
        source, positions = context.tensor(node.args[0]), context.tensor(node.args[2])
        axis = context.axis(node.args[1], len(source.shape))
    wide = len(positions.shape)

    def at(index: Index) -> Expr:
        place, inside = bounded(context, positions.at(index[axis : axis + wide]), source.shape[axis], wraps=False)
        with context.builder.under(*inside):
            return source.at((*index[:axis], place, *index[axis + wide :]))

    return context.value(context.shape(node.shape or ()), source.dtype, at)


@lowers("aten.index", "aten._unsafe_index")
def index_(context: Context, node: Node) -> Value:
    """Indexing by integer tensors that stand side by side; negative positions count from the end."""
    source = context.tensor(node.args[0])
    given = [(axis, context.tensor(item)) for axis, item in enumerate(node.args[1]) if item is not None]
    if any(positions.dtype not in INTEGERS for _, positions in given):
        raise Unsupported("a mask as an index: how many rows come out depends on the data")
    axes = [axis for axis, _ in given]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise Unsupported("index tensors with a slice between them")
    wide = max(len(positions.shape) for _, positions in given)
    first = axes[0]

    def at(index: Index) -> Expr:
        shared = index[first : first + wide]
        places: list[Size] = []
        conditions: list[Expr] = []
        for axis, positions in given:
            tail = shared[len(shared) - len(positions.shape) :]
            inner = tuple(ZERO if e == ONE else s for s, e in zip(tail, positions.shape, strict=True))
            place, inside = bounded(context, positions.at(inner), source.shape[axis], wraps=True)
            places.append(place)
            conditions += inside
        with context.builder.under(*conditions):
            return source.at((*index[:first], *places, *index[first + wide :]))

    return context.value(context.shape(node.shape or ()), source.dtype, at)
