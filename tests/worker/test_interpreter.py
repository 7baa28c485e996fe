"""The interpreter's mends, each against torch: what a kernel computes on the CPU is what a GPU would."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from candidates import candidate, case, output, processes

from kernelwright.ports import Crashed, Ran
from kernelwright.sandbox.candidate import CandidateProcesses

pytestmark = pytest.mark.asyncio(loop_scope="module")

KERNEL = """
from triton.language.extra import libdevice
@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)
@triton.jit
def larger_with_index(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)
@triton.jit
def kernel(x, y, o, p, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    {body}
def f(x, y, dtype, p):
    o = torch.empty({shape}, dtype=dtype)
    kernel[(1,)](x, y, o, p, N=x.numel())
    return o
"""


def kernel(body: str, shape: str = "x.numel()") -> str:
    return KERNEL.format(body="\n    ".join(body.splitlines()), shape=shape)


STORE = "tl.store(o + i, {value})"
WHOLE = "tl.store(o, {value})"
BF16, F32, F16, F64, I32 = torch.bfloat16, torch.float32, torch.float16, torch.float64, torch.int32
FP8 = torch.float8_e4m3fn


def values(dtype: torch.dtype, seed: int = 0, count: int = 256) -> torch.Tensor:
    return (3 * torch.randn(count, generator=torch.Generator().manual_seed(seed))).to(dtype)


EXACT: dict[str, tuple[str, torch.dtype, torch.dtype, Any]] = {
    "bf16 add": (kernel(STORE.format(value="a + b")), BF16, BF16, lambda x, y: x + y),
    "bf16 multiply": (kernel(STORE.format(value="a * b")), BF16, BF16, lambda x, y: x * y),
    "bf16 compare and choose": (
        kernel(STORE.format(value="tl.where(a > b, a, -b)")),
        BF16,
        BF16,
        lambda x, y: torch.where(x > y, x, -y),
    ),
    "bf16 absolute": (kernel(STORE.format(value="tl.abs(a)")), BF16, BF16, lambda x, y: x.abs()),
    "bf16 constant": (
        kernel(STORE.format(value="tl.full((N,), 1.5, tl.bfloat16) + a")),
        BF16,
        BF16,
        lambda x, y: 1.5 + x,
    ),
    "fp32 to bf16": (
        kernel(STORE.format(value="(a * 1.001).to(tl.bfloat16)")),
        F32,
        BF16,
        lambda x, y: (x * 1.001).to(BF16),
    ),
    "bf16 to fp32": (kernel(STORE.format(value="a.to(tl.float32) * 0.1")), BF16, F32, lambda x, y: x.float() * 0.1),
    "fp32 to fp8": (kernel(STORE.format(value="a.to(tl.float8e4nv)")), F32, FP8, lambda x, y: x.to(FP8)),
    "fp32 to e5m2": (
        kernel(STORE.format(value="a.to(tl.float8e5)")),
        F32,
        torch.float8_e5m2,
        lambda x, y: x.to(torch.float8_e5m2),
    ),
    "fp8 to fp32": (kernel(STORE.format(value="a.to(tl.float32) + 1")), FP8, F32, lambda x, y: x.float() + 1),
    "fp32 to fp16": (
        kernel(STORE.format(value="(a * 1.001).to(tl.float16)")),
        F32,
        F16,
        lambda x, y: (x * 1.001).to(F16),
    ),
    "integer division rounds to zero": (
        kernel(STORE.format(value="a // 3 + a % 3")),
        I32,
        I32,
        lambda x, y: torch.div(x, 3, rounding_mode="trunc") + torch.fmod(x, 3),
    ),
    "max": (kernel(WHOLE.format(value="tl.max(a, 0)"), "()"), BF16, BF16, lambda x, y: x.max()),
    "argmax": (kernel(WHOLE.format(value="tl.argmax(a, 0)"), "()"), F32, I32, lambda x, y: x.argmax().int()),
    "a reduction of one's own": (
        kernel(WHOLE.format(value="tl.reduce(a, 0, larger)"), "()"),
        F32,
        F32,
        lambda x, y: x.max(),
    ),
    "a reduction of pairs": (
        kernel("v, j = tl.reduce((a, i), 0, larger_with_index)\n" + WHOLE.format(value="j.to(tl.float32)"), "()"),
        F32,
        F32,
        lambda x, y: x.argmax().float(),
    ),
    "a reduction of one axis": (
        kernel(
            "t = tl.reduce(tl.reshape(a, (N // 8, 8)), 1, larger)\ntl.store(o + tl.arange(0, N // 8), t)",
            "x.numel() // 8",
        ),
        F32,
        F32,
        lambda x, y: x.view(-1, 8).amax(1),
    ),
    "a scan of one's own": (
        kernel(STORE.format(value="tl.associative_scan(a, 0, larger)")),
        F32,
        F32,
        lambda x, y: x.cummax(0)[0],
    ),
    "a scan backwards": (
        kernel(STORE.format(value="tl.associative_scan(a, 0, larger, reverse=True)")),
        F32,
        F32,
        lambda x, y: x.flip(0).cummax(0)[0].flip(0),
    ),
    "a float argument is fp32": (kernel(STORE.format(value="a * p.to(tl.float32)")), F32, F32, lambda x, y: x * 0.7),
}

CLOSE: dict[str, tuple[str, torch.dtype, torch.dtype, Any]] = {
    "sum of bf16 accumulates in fp32": (
        kernel(WHOLE.format(value="tl.sum(a.to(tl.float32), 0)"), "()"),
        BF16,
        F32,
        lambda x, y: x.float().sum(),
    ),
    "dot of bf16": (
        kernel(
            "r = tl.arange(0, 16)\nm = r[:, None] * 16 + r[None, :]\ntl.store(o + m, tl.dot(tl.load(x + m), tl.load(y + m)))",
            "(16, 16)",
        ),
        BF16,
        F32,
        lambda x, y: x.float().view(16, 16) @ y.float().view(16, 16),
    ),
    **{
        f"libdevice.{name}": (kernel(STORE.format(value=f"libdevice.{name}(a)")), F32, F32, reference)
        for name, reference in {
            "tanh": lambda x, y: x.tanh(),
            "erf": lambda x, y: x.erf(),
            "expm1": lambda x, y: x.expm1(),
            "log1p": lambda x, y: x.log1p(),
            "rsqrt": lambda x, y: x.rsqrt(),
            "round": lambda x, y: torch.trunc(x + torch.copysign(torch.tensor(0.5), x)),
            "lgamma": lambda x, y: x.lgamma(),
        }.items()
    },
    "libdevice.pow": (kernel(STORE.format(value="libdevice.pow(tl.abs(a), b)")), F32, F32, lambda x, y: x.abs() ** y),
    "libdevice.isnan": (
        kernel(STORE.format(value="libdevice.isnan(tl.sqrt(a)).to(tl.float32)")),
        F32,
        F32,
        lambda x, y: (x < 0).float(),
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CandidateProcesses]:
    made = processes(tmp_path_factory.mktemp("worker"))
    yield made
    await made.close()


async def run(worker: CandidateProcesses, folder: Path, source: str, *args: Any) -> Any:
    """The output of a candidate that runs without findings."""
    files = case(folder, *args)
    (ran,) = await worker.run(candidate(source), "f", [files], 60)
    assert isinstance(ran, Ran), ran
    assert ran.findings == ()
    return output(files)


@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
async def test_computes_as_torch(name: str, worker: CandidateProcesses, tmp_path: Path) -> None:
    source, given, wanted, reference = (EXACT | CLOSE)[name]
    x, y = values(given), values(given, 1)
    got = await run(worker, tmp_path, source, x, y, wanted, 0.7)
    expected = reference(x, y).to(wanted)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    tolerance = {"rtol": 0, "atol": 0} if name in EXACT else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(got.float(), expected.float(), equal_nan=True, **tolerance)


async def test_fp32_dot_has_the_precision_of_tf32(worker: CandidateProcesses, tmp_path: Path) -> None:
    """As on a GPU, where tl.dot rounds fp32 operands to ten bits unless told otherwise."""
    body = "r = tl.arange(0, 16)\nm = r[:, None] * 16 + r[None, :]\n"
    body += "tl.store(o + m, tl.dot(tl.load(x + m), tl.load(y + m){how}))"
    x, y = values(F32), values(F32, 1)
    exact = x.view(16, 16).double() @ y.view(16, 16).double()
    errors = {}
    for how in ("", ", input_precision='ieee'"):
        got = await run(worker, tmp_path / str(len(how)), kernel(body.format(how=how), "(16, 16)"), x, y, F32, 0.7)
        errors[how] = float((got.double() - exact).abs().max())
    assert errors[""] > 1e-3 > 1e-4 > errors[", input_precision='ieee'"]


async def test_autotune_and_heuristics_run_without_a_driver(worker: CandidateProcesses, tmp_path: Path) -> None:
    source = """
    @triton.autotune(configs=[triton.Config({"B": 64}), triton.Config({"B": 128}, num_warps=8)], key=["n"])
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0})
    @triton.jit
    def kernel(x, o, n, B: tl.constexpr, EVEN: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        if EVEN:
            tl.store(o + i, tl.load(x + i) + 1)
        else:
            tl.store(o + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
    def f(x):
        o = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, o, x.numel())
        return o
    """
    for count in (256, 300):
        x = values(F32, count=count)
        assert torch.equal(await run(worker, tmp_path / str(count), source, x), x + 1)


async def test_a_device_assert_counts(worker: CandidateProcesses, tmp_path: Path) -> None:
    source = kernel('tl.device_assert(a < 0, "must be negative")\n' + STORE.format(value="a"))
    (ran,) = await worker.run(candidate(source), "f", [case(tmp_path, values(F32), values(F32), F32, 0.7)], 60)
    assert isinstance(ran, Crashed)
    assert (ran.finding.code, ran.finding.message) == ("K110", "raises AssertionError: must be negative")


async def test_a_missing_import_is_missing_here_too(worker: CandidateProcesses, tmp_path: Path) -> None:
    source = "def f(x):\n    return math.sqrt(2), np.pi"
    warm = kernel(STORE.format(value="a")).replace("    return o\n", "    return math.sqrt(2)\n")
    for number, text in enumerate((source, warm)):
        files = case(
            tmp_path / str(number), *([values(F32)] if text is source else [values(F32), values(F32), F32, 0.7])
        )
        (ran,) = await worker.run(candidate(text), "f", [files], 60)
        assert isinstance(ran, Crashed)
        assert ran.finding.message == "raises NameError: name 'math' is not defined"


async def test_methods_and_coroutines(worker: CandidateProcesses, tmp_path: Path) -> None:
    from kernelwright.model import Case
    from kernelwright.ports import CaseFiles
    from kernelwright.worker import wire

    owner = torch.nn.Linear(3, 2)
    wire.write_call(tmp_path, wire.CallData((torch.ones(3),), {"scale": 2.0}, owner, "method", True))
    source = "async def f(self, x, scale):\n    return self.weight @ x * scale + self.in_features"
    files = CaseFiles(Case(0), tmp_path)
    (ran,) = await worker.run(candidate(source), "f", [files], 60)
    assert isinstance(ran, Ran), ran
    torch.testing.assert_close(output(files), owner.weight.detach() @ torch.ones(3) * 2.0 + 3)


async def test_the_names_of_the_installed_triton(worker: CandidateProcesses) -> None:
    import triton

    api = await worker.api()
    assert api.version == triton.__version__
    assert {"load", "store", "dot", "program_id", "float32", "constexpr", "math"} <= api.modules["triton.language"]
    assert {"tanh", "erf"} <= api.modules["triton.language.extra.libdevice"]
    assert {"cdiv", "jit", "autotune", "next_power_of_2"} <= api.modules["triton"]
    assert {"to", "trans"} <= api.modules["triton.language.tensor"]
    assert "np" not in api.modules["triton"] | api.modules["triton.language"]
