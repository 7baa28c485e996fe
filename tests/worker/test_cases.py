"""Cases are made as described, eager agrees with itself on all of them, and wrong outputs are found out."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from reference_samples import graphs, judged, loaded, quiet, request, tensor

from kernelwright.worker import wire
from kernelwright.worker.inputs import leaves, rebuild
from kernelwright.worker.reference import Reference

SOFTMAX = "import torch\ndef f(x, t=1.0):\n    return torch.softmax(x / t, -1)\n"
X = tensor("x", "float32", 6, 40)


def worker(folder: Path, text: str = SOFTMAX, *literal: Any) -> Reference:
    reference = Reference()
    reference.load(request(folder, text, "f", list(literal) or [X]), quiet)
    graphs(reference)
    return reference


def inputs_of(reference: Reference, folder: Path, **case: Any) -> wire.CallData:
    asked = {"folder": str(folder), "cases": [{"call": 0, "seed": 0, **case}]}
    (made,) = reference.make(asked, quiet)["made"]
    return wire.read_call(Path(made["folder"]))


def test_sizes_dtype_and_scalars_are_as_asked(tmp_path: Path) -> None:
    reference = worker(tmp_path)
    call = inputs_of(reference, tmp_path, sizes={"s1": 7}, dtype="float16", scalars={"t": 2.5})
    assert (tuple(call.args[0].shape), call.args[0].dtype, call.kwargs) == ((6, 7), torch.float16, {"t": 2.5})


LAYOUTS = {
    "contiguous": lambda x: x.is_contiguous() and x.storage_offset() == 0,
    "transposed": lambda x: x.stride() == (1, 6),
    "stepped": lambda x: x.stride() == (80, 2),
    "offset": lambda x: x.is_contiguous() and x.storage_offset() == 1,
    "expanded": lambda x: x.stride() == (0, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_as_asked(tmp_path: Path, layout: str) -> None:
    reference = worker(tmp_path)
    assert LAYOUTS[layout](inputs_of(reference, tmp_path, layout=layout).args[0])


VALUES = {
    "small": lambda x: x.abs().max() < 0.01,
    "large": lambda x: x.abs().max() > 40,
    "offset": lambda x: x.min() > 90,
    "positive": lambda x: x.min() >= 0,
    "outlier": lambda x: x.abs().max() > 10 and x.abs().median() < 2,
    "nonfinite": lambda x: x.isnan().sum() == 1 and x.isinf().sum() == 2,
    "zeros": lambda x: (x == 0).all(),
}


@pytest.mark.parametrize("values", VALUES)
def test_values_are_as_asked(tmp_path: Path, values: str) -> None:
    reference = worker(tmp_path)
    assert VALUES[values](inputs_of(reference, tmp_path, values=values, seed=3).args[0])


def test_labels_stay_inside_of_a_dimension_that_shrinks(tmp_path: Path) -> None:
    text = "import torch\ndef f(x, y):\n    return x.gather(1, y[:, None])\n"
    reference = worker(tmp_path, text, X, tensor("y", "int64", 6))
    assert inputs_of(reference, tmp_path, sizes={"s1": 3}).args[1].max() < 3


def test_what_the_function_rejects_is_not_applicable(tmp_path: Path) -> None:
    text = "import torch\ndef f(x):\n    if x.shape[0] == 3: raise KeyError('three')\n    return x\n"
    asked = {"folder": str(tmp_path), "cases": [{"call": 0, "seed": 0, "sizes": {"s0": 3}}]}
    (made,) = worker(tmp_path, text).make(asked, quiet)["made"]
    assert (made["exception"], "KeyError" in made["not_applicable"]) == ("KeyError", True)


def test_constant_parameters_are_made_random(tmp_path: Path) -> None:
    text = """
    import torch
    def make_inputs(device, dtype, seed):
        return [dict(self=torch.nn.LayerNorm(8), args=(torch.ones(2, 8),))]
    class C:
        def f(self, x): return x * self.weight
    """
    reference = loaded(tmp_path, text, "C.f")
    weight = inputs_of(reference, tmp_path, values="normal").owner.weight
    assert weight.unique().numel() == 8


def write_gap(x: torch.Tensor) -> None:
    """Write between the elements of a stepped tensor."""
    x.as_strided((1,), (1,), 1).add_(1)


WRONG: dict[str, tuple[dict[str, Any], Any, str]] = {
    "zeros": ({}, lambda x, t=1.0: torch.zeros_like(x), "K201"),
    "without the maximum taken out": ({"values": "large"}, lambda x, t=1.0: x.exp() / x.exp().sum(-1, keepdim=True), "K205"),
    "one row": ({}, lambda x, t=1.0: torch.softmax(torch.cat([x[:1] * 1.01, x[1:]]), -1), "K201"),
    "the scalar forgotten": ({"scalars": {"t": 2.0}}, lambda x, t=1.0: torch.softmax(x, -1), "K201"),
    "a shape": ({}, lambda x, t=1.0: torch.softmax(x, -1)[:, 1:], "K202"),
    "a dtype": ({}, lambda x, t=1.0: torch.softmax(x, -1).double(), "K203"),
    "a tuple": ({}, lambda x, t=1.0: (torch.softmax(x, -1),), "K204"),
    "None": ({}, lambda x, t=1.0: None, "K204"),
    "NaN hidden": ({"values": "nonfinite"}, lambda x, t=1.0: torch.softmax(x.nan_to_num(), -1), "K205"),
    "an input zeroed": ({}, lambda x, t=1.0: (torch.softmax(x, -1), x.zero_())[0], "K206"),
    "a gap written": ({"layout": "stepped"}, lambda x, t=1.0: (torch.softmax(x, -1), write_gap(x))[0], "K206"),
    "rounding to bfloat16": ({}, lambda x, t=1.0: torch.softmax(x, -1).bfloat16().float(), "K201"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_candidate_is_refuted(tmp_path: Path, fault: str) -> None:
    case, candidate, code = WRONG[fault]
    answer = judged(worker(tmp_path), tmp_path, case, candidate)["disagreed"]
    assert answer["finding"]["code"] == code
    assert answer["counterexample"]["arguments"][0]["path"] == "x"
    if code in ("K201", "K205"):
        assert len(answer["counterexample"]["index"]) == 2
        assert answer["counterexample"]["got"] != answer["counterexample"]["expected"]


def test_zeros_do_not_pass_for_a_wide_softmax(tmp_path: Path) -> None:
    reference = worker(tmp_path, SOFTMAX, tensor("x", "float32", 1, 393_216))
    answer = judged(reference, tmp_path, {}, lambda x, t=1.0: torch.zeros_like(x))
    assert answer["disagreed"]["finding"]["code"] == "K201"


STEP = "import torch\ndef f(p, g):\n    p.add_(g, alpha=-0.5)\n"
STEPS = {
    "right": (lambda p, g: p.copy_(p - 0.5 * g), None),
    "missing": (lambda p, g: p, "K207"),
    "wrong": (lambda p, g: p.copy_(p + 0.5 * g), "K207"),
    "the other one too": (lambda p, g: (p.add_(g, alpha=-0.5), g.zero_()), "K206"),
}


@pytest.mark.parametrize("layout", ["user", "stepped", "transposed", "offset"])
@pytest.mark.parametrize("kind", STEPS)
def test_a_mutation_is_compared_like_an_output(tmp_path: Path, kind: str, layout: str) -> None:
    step, code = STEPS[kind]
    reference = worker(tmp_path, STEP, tensor("p", "float32", 4, 6), tensor("g", "float32", 4, 6))

    def candidate(p: torch.Tensor, g: torch.Tensor) -> None:
        step(p, g)

    answer = judged(reference, tmp_path, {"layout": layout}, candidate)
    found = answer["disagreed"]["finding"]["code"] if "disagreed" in answer else None
    assert found == code


def test_output_files_that_make_no_sense_are_a_finding(tmp_path: Path) -> None:
    reference = worker(tmp_path)
    case = {"call": 0, "seed": 0}
    (made,) = reference.make({"folder": str(tmp_path), "cases": [case]}, quiet)["made"]
    (Path(made["folder"]) / "outputs.json").write_text('{"nonce": "n", "output": {"tensor": {}}}')
    (answer,) = reference.judge({"cases": [{"case": case, "folder": made["folder"]}]}, quiet)["judged"]
    assert answer["disagreed"]["finding"]["code"] == "K204"


# --- The real functions ----------------------------------------------------------------------------------------------

REAL = Path(__file__).parents[1] / "cases" / "open"
TARGETS = {
    path.stem: next(line.split('"')[1] for line in path.read_text().splitlines() if line.startswith("TARGET"))
    for path in sorted(REAL.glob("*.py"))
}
DTYPES = ("float32", "bfloat16", "float16")
CHANGES = [
    {"dtype": dtype, name: change}
    for dtype, (name, change) in zip(
        itertools.cycle(DTYPES),
        [("values", kind) for kind in ("user", "normal", *VALUES)]
        + [("layout", kind) for kind in LAYOUTS]
        + [("values", "user")] * 3,
        strict=False,
    )
]


# Its inputs are module globals, which the next call for inputs replaces: the tracer refuses it for that.
READS_GLOBALS = {"38_notebook_batchnorm"}


@pytest.mark.parametrize("name", sorted(TARGETS.keys() - READS_GLOBALS))
def test_eager_agrees_with_itself(tmp_path: Path, name: str) -> None:
    path = REAL / f"{name}.py"
    reference = Reference()
    spec = {"origin": "file", "spec": f"{path}:make_inputs"}
    asked = {"path": str(path), "text": path.read_text(), "qualname": TARGETS[name], "inputs": spec, "root": None}
    calls = [call["index"] for call in reference.load(asked, quiet)["calls"] if not call["raises"]]
    cases = [{"call": index, "seed": 2, **change} for index in calls[:3] for change in CHANGES]
    made = reference.make({"folder": str(tmp_path), "cases": cases}, quiet)["made"]
    written = [
        {"case": case, "folder": item["folder"]} for case, item in zip(cases, made, strict=True) if "folder" in item
    ]
    for item in written:
        run_itself(reference, Path(item["folder"]))
    answers = reference.judge({"cases": written}, quiet)["judged"]
    failed = [(item["case"], answer) for item, answer in zip(written, answers, strict=True) if "agreed" not in answer]
    assert len(written) > len(cases) / 2
    assert failed == []


def run_itself(reference: Reference, folder: Path) -> None:
    """The function as its own candidate, on inputs mapped from the files; a module is made again over them."""
    call = wire.read_call(folder)
    prepared = reference.prepared(str(folder)).call
    found = dict(mapped("self", call.owner))
    replaced = {id(value): found[path] for path, value in leaves(prepared) if path in found}
    owner = rebuild(prepared, lambda value: replaced.get(id(value), value)).owner
    with torch.no_grad():
        result = prepared.target.call(owner, call.args, call.kwargs)
    wire.write_output(folder, result, "n")


def mapped(path: str, value: Any) -> Any:
    """The tensors of a namespace by path."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            yield from mapped(f"{path}[{position}]", item)
    elif hasattr(value, "__dict__"):
        for name, item in vars(value).items():
            yield from mapped(f"{path}.{name}", item)
