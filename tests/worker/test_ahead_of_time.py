"""Compiling for GPUs that are not there: what the compiler refuses, with the line; what it accepts, for every name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from candidates import GOOD, candidate, case, cases, descendants, line_of, processes

from kernelwright.errors import BadInputs
from kernelwright.model import Candidate
from kernelwright.sandbox.candidate import CandidateProcesses

pytestmark = pytest.mark.asyncio(loop_scope="module")
GOOD_ONE = Candidate(GOOD, "test", entry="f")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CandidateProcesses]:
    made = processes(tmp_path_factory.mktemp("worker"))
    yield made
    await made.close()


@pytest.mark.parametrize(
    "architectures",
    [["sm_75", "sm_80", "sm_86", "sm_89"], ["sm_90", "sm_100", "sm_120"], ["gfx90a", "gfx942", "gfx1100", "gfx1201"]],
    ids=lambda names: names[0],
)
async def test_a_kernel_compiles_for_every_name(
    architectures: list[str], worker: CandidateProcesses, tmp_path: Path
) -> None:
    assert await worker.compile(GOOD_ONE, "f", cases(tmp_path), architectures, 120) == ()
    assert not any(descendants(pid) for pid in worker.pids)


KERNEL = """
@triton.jit
def kernel(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
{body}
def f(x):
    o = torch.empty_like(x, dtype=torch.float32)
    kernel[(1,)](x, o, N=256)
    return o
"""
REFUSED = {
    "a type that changes in a loop": (
        "    acc = 0.0\n    for k in range(2):\n        acc += tl.load(x + i)\n    tl.store(o + i, acc)",
        "sm_90",
        "for k in range",
    ),
    "Python that is not Triton": (
        "    s = [k for k in range(2)]\n    d = {'a': 1}\n    tl.store(o + i, d['a'])",
        "sm_90",
        "",
    ),
    "a block that is not a power of two": (
        "    j = tl.arange(0, 100)\n    tl.store(o + j, 1.0)",
        "sm_90",
        "arange(0, 100)",
    ),
    "a name that does not exist": (
        "    tl.store(o + i, tl.no_such_function(tl.load(x + i)))",
        "sm_90",
        "no_such_function",
    ),
    "a dot that is too small": (
        "    r = tl.arange(0, 4)\n    j = r[:, None] * 4 + r[None, :]\n    a = tl.load(x + j)\n    tl.store(o, tl.dot(a, a))",
        "sm_90",
        "tl.dot",
    ),
    "fp8 on an architecture without": (
        "    tl.store(o + i, tl.load(x + i).to(tl.float8e4nv).to(tl.float32))",
        "sm_80",
        "float8e4nv",
    ),
    "a helper's fault": ("    tl.store(o + i, helper(tl.load(x + i)))", "sm_90", "v + undefined_name"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_refused(name: str, worker: CandidateProcesses, tmp_path: Path) -> None:
    body, architecture, at = REFUSED[name]
    made = candidate("@triton.jit\ndef helper(v):\n    return v + undefined_name\n\n" + KERNEL.format(body=body))
    (finding,) = await worker.compile(made, "f", [case(tmp_path, torch.randn(256))], [architecture], 120)
    assert finding.code == "K120"
    assert finding.message.startswith(f"kernel does not compile for {architecture}: "), finding
    assert len(finding.message) > 45
    if at:
        assert finding.line == line_of(made, at), finding


async def test_only_the_architecture_that_cannot_is_named(worker: CandidateProcesses, tmp_path: Path) -> None:
    body = REFUSED["fp8 on an architecture without"][0]
    made = candidate(KERNEL.format(body=body))
    findings = await worker.compile(made, "f", [case(tmp_path, torch.randn(256))], ["sm_90", "sm_80", "sm_120"], 120)
    assert [finding.message.split(":")[0] for finding in findings] == ["kernel does not compile for sm_80"]


async def test_shared_memory_that_is_too_small(worker: CandidateProcesses, tmp_path: Path) -> None:
    source = """
    @triton.jit
    def kernel(a, b, c, N: tl.constexpr, K: tl.constexpr):
        r, k = tl.arange(0, N), tl.arange(0, K)
        left = tl.load(a + r[:, None] * K + k[None, :])
        right = tl.load(b + k[:, None] * N + r[None, :])
        tl.store(c + r[:, None] * N + r[None, :], tl.dot(left, right))
    def f(a, b):
        c = torch.empty(128, 128)
        kernel[(1,)](a, b, c, N=128, K=512)
        return c
    """
    files = [case(tmp_path, torch.randn(128, 512).half(), torch.randn(512, 128).half())]
    findings = await worker.compile(candidate(source), "f", files, ["sm_90", "sm_120"], 120)
    assert [finding.code for finding in findings] == ["K121"] * len(findings)
    assert "bytes of shared memory for sm_120, which has 101376" in findings[-1].message


async def test_every_configuration_of_the_autotuner(worker: CandidateProcesses, tmp_path: Path) -> None:
    source = """
    @triton.autotune(configs=[triton.Config({"B": 128}), triton.Config({"B": 100})], key=["n"])
    @triton.jit
    def kernel(x, o, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)
    def f(x):
        o = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, o, x.numel())
        return o
    """
    (finding,) = await worker.compile(candidate(source), "f", cases(tmp_path), ["sm_90"], 120)
    assert (finding.code, "power of 2" in finding.message) == ("K120", True)


async def test_a_kernel_is_a_jit_function_there(worker: CandidateProcesses, tmp_path: Path) -> None:
    source = GOOD + "\nassert isinstance(twice_kernel, triton.JITFunction)\n"
    assert await worker.compile(candidate(source, header=False), "f", cases(tmp_path), ["sm_90"], 60) == ()


HAZARDS = {
    "hangs": ("def f(x):\n    while True: pass", "K501"),
    "exits": ("import os\ndef f(x):\n    os._exit(0)", "K504"),
    "crashes": ("import ctypes\ndef f(x):\n    ctypes.string_at(0)", "K503"),
    "raises before it launches": ("def f(x):\n    raise ValueError('no')", "K110"),
    "does not import": ("import no_such_module", "K111"),
    "has no entry": ("def g(x): pass", "K112"),
    "forks": ("import os\ndef f(x):\n    while True: os.fork()", "K110"),
    "starts a program that is no compiler": (
        "import subprocess\ndef f(x):\n    subprocess.run(['/bin/sh', '-c', 'true'])",
        "K110",
    ),
    "starts a program of its own": (
        "import subprocess, sys\ndef f(x):\n    open('a', 'w').write('#!/bin/sh\\n')\n    subprocess.run(['./a'])",
        "K110",
    ),
}


@pytest.mark.parametrize("name", HAZARDS)
async def test_hazards(name: str, worker: CandidateProcesses, tmp_path: Path) -> None:
    source, code = HAZARDS[name]
    findings = await worker.compile(candidate(source), "f", cases(tmp_path / "bad"), ["sm_90"], 3)
    assert [finding.code for finding in findings] == [code], findings
    assert await worker.compile(GOOD_ONE, "f", cases(tmp_path / "good"), ["sm_90"], 60) == ()
    assert not any(descendants(pid) for pid in worker.pids)


async def test_an_architecture_that_nobody_knows(worker: CandidateProcesses, tmp_path: Path) -> None:
    with pytest.raises(BadInputs, match="unknown GPU architecture 'sm-90'"):
        await worker.compile(GOOD_ONE, "f", cases(tmp_path), ["sm-90"], 60)
