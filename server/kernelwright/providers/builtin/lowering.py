"""Lowering: a graph's nodes become values. One table entry an op; `docs/adding-an-op.md` shows how to add one.

A lowering takes the context and its node and returns the node's `Value`, or a tuple of them. Rounding stands where
eager has it: a node of dtype bfloat16 is computed in float32 and then rounded, node by node.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kernelwright.model import Graph, Json, Node, Placeholder
from kernelwright.providers.builtin.ir import (
    FLOATS,
    INTEGERS,
    Buffer,
    Builder,
    Collective,
    Expr,
    Unsupported,
    Value,
)
from kernelwright.providers.builtin.sizes import ONE, ZERO, Reader, Size, size

Lowered: TypeAlias = Value | tuple[Value, ...]
Lowering: TypeAlias = Callable[["Context", Node], Lowered]
TABLE: dict[str, Lowering] = {}
DECLINED = {
    "mm bmm addmm baddbmm dot mv convolution _scaled_dot_product_flash_attention": "products of matrices stay with the library",
    "sort argsort unique unique2 nonzero masked_select bincount": "the built-in generator does not sort, nor size by values",
    "scatter scatter_add scatter_reduce index_put index_add": "writing to places that depend on values needs atomics",
    "_fft_r2c _fft_c2r _fft_c2c": "Fourier transforms stay with the library",
    "rand randn rand_like randn_like bernoulli native_dropout multinomial": "random numbers would differ from torch's",
}
"""Ops that have no lowering for a reason: names → the reason."""


def lowers(*ops: str) -> Callable[[Lowering], Lowering]:
    """Register a lowering under ATen names: "aten.add" covers every overload, "aten.pow.Scalar" one of them."""

    def register(function: Lowering) -> Lowering:
        for op in ops:
            TABLE[op] = function
        return function

    return register


@dataclass(frozen=True)
class Runtime:
    """A number known at the call: Python text over the names of scalars."""

    text: str
    dtype: str = "float32"


Operand: TypeAlias = Value | Size | Runtime | float | int | bool


@dataclass
class Context:
    """What lowerings share: the values so far, and the makers of expressions."""

    graph: Graph
    builder: Builder = field(default_factory=Builder)
    values: dict[str, Lowered] = field(default_factory=dict)
    collectives: list[Collective] = field(default_factory=list)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    _scalars: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.reader = Reader(self.graph.guards)
        self._scalars = {scalar.name: scalar.type for scalar in self.graph.scalars}

    # --- reading arguments

    def shape(self, dims: Sequence[int | str]) -> tuple[Size, ...]:
        return tuple(map(self.reader.read, dims))

    def argument(self, node: Node, position: int, name: str = "", default: Json = None) -> Json:
        """Argument `position` or keyword `name`, as the graph has it."""
        if position < len(node.args):
            return node.args[position]
        return node.kwargs.get(name, default)

    def tensor(self, argument: Json) -> Value:
        value = self.values.get(argument["node"]) if isinstance(argument, dict) and "node" in argument else None
        if not isinstance(value, Value):
            raise Unsupported("an argument that is not a tensor where one is needed")
        return value

    def tensors(self, argument: Json) -> tuple[Value, ...]:
        return tuple(self.tensor(item) for item in argument)

    def operand(self, argument: Json) -> Operand:
        """A tensor, a size, or a number known now or at run time."""
        if isinstance(argument, dict):
            if "node" in argument:
                return self.tensor(argument)
            if "float" in argument:
                return float(argument["float"])
            if "expr" in argument:
                return self._expression(argument["expr"])
        if isinstance(argument, bool | int | float):
            return argument
        raise Unsupported(f"the argument {argument!r}")

    def _expression(self, words: str | int | float) -> Operand:
        if not isinstance(words, str):
            return words
        names = {node.id for node in ast.walk(ast.parse(words, mode="eval")) if isinstance(node, ast.Name)}
        if names & self._scalars.keys():
            whole = all(self._scalars.get(name) == "int" for name in names) and "/" not in words.replace("//", "")
            return Runtime(words, "int64" if whole else "float32")
        try:
            return self.reader.read(words)
        except ValueError:
            return Runtime(words)

    def integer(self, argument: Json) -> Size:
        """A whole number over sizes."""
        operand = self.operand(argument)
        if isinstance(operand, bool | float | Value | Runtime):
            raise Unsupported("a size that is not a whole number known from the shapes")
        return size(operand)

    def number(self, argument: Json) -> int:
        """A whole number that the trace fixed.

        Raises:
            Unsupported: it depends on a size or on a value.
        """
        constant = self.integer(argument).constant
        if constant is None:
            raise Unsupported("a dimension or count that is not fixed")
        return constant

    def axis(self, argument: Json, rank: int) -> int:
        axis = self.number(argument)
        return axis + rank if axis < 0 else axis

    def axes(self, argument: Json, rank: int) -> tuple[int, ...]:
        """Dimensions to reduce, in order; None and [] mean all."""
        if argument is None or argument == []:
            return tuple(range(rank))
        items = argument if isinstance(argument, list) else [argument]
        return tuple(sorted(self.axis(item, rank) for item in items))

    # --- making values

    def value(
        self, shape: tuple[Size, ...], dtype: str, at: Callable[[tuple[Size, ...]], Expr], name: str = ""
    ) -> Value:
        """A value whose elements are built once an index."""
        known: dict[tuple[tuple[Size, ...], tuple[int, ...]], Expr] = {}

        def remembered(index: tuple[Size, ...]) -> Expr:
            key = (index, tuple(condition.number for condition in self.builder.conditions))
            if key not in known:
                known[key] = at(index)
            return known[key]

        return Value(shape, dtype, remembered, name)

    def add_placeholder(self, placeholder: Placeholder, name: str) -> None:
        """A tensor of the caller's; a complex one as its pairs of float32."""
        shape, dtype = self.shape(placeholder.shape), placeholder.dtype
        pairs = dtype == "complex64"
        buffer = Buffer(name, "float32" if pairs else dtype, (*shape, size(2)) if pairs else shape, placeholder.path)
        self.buffers[placeholder.node] = buffer
        value = self.of_buffer(buffer)
        if pairs:
            value = self.pairs(value)
        self.values[placeholder.node] = value

    def pairs(self, parts: Value) -> Value:
        """A complex value of pairs of float32 along a last dim of two."""
        build = self.builder
        return self.value(
            parts.shape[:-1],
            "complex64",
            lambda index: build.make("complex", (parts.at((*index, ZERO)), parts.at((*index, ONE))), "complex64"),
            parts.name,
        )

    def of_buffer(self, buffer: Buffer) -> Value:
        return self.value(buffer.shape, buffer.dtype, lambda index: self.builder.load(buffer, index), buffer.name)

    def element(self, operand: Operand, index: tuple[Size, ...], dtype: str) -> Expr:
        """An operand's element at the result's index, broadcast, in `dtype`.

        Python numbers stay as precise as the arithmetic (float32), as they do in eager's kernels.
        """
        build = self.builder
        if isinstance(operand, Value):
            return build.cast(operand.at(broadcast(index, operand.shape)), dtype)
        if isinstance(operand, Size):
            constant = operand.constant
            if constant is None:
                return build.cast(build.size(operand), dtype)
            operand = constant
        if isinstance(operand, Runtime):
            return build.cast(build.make("scalar", (), operand.dtype, operand.text), arithmetic(dtype))
        kind = arithmetic(dtype)
        if kind == "bool":
            return build.constant(bool(operand), "bool")
        return build.constant(float(operand) if kind in FLOATS else int(operand), kind)

    def gather_results(self, collective: Collective, component: int, dtype: str) -> Value:
        """A collective's results as a value over its outer dims (over all dims for a scan)."""
        shape = collective.source.shape if collective.scans else collective.outer
        build = self.builder
        return self.value(
            shape,
            dtype,
            lambda index: build.make("result", (), dtype, (collective, component, index), collective.name),
            collective.name,
        )

    def collect(self, kind: str, source: Value, dims: tuple[int, ...], node: Node, count: int = 1) -> Collective:
        collective = Collective(kind, source, dims, node.name, len(self.collectives), count, node.line)
        self.collectives.append(collective)
        return collective


