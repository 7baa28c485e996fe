# ruff: noqa: E501 (a row of a table reads best on one line)
"""The static checks: each fault by its code, its line and the way to mend it; and no fault where there is none."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from source_samples import RMS_NORM, RMS_NORM_DOMAIN, document, example

from kernelwright.checks import CHECKS, run_checks
from kernelwright.model import Candidate, Finding, Graph, Hardware, Inputs, Placeholder, Task
from kernelwright.ports import TritonApi
from kernelwright.source.locate import find_target
from kernelwright.source.module import assemble
from kernelwright.worker.api import triton_api

DOCS = Path(__file__).parents[2] / "docs" / "findings.md"


@lru_cache
def api() -> TritonApi:
    """The names of the Triton that is installed here, by the worker's own list."""
    listed = triton_api(SimpleNamespace(triton="3.7.1"))  # type: ignore[arg-type]
    return TritonApi(listed["version"], {module: frozenset(names) for module, names in listed["modules"].items()})


def task_for(text: str, qualname: str, *paths: str) -> Task:
    graph = Graph((0,), tuple(Placeholder(path, path, "float32", ("s0",)) for path in paths), (), {"node": "y"})
    target = find_target(document(text), qualname)
    return Task(target, Inputs("literal", "x: f32[8]"), (graph,), Hardware(None, (), "2.13.0", "3.7.1", "3.11"))


TASK = Task(
    example("rms_norm", "rms_norm"),
    Inputs("literal", "x: f32[8, 8]"),
    (
        Graph(
            (0,),
            (Placeholder("x", "x", "float32", ("s0", "s1")), Placeholder("w", "weight", "float32", ("s1",))),
            (),
            {"node": "y"},
        ),
    ),
    Hardware(None, (), "2.13.0", "3.7.1", "3.11"),
)


def check(source: str, task: Task = TASK) -> Finding | None:
    return run_checks(Candidate(source, "test"), task, api())


@pytest.mark.parametrize(
    "source",
    [
        RMS_NORM,
        assemble(RMS_NORM, TASK.target, RMS_NORM_DOMAIN),
        RMS_NORM + "\n\ndef supports(x, weight, eps=1e-6):\n    return x.dim() == 2 and x.dtype in (torch.float32,) and eps > 0\n",
        RMS_NORM.replace("y = torch.empty_like(x)", "x = x.view(-1, n).unsqueeze(0).permute(1, 2, 0).t()\n    y = x.new_empty((rows * n,))"),
        RMS_NORM.replace("    y = torch.empty_like(x)\n", "    with torch.cuda.device(x.device):\n        y = torch.empty((rows, n), dtype=x.dtype, device=x.device)\n"),
        RMS_NORM.replace("(rows,)", "lambda meta: (triton.cdiv(rows * 2, meta['BLOCK']) + 1,)"),
        RMS_NORM.replace("def rms_norm(", "BLOCKS = tl.constexpr(4)\n_ROWS = 8\n\n\ndef _grid(rows):\n    return (min(rows, _ROWS),)\n\n\ndef rms_norm(").replace("(rows,)", "_grid(rows)").replace("cols < n", "(cols < n) & (cols < 4 * BLOCKS)"),
        RMS_NORM.replace("tl.rsqrt(", "libdevice.rsqrt(").replace("import triton.language as tl", "import triton.language as tl\nfrom triton.language.extra import libdevice"),
        "from __future__ import annotations\n" + RMS_NORM,
    ],
)  # fmt: skip
def test_no_fault(source: str) -> None:
    assert check(source) is None


def put(before: str, after: str) -> str:
    assert before in RMS_NORM
    return RMS_NORM.replace(before, after, 1)


def inside(statement: str) -> str:
    """The candidate with a statement in its launcher."""
    return put("    rows, n = x.shape\n", f"    rows, n = x.shape\n    {statement}\n")


def above(text: str) -> str:
    """The candidate with module-level text above its launcher."""
    return put("\n\ndef rms_norm(", f"\n\n{text}\n\n\ndef rms_norm(")


