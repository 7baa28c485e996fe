"""The input plan: which cases to run, in order of what they are likely to show. Pure and seeded.

It starts from the user's calls and changes one thing at a time: sizes, dtypes, values, layouts, scalars, seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kernelwright.model import Call, Case, Dim, Graph, LayoutKind, Task, ValueKind, Variant
from kernelwright.source.expressions import evaluate, names

FLOATS = ("float32", "bfloat16", "float16")
VALUES: tuple[ValueKind, ...] = ("normal", "small", "large", "offset", "positive", "outlier", "nonfinite", "zeros")
LAYOUTS: tuple[LayoutKind, ...] = ("transposed", "stepped", "offset", "expanded")
ROW_SIZES = (257, 1, 2, 16, 31, 128, 255, 256, 1031, 0)
OUTER_SIZES = (5, 1, 33, 0)


@dataclass(frozen=True)
class Limits:
    """How large a case may be: the interpreter runs a program in about a millisecond, a GPU runs millions."""

    elements: int
    """Elements of the largest tensor."""
    outer: int
    """Product of all sizes but the last: about the number of programs of a row kernel."""
    device: str = "cpu"


INTERPRETER = Limits(elements=1 << 16, outer=24)
GPU = Limits(elements=1 << 26, outer=1 << 22, device="cuda")


def plan(task: Task, graph: Graph, variant: Variant, limits: Limits) -> tuple[Case, ...]:
    """The cases for one variant, most telling first, without repeats."""
    cases = [case for case in _ordered(task, graph, variant, limits) if admissible(graph, variant, case)]
    return tuple(dict.fromkeys(map(_freeze, cases)))


def _ordered(task: Task, graph: Graph, variant: Variant, limits: Limits) -> Iterator[Case]:
    calls = {call.index: call for call in task.inputs.calls}
    dtypes = plan_dtypes(graph, variant)
    small = typical_sizes(graph)
    for index in graph.calls:
        yield user_case(graph, calls[index], limits)
    base = Case(call=graph.calls[0], device=limits.device)
    for dtype in dtypes:
        yield replace(base, dtype=dtype, sizes=small, seed=1)
    for dtype in dtypes:
        for values in VALUES:
            yield replace(base, dtype=dtype, sizes=small, values=values, seed=2)
    for number, sizes in enumerate(size_sweep(graph, limits)):
        yield replace(base, dtype=dtypes[number % len(dtypes)], sizes=sizes, seed=3)
    for layout in LAYOUTS:
        for dtype in dtypes[:2]:
            yield replace(base, dtype=dtype, sizes=small, layout=layout, seed=4)
    for scalars in scalar_sweep(graph):
        yield replace(base, dtype=dtypes[0], sizes=small, scalars=scalars, seed=5)
    for index in graph.calls:
        for dtype in dtypes:
            yield replace(user_case(graph, calls[index], limits), dtype=dtype, seed=6)
    for seed, dtype in enumerate(dtypes * 2):
        yield replace(base, dtype=dtype, sizes=small, seed=7 + seed)


def plan_dtypes(graph: Graph, variant: Variant) -> tuple[str | None, ...]:
    """The dtypes to put in place of the call's main one; (None,) where there is none to replace."""
    floating = [tensor for tensor in variant.tensors if any(dtype in FLOATS for dtype in tensor.dtypes)]
    if not variant.same_dtype or not floating:
        return (None,)
    common = set.intersection(*(set(tensor.dtypes) for tensor in floating))
    main = main_dtype(graph)
    ordered = [dtype for dtype in (main, *FLOATS) if dtype in common]
    return tuple(dict.fromkeys(ordered)) or (None,)


def main_dtype(graph: Graph) -> str | None:
    """The dtype of the first floating tensor: what a case's `dtype` replaces."""
    return next((tensor.dtype for tensor in graph.placeholders if tensor.dtype in FLOATS), None)


def user_case(graph: Graph, call: Call, limits: Limits) -> Case:
    """The user's own call, made smaller where this machine cannot run it whole."""
    case = Case(call=call.index, device=limits.device)
    if call.index != graph.calls[0] or fits(graph, graph.symbols, limits):
        return case
    return replace(case, sizes=shrink_to(graph, graph.symbols, limits))


