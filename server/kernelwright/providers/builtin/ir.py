"""The loop-level representation: values as functions from an index to an expression of one element.

Nothing here has memory. A `Value` says its shape, its dtype and, for any index, the `Expr` of the element there; views
only rewrite the index. What cannot be had element by element (a reduction, a scan, a selection of the k largest) is a
`Collective`: its results are read by `Expr`s of kind "result". Expressions are interned: equal ones are one object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kernelwright.providers.builtin.sizes import Index, Opaque, Size, atoms_of, size

FLOATS = ("float32", "bfloat16", "float16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
WIDTH = {"float32": 32, "bfloat16": 16, "float16": 16, "int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint8": 8}


class Unsupported(Exception):
    """This graph cannot be generated: the reason, the op and the 1-based line that stop it."""

    def __init__(self, reason: str, op: str | None = None, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.op, self.line = reason, op, line


@dataclass(frozen=True, eq=False)
class Expr:
    """One element. Kinds: "load" (buffer, index, conditions), "constant", "scalar", "size", "less" (size < size),
    "result" (collective, component, index), "cast", and the pointwise ops of `emission.OPS`.

    Floating values are float32 whatever `dtype` says: a cast to a narrower dtype rounds and comes back.
    """

    kind: str
    arguments: tuple[Expr, ...]
    dtype: str
    detail: Any = None
    name: str = ""
    number: int = 0


@dataclass(frozen=True)
class Buffer:
    """Memory: a tensor of the caller's, an output, or scratch between two kernels."""

    name: str
    dtype: str
    shape: tuple[Size, ...]
    path: str | None = None
    """Where the caller's tensor is found; None for what the launcher allocates."""


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor as a function. `at` takes one Size a dim. `name` is the graph node's."""

    shape: tuple[Size, ...]
    dtype: str
    at: Callable[[tuple[Size, ...]], Expr]
    name: str = ""


@dataclass(frozen=True, eq=False)
class Collective:
    """What needs more than one element of its source: kinds "sum", "prod", "max", "min", "argmax", "argmin", "any",
    "all" (over `dims`, results indexed by the other dims), "cumsum", "cumprod" (along dims[0], indexed by all) and
    "topk" (along dims[0]; component 2j is the j-th value, 2j + 1 its position)."""

    kind: str
    source: Value
    dims: tuple[int, ...]
    name: str
    order: int
    count: int = 1
    line: int | None = None

    @property
    def outer(self) -> tuple[Size, ...]:
        return tuple(extent for axis, extent in enumerate(self.source.shape) if axis not in self.dims)

    @property
    def inner(self) -> tuple[Size, ...]:
        return tuple(self.source.shape[axis] for axis in self.dims)

    @property
    def scans(self) -> bool:
        return self.kind in ("cumsum", "cumprod")

    def source_index(self, outer: tuple[Size, ...], inner: tuple[Size, ...]) -> tuple[Size, ...]:
        """The source's index for a row and a place in the row."""
        rows, places = iter(outer), iter(inner)
        by_axis = dict(zip(self.dims, places, strict=True))
        return tuple(by_axis[axis] if axis in by_axis else next(rows) for axis in range(len(self.source.shape)))


