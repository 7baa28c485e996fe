"""Smaller versions of a failing case, the most readable first. Pure; the verifier tries them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kernelwright.model import Case, Graph
from kernelwright.verify.plan import typical_sizes


def smaller(case: Case, graph: Graph) -> Iterator[Case]:
    """Cases that are simpler than `case` in one respect."""
    sizes = {**graph.symbols, **case.sizes}
    for name in sizes:
        for size in dict.fromkeys((1, 2, 3, sizes[name] // 2)):
            if 0 < size < sizes[name]:
                yield replace(case, sizes={**sizes, name: size})
    if not case.sizes and graph.symbols:
        yield replace(case, sizes=typical_sizes(graph))
    if case.layout != "contiguous" and case.layout != "user":
        yield replace(case, layout="contiguous")
    if case.values not in ("user", "normal"):
        yield replace(case, values="normal")
    if case.scalars:
        yield replace(case, scalars={})
