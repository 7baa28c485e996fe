"""The life of the candidate's processes: started late, kept warm, killed whole; and the walls around a job."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from candidates import GOOD, HEADER, alive, candidate, case, cases, descendants, output, processes

from kernelwright.errors import EnvironmentProblem, WorkerError
from kernelwright.model import Candidate
from kernelwright.ports import Ran
from kernelwright.sandbox.candidate import CandidateProcesses, Strength
from kernelwright.worker import confine

HANG = "import os, time\ndef f(x, here):\n    open(here + '/started', 'w').close()\n    time.sleep(100)"
GONE_WITHIN_S = 2.0


@pytest_asyncio.fixture
async def worker(tmp_path: Path) -> AsyncIterator[CandidateProcesses]:
    made = processes(tmp_path)
    yield made
    await made.close()


async def hanging(worker: CandidateProcesses, folder: Path) -> tuple[asyncio.Task[object], list[int]]:
    """A request that hangs in the candidate, and every process behind it."""
    task: asyncio.Task[object] = asyncio.ensure_future(
        worker.run(candidate(HANG), "f", [case(folder, 1.0, str(folder))], 60)
    )
    await exists(folder / "started")
    pids = [*worker.pids, *(below for pid in worker.pids for below in descendants(pid))]
    assert len(pids) == 2
    return task, pids


async def exists(path: Path) -> None:
    """Wait for a file to appear."""
    for _ in range(3000):
        if path.exists():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{path} did not appear")


def wait_for_end(pids: Sequence[int], seconds: float) -> list[int]:
    """Wait until the processes have ended. Returns those that have not."""
    left = []
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        if not select.select([descriptor], [], [], seconds)[0] and alive([pid]):
            left.append(pid)
        os.close(descriptor)
    return left


async def test_nothing_starts_before_it_is_needed(worker: CandidateProcesses, tmp_path: Path) -> None:
    assert worker.pids == ()
    assert await worker.run(candidate(GOOD), "f", [], 1) == ()
    assert await worker.compile(candidate(GOOD), "f", [], ["sm_90"], 1) == ()
    assert worker.pids == ()
    await worker.api()
    (first,) = worker.pids
    runs = await worker.run(Candidate(GOOD, "test", entry="f"), "f", cases(tmp_path), 30)
    assert [type(run) for run in runs] == [Ran, Ran]
    assert worker.pids == (first,)
    assert len(list(Path(f"/proc/{first}/task").iterdir())) == 1, "a process with threads must not fork"


async def test_close_takes_everything_along_and_may_be_repeated(worker: CandidateProcesses, tmp_path: Path) -> None:
    task, pids = await hanging(worker, tmp_path / "case")
    clock = asyncio.get_running_loop().time
    started = clock()
    await worker.close()
    assert clock() - started < GONE_WITHIN_S
    assert alive(pids) == []
    with pytest.raises(WorkerError):
        await task
    await worker.close()
    await processes(tmp_path).close()


async def test_a_cancelled_request_is_dead_and_the_next_one_runs(worker: CandidateProcesses, tmp_path: Path) -> None:
    task, pids = await hanging(worker, tmp_path / "case")
    clock = asyncio.get_running_loop().time
    started = clock()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock() - started < GONE_WITHIN_S
    assert alive(pids) == []
    runs = await worker.run(Candidate(GOOD, "test", entry="f"), "f", cases(tmp_path / "next"), 30)
    assert [type(run) for run in runs] == [Ran, Ran]


async def test_cancelled_while_it_starts(worker: CandidateProcesses, tmp_path: Path) -> None:
    for delay in (0.0, 0.001, 0.05):
        task = asyncio.ensure_future(worker.api())
        await asyncio.sleep(delay)
        pids = worker.pids
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert alive(pids) == []
        assert worker.pids == ()
    assert (await worker.api()).version


async def test_kill_is_immediate(worker: CandidateProcesses, tmp_path: Path) -> None:
    task, pids = await hanging(worker, tmp_path / "case")
    worker.kill()
    assert wait_for_end(pids, GONE_WITHIN_S) == []
    with pytest.raises(WorkerError, match="ended unexpectedly"):
        await task


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
async def test_a_worker_that_dies_takes_its_job_along(
    number: signal.Signals, worker: CandidateProcesses, tmp_path: Path
) -> None:
    task, pids = await hanging(worker, tmp_path / "case")
    os.kill(pids[0], number)
    with pytest.raises(WorkerError, match="the candidate worker ended unexpectedly"):
        await task
    assert wait_for_end(pids, GONE_WITHIN_S) == []
    assert (await worker.api()).version


PARENT = """
import asyncio, sys
from pathlib import Path
from candidates import *
async def main():
    folder = Path(sys.argv[1])
    worker = processes(folder)
    await worker.compile(Candidate(GOOD, "test", entry="f"), "f", cases(folder / "good"), ["sm_90"], 60)
    await worker.run(candidate(Path(sys.argv[2]).read_text()), "f", [case(folder / "case", 1.0, str(folder / "case"))], 60)
