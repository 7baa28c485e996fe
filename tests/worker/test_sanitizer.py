"""The sanitizer, by hazard: what it must find, and what it must let pass. Runs through the real worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from candidates import candidate, case, line_of, output, processes

from kernelwright.ports import Crashed, Ran
from kernelwright.sandbox.candidate import CandidateProcesses

pytestmark = pytest.mark.asyncio(loop_scope="module")

KERNEL = "@triton.jit\ndef kernel({parameters}, B: tl.constexpr):\n"
OFFSETS = "    i = tl.program_id(0) * B + tl.arange(0, B)\n    m = i < n\n"


def elementwise(body: str, launch: str) -> str:
    """A kernel over `x` and `o` of n elements, and a launcher whose last lines are given."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    calls = "".join(f"    {line}\n" for line in launch.splitlines())
    return KERNEL.format(parameters="x, o, n") + OFFSETS + lines + "def f(x):\n    n = x.numel()\n" + calls


COPY = "tl.store(o + i, tl.load(x + i, mask=m), mask=m)"
INTO_EMPTY = "o = torch.empty_like(x)\nkernel[(triton.cdiv(n, 64),)](x, o, n, B=64)\nreturn o"
INTO_ONE = "o = torch.zeros(1)\nkernel[(triton.cdiv(n, 64),)](x, o, n, B=64)\nreturn o"

FOUND = {
    "no mask": (
        {"K301", "K302"},
        elementwise("tl.store(o + i, tl.load(x + i))", INTO_EMPTY),
        "tl.load(x + i)",
    ),
    "mask off by one": (
        {"K301", "K302"},
        elementwise("m = i <= n\n" + COPY, INTO_EMPTY),
        COPY,
    ),
    "negative offset": (
        {"K301"},
        elementwise("tl.store(o + i, tl.load(x + i - 1, mask=m), mask=m)", INTO_EMPTY),
        "i - 1",
    ),
    "into the neighbour of one storage": (
        {"K302"},
        elementwise(
            "tl.store(o + i, tl.load(x + i, mask=m, other=0.0))",
            "both = torch.empty(2 * n)\nkernel[(triton.cdiv(n, 64),)](x, both[:n], n, B=64)\nreturn both[:n]",
        ),
        "tl.store",
    ),
    "grid too small": ({"K305"}, elementwise(COPY, INTO_EMPTY.replace("triton.cdiv(n, 64)", "n // 64")), "torch.empty"),
    "never launched": ({"K305"}, elementwise(COPY, "return torch.empty_like(x)"), "torch.empty"),
    "two programs write": (
        {"K303"},
        elementwise("tl.store(o + i % 7, tl.load(x + i, mask=m), mask=m)", INTO_ONE.replace("(1)", "(7)")),
        "i % 7",
    ),
    "two lanes write": (
        {"K303"},
        elementwise("tl.store(o + i // 2, tl.load(x + i, mask=m), mask=m)", INTO_ONE.replace("zeros(1)", "zeros(n)")),
        "i // 2",
    ),
    "sum without an atomic": (
        {"K303"},
        elementwise("tl.store(o, tl.load(o) + tl.sum(tl.load(x + i, mask=m, other=0.0), 0))", INTO_ONE),
        "tl.load(o)",
    ),
    "in place, shifted": (
        {"K303"},
        elementwise(
            "v = tl.load(x + i + 1, mask=i + 1 < n, other=0.0)\ntl.store(x + i, v, mask=m)",
            "kernel[(triton.cdiv(n, 64),)](x, x, n, B=64)\nreturn x",
        ),
        "",
    ),
    "atomic sum into empty memory": (
        {"K304"},
        elementwise(
            "tl.atomic_add(o, tl.sum(tl.load(x + i, mask=m, other=0.0), 0))", INTO_ONE.replace("zeros", "empty")
        ),
        "tl.atomic_add",
    ),
    "adds to empty memory": (
        {"K304"},
        elementwise("tl.store(o + i, tl.load(o + i, mask=m) + tl.load(x + i, mask=m), mask=m)", INTO_EMPTY),
        "tl.load(o + i",
    ),
    "masked lanes in a sum": (
        {"K306"},
        elementwise("tl.store(o, tl.sum(tl.load(x + i, mask=m), 0))", INTO_ONE.replace("64", "512")),
        "tl.load",
    ),
    "masked lanes in a maximum": (
        {"K306"},
        elementwise("tl.store(o, tl.max(tl.load(x + i, mask=m), 0))", INTO_ONE.replace("64", "512")),
        "tl.load",
    ),
    "masked lanes in a running sum": (
        {"K306"},
        elementwise(
            "v = tl.load(x + i, mask=m & (i > 3))\ntl.store(o + i, tl.cumsum(v, 0), mask=m)",
            INTO_EMPTY.replace("64", "512"),
        ),
        "tl.load",
    ),
    "masked lanes stored": (
        {"K306"},
        elementwise("tl.store(o + i, tl.load(x + i, mask=m & (i > 5)) + 1, mask=m)", INTO_EMPTY),
        "tl.load",
    ),
    "masked lanes as an offset": (
        {"K306"},
        elementwise(
            "j = tl.load(x + i, mask=m).to(tl.int32)\ntl.store(o + i, tl.load(x + (j - j)), mask=m)", INTO_EMPTY
        ),
        "j = tl.load",
    ),
    "a 32-bit offset that overflows": (
        {"K301", "K308"},
        elementwise("tl.store(o + i, tl.load(x + (i + 1) * 2000000000, mask=m), mask=m)", INTO_EMPTY),
        "2000000000",
    ),
    "misaligned": (
        {"K307"},
        elementwise(
            "p = (x.to(tl.pointer_type(tl.int8), bitcast=True) + 1).to(tl.pointer_type(tl.float32), bitcast=True)\n"
            "tl.store(o + i, tl.load(p + i, mask=i < n - 1, other=0.0), mask=m)",
            INTO_EMPTY,
        ),
        "tl.load(p + i",
    ),
    "an address out of nowhere": (
        {"K301"},
        elementwise(
            "p = (i.to(tl.int64) + 4096).to(tl.pointer_type(tl.float32))\ntl.store(o + i, tl.load(p, mask=m), mask=m)",
            INTO_EMPTY,
        ),
        "tl.load(p",
    ),
    "a block pointer without a boundary check": (
        {"K301"},
        elementwise(
            "p = tl.make_block_ptr(x, (n,), (1,), (tl.program_id(0) * B,), (B,), (0,))\ntl.store(o + i, tl.load(p), mask=m)",
            INTO_EMPTY,
        ),
        "tl.load(p)",
    ),
}