FAULTS: dict[str, tuple[str, str, str]] = {
    "half a module": (RMS_NORM + "x = (", "K101", "was never closed"),
    "nothing": ("", "K101", "the module is empty"),
    "a null byte": ("x = '\0'", "K101", "does not parse"),
    "numpy": (put("import torch\n", "import torch\nimport numpy as np\n"), "K102", "imports numpy"),
    "an import inside": (inside("import os"), "K102", "imports os"),
    "a relative import": (put("import torch\n", "import torch\nfrom . import x\n"), "K102", "from . import x"),
    "a star import": (put("import triton.language as tl", "from triton.language import *"), "K102", "import the module itself"),
    "exec": (inside("exec('1')"), "K103", "uses exec"),
    "open": (inside("open('/etc/passwd')"), "K103", "uses open"),
    "__import__": (inside("__import__('os')"), "K103", "uses __import__"),
    "a module that is not imported": (inside("os.getenv('HOME')"), "K103", "the module os"),
    "a module through another": (inside("torch.os.getenv('HOME')"), "K103", "reaches the module os through torch.os"),
    "getattr of a module": (inside("getattr(torch, 'load')('x')"), "K103", "write the attribute out"),
    "a computed attribute": (inside("getattr(x, 'su' + 'm')()"), "K103", "write the attribute out"),
    "a dunder": (inside("x.__class__.__base__"), "K103", "two underscores"),
    "torch.ops": (inside("torch.ops.aten.add(x, x)"), "K103", "torch.ops.aten.add"),
    "torch._C": (inside("c = torch._C"), "K103", "uses torch._C"),
    "torch.compile": (inside("torch.compile(rms_norm)"), "K103", "torch.compile"),
    "an alias of torch.ops": (put("import torch\n", "import torch\nimport torch.ops as o\n").replace("    rows,", "    o.aten\n    rows,", 1), "K103", "torch.ops"),
    "torch.load": (inside("torch.load('x')"), "K103", "torch.load"),
    "a C++ extension": (inside("torch.utils.cpp_extension.load('x')"), "K103", "torch.utils"),
    "autograd": (inside("torch.autograd.Function"), "K103", "torch.autograd.Function"),
    "patching torch": (inside("torch.empty = None"), "K103", "sets torch.empty"),
    "patching a tensor's class": (inside("torch.Tensor.sum = None"), "K103", "sets torch.Tensor.sum"),
    "patching itself": (above("rms_norm.cache = 1"), "K103", "sets rms_norm.cache"),
    "rebinding torch": (above("torch = 3"), "K103", "binds the imported name torch"),
    "a global": (inside("global CALLS"), "K103", "keeps no state"),
    "a class": (above("class A:\n    pass"), "K103", "defines the class A"),
    "catching": (inside("try:\n        pass\n    except Exception:\n        pass"), "K103", "catches exceptions"),
    "code on import": (above("print('hello')"), "K103", "when it is imported"),
    "a generator": (inside("yield 1"), "K103", "generator"),
    "another name": (put("def rms_norm(", "def rmsnorm("), "K112", "write def rms_norm(x, weight, eps=1e-6)"),
    "the kernel as the entry": ("import triton\n@triton.jit\ndef rms_norm(x, weight, eps=1e-6):\n    pass\n", "K112", "the kernel itself cannot be the entry"),
    "another parameter": (put("rms_norm(x, weight,", "rms_norm(x, w,"), "K104", "write def rms_norm(x, weight, eps=1e-6)"),
    "one parameter more": (put("eps=1e-6):", "eps=1e-6, out=None):"), "K104", "not what the target takes"),
    "another kind": (put("weight, eps=1e-6", "weight, *, eps=1e-6"), "K104", "not what the target takes"),
    "another default": (put("eps=1e-6", "eps=1e-5"), "K104", "gives eps the default 1e-05, not 1e-6"),
    "no default": (put("eps=1e-6", "eps"), "K104", "it has no default"),
    "decorated": (put("def rms_norm(", "@torch.no_grad()\ndef rms_norm("), "K104", "is decorated"),
    "async": (put("def rms_norm(", "async def rms_norm("), "K104", "is async"),
    "another supports": (RMS_NORM + "def supports(x):\n    return True\n", "K104", "supports takes (x)"),
    "tl.tanh": (put("tl.rsqrt(", "tl.tanh("), "K105", "tl.tanh does not exist in triton 3.7.1; use libdevice.tanh (from triton.language.extra import libdevice)"),
    "a slip": (put("tl.rsqrt(", "tl.rsqrtt("), "K105", "did you mean tl.rsqrt?"),
    "another library's name": (put("tl.rsqrt(", "tl.matmul("), "K105", "use tl.dot"),
    "in a submodule": (put("tl.rsqrt(", "tl.math.rsqrtt("), "K105", "triton.language.math.rsqrtt does not exist"),
    "imported": (put("import triton\n", "import triton\nfrom triton.language import nothing\n"), "K105", "tl.nothing does not exist"),
    "in the launcher": (put("triton.next_power_of_2", "triton.next_pow2"), "K105", "triton.next_pow2 does not exist"),
    "no kernel": ("def rms_norm(x, weight, eps=1e-6):\n    return x\n", "K107", "there is no kernel"),
    "a kernel that nobody launches": (put("    _rms_norm_kernel[(rows,)](x, weight, y, x.stride(0), n, eps, BLOCK=triton.next_power_of_2(n))\n", ""), "K107", "launches no kernel"),
    "arithmetic": (inside("z = x * 2"), "K106", "computes x * 2 with torch"),
    "arithmetic on what it allocated": (inside("q = torch.empty_like(x)\n    r = q.view(-1)\n    s = 1 - r"), "K106", "computes 1 - r with torch"),
    "negation": (inside("z = -x"), "K106", "computes -x"),
    "in place": (inside("x += 1"), "K106", "computes x += 1"),
    "comparison": (inside("if x > 0:\n        pass"), "K106", "compares x > 0"),
    "indexing": (inside("z = x[0]"), "K106", "indexes x[0]"),
    "writing": (inside("x[0] = 1"), "K106", "indexes x[0]"),
    "a torch function": (inside("z = torch.softmax(x, -1)"), "K106", "calls torch.softmax"),
    "zeros": (inside("z = torch.zeros_like(x)"), "K106", "calls torch.zeros_like"),
    "functional": (put("import torch\n", "import torch\nimport torch.nn.functional as F\n").replace("    rows, n", "    z = F.silu(x)\n    rows, n"), "K106", "calls F.silu"),
    "contiguous": (inside("x = x.contiguous()"), "K106", "calls .contiguous() on x"),
    "a cast": (inside("z = x.to(torch.float32)"), "K106", "calls .to() on x"),
    "a method of an unknown thing": (inside("z = (lambda v: v)(x).sum()"), "K106", "calls .sum()"),
    "a value": (inside("z = float(x)"), "K106", "reads a tensor's values"),
    "a loop": (inside("for row in x:\n        pass"), "K106", "walks over x"),
    "in a helper": (above("def _helper(t):\n    return t.clone()").replace("    rows, n", "    _helper(x)\n    rows, n"), "K106", "_helper calls .clone() on t"),
    "in supports": (RMS_NORM + "def supports(x, weight, eps=1e-6):\n    return bool((x > 0).all())\n", "K106", "supports"),
    "a cache": (above("_CACHE = {}").replace("    rows, n", "    _CACHE['n'] = 1\n    rows, n"), "K108", "_CACHE is mutable"),
    "a mutable default": (above("def _helper(seen=[]):\n    return seen"), "K108", "mutable default"),
    "a buffer": (above("_BUFFER = torch.empty(3)"), "K108", "asks torch at import"),
    "the number of SMs": (above("_SMS = torch.cuda.get_device_properties(0).multi_processor_count"), "K108", "asks torch at import"),
    "a plain global": (above("LIMIT = 3").replace("cols < n", "cols < LIMIT"), "K109", "reads the global LIMIT"),
    "autotuning in place": (
        put("@triton.jit", "@triton.autotune(configs=[triton.Config({'BLOCK': 8})], key=['n'])\n@triton.jit").replace("tl.store(y_ptr + row", "tl.store(x_ptr + row"),
        "K109", "restore_value=['x_ptr']",
    ),
    "autotuning with atomics": (
        put("@triton.jit", "@triton.autotune([], ['n'], restore_value=['x_ptr'])\n@triton.jit").replace("tl.store(y_ptr + row * n + cols", "place = y_ptr + row\n    place += cols\n    tl.atomic_add(place"),
        "K109", "restore_value=['y_ptr']",
    ),
}  # fmt: skip


