"""The candidate worker on a real GPU: compiled in one fork, run in another that may start nothing."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent.parent / "worker"))
import torch
from candidates import GOOD, candidate, case, descendants, output, processes

from kernelwright.ports import Crashed, Ran
from kernelwright.sandbox.candidate import CandidateProcesses

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
GOOD_ONE = candidate(GOOD, header=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CandidateProcesses]:
    made = processes(tmp_path_factory.mktemp("worker"))
    yield made
    await made.close()


async def test_values_come_back_from_the_device(worker: CandidateProcesses, tmp_path: Path) -> None:
    inputs = [torch.randn(size, device="cuda") for size in (1, 300, 100_000)]
    files = [case(tmp_path / str(number), x) for number, x in enumerate(inputs)]
    runs = await worker.run(GOOD_ONE, "f", files, 60)
    assert [type(run) for run in runs] == [Ran] * 3, runs
    for item, x in zip(files, inputs, strict=True):
        assert torch.equal(output(item), 2 * x.cpu())
    assert not any(descendants(pid) for pid in worker.pids)


REFUSED = {
    "reads an address that is not there": (
        "K110",
        "def f(x):\n    y = torch.empty(1, device='cuda')\n    y.set_(x.untyped_storage(), 0, (1 << 40,), (1,))",
    ),
    "starts a program": ("K110", "import subprocess\ndef f(x):\n    subprocess.run(['/bin/sh', '-c', 'true'])"),
    "forks": ("K110", "import os\ndef f(x):\n    os.fork()"),
    "reads its parent's environment": (
        "K110",
        "import os\ndef f(x):\n    open(f'/proc/{os.getppid()}/environ').read()",
    ),
    "opens a connection": ("K110", "import socket\ndef f(x):\n    socket.create_connection(('127.0.0.1', 9))"),
    "writes outside": ("K110", "def f(x):\n    open('/tmp/kernelwright-outside', 'w')"),
    "takes all of the memory": ("K502", "def f(x):\n    return torch.empty(1 << 44, device='cuda')"),
    "exits": ("K504", "import os\ndef f(x):\n    os._exit(0)"),
    "hangs": ("K501", "def f(x):\n    while True: pass"),
    "traps": (
        "K110",
        """
        @triton.jit
        def kernel(x, B: tl.constexpr):
            i = tl.arange(0, B).to(tl.int64)
            tl.store(x + i * (1 << 40), 1.0)
        def f(x):
            kernel[(1,)](x, B=128)
            torch.cuda.synchronize()
        """,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_refused_and_the_next_job_runs(name: str, worker: CandidateProcesses, tmp_path: Path) -> None:
    code, source = REFUSED[name]
    files = [case(tmp_path / "bad", torch.randn(300, device="cuda"))]
    runs = await worker.run(candidate(source), "f", files, 10)
    assert [type(run) for run in runs] == [Crashed], runs
    assert runs[0].finding.code == code, runs[0].finding
    good = [case(tmp_path / "good", torch.ones(5, device="cuda"))]
    assert [type(run) for run in await worker.run(GOOD_ONE, "f", good, 60)] == [Ran]
    assert torch.equal(output(good[0]), torch.full((5,), 2.0))