CLEAN = {
    "copy": elementwise(COPY, INTO_EMPTY),
    "in place": elementwise(
        "tl.store(x + i, tl.load(x + i, mask=m) * 2, mask=m)", "kernel[(triton.cdiv(n, 64),)](x, x, n, B=64)\nreturn x"
    ),
    "atomic sum": elementwise("tl.atomic_add(o, tl.sum(tl.load(x + i, mask=m, other=0.0), 0))", INTO_ONE),
    "masked lanes chosen away": elementwise(
        "tl.store(o, tl.sum(tl.where(m, tl.load(x + i, mask=m), 0.0), 0))", INTO_ONE.replace("64", "512")
    ),
    "masked lanes in a mask that is off": elementwise(
        "v = tl.load(x + i, mask=m)\ntl.store(o + i, v, mask=m & (v > -1e30))\ntl.store(o + i, v, mask=m)", INTO_EMPTY
    ),
    "the same value by all": elementwise("tl.store(o, 3.0)", INTO_ONE),
    "written in two launches": elementwise(
        "tl.store(o + i, tl.load(x + i, mask=m), mask=m)",
        "o = torch.empty_like(x)\nh = n // 2\nkernel[(4,)](x, o, h, B=64)\nkernel[(4,)](x[h:], o[h:], n - h, B=64)\nreturn o",
    ),
    "written by torch": elementwise(COPY, "o = torch.empty_like(x)\no[:5] = x[:5]\no[5:].copy_(x[5:])\nreturn o"),
    "empty memory that nobody reads": elementwise(COPY, "spare = torch.empty(1 << 16)\n" + INTO_EMPTY),
    "an empty output": elementwise(COPY, "return torch.empty(0), torch.empty(3, 0)"),
    "hashes wrap around": elementwise(
        "h = (i * 1103515245 + 12345) ^ (i * 214013)\ntl.store(o + i, h.to(tl.float32), mask=m)", INTO_EMPTY
    ),
    "64-bit offsets": elementwise(
        "tl.store(o + i.to(tl.int64), tl.load(x + i.to(tl.int64), mask=m), mask=m)", INTO_EMPTY
    ),
    "a block pointer": elementwise(
        "p = tl.make_block_ptr(x, (n,), (1,), (tl.program_id(0) * B,), (B,), (0,))\n"
        "tl.store(o + i, tl.load(p, boundary_check=(0,)), mask=m)",
        INTO_EMPTY,
    ),
    "a spin lock": KERNEL.format(parameters="x, o, lock, n")
    + OFFSETS
    + """
    s = tl.sum(tl.load(x + i, mask=m, other=0.0), 0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(o, tl.load(o) + s)
    tl.atomic_xchg(lock, 0)
def f(x):
    o, lock = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    kernel[(triton.cdiv(x.numel(), 64),)](x, o, lock, x.numel(), B=64)
    return o
""",
    "a matrix product": """
@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        rk = k * BK + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        right = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(left, right)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))
def f(x):
    a, b = x[:270].view(27, 10), x[:130].view(10, 13)
    c = torch.empty(27, 13)
    product[(2, 1)](a, b, c, 27, 13, 10, BM=16, BN=16, BK=16)
    return c
""",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CandidateProcesses]:
    made = processes(tmp_path_factory.mktemp("worker"))
    yield made
    await made.close()