def shrink_to(graph: Graph, sizes: Mapping[str, int], limits: Limits) -> dict[str, int]:
    """Sizes within the limits: halve the largest outer size first, so that rows keep their real length."""
    shrunk = dict(sizes)
    rows = row_symbols(graph)
    while not fits(graph, shrunk, limits):
        outer = [name for name in shrunk if name not in rows and shrunk[name] > 2]
        pool = outer or [name for name in shrunk if shrunk[name] > 2]
        if not pool:
            break
        largest = max(pool, key=lambda name: shrunk[name])
        shrunk[largest] = max(2, shrunk[largest] // 2)
    return shrunk


def fits(graph: Graph, sizes: Mapping[str, int], limits: Limits) -> bool:
    """Whether every tensor of the graph stays within the limits at these sizes."""
    shapes = [tensor.shape for tensor in graph.placeholders] + [node.shape for node in graph.nodes if node.shape]
    return all(_shape_fits(shape, sizes, limits) for shape in shapes)


def _shape_fits(shape: tuple[Dim, ...], sizes: Mapping[str, int], limits: Limits) -> bool:
    try:
        extents = [int(evaluate(dim, sizes)) for dim in shape]
    except (KeyError, ValueError, ZeroDivisionError):
        return True
    return math.prod(extents) <= limits.elements and math.prod(extents[:-1]) <= limits.outer * max(1, len(extents) - 1)


def row_symbols(graph: Graph) -> frozenset[str]:
    """Symbols that appear in a last dimension."""
    last = [tensor.shape[-1] for tensor in graph.placeholders if tensor.shape]
    return frozenset().union(*(names(dim) for dim in last))


def typical_sizes(graph: Graph) -> dict[str, int]:
    """Small, odd-ish sizes that satisfy the guards where the user's own parity allows it."""
    rows = row_symbols(graph)
    chosen: dict[str, int] = {}
    for position, (name, size) in enumerate(graph.symbols.items()):
        wanted = min(size, 96) if name in rows else min(size, 3 + position % 2)
        trials = (wanted + 1, wanted, wanted + 2)
        held = (trial for trial in trials if _holds(graph, {**graph.symbols, **chosen, name: trial}))
        chosen[name] = next(held, size)
    return chosen


def size_sweep(graph: Graph, limits: Limits) -> Iterator[dict[str, int]]:
    """One symbol at a time through the telling sizes, the others small."""
    small, rows = typical_sizes(graph), row_symbols(graph)
    for name in graph.symbols:
        for size in ROW_SIZES if name in rows else OUTER_SIZES:
            sizes = {**small, name: size}
            if fits(graph, sizes, limits):
                yield sizes
    if fits(graph, graph.symbols, limits):
        return
    yield shrink_to(graph, {name: max(2, size - 1) for name, size in graph.symbols.items()}, limits)


def scalar_sweep(graph: Graph) -> Iterator[dict[str, float]]:
    """Each run-time scalar changed on its own, then all together."""
    for scalar in graph.scalars:
        if scalar.type == "float":
            yield {scalar.path: scalar.example * 1.5 + (0.25 if scalar.example == 0 else 0.0)}
            if abs(scalar.example) < 0.05:
                yield {scalar.path: 0.5}  # a tiny one that is ignored shows only when it is not tiny
    floats = [scalar for scalar in graph.scalars if scalar.type == "float"]
    if len(floats) > 1:
        yield {scalar.path: scalar.example * (0.5 + 0.1 * position) for position, scalar in enumerate(floats)}


def admissible(graph: Graph, variant: Variant, case: Case) -> bool:
    """Whether the case lies inside the variant's own guards: outside of them a kernel is never called."""
    scalars = {scalar.name: case.scalars.get(scalar.path, scalar.example) for scalar in graph.scalars}
    sizes = {**graph.symbols, **case.sizes}
    low = all(sizes.get(name, size) >= size for name, size in variant.min_size.items())
    high = all(sizes.get(name, size) <= size for name, size in variant.max_size.items())
    return low and high and all(_true(guard, {**sizes, **scalars}) for guard in variant.guards)


def _holds(graph: Graph, sizes: Mapping[str, int]) -> bool:
    scalars = {scalar.name: scalar.example for scalar in graph.scalars}
    return all(_true(guard, {**sizes, **scalars}) for guard in graph.guards)


def _true(guard: str, values: Mapping[str, float]) -> bool:
    try:
        return bool(evaluate(guard, values))
    except (KeyError, ValueError, ZeroDivisionError):
        return False


class _FrozenDict(dict[str, float]):
    """A mapping that hashes by content, so that equal cases are found."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def _freeze(case: Case) -> Case:
    return replace(case, sizes=_FrozenDict(case.sizes), scalars=_FrozenDict(case.scalars))  # type: ignore[arg-type]