@pytest.mark.parametrize("source, code, message", FAULTS.values(), ids=FAULTS)
def test_faults(source: str, code: str, message: str) -> None:
    found = check(source)
    assert found is not None
    assert (found.code, message in found.message) == (code, True), found
    assert found.line is not None or code in ("K101", "K112")
    assert found.line is None or 1 <= found.line <= source.count("\n") + 1


def test_the_line_is_the_faults() -> None:
    source = inside("z = x * 2")
    found = check(source)
    assert found is not None
    assert found.line is not None
    assert source.splitlines()[found.line - 1].strip() == "z = x * 2"


def test_autotuning_is_fine_where_it_restores() -> None:
    source = put("@triton.jit", "@triton.autotune([], ['n'], restore_value=['x_ptr'])\n@triton.jit").replace(
        "tl.store(y_ptr + row", "tl.store(x_ptr + row"
    )
    assert check(source) is None


METHOD = "import torch\nclass A(torch.nn.Module):\n    def forward(self, x, k=ONE): return torch.relu(x)\n"
LAUNCH = """import torch
import triton
import triton.language as tl

@triton.jit
def _k(x, n, B: tl.constexpr):
    tl.store(x, 1.0)

def forward(self, x, k=1):
    {0}
    _k[(1,)](x, self.proj.weight, B=8)
    return x
"""


@pytest.mark.parametrize(
    "statement, code",
    [
        ("pass", None),
        ("w = self.proj.weight.t()", None),
        ("eps = self.eps * 2 + self.size[0]", None),
        ("y = self.proj.weight * 2", "K106"),
        ("y = self.proj(x)", "K106"),
        ("w = self.proj.weight\n    v = w\n    v + 1", "K106"),
    ],
)
def test_a_methods_tensors_are_known_by_their_paths(statement: str, code: str | None) -> None:
    found = check(LAUNCH.format(statement), task_for(METHOD, "A.forward", "x", "self.proj.weight"))
    assert (found and found.code) == code


def test_the_checks_come_in_order_and_each_fault_has_a_section() -> None:
    assert [each.__name__ for each in CHECKS] == [
        "parses", "imports", "forbidden", "signatures", "api_names", "launches", "launcher", "state", "kernel_scope",
    ]  # fmt: skip
    sections = re.findall(r"^### (K\d+): ", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == sorted(set(sections))
    assert {code for _, code, _ in FAULTS.values()} <= set(sections)
    expected = [*range(101, 113), 120, 121, *range(201, 210), *range(301, 309), *range(501, 506)]
    assert sections == [f"K{number}" for number in expected]
