"""The class of a graph, and what it must move and compute. Pure: reads the JSON graph only."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

from kernelwright.worker.wire import Json


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


SIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "complex64": 8, "complex128": 16, "uint16": 2, "uint32": 4, "uint64": 8, "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}  # fmt: skip
REDUCTIONS = words("sum mean amax amin prod argmax argmin max min any all topk sort median kthvalue var std")
SCANS = words("cumsum cumprod cummax cummin logcumsumexp")
MATMULS = words("mm bmm addmm baddbmm convolution")
GATHERS = words("gather index index_put scatter scatter_add scatter_reduce index_add embedding index_copy bincount")
LIBRARY = ("_fft", "linalg", "_linalg", "fft")


def base(op: str) -> str:
    """ "sum" for "aten.sum.dim_IntList"."""
    return op.split(".")[1] if op.count(".") >= 1 else op


def classify(graph: Json) -> str:
    """One of model.GraphClass."""
    nodes = graph["nodes"]
    names = [base(node["op"]) for node in nodes]
    products = sum(name in MATMULS for name in names)
    if any(name.startswith(LIBRARY) for name in names):
        return "other"
    if products >= 2 and {"amax", "exp", "sum"} <= set(names) and "bmm" in names:
        return "attention"
    if products:
        return "matmul with epilogue"
    if any(name in SCANS for name in names):
        return "scan"
    if any(name in GATHERS for name in names):
        return "gather/scatter"
    reductions = [node for node in nodes if base(node["op"]) in REDUCTIONS and _reduces(node)]
    if not reductions:
        return "pointwise"
    return "full reduction" if any(_is_full(node) for node in reductions) else "row reduction"


def _reduces(node: Json) -> bool:
    """`max` and `min` of two tensors are pointwise."""
    return not (base(node["op"]) in ("max", "min") and node["op"].endswith(".other"))


def _is_full(node: Json) -> bool:
    return node["shape"] == []


def sizes_of(shape: Any, values: Mapping[str, float]) -> list[int]:
    """A shape with the symbols' values put in."""
    return [size if isinstance(size, int) else int(evaluate(size, values)) for size in shape]


def evaluate(expression: str, values: Mapping[str, float]) -> Any:
    """An expression of our own graph; it is arithmetic over its names."""
    functions = {"max": max, "min": min, "abs": abs, "floor": math.floor, "ceil": math.ceil}
    return eval(_compiled(expression), {"__builtins__": {}}, {**functions, **values})


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> CodeType:
    return compile(ast.parse(expression, mode="eval"), "<expression>", "eval")


def count_bytes(graph: Json) -> int:
    """Bytes of each input once and each output once, in the example."""
    values = graph["symbols"]
    total = sum(_bytes(item["shape"], item["dtype"], values) for item in graph["placeholders"])
    written = {item["mutated_by"] for item in graph["placeholders"] if item["mutated_by"]} | _returned(graph["output"])
    results = {node["name"]: node for node in graph["nodes"]}
    for name in written:
        node = results.get(name)
        if node is not None and node["shape"] is not None:
            total += _bytes(node["shape"], node["dtype"], values)
    return total


def _bytes(shape: Any, dtype: str, values: Mapping[str, float]) -> int:
    return math.prod(sizes_of(shape, values)) * SIZES[dtype]


def _returned(tree: Json) -> set[str]:
    if isinstance(tree, dict):
        if set(tree) == {"node"}:
            return {tree["node"]}
        return set().union(*(_returned(item) for item in tree.values()), set())
    if isinstance(tree, list):
        return set().union(*(_returned(item) for item in tree), set())
    return set()


def count_flops(graph: Json) -> int:
    """Arithmetic operations in the example: one an element, one an element read for reductions, 2mnk for products."""
    values = graph["symbols"]
    shapes = {item["node"]: item["shape"] for item in graph["placeholders"]}
    shapes.update({node["name"]: node["shape"] for node in graph["nodes"] if node["shape"] is not None})
    return sum(_flops(node, shapes, values) for node in graph["nodes"])


_FREE = words(
    "view unsqueeze squeeze permute transpose expand slice select cat getitem _to_copy clone full arange t "
    "split_with_sizes constant_pad_nd alias empty"
)


def _flops(node: Json, shapes: Mapping[str, Any], values: Mapping[str, float]) -> int:
    name = base(node["op"])
    if name in _FREE or node["op"] == "getitem":
        return 0
    operands = [arg["node"] for arg in node["args"] if isinstance(arg, dict) and set(arg) == {"node"}]
    first = sizes_of(shapes[operands[0]], values) if operands and operands[0] in shapes else []
    out = sizes_of(node["shape"], values) if node["shape"] is not None else first
    if name in MATMULS:
        left = sizes_of(shapes[operands[-2]], values) if len(operands) > 1 and operands[-2] in shapes else first
        return 2 * math.prod(out) * (left[-1] if left else 1)
    if name in REDUCTIONS or name in SCANS:
        return math.prod(first)
    return math.prod(out)