asyncio.run(main())
"""


async def test_nothing_is_left_when_the_server_is_killed(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text(HANG)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", PARENT, str(tmp_path), str(tmp_path / "hang.py")]
    with subprocess.Popen(command, env=environment) as server:
        await exists(tmp_path / "case" / "started")
        pids = descendants(server.pid)
        assert len(pids) == 3, "two zygotes and a job"
        server.kill()
    assert wait_for_end(pids, GONE_WITHIN_S) == []


def shim(folder: Path, modules: dict[str, str]) -> str:
    """An interpreter that finds these modules first."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


def missing(name: str) -> dict[str, str]:
    return {name: f"raise ModuleNotFoundError('No module named {name}', name={name!r})"}


TORCH = "import sys; sys.path.remove({folder!r}); del sys.modules['torch']; import torch; torch.__version__ = '2.7.1'"
PROBLEMS = {
    "no torch": (missing("torch"), r"torch is needed and .* has none: .* -m pip install torch$"),
    "old torch": (
        {"torch": "__version__ = '2.1.2'"},
        r"torch 2\.1\.2 is too old, 2\.6 is needed: .*pip install --upgrade torch$",
    ),
    "broken torch": (
        {"torch": "raise ImportError('libfoo.so: no such file')"},
        r"torch does not import in .*libfoo\.so",
    ),
    "no triton": (missing("triton"), r"triton is needed and .* has none: .* -m pip install 'triton==3\.\d\.\*'$"),
    "no numpy": (missing("numpy"), r"numpy is needed and .* has none: .* -m pip install numpy$"),
    "no ml_dtypes": (
        missing("ml_dtypes"),
        r"ml_dtypes is needed to check bfloat16 .* has none: .* -m pip install ml_dtypes$",
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
async def test_what_is_missing_is_said_with_the_command_that_installs_it(name: str, tmp_path: Path) -> None:
    modules, message = PROBLEMS[name]
    worker = processes(tmp_path, shim(tmp_path, modules))
    try:
        for _ in range(2):
            with pytest.raises(EnvironmentProblem, match=message):
                await worker.api()
    finally:
        await worker.close()


async def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"no/python cannot be started \(No such file or directory\)"):
        await processes(tmp_path, "/no/python").api()


async def test_an_interpreter_that_is_too_old(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text(
        '#!/bin/sh\nfor word; do case "$word" in *version_info*) '
        'code="import sys; sys.version_info = (3, 9, 1); $word";; esac; done\n'
        f'exec {sys.executable} -c "$code"\n'
    )
    old.chmod(0o755)
    with pytest.raises(EnvironmentProblem, match=r"is older than Python 3\.10: choose another interpreter"):
        await processes(tmp_path, str(old)).api()


async def test_a_program_that_is_no_python(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="the candidate worker ended unexpectedly"):
        await processes(tmp_path, "/bin/true").api()


async def test_a_fault_of_our_own_is_told_and_the_worker_goes_on(worker: CandidateProcesses, tmp_path: Path) -> None:
    (files,) = cases(tmp_path, 1)
    (files.folder / "call.json").write_text("{}")
    with pytest.raises(WorkerError, match=r"(?s)the candidate worker has a fault: .*read_call"):
        await worker.run(Candidate(GOOD, "test", entry="f"), "f", [files], 30)
    assert (await worker.run(Candidate(GOOD, "test", entry="f"), "f", cases(tmp_path / "next"), 30))[0]


async def test_strength(worker: CandidateProcesses) -> None:
    found = await worker.strength()
    expected = confine.strength()
    assert found == Strength(expected.landlock_abi, expected.seccomp, expected.user)
    assert Strength(0, False, "root").describe().startswith("no Landlock: files are not shut off, no seccomp")


# --- the seccomp filter, evaluated here

WALLS = confine.Walls(Path("/nonexistent"))
COMPILING = replace(WALLS, programs=(Path("/usr/bin"),))
ON_GPU = replace(WALLS, gpu=True)
OWN = 4321
ALLOW, EPERM, ENOSYS, EACCES = 0x7FFF0000, 0x00050001, 0x00050026, 0x0005000D
DECISIONS = [
    ("read", 0, WALLS, ALLOW),
    ("socket", 1, WALLS, EACCES),
    ("socket", 2, WALLS, EACCES),
    ("socket", 1, ON_GPU, ALLOW),
    ("socket", 2, ON_GPU, EACCES),
    ("socket", 10, ON_GPU, EACCES),
    ("execve", 0, WALLS, EPERM),
    ("execve", 0, COMPILING, ALLOW),
    ("execve", 0, ON_GPU, EPERM),
    ("clone", 0x00010F00, WALLS, ALLOW),  # a thread
    ("clone", 17, WALLS, EPERM),  # fork
    ("clone", 0x4111, WALLS, EPERM),  # vfork
    ("clone", 0x4111, COMPILING, ALLOW),
    ("clone", 17, COMPILING, EPERM),
    ("clone3", 0, COMPILING, ENOSYS),
    ("kill", OWN, WALLS, ALLOW),
    ("kill", 1, WALLS, EPERM),
    ("kill", 0xFFFFFFFF, WALLS, EPERM),
    ("tgkill", OWN, WALLS, ALLOW),
    ("tgkill", 1, WALLS, EPERM),
    ("prlimit64", 0, WALLS, ALLOW),
    ("prlimit64", OWN, WALLS, ALLOW),
    ("prlimit64", 1, WALLS, EPERM),
    ("setsid", 0, COMPILING, EPERM),
    ("ptrace", 0, ON_GPU, EPERM),
    ("memfd_create", 0, WALLS, EPERM),
    ("memfd_create", 0, ON_GPU, ALLOW),
]


def decide(program: Sequence[confine.Instruction], architecture: int, number: int, argument: int) -> int:
    """What the kernel would do: the classic BPF of seccomp, as far as the filter uses it."""
    data, position = {0: number, 4: architecture, 16: argument}, 0
    accumulator = 0
    while True:
        code, yes, no, operand = program[position]
        position += 1
        if code == 0x20:
            accumulator = data[operand]
        elif code == 0x06:
            return operand
        else:
            test = {0x15: accumulator == operand, 0x35: accumulator >= operand, 0x45: bool(accumulator & operand)}[code]
            position += yes if test else no


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    "call, argument, walls, verdict",
    DECISIONS,
    ids=lambda value: None if isinstance(value, confine.Walls) else str(value),
)
def test_the_filter(machine: str, call: str, argument: int, walls: confine.Walls, verdict: int) -> None:
    architecture, numbers = confine._ARCHITECTURES[machine]
    number = {**numbers, "read": 0 if machine == "x86_64" else 63}.get(call)
    if number is None:
        pytest.skip(f"{machine} has no {call}")
    program = confine.filter_program(walls, machine, OWN)
    assert decide(program, architecture, number, argument) == verdict
    assert decide(program, architecture ^ 1, number, argument) == 0x80000000, "another architecture's numbers"


def test_the_other_table_of_x86_is_refused() -> None:
    program = confine.filter_program(WALLS, "x86_64", OWN)
    assert decide(program, 0xC000003E, 0x40000000 + 1, 0) == EPERM


async def test_the_scratch_folder_is_the_home(worker: CandidateProcesses, tmp_path: Path) -> None:
    source = """
    import os, tempfile
    def f(x):
        open("file", "w").write("x")
        return os.getcwd(), os.path.expanduser("~"), tempfile.gettempdir(), os.environ["TRITON_CACHE_DIR"]
    """
    (files,) = cases(tmp_path, 1)
    await worker.run(candidate(source), "f", [files], 30)
    here, home, temporary, cache = output(files)
    assert here == home == temporary
    assert cache == f"{here}/triton"


def test_the_header_of_the_tests_is_what_candidates_start_with() -> None:
    assert GOOD.startswith(HEADER)
    assert textwrap.dedent(HEADER) == HEADER
