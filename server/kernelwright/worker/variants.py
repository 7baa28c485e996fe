"""All calls of a target traced, and those with the same graph put together: one graph a variant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from kernelwright.worker.graphs import build_graph
from kernelwright.worker.inputs import LiveCall
from kernelwright.worker.judging import Traced
from kernelwright.worker.tracing import Refused, trace
from kernelwright.worker.wire import Json

_EXAMPLE = ("calls", "symbols", "bytes_moved", "flops")


def trace_calls(calls: list[LiveCall]) -> Traced:
    """Trace every call that is not meant to raise."""
    traced = Traced()
    known: dict[str, Json] = {}
    for call in calls:
        if call.raises is not None:
            continue
        own = trace_one(call)
        key = _key(own)
        if key in known:
            known[key]["calls"].append(call.index)
        else:
            known[key] = own
            traced.graphs.append(own)
        graph = known[key]
        traced.graph_of[call.index] = graph
        traced.symbols_of[call.index] = dict(own["symbols"])
    return traced


def trace_one(call: LiveCall) -> Json:
    """The graph of one call, its `refusal` set where it cannot be a kernel."""
    with called_modules() as called:
        graph = _trace_one(call)
    if not called or graph["refusal"]:
        return graph
    owned = call.owner.named_modules() if isinstance(call.owner, torch.nn.Module) else ()
    names = {id(module): f"self.{name}" for name, module in owned}
    name = names.get(id(called[0]), type(called[0]).__name__)
    return refusal_graph(
        call,
        Refused(
            f"it calls the module {name}: the kernel would not notice when that is replaced or hooked. "
            "Use its torch.nn.functional form with its parameters"
        ),
    )


@contextmanager
def called_modules() -> Iterator[list[torch.nn.Module]]:
    """The modules that are called meanwhile."""
    called: list[torch.nn.Module] = []
    handle = register_module_forward_pre_hook(lambda module, _: called.append(module))
    try:
        yield called
    finally:
        handle.remove()


def _trace_one(call: LiveCall) -> Json:
    try:
        first = trace(call)
        graph = build_graph(first, call.index)
        if not first.scalars.names:
            return graph
        again = build_graph(trace(call, shift=1), call.index)
        if _key(graph) == _key(again):
            return graph
        # a constant depends on a scalar in a way that was not followed: the graph holds for these values only
        return build_graph(trace(call, pinned=True), call.index)
    except Refused as refused:
        return refusal_graph(call, refused)


def refusal_graph(call: LiveCall, refused: Refused) -> Json:
    """A graph that only says why not."""
    return {
        "calls": [call.index],
        "placeholders": [],
        "nodes": [],
        "output": {"value": None},
        "symbols": {},
        "scalars": [],
        "fixed": [],
        "guards": [],
        "kind": "other",
        "bytes_moved": 0,
        "flops": 0,
        "refusal": {"reason": refused.reason, "op": refused.op, "line": refused.line},
    }


def _key(graph: Json) -> str:
    """Equal for graphs that differ only in the example."""
    kept: dict[str, Any] = {name: value for name, value in graph.items() if name not in _EXAMPLE}
    kept["scalars"] = [{**scalar, "example": 0} for scalar in graph["scalars"]]
    kept["placeholders"] = [{**item, "contiguous": True} for item in graph["placeholders"]]
    return json.dumps(kept, sort_keys=True)
