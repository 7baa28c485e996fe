"""The edit: what it writes, that it comes out again exactly, and that the edited file behaves as before."""

# ruff: noqa: E501 (a sample is a whole file, and reads best on one line)
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from source_samples import (
    RMS_NORM,
    RMS_NORM_DOMAIN,
    document,
    evidence,
    example,
    plus_one,
    plus_one_domain,
)

from kernelwright.errors import StaleProposal, TargetNotFound, UsageError
from kernelwright.model import Domain, Fixed, Scalar
from kernelwright.source.edit import Edit, accepted, propose, restore
from kernelwright.source.locate import find_target, find_targets
from kernelwright.source.module import assemble

GOLDEN = Path(__file__).parents[1] / "golden" / "edits"
T = "import torch\n"


@dataclass(frozen=True)
class Sample:
    """A user's file, the target in it, the candidate's parameters, and expressions to evaluate in the module."""

    text: str
    qualname: str
    parameters: str
    calls: tuple[str, ...]
    domain: Domain = field(default_factory=plus_one_domain)
    output: str = "torch.empty_like(x)"
    warns: bool = True

    def edit(self, text: str | None = None, **options: Any) -> Edit:
        target = find_target(document(self.text if text is None else text), self.qualname)
        candidate = plus_one(target.name, self.parameters, self.output)
        return propose(target, assemble(candidate, target, self.domain), evidence(target, self.domain), **options)