def broadcast(index: tuple[Size, ...], shape: tuple[Size, ...]) -> tuple[Size, ...]:
    """The index into an operand of `shape` for an index into the result."""
    tail = index[len(index) - len(shape) :]
    return tuple(ZERO if extent == ONE else step for step, extent in zip(tail, shape, strict=True))


def arithmetic(dtype: str) -> str:
    """The dtype in which values of `dtype` are computed."""
    return "float32" if dtype in FLOATS else dtype


def promote(operands: Sequence[Operand]) -> str:
    """The dtype to which eager brings operands before it compares or combines them."""
    tensors = [operand for operand in operands if isinstance(operand, Value)]
    groups = (
        [value.dtype for value in tensors if value.shape],
        [value.dtype for value in tensors if not value.shape],
        [_number_dtype(operand) for operand in operands if not isinstance(operand, Value)],
    )
    chosen = ""
    for group in groups:
        highest = _highest(group)
        if highest and (not chosen or _category(highest) > _category(chosen)):
            chosen = highest
    return chosen


def _number_dtype(operand: Operand) -> str:
    if isinstance(operand, bool):
        return "bool"
    if isinstance(operand, Runtime):
        return operand.dtype
    return "float32" if isinstance(operand, float) else "int64"


def _category(dtype: str) -> int:
    return 2 if dtype in FLOATS else 1 if dtype in INTEGERS else 0


