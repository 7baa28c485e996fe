"""The plan is pure, so these are tables over what it yields."""

from dataclasses import replace

import pytest
from samples import GRAPH, TASK

from kernelwright.model import Argument, Call, Case, Inputs, Placeholder, Scalar, TensorSpec
from kernelwright.verify.domain import excludes_a_call, from_graph, is_contiguous, matches, narrow, pair
from kernelwright.verify.plan import GPU, INTERPRETER, LAYOUTS, VALUES, fits, plan, shrink_to, typical_sizes
from kernelwright.verify.shrink import smaller
from kernelwright.verify.verifier import admissible_after

VARIANT = from_graph(GRAPH)
CASES = plan(TASK, GRAPH, VARIANT, INTERPRETER)


def test_the_users_call_comes_first_with_its_real_row_length():
    first = CASES[0]
    assert (first.call, first.values, first.layout, first.dtype) == (0, "user", "user", None)
    assert first.sizes == {"s0": 16, "s1": 4096}


def test_a_gpu_runs_the_users_call_whole():
    assert plan(TASK, GRAPH, VARIANT, GPU)[0] == Case(call=0, device="cuda")


def test_every_kind_is_there():
    assert {case.values for case in CASES} == {"user", *VALUES}
    assert {case.layout for case in CASES} == {"user", *LAYOUTS}
    assert {case.dtype for case in CASES} == {None, "float32", "bfloat16", "float16"}
    assert len({case.seed for case in CASES}) > 5
    assert any(case.scalars for case in CASES)
    swept = {case.sizes["s1"] for case in CASES if case.sizes}
    assert {0, 1, 2, 31, 255, 256, 257, 1031, 4096} <= swept


def test_no_case_twice_and_all_within_limits():
    described = [(case.describe(), tuple(case.scalars.items())) for case in CASES]
    assert len(described) == len(set(described))
    assert all(fits(GRAPH, {**GRAPH.symbols, **case.sizes}, INTERPRETER) for case in CASES)


def test_it_is_the_same_every_time():
    assert plan(TASK, GRAPH, VARIANT, INTERPRETER) == CASES


def test_guards_bound_the_sizes():
    graph = replace(GRAPH, guards=("s1 % 2 == 0",))
    cases = plan(TASK, graph, from_graph(graph), INTERPRETER)
    assert cases
    assert all({**graph.symbols, **case.sizes}["s1"] % 2 == 0 for case in cases)
    assert typical_sizes(graph)["s1"] % 2 == 0


def test_mixed_dtypes_stay_as_they_are():
    weight = Placeholder("w", "w", "bfloat16", ("s1",))
    graph = replace(GRAPH, placeholders=(*GRAPH.placeholders, weight))
    assert {case.dtype for case in plan(TASK, graph, from_graph(graph), INTERPRETER)} == {None}


def test_shrinking_a_call_keeps_rows_before_columns():
    assert shrink_to(GRAPH, {"s0": 100_000, "s1": 4096}, INTERPRETER)["s1"] == 4096
    assert fits(GRAPH, shrink_to(GRAPH, {"s0": 2, "s1": 10_000_000}, INTERPRETER), INTERPRETER)


def test_a_claim_about_another_graph_covers_nothing():
    other = replace(GRAPH, placeholders=(Placeholder("x", "x", "float32", ("s0",)),))
    assert matches(VARIANT, GRAPH)
    assert not matches(VARIANT, other)
    assert pair(TASK, (from_graph(other),)) == ()
    assert pair(TASK, ()) == ((GRAPH, VARIANT),)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case(0, layout="transposed"), "contiguous tensors only"),
        (Case(0, sizes={"s0": 0, "s1": 9}), "s0 at least 1"),
        (Case(0, sizes={"s0": 1, "s1": 9}), "s0 at least 2"),
        (Case(0, dtype="float16"), "not float16"),
        (Case(0, dtype="float32"), None),
        (Case(0, values="nonfinite"), None),
        (Case(0, sizes={"s0": 3, "s1": 9}), None),
        (Case(0, scalars={"factor": 3.0}), "factor = 2 only"),
    ],
)
def test_narrowing(case, words):
    narrowed = narrow(VARIANT, case, "float32")
    assert (narrowed[1] if narrowed else None) == words
    if narrowed:
        assert narrowed[0] != VARIANT


def test_smaller_cases_change_one_thing():
    case = Case(0, sizes={"s0": 5, "s1": 257}, layout="stepped", values="large", scalars={"factor": 3.0})
    shrunk = list(smaller(case, GRAPH))
    assert replace(case, layout="contiguous") in shrunk
    assert replace(case, values="normal") in shrunk
    assert replace(case, sizes={"s0": 1, "s1": 257}) in shrunk
    assert all(other != case for other in shrunk)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((2, 3), (3, 1), True),
        ((2, 3), (1, 2), False),
        ((1, 3), (999, 1), True),
        ((2, 3), (6, 2), False),
        ((0, 3), (1, 7), True),
        ((), (), True),
        ((4, 3), (0, 1), False),
    ],
)
def test_contiguous(shape, strides, expected):
    assert is_contiguous(TensorSpec("float32", shape, strides)) is expected


def test_a_domain_is_not_narrowed_past_the_users_own_calls():
    narrowed, _ = narrow(VARIANT, Case(0, layout="transposed"), "float32")
    transposed = Call(1, (Argument("x", TensorSpec("float32", (4, 3), (1, 4))),))
    task = replace(TASK, inputs=Inputs("file", "f.py:f", calls=(*TASK.inputs.calls, transposed)))
    assert not excludes_a_call(narrowed, task, {0})
    assert excludes_a_call(narrowed, task, {0, 1})
    assert not excludes_a_call(VARIANT, task, {0, 1})


def test_a_scalar_that_got_fixed_is_not_changed_again_and_still_matches():
    narrowed, _ = narrow(VARIANT, Case(0, scalars={"factor": 3.0}), "float32")
    assert narrowed.scalars == ()
    assert matches(narrowed, GRAPH)
    assert not admissible_after(GRAPH, narrowed, Case(0, scalars={"factor": 5.0}), "float32")
    assert admissible_after(GRAPH, narrowed, Case(0), "float32")


def test_a_tiny_scalar_is_tried_large():
    graph = replace(GRAPH, scalars=(Scalar("eps", "eps", "float", 1e-6),))
    tried = {case.scalars["eps"] for case in plan(TASK, graph, from_graph(graph), INTERPRETER) if case.scalars}
    assert 0.5 in tried