V = "torch.arange(5.)"
SAMPLES = {
    "function": Sample(f"{T}\n\n# what it does\ndef f(x):\n    return x + 1\n", "f", "x", (f"f({V})", f"f({V}.double())")),
    "tabs_crlf_bom_no_final_newline": Sample(
        f"\ufeff# 🎉\n{T}class A:\n\t@staticmethod\n\tdef f(x):\n\t\treturn x + 1".replace("\n", "\r\n"), "A.f", "x", (f"A.f({V})", f"A().f({V})")
    ),
    "method": Sample(
        f"{T}class A(torch.nn.Module):\n  def __init__(self):\n    super().__init__()\n    self.w = None\n  def forward(self, x):\n"
        "    y = x if self.w is None else self.w\n    return y + 1\n",
        "A.forward", "self, x", (f"A()({V})", f"A().forward({V})", "A.forward.__name__"), plus_one_domain(Fixed("self.w", None)),
    ),
    "class_method": Sample(f"{T}class A:\n    @classmethod\n    def f(cls, x):\n        return x + 1\n", "A.f", "cls, x", (f"A.f({V})",)),
    "async": Sample(
        f"{T}import asyncio, inspect\nasync def f(x):\n    await asyncio.sleep(0)\n    return x + 1\n", "f", "x",
        (f"asyncio.run(f({V}))", "inspect.iscoroutinefunction(f)"),
    ),
    "nested": Sample(
        f"{T}def outer(k):\n    def inner(x):\n        return x + 1 + k\n    return inner\n", "outer.<locals>.inner", "x",
        (f"outer(0)({V})", f"outer(0)({V})"),
    ),
    "names_taken": Sample(
        "tl = 5\nmath = 'm'\ntry:\n    import triton\nexcept ImportError:\n    triton = None\ntorch = 3\nfunctools = warnings = 0\n"
        "_plus_one_kernel = _f_triton = 7\ndef f(x):\n    import torch\n    return torch.add(x, 1)\n"
        "def others(): return tl, math, torch, functools, warnings, _plus_one_kernel, _f_triton\n",
        "f", "x", ("f(__import__('torch').arange(5.))", "others()"),
    ),
    "torch_in_the_function": Sample(
        "def f(x):\n    import torch\n    return torch.add(x, 1)\n", "f", "x", ("f(__import__('torch').arange(5.))",)
    ),
    "star_import": Sample("from torch import *\nfrom math import *\ndef f(x):\n    return add(x, 1)\n", "f", "x", ("f(arange(5.))", "log(1)")),
    "scripted": Sample(f"{T}@torch.jit.script\ndef f(x: torch.Tensor, k: int = 1):\n    return x + k\n", "f", "x, k=1", (f"f({V})", f"f({V}, k=1)")),
    "defaults_of_its_own": Sample(
        f"{T}ONE = 1\nMARK = []\nclass A:\n    TWO = 2\n    def f(self, x, k=ONE, *, mark=MARK, two=TWO):\n        return x + k if mark is MARK else two\n",
        "A.f", "self, x, k=1, *, mark=None, two=2", (f"A().f({V})", f"A().f({V}, 3)", f"A().f({V}, mark=1)"),
        domain=plus_one_domain(Fixed("k", 1), Fixed("mark", {"repr": "[]"})),
    ),
    "in_place": Sample(
        f"{T}def f(x):\n    return x.add_(1)\n", "f", "x",
        (f"f({V})", "(lambda v: (f(v), v, v._version, f(v[1:]), v))(torch.ones(3))", "f(torch.ones(1).expand(1))"),
        plus_one_domain(mutated=True), "x",
    ),
    "signature": Sample(
        f"{T}import inspect\ndef f(x, /, reason=None, *original, dispatch=2, **torch_):\n    'Doc.'\n    return x + 1\n", "f",
        "x, /, reason=None, *original, dispatch=2, **torch_",
        (f"f({V})", f"f({V}, 1, 2, 3, dispatch=4, z=5)", "str(inspect.signature(f))", "f.__doc__, f.__name__, f.__qualname__, f.__module__ == __name__"),
    ),
    "wrong_calls": Sample(f"{T}def f(x, k=1):\n    return x + k\n", "f", "x, k=1", ("f()", f"f({V}, 1, 2)", "f(x=1, z=2)", "f('a')"),
                          plus_one_domain(Fixed("k", 1))),
    "decorated": Sample(
        f"{T}def twice(g):\n    return lambda *a: g(g(*a))\n\n# %% cell\n# inputs: x: f32[8]\n@twice\n# between\n@torch.no_grad()\ndef f(x):\n    return x + 1\n",
        "f", "x", (f"f({V})", f"f({V}.requires_grad_())"),
    ),
    "under_if": Sample(f"{T}if True:\n    def f(x):\n        return x + 1\nelse:\n    f = None\n", "f", "x", (f"f({V})",)),
    "future": Sample(f"'''Doc.'''\nfrom __future__ import annotations\n{T}def f(x: Undefined) -> Undefined:\n    return x + 1\n", "f", "x", (f"f({V})", "f.__annotations__")),
    "scalar": Sample(f"{T}def f(x, k=1.0):\n    return x + 1 if k == 1 else x + k\n", "f", "x, k=1.0", (f"f({V})", f"f({V}, 1)", f"f({V}, True)"),
                     plus_one_domain(scalars=(Scalar("k", "k", "float", 1.0),))),
    "gradients": Sample(f"{T}def f(x):\n    return x + 1\n", "f", "x", ("f(torch.ones(3, requires_grad=True)).requires_grad", "f(torch.nn.Parameter(torch.ones(3))).requires_grad")),
    "transforms": Sample(
        f"{T}def f(x):\n    return x + 1\n", "f", "x",
        ("torch.func.vmap(f)(torch.ones(2, 3))", "torch.func.jvp(f, (torch.ones(3),), (torch.ones(3),))", "torch.jit.trace(f, torch.ones(3))(torch.zeros(3))"),
    ),
    "silent": Sample(f"{T}def f(x):\n    return x + 1\n", "f", "x", (f"f({V})", f"f({V}.double())"), warns=False),
}  # fmt: skip


def first_try(name: str) -> Edit:
    return SAMPLES[name].edit(warn=SAMPLES[name].warns)


# --- the text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_the_edit_only_adds_lines_and_comes_out_again(name: str) -> None:
    sample, edit = SAMPLES[name], first_try(name)
    assert all((change.span.start_line, 0) == (change.span.end_line, change.span.end_column) for change in edit.changes)
    assert edit.apply(sample.text) == edit.text != sample.text
    edited = document(edit.text)
    (kernel,) = accepted(edited)
    target = find_target(edited, sample.qualname)
    assert (kernel.qualname, kernel.evidence_id) == (sample.qualname, "0123456789abcdef")
    assert kernel.source_hash == target.source_hash == find_target(document(sample.text), sample.qualname).source_hash
    assert kernel.decorator_line is not None
    assert edit.text.splitlines()[kernel.decorator_line].strip().startswith("@_kernelwright_")
    assert restore(edited, sample.qualname).text == sample.text


