"""Documents of all kinds are imported from their text, and the target is found in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from reference_samples import loaded, quiet, request, tensor

from kernelwright.worker.reference import Reference
from kernelwright.worker.wire import BadInputs, TargetNotFound

MAKE = """
def make_inputs(device, dtype, seed):
    return [dict(args=(torch.ones(3, dtype=dtype),))]
"""

CLASS = "import torch\nclass C:\n    n = 1\n"
DOCUMENTS = {
    "plain": ("f", "import torch\ndef f(x):\n    return x + 1\n"),
    "CRLF and an emoji": ("f", "import torch\r\n# 🚀🚀\r\ndef f(x):\r\n    return x + 1\r\n"),
    "a magic of a notebook": ("f", "import torch\n%time\n!ls\ndef f(x):\n    return x + 1\n"),
    "a main part": ("f", "import torch\ndef f(x):\n    return x + 1\nif __name__ == '__main__':\n    raise SystemExit(3)\n"),
    "TorchScript": ("f", "import torch\n@torch.jit.script\ndef f(x: torch.Tensor) -> torch.Tensor:\n    return x + 1\n"),
    "torch.compile": ("f", "import torch\n@torch.compile\ndef f(x):\n    return x + 1\n"),
    "no_grad": ("f", "import torch\n@torch.no_grad()\ndef f(x):\n    return x + 1\n"),
    "async": ("f", "import torch\nasync def f(x):\n    return x + 1\n"),
    "static": ("C.f", "import torch\nclass C:\n    @staticmethod\n    def f(x):\n        return x + 1\n"),
    "class method": ("C.f", CLASS + "    @classmethod\n    def f(cls, x):\n        return x + cls.n\n"),
    "method without constructor arguments": ("C.f", CLASS + "    def f(self, x):\n        return x + self.n\n"),
    "conditional": ("f", "import torch\nif True:\n    def f(x):\n        return x + 1\n"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_target_is_found_and_runs(tmp_path: Path, kind: str) -> None:
    qualname, text = DOCUMENTS[kind]
    reference = loaded(tmp_path, text + MAKE, qualname)
    assert torch.equal(reference.calls[0].run(), torch.full((3,), 2.0, dtype=torch.bfloat16))


def test_the_text_counts_and_not_the_disk(tmp_path: Path) -> None:
    asked = request(tmp_path, "import torch\ndef f(x):\n    return x * 3\n" + MAKE, "f")
    (tmp_path / "document.py").write_text("this is not Python")
    reference = Reference()
    reference.load(asked, quiet)
    assert reference.calls[0].run()[0] == 3


def test_relative_imports_work_in_a_package(tmp_path: Path) -> None:
    package = tmp_path / "surely_unique_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("def twice(x):\n    return 2 * x\n")
    reference = loaded(package, "import torch\nfrom .helper import twice\ndef f(x):\n    return twice(x)\n" + MAKE, "f")
    assert reference.calls[0].run()[0] == 2


NESTED = """
import torch
def outer(n):
    def inner(x):
        return x + n
    return inner
def make_inputs(device, dtype, seed):
    return [dict(fn=outer(4), args=(torch.ones(3, dtype=dtype),))]
def without_fn(device, dtype, seed):
    return [dict(args=(torch.ones(3, dtype=dtype),))]
"""


@pytest.mark.parametrize("qualname", ["outer.inner", "outer.<locals>.inner"])
def test_a_nested_function_comes_as_fn(tmp_path: Path, qualname: str) -> None:
    assert loaded(tmp_path, NESTED, qualname).calls[0].run()[0] == 5
    with pytest.raises(BadInputs, match="must give it as `fn`"):
        loaded(tmp_path, NESTED, qualname, "document.py:without_fn")


FAULTS: dict[str, tuple[str, str, Any, type[Exception], str]] = {
    "no such function": ("def f(x): ...", "g", "document.py:make_inputs", TargetNotFound, "no function g"),
    "a module that raises": (
        "import torch\n1 / 0\ndef f(x): ...",
        "f",
        "x.py:f",
        BadInputs,
        r"ZeroDivisionError.*line 2",
    ),
    "a module that exits": ("raise SystemExit(3)\ndef f(x): ...", "f", "x.py:f", BadInputs, "SystemExit"),
    "a syntax error": ("def f(x)\n", "f", "x.py:f", BadInputs, "does not parse: line 1"),
    "no inputs file": ("def f(x): ...", "f", "nowhere.py:make", BadInputs, "no file 'nowhere.py'"),
    "no inputs function": ("def f(x): ...", "f", "document.py:make", BadInputs, "no function make"),
    "a missing argument": ("def f(x, y): ...", "f", [tensor("x", "float32", 3)], BadInputs, "needs y"),
    "an unknown argument": ("def f(x): ...", "f", [tensor("z", "float32", 3)], BadInputs, "no parameter 'z'"),
    "a rejected argument": (
        "def f(x):\n    return x @ x",
        "f",
        [tensor("x", "float32", 3, 4)],
        BadInputs,
        r"RuntimeError.*line 2",
    ),
    "a class with constructor arguments": (
        "class C:\n    def __init__(self, n): ...\n    def f(self, x): ...",
        "C.f",
        [tensor("x", "float32", 3)],
        BadInputs,
        "--inputs PATH:FUNC",
    ),
    "a call that must raise and does not": (
        "import torch\ndef f(x): return x\ndef make_inputs(d, t, s): return [dict(args=(1,), raises=ValueError)]",
        "f",
        "document.py:make_inputs",
        BadInputs,
        "must raise ValueError, but it does not",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(tmp_path: Path, fault: str) -> None:
    text, qualname, inputs, kind, message = FAULTS[fault]
    with pytest.raises(kind, match=message):
        Reference().load(request(tmp_path, text, qualname, inputs), quiet)


def test_calls_are_described_with_their_defaults_and_attributes(tmp_path: Path) -> None:
    text = """
    class C:
        def __init__(self):
            self.scale = 2.0
        def f(self, x, eps=1e-6, mode='a'):
            return x
    """
    asked = request(tmp_path, text, "C.f", [tensor("x", "bfloat16", 2, 3)])
    (call,) = Reference().load(asked, quiet)["calls"]
    spec = {
        "dtype": "bfloat16",
        "shape": [2, 3],
        "strides": [3, 1],
        "offset": 0,
        "device": "cpu",
        "requires_grad": False,
    }
    assert call["arguments"] == [
        {"path": "x", "tensor": spec, "value": None},
        {"path": "eps", "tensor": None, "value": 1e-6},
        {"path": "mode", "tensor": None, "value": "a"},
        {"path": "self.scale", "tensor": None, "value": 2.0},
    ]
