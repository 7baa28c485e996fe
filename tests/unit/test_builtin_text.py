"""The text that the built-in generator writes: whole modules against goldens, and what holds of all of them."""

import ast
import asyncio
import os
import re
from pathlib import Path

import pytest
from builtin_samples import GENERATED, REFUSED, task

from kernelwright.model import Candidate, Finding, Refusal, Refuted
from kernelwright.ports import ignore
from kernelwright.providers.builtin import BuiltinProvider

GOLDEN = Path(__file__).parents[1] / "golden" / "builtin"


def draft(name):
    return asyncio.run(BuiltinProvider().draft(task(name), (), ignore))


@pytest.mark.parametrize("name", GENERATED)
def test_golden(name):
    """UPDATE_GOLDENS=1 writes them anew; read the difference as you would read a colleague's kernel."""
    path, candidate = GOLDEN / f"{name}.py", draft(name)
    assert isinstance(candidate, Candidate), candidate
    if os.environ.get("UPDATE_GOLDENS"):
        path.write_text(candidate.source)
    assert candidate.source == path.read_text()


@pytest.mark.parametrize("name", GENERATED)
def test_every_line_and_argument_is_used(name):
    tree = ast.parse(draft(name).source)
    functions = [item for item in tree.body if isinstance(item, ast.FunctionDef)]
    unused = {}
    for function in functions:
        read = {item.id for item in ast.walk(function) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)}
        written = {
            item.id for item in ast.walk(function) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)
        }
        arguments = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
        is_kernel = bool(function.decorator_list)
        unused[function.name] = (written | (arguments if is_kernel else set())) - read - {"_"}
    assert unused == {function.name: set() for function in functions}


@pytest.mark.parametrize("name", GENERATED)
def test_lines_fit_and_only_three_modules_are_imported(name):
    source = draft(name).source
    assert [line for line in source.splitlines() if len(line) > 100 or line != line.rstrip()] == []
    modules = re.findall(r"^(?:import|from) (\w+)", source, re.M)
    assert set(modules) <= {"math", "torch", "triton"}


@pytest.mark.parametrize("name", GENERATED)
def test_no_size_of_the_example_is_in_the_text(name):
    """The example is 5 x 96 (and 20 channels): a kernel for any size mentions none of these."""
    numbers = {item.value for item in ast.walk(ast.parse(draft(name).source)) if isinstance(item, ast.Constant)}
    assert numbers.isdisjoint({5, 96, 20})


def test_the_same_task_gives_the_same_text():
    assert draft("rms_norm") == draft("rms_norm")


def test_the_claim_covers_all_floating_dtypes_with_the_graphs_own_shapes():
    (variant,) = draft("rms_norm").variants
    graph = task("rms_norm").graphs[0]
    assert [(tensor.path, tensor.shape) for tensor in variant.tensors] == [
        (p.path, p.shape) for p in graph.placeholders
    ]
    assert {tensor.dtypes for tensor in variant.tensors} == {("float32", "bfloat16", "float16")}
    assert variant.scalars == graph.scalars


@pytest.mark.parametrize(
    ("name", "op", "line"), [("matmul_bias", "aten.mm.default", "x @ w"), ("positive_part", None, None)]
)
def test_what_stops_it_is_named_with_its_line(name, op, line):
    refusal = draft(name)
    assert isinstance(refusal, Refusal)
    assert refusal.reason
    if op:
        assert refusal.op == op
        assert line in task(name).target.document.text.splitlines()[refusal.line - 1]
    assert name in REFUSED


def test_a_refuted_candidate_is_not_offered_again():
    candidate = draft("softmax")
    tried = (Refuted(candidate, Finding("K201", "a value is wrong")),)
    answer = asyncio.run(BuiltinProvider().draft(task("softmax"), tried, ignore))
    assert answer == Refusal("the built-in generator's kernel was refuted: a value is wrong")