@pytest.mark.parametrize("name", SAMPLES)
def test_a_new_kernel_takes_the_place_of_the_old(name: str) -> None:
    sample, edit = SAMPLES[name], first_try(name)
    again = sample.edit(edit.text, warn=sample.warns)
    assert again.text == edit.text
    assert again.changes == ()
    assert again.diff == ""
    sibling = sample.edit(edit.text, placement="sibling")
    assert restore(document(sibling.text), sample.qualname).text == sample.text


@pytest.mark.parametrize("name", SAMPLES)
def test_line_ends_and_indentation_are_the_users(name: str) -> None:
    text, edit = SAMPLES[name].text, first_try(name).text
    assert ("\r\n" in text) == ("\r\n" in edit)
    assert edit.count("\n") - edit.count("\r\n") == (0 if "\r\n" in text else edit.count("\n"))
    assert edit.startswith("\ufeff") == text.startswith("\ufeff")
    assert edit.count("\ufeff") == text.count("\ufeff")
    if "\t" in text:
        assert "\n    " not in edit


def test_a_second_kernel_in_the_file_keeps_out_of_the_firsts_way() -> None:
    text = f"{T}def f(x):\n    return torch.add(x, 1)\n\n\ndef g(x):\n    return torch.add(x, 1)\n"
    one = Sample(text, "f", "x", ())
    both = Sample(one.edit().text, "g", "x", ()).edit()
    assert [kernel.qualname for kernel in accepted(document(both.text))] == ["f", "g"]
    assert [target.qualname for target in find_targets(document(both.text))] == ["f", "g"]
    assert restore(document(both.text), "g").text == one.edit().text
    assert restore(document(restore(document(both.text), "f").text), "g").text == text
    definitions = [line.split("(")[0] for line in both.text.splitlines() if line.lstrip().startswith("def ")]
    assert len(definitions) == len(set(definitions)) + 1, "only `dispatch`, inside each decorator, is there twice"


def test_a_syntax_error_elsewhere_is_no_obstacle() -> None:
    text = f"{T}def broken(x\n\ndef f(x):\n    return x + 1\n\nz = (\n"
    edit = Sample(text, "f", "x", ()).edit()
    assert restore(document(edit.text), "f").text == text
    assert find_target(document(edit.text), "f").source_hash == find_target(document(text), "f").source_hash


def test_restoring_after_a_formatter_moved_blank_lines() -> None:
    text = f"{T}\n\ndef f(x):\n    return x + 1\n"
    edited = Sample(text, "f", "x", ()).edit().text
    squeezed = edited.replace("# <<< kernelwright: f\n\n\n", "# <<< kernelwright: f\n\n")
    assert squeezed != edited
    assert restore(document(squeezed), "f").text == text


def test_faults_are_said() -> None:
    edit = first_try("function")
    with pytest.raises(StaleProposal):
        edit.apply(SAMPLES["function"].text + "\n")
    with pytest.raises(UsageError, match="no kernel for g"):
        restore(document(edit.text), "g")
    target = find_target(document(SAMPLES["function"].text), "f")
    gone = find_target(document(f"{T}def f(x):\n    return 1\n"), "f")
    with pytest.raises(UsageError, match="does not define f"):
        propose(target, RMS_NORM, evidence(target, RMS_NORM_DOMAIN))
    with pytest.raises(TargetNotFound):
        propose(
            type(gone)(document(""), "f", gone.source, gone.span, 0, gone.parameters),
            plus_one("f", "x"),
            evidence(gone, plus_one_domain()),
        )


def test_the_sibling_file_lies_beside_the_document() -> None:
    edit = SAMPLES["function"].edit(placement="sibling")
    assert edit.sibling is not None
    path, text = edit.sibling
    assert path == "user_f_triton.py"
    assert "_plus_one_kernel" in text
    assert "_plus_one_kernel" not in edit.text
    assert "+++ user_f_triton.py" in edit.diff


