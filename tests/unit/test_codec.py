"""JSON ↔ the words of the model: what goes in comes out; what has another form is a worker's fault."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernelwright.errors import WorkerError
from kernelwright.model import (
    Argument,
    Call,
    Case,
    Counterexample,
    Finding,
    Fixed,
    Graph,
    Hardware,
    Node,
    Placeholder,
    Refusal,
    Scalar,
    TensorSpec,
)
from kernelwright.sandbox.codec import decode, encode

CASE = Case(3, 7, "bfloat16", {"s0": 5, "s1": 0}, "nonfinite", "transposed", {"eps": 1e-6}, "cuda")
ARGUMENTS = (
    Argument("x", TensorSpec("float32", (2, 3), (1, 2), 4, "cuda", True)),
    Argument("eps", value=1e-6),
    Argument("dtype", value={"repr": "torch.int8"}),
    Argument("mode", value=None),
)
GRAPH = Graph(
    calls=(0, 2),
    placeholders=(Placeholder("x_1", "x", "float32", ("s0", 3, "s0 // 2"), False, True, "add_2"),),
    nodes=(
        Node(
            "add",
            "aten.add.Tensor",
            ({"node": "x_1"}, 1.5, [1, "s0"]),
            {"alpha": {"expr": "2 * s0"}},
            ("s0", 3),
            "float32",
            (),
            12,
        ),
        Node("max", "aten.max.dim", ({"node": "add"}, -1), results=((("s0",), "float32"), (("s0",), "int64"))),
    ),
    output={"tuple": [{"node": "add"}, {"placeholder": "x"}, {"value": None}]},
    symbols={"s0": 8},
    scalars=(Scalar("eps", "eps", "float", 1e-6),),
    fixed=(Fixed("mode", "mean"), Fixed("axis", -1), Fixed("keep", None)),
    guards=("s0 >= 2",),
    kind="row reduction",
    bytes_moved=192,
    flops=24,
    refusal=Refusal("it sorts", "aten.sort.default", 14),
)
VALUES = [
    CASE,
    Call(1, ARGUMENTS, "the second", "ValueError"),
    Call(0, ()),
    Finding("K301", "load out of bounds", 12),
    Finding("K110", "raises"),
    Counterexample(CASE, ARGUMENTS, "output 0", (1, 2), "nan", "0.5", 0.25, 1e-3),
    Counterexample(CASE, ()),
    Hardware(None, ("sm_80",), "2.13.0", "3.7.1", "3.11.9"),
    GRAPH,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_there_and_back(value: Any) -> None:
    assert decode(json.loads(json.dumps(encode(value))), type(value)) == value


MALFORMED: list[tuple[Any, type]] = [
    (None, Finding),
    ([], Finding),
    ({"code": "K301"}, Finding),
    ({"code": "K301", "message": "x", "line": "twelve"}, Finding),
    ({"index": 0, "arguments": 5}, Call),
    ({"call": 0, "values": "no such kind"}, Case),
    ({"call": 0, "sizes": [1]}, Case),
    ({**encode(GRAPH), "placeholders": [{**encode(GRAPH.placeholders[0]), "shape": [True]}]}, Graph),
    ({**encode(GRAPH), "placeholders": [{**encode(GRAPH.placeholders[0]), "shape": [1.5]}]}, Graph),
    ({**encode(GRAPH), "nodes": None}, Graph),
]


@pytest.mark.parametrize("value, kind", MALFORMED, ids=lambda value: getattr(value, "__name__", str(value)[:40]))
def test_another_form_is_a_fault_of_the_worker(value: Any, kind: type) -> None:
    with pytest.raises(WorkerError, match=f"a worker's answer is not a {kind.__name__}"):
        decode(value, kind)