def _highest(dtypes: Sequence[str]) -> str:
    if not dtypes:
        return ""
    category = max(map(_category, dtypes))
    inside = sorted({dtype for dtype in dtypes if _category(dtype) == category})
    if len(inside) == 1:
        return inside[0]
    if category == 2:
        return "float32"
    order = ("uint8", "int8", "int16", "int32", "int64")
    if "uint8" in inside and inside != ["uint8"]:
        return max(*inside, "int16", key=order.index)
    return max(inside, key=order.index)


def lower(graph: Graph, names: Mapping[str, str]) -> Context:
    """Every node of the graph as a value; `names` calls the placeholders' buffers as the launcher calls the tensors.

    Raises:
        Unsupported: an op without a lowering, or an argument that its lowering cannot take; with the node's line.
    """
    context = Context(graph)
    for placeholder in graph.placeholders:
        context.add_placeholder(placeholder, names[placeholder.node])
    for node in graph.nodes:
        lowering = find(node.op)
        if lowering is None:
            raise Unsupported(_why_not(short(node.op)), node.op, node.line)
        try:
            context.values[node.name] = _named(lowering(context, node), node)
        except Unsupported as stop:
            raise Unsupported(stop.reason, stop.op or node.op, stop.line or node.line) from stop
        except (ValueError, KeyError, TypeError, IndexError, SyntaxError) as error:
            raise Unsupported(f"{short(node.op)} with arguments that are not understood", node.op, node.line) from error
    return context


def _named(value: Lowered, node: Node) -> Lowered:
    if isinstance(value, tuple):
        return value
    return Value(value.shape, value.dtype, value.at, node.name)


def short(op: str) -> str:
    """ "aten.add.Tensor" as people say it: "add"."""
    return op.removeprefix("aten.").split(".")[0]


def _why_not(name: str) -> str:
    """Why an op without a lowering has none."""
    for names, reason in DECLINED.items():
        if name in names.split():
            return f"{name}: {reason}"
    return f"the built-in generator cannot write {name}"


def find(op: str) -> Lowering | None:
    packet = re.sub(r"_copy$", "", ".".join(op.split(".")[:2])) if op.startswith("aten.") else op
    packet = "aten._to_copy" if op.startswith("aten._to_copy") else packet
    return TABLE.get(op) or TABLE.get(packet)