@pytest.mark.parametrize("name, placement", [("rms_norm", "inline"), ("rms_norm_sibling", "sibling")])
def test_golden(name: str, placement: Any) -> None:
    """UPDATE_GOLDENS=1 writes them anew."""
    target = example("rms_norm", "rms_norm")
    module = assemble(RMS_NORM, target, RMS_NORM_DOMAIN)
    edit = propose(target, module, evidence(target, RMS_NORM_DOMAIN), placement=placement)
    path = GOLDEN / f"{name}.diff"
    if os.environ.get("UPDATE_GOLDENS"):
        path.write_text(edit.diff, encoding="utf-8")
    assert edit.diff == path.read_text(encoding="utf-8")


# --- the behaviour ---------------------------------------------------------------------------------------------------

RUNNER = """
import importlib, json, os, sys, warnings
if MODE == "without triton":
    sys.modules["triton"] = None
sys.path.insert(0, FOLDER)
import torch
def plain(value):
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.detach().tolist()]
    return [plain(part) for part in value] if isinstance(value, (tuple, list)) else repr(value)
answers = {}
for name, calls in CALLS.items():
    module = importlib.import_module(name)
    got = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in calls:
            try:
                got.append(plain(eval(call, vars(module))))
            except Exception as error:
                got.append([type(error).__name__, str(error).split("\\n")[0]])
    told = [(str(w.message), os.path.basename(w.filename)) for w in caught if "Triton kernel" in str(w.message)]
    answers[name] = {"got": got, "warned": told}
print(json.dumps(answers))
"""


@lru_cache
def behaviour(mode: str) -> dict[str, Any]:
    """What every sample's calls give, in one process a mode: the plain file and the edited one."""
    with tempfile.TemporaryDirectory() as folder:
        calls: dict[str, tuple[str, ...]] = {}
        for name, sample in SAMPLES.items():
            sibling = sample.edit(placement="sibling", warn=sample.warns)
            assert sibling.sibling is not None
            (Path(folder) / sibling.sibling[0].replace("user", "user")).write_bytes(b"")
            texts = {"plain": sample.text, "inline": first_try(name).text}
            for kind, text in texts.items():
                (Path(folder) / f"{kind}_{name}.py").write_bytes(text.encode())
                calls[f"{kind}_{name}"] = sample.calls
        settings = f"MODE = {mode!r}\nFOLDER = {folder!r}\nCALLS = {calls!r}\n"
        environment = os.environ | {
            "TRITON_INTERPRET": "1" if mode == "interpreted" else "0",
            "CUDA_VISIBLE_DEVICES": "",
        }
        ran = subprocess.run(
            [sys.executable, "-c", settings + RUNNER], env=environment, capture_output=True, text=True, timeout=300
        )
        assert ran.returncode == 0, ran.stderr
        answers: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        return answers


MODES = ("without triton", "without a GPU", "interpreted")


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("mode", MODES)
def test_the_edited_file_behaves_as_before(name: str, mode: str) -> None:
    answers = behaviour(mode)
    assert answers[f"inline_{name}"]["got"] == answers[f"plain_{name}"]["got"]


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("mode", MODES[:2])
def test_falling_back_is_told_once_a_reason(name: str, mode: str) -> None:
    told = [message for message, _ in behaviour(mode)[f"inline_{name}"]["warned"]]
    assert len(told) == len(set(told))
    assert bool(told) == SAMPLES[name].warns
    reasons = {"without triton": "Triton is not installed", "without a GPU": ": "}
    assert all(reasons[mode] in message and SAMPLES[name].qualname in message for message in told)


def test_the_warning_points_at_the_caller() -> None:
    assert {file for _, file in behaviour("without a GPU")["inline_function"]["warned"]} == {"<string>"}


def test_the_kernel_runs_where_it_was_checked_and_only_there() -> None:
    told = {name: [m for m, _ in behaviour("interpreted")[f"inline_{name}"]["warned"]] for name in SAMPLES}
    assert told["method"] == told["names_taken"] == told["nested"] == told["async"] == told["scripted"] == []
    assert told["function"] == ["f runs without its Triton kernel: x is not float32"]
    assert [message.partition(": ")[2] for message in told["gradients"]] == [
        "gradients are needed, and the kernel has no backward"
    ]
    assert [message.partition(": ")[2] for message in told["transforms"]] == [
        "the call is inside a torch.func transform or forward-mode differentiation",
        "the call is being compiled or traced",
    ]
    assert [message.partition(": ")[2] for message in told["scalar"]] == ["k is not a plain Python float"]