@pytest.mark.parametrize("name", FOUND)
async def test_found(name: str, worker: CandidateProcesses, tmp_path: Path) -> None:
    codes, source, at = FOUND[name]
    made = candidate(source)
    runs = await worker.run(made, "f", [case(tmp_path / "0", torch.randn(300))], 30)
    assert len(runs) == 1
    findings = (runs[0].finding,) if isinstance(runs[0], Crashed) else runs[0].findings
    assert {finding.code for finding in findings} == codes, findings
    if at:
        assert findings[0].line == line_of(made, at), findings


@pytest.mark.parametrize("name", CLEAN)
async def test_let_pass(name: str, worker: CandidateProcesses, tmp_path: Path) -> None:
    files = [case(tmp_path / str(number), torch.randn(300)) for number in range(2)]
    runs = await worker.run(candidate(CLEAN[name]), "f", files, 30)
    assert [type(run) for run in runs] == [Ran, Ran], runs
    assert [run.findings for run in runs if isinstance(run, Ran)] == [(), ()]


async def test_a_message_says_which_tensor_and_where(worker: CandidateProcesses, tmp_path: Path) -> None:
    runs = await worker.run(candidate(FOUND["mask off by one"][1]), "f", [case(tmp_path, torch.randn(300))], 30)
    assert isinstance(runs[0], Ran)
    assert [finding.message for finding in runs[0].findings] == [
        "load out of bounds: 1 of 45 lanes at offset 300 of x (300 elements)",
        "store out of bounds: 1 of 45 lanes at offset 300 of o (300 elements)",
    ]


async def test_an_output_is_named_with_its_first_missing_element(worker: CandidateProcesses, tmp_path: Path) -> None:
    source = "def f(x):\n    o = torch.empty(3, 4)\n    o[:2] = x[0]\n    o[2, 1:] = x[0]\n    return x, {'y': o}"
    made = candidate(source)
    runs = await worker.run(made, "f", [case(tmp_path, torch.randn(300))], 30)
    assert isinstance(runs[0], Ran)
    assert [(finding.code, finding.message, finding.line) for finding in runs[0].findings] == [
        ("K305", "output 'y' is never written at 1 of 12 elements, first at (2, 0)", line_of(made, "torch.empty"))
    ]


async def test_programs_run_in_a_shuffled_order_that_repeats(worker: CandidateProcesses, tmp_path: Path) -> None:
    source = elementwise(
        "tl.store(o + tl.atomic_add(o + 63, 1.0).to(tl.int32), tl.program_id(0).to(tl.float32))",
        INTO_ONE.replace("zeros(1)", "zeros(64)").replace("triton.cdiv(n, 64)", "40"),
    )
    orders = []
    for _ in range(2):
        files = [case(tmp_path / str(number), torch.randn(300)) for number in range(2)]
        await worker.run(candidate(source), "f", files, 30)
        orders.append([output(item)[:40].tolist() for item in files])
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[0][1]
    assert sorted(orders[0][0]) == sorted(orders[0][1]) == [float(number) for number in range(40)]


async def test_without_the_sanitizer_only_values_count(tmp_path: Path) -> None:
    worker = processes(tmp_path, sanitize=False)
    try:
        source = CLEAN["copy"]
        files = [case(tmp_path / "0", torch.arange(300.0))]
        runs = await worker.run(candidate(source), "f", files, 30)
        assert [type(run) for run in runs] == [Ran]
        assert torch.equal(output(files[0]), torch.arange(300.0))
    finally:
        await worker.close()