@dataclass
class Builder:
    """Makes and interns expressions. `conditions` holds while an arm of a concatenation or padding is being built."""

    _table: dict[Any, Expr] = field(default_factory=dict)
    conditions: tuple[Expr, ...] = ()

    def make(self, kind: str, arguments: tuple[Expr, ...], dtype: str, detail: Any = None, name: str = "") -> Expr:
        key = (kind, tuple(argument.number for argument in arguments), dtype, _key(detail))
        if key not in self._table:
            self._table[key] = Expr(kind, arguments, dtype, detail, name, len(self._table))
        return self._table[key]

    def constant(self, value: float | bool, dtype: str) -> Expr:
        return self.make("constant", (), dtype, (type(value).__name__, value))

    def size(self, value: Size, dtype: str = "int64") -> Expr:
        number = value.constant
        return self.constant(number, dtype) if number is not None else self.make("size", (), dtype, value)

    def less(self, left: Size, right: Size) -> Expr:
        return self.make("less", (), "bool", (left, right))

    def load(self, buffer: Buffer, index: tuple[Size, ...]) -> Expr:
        detail = (buffer, index, tuple(sorted(set(self.conditions), key=lambda c: c.number)))
        return self.make("load", (), buffer.dtype, detail, buffer.name)

    def cast(self, value: Expr, dtype: str) -> Expr:
        if value.dtype == dtype:
            return value
        if value.kind == "constant" and dtype in FLOATS + INTEGERS and _exact(value.detail[1], dtype):
            number = value.detail[1]
            return self.constant(float(number) if dtype in FLOATS else int(number), dtype)
        widened = value.kind == "cast" and value.dtype in FLOATS and dtype in FLOATS
        if widened and value.arguments[0].dtype == dtype and WIDTH[dtype] < WIDTH[value.dtype]:
            return value.arguments[0]
        return self.make("cast", (value,), dtype)

    @contextmanager
    def under(self, *conditions: Expr) -> Iterator[None]:
        """Loads made inside happen only where the conditions hold."""
        before = self.conditions
        self.conditions = before + conditions
        try:
            yield
        finally:
            self.conditions = before

    def opaque(self, value: Expr, extent: Size) -> Size:
        """An integer expression as an index, known to be in [0, extent)."""
        self._opaque[value.number] = value
        return size(Opaque(value.number, extent))

    _opaque: dict[int, Expr] = field(default_factory=dict)

    def value_of(self, atom: Opaque) -> Expr:
        return self._opaque[atom.key]


def _key(detail: Any) -> Any:
    if isinstance(detail, Expr):
        return ("expr", detail.number)
    if isinstance(detail, tuple):
        return tuple(map(_key, detail))
    return repr(detail) if isinstance(detail, float) else detail


def _exact(number: float, dtype: str) -> bool:
    """Whether a constant is the same in every floating dtype, or a whole number in range."""
    if number != number or number in (float("inf"), float("-inf")):
        return dtype in FLOATS
    if dtype in FLOATS:
        return dtype == "float32" or (
            abs(number) <= 2048 and float(number * 64).is_integer() and abs(number * 64) <= 256
        )
    return float(number).is_integer() and abs(number) < 2 ** (WIDTH[dtype] - 1)


def sizes_of(expression: Expr) -> tuple[Size, ...]:
    """The sizes that an expression itself reads (not its arguments)."""
    match expression.kind:
        case "load":
            return tuple(expression.detail[1])
        case "result":
            return tuple(expression.detail[2])
        case "size":
            return (expression.detail,)
        case "less":
            return tuple(expression.detail)
    return ()


def children(expression: Expr, builder: Builder) -> tuple[Expr, ...]:
    """Arguments, the conditions of a load, and the values that its indices read."""
    inside = [
        builder.value_of(atom)
        for part in sizes_of(expression)
        for atom in sorted(atoms_of(part), key=repr)
        if isinstance(atom, Opaque)
    ]
    conditions = expression.detail[2] if expression.kind == "load" else ()
    return (*expression.arguments, *conditions, *inside)


def walk(roots: tuple[Expr, ...], builder: Builder) -> list[Expr]:
    """Every expression under the roots, each once, arguments first."""
    order: list[Expr] = []
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        expression, ready = stack.pop()
        if ready:
            order.append(expression)
        elif expression.number not in seen:
            seen.add(expression.number)
            stack.append((expression, True))
            stack.extend((child, False) for child in reversed(children(expression, builder)))
    return order


def own_indices(expression: Expr) -> set[Index]:
    """The loop indices that an expression itself reads."""
    return {atom for part in sizes_of(expression) for atom in atoms_of(part) if isinstance(atom, Index)}
