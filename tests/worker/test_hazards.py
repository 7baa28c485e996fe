"""What a hostile or broken candidate may try: each is a plain refusal, and the next job runs."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from candidates import GOOD, alive, candidate, case, cases, descendants, line_of, output, processes

from kernelwright.model import Candidate
from kernelwright.ports import Crashed, Ran
from kernelwright.sandbox.candidate import CandidateProcesses

pytestmark = pytest.mark.asyncio(loop_scope="module")
PARENT = "import os\nparent = os.getppid()"

REFUSED = {
    "hangs": ("K501", "def f(x):\n    while True: pass"),
    "hangs outside of Python": ("K501", "import time\ndef f(x):\n    time.sleep(100)"),
    "exits at once": ("K504", "import os\ndef f(x):\n    os._exit(0)"),
    "exits by exception": ("K504", "import sys\ndef f(x):\n    sys.exit(0)"),
    "exits while it is imported": ("K111", "import sys\nsys.exit(0)\ndef f(x): return x"),
    "crashes": ("K503", "import ctypes\ndef f(x):\n    ctypes.string_at(0)"),
    "recurses until the stack is gone": (
        "K503",
        "import sys\nsys.setrecursionlimit(1 << 30)\ndef g(x):\n    return sorted([x], key=g)\ndef f(x):\n    return g(x)",
    ),
    "recurses": ("K110", "def f(x):\n    return f(x)"),
    "eats memory": ("K502", "def f(x):\n    a = []\n    while True: a.append(bytearray(1 << 28))"),
    "asks for too much memory": ("K502", "def f(x):\n    return torch.zeros(1 << 40)"),
    "writes an endless file": (
        "K502",
        "def f(x):\n    with open('big', 'wb') as file:\n        file.truncate(1 << 40)",
    ),
    "raises": ("K110", "def f(x):\n    raise ValueError('no')"),
    "raises its own BaseException": ("K110", "class E(BaseException): pass\ndef f(x):\n    raise E()"),
    "does not parse": ("K111", "def f(x:\n    return x"),
    "does not import": ("K111", "import no_such_module\ndef f(x): return x"),
    "has no entry": ("K112", "def g(x): return x"),
    "returns code": ("K110", "def f(x):\n    return lambda: x"),
    "forges a reply on every descriptor": (
        "K505",
        """
        import json, os
        def f(x):
            reply = json.dumps({"nonce": "0" * 32, "case": 0, "seconds": 0.1, "findings": []}).encode() + b"\\n"
            for number in range(3, 200):
                try: os.write(number, reply)
                except OSError: pass
            return x
        """,
    ),
    "floods every descriptor": (
        "K505",
        """
        import os
        def f(x):
            for number in range(3, 200):
                try:
                    while True: os.write(number, b"x" * 65536)
                except OSError: pass
            return x
        """,
    ),
    "closes every descriptor": ("K504", "import os\ndef f(x):\n    os.closerange(0, 500)\n    return x"),
    "forks": ("K110", "import os\ndef f(x):\n    while True: os.fork()"),
    "starts a program": ("K110", "import subprocess\ndef f(x):\n    subprocess.run(['/bin/true'])"),
    "kills its parent": ("K110", f"{PARENT}\ndef f(x):\n    os.kill(parent, 9)"),
    "kills its group": ("K110", "import os\ndef f(x):\n    os.killpg(0, 9)"),
    "kills everyone": ("K110", "import os\ndef f(x):\n    os.kill(-1, 9)"),
    "leaves its session": ("K110", "import os\ndef f(x):\n    os.setsid()"),
    "limits its parent": (
        "K110",
        f"{PARENT}\nimport resource\ndef f(x):\n    resource.prlimit(parent, resource.RLIMIT_NOFILE, (0, 0))",
    ),
    "reads its parent's environment": ("K110", f"{PARENT}\ndef f(x):\n    open(f'/proc/{{parent}}/environ').read()"),
    "reads its parent's memory": ("K110", f"{PARENT}\ndef f(x):\n    open(f'/proc/{{parent}}/mem', 'rb').read(1)"),
    "opens a socket": ("K110", "import socket\ndef f(x):\n    socket.socket()"),
    "opens a socket of the machine's": ("K110", "import socket\ndef f(x):\n    socket.socket(socket.AF_UNIX)"),
    "changes permissions": ("K110", "import os\ndef f(x):\n    os.chmod('candidate.py', 0o777)"),
    "returns a bait that is pickled": (
        "K110",
        """
        class Bait:
            def __reduce__(self): return exec, ("raise SystemExit",)
        def f(x):
            return Bait
        """,
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CandidateProcesses]:
    made = processes(tmp_path_factory.mktemp("worker"))
    yield made
    await made.close()


async def still_works(worker: CandidateProcesses, folder: Path) -> None:
    """The next job runs, right, and nothing of the last one is left."""
    files = cases(folder)
    runs = await worker.run(Candidate(GOOD, "test", entry="f"), "f", files, 30)
    assert [type(run) for run in runs] == [Ran, Ran]
    assert (output(files[1]) is not None) and not any(descendants(pid) for pid in worker.pids)


@pytest.mark.parametrize("name", REFUSED)
async def test_refused(name: str, worker: CandidateProcesses, tmp_path: Path) -> None:
    code, source = REFUSED[name]
    runs = await worker.run(candidate(source), "f", cases(tmp_path / "bad"), 2 if code == "K501" else 20)
    assert [type(run) for run in runs] == [Crashed]
    assert runs[0].finding.code == code, runs[0].finding
    assert runs[0].finding.message
    await still_works(worker, tmp_path / "good")


async def test_a_fault_names_the_line_and_the_cases_before_it_count(worker: CandidateProcesses, tmp_path: Path) -> None:
    made = candidate(
        "def f(x, bad):\n    y = x + 1\n    if bad:\n        raise ValueError('no such luck')\n    return y"
    )
    files = [case(tmp_path / str(number), torch.ones(3), number == 2) for number in range(4)]
    runs = await worker.run(made, "f", files, 20)
    assert [type(run) for run in runs] == [Ran, Ran, Crashed]
    assert runs[2].finding.message == "raises ValueError: no such luck"
    assert runs[2].finding.line == line_of(made, "raise ValueError")
    assert runs[2].files == files[2]


@pytest.mark.parametrize("code, source", [("K503", "ctypes.string_at(0)"), ("K501", "time.sleep(100)")])
async def test_the_case_that_ends_the_process_is_the_one_to_blame(
    code: str, source: str, worker: CandidateProcesses, tmp_path: Path
) -> None:
    made = candidate(f"import ctypes, time\ndef f(x, bad):\n    if bad:\n        {source}\n    return x")
    files = [case(tmp_path / str(number), 1.5, number == 1) for number in range(3)]
    runs = await worker.run(made, "f", files, 3)
    assert [type(run) for run in runs] == [Ran, Crashed]
    assert runs[1].finding.code == code
    if code == "K503":
        assert runs[1].finding.line == line_of(made, source)


DENIED = {
    "a file of the user's": "open({secret!r}).read()",
    "a folder of the user's": "os.listdir({folder!r})",
    "a file by a link": "os.symlink({secret!r}, 'link'), open('link').read()",
    "a file through the process's root": "open('/proc/self/root' + {secret!r}).read()",
    "a new file outside": "open({folder!r} + '/new', 'w')",
    "a file outside, emptied": "os.truncate({secret!r}, 0)",
    "a file outside, removed": "os.remove({secret!r})",
    "a file outside, linked here": "os.link({secret!r}, 'link')",
    "the shared memory": "open('/dev/shm/kernelwright', 'w')",
    "the other cases of another run": "open({other!r}).read()",
}


@pytest.mark.parametrize("name", DENIED)
async def test_files_outside_are_denied(name: str, worker: CandidateProcesses, tmp_path: Path) -> None:
    secret, other = tmp_path / "ssh" / "id_ed25519", cases(tmp_path / "other")[0].folder / "call.json"
    secret.parent.mkdir()
    secret.write_text("secret")
    action = DENIED[name].format(secret=str(secret), folder=str(secret.parent), other=str(other))
    source = f"import os\ndef f(x):\n    try:\n        {action}\n    except OSError:\n        return 'denied'\n"
    files = cases(tmp_path / "case", 1)
    runs = await worker.run(candidate(source), "f", files, 20)
    assert [type(run) for run in runs] == [Ran], runs
    assert output(files[0]) == "denied"
    assert [path.name for path in secret.parent.iterdir()] == ["id_ed25519"]
    assert secret.read_text() == "secret"


async def test_no_connection_to_a_port_of_this_machine(worker: CandidateProcesses, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        source = f"import socket\ndef f(x):\n    return socket.create_connection(('127.0.0.1', {port}))"
        runs = await worker.run(candidate(source), "f", cases(tmp_path, 1), 20)
        assert [run.finding.code for run in runs] == ["K110"]
        with pytest.raises(BlockingIOError):
            server.accept()


async def test_no_key_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-for-you")
    monkeypatch.setenv("HARMLESS", "sk-neither-this")
    worker = processes(tmp_path)
    try:
        source = "import os\ndef f(x):\n    return [str(dict(os.environ)), open('/proc/self/environ').read()]"
        files = cases(tmp_path, 1)
        await worker.run(candidate(source), "f", files, 20)
        variables, memory = output(files[0])
        assert "sk-" not in variables
        assert "sk-not-for-you" not in memory
    finally:
        await worker.close()


TAMPERING = {
    "the case folder is deleted": "import shutil; shutil.rmtree(here)",
    "the output is a link": "os.symlink('/etc/passwd', here + '/outputs.json')",
    "the output is a folder": "os.mkdir(here + '/outputs.json')",
    "the output is a pipe": "os.mkfifo(here + '/outputs.json')",
    "the call is gone": "[os.remove(here + '/' + name) for name in os.listdir(here)]",
}


@pytest.mark.parametrize("name", TAMPERING)
async def test_tampering_with_the_case_folder(name: str, worker: CandidateProcesses, tmp_path: Path) -> None:
    action = TAMPERING[name]
    source = f"import os\ndef f(x, here):\n    try:\n        {action}\n    except PermissionError:\n        pass\n    return x"
    folder = tmp_path / "case"
    files = [case(folder, 1.0, str(folder)), *cases(tmp_path / "next", 1)]
    runs = await worker.run(candidate(source), "f", files, 20)
    if isinstance(runs[0], Ran):  # nothing that it did harmed its answer
        assert output(files[0]) == 1.0
    else:
        assert runs[0].finding.code in ("K110", "K505")
    assert Path("/etc/passwd").stat().st_size > 0
    await still_works(worker, tmp_path / "good")


LATE = """
    import threading, time, os
    def f(x, here):
        def later():
            while True:
                try: {action}
                except OSError: pass
        threading.Thread(target=later).start()
        return x
"""


@pytest.mark.parametrize("action", ["open(here + '/late', 'w')", "os.rename(here + '/outputs.json', here + '/x')"])
async def test_a_thread_left_running_is_dead_when_the_answer_comes(
    action: str, worker: CandidateProcesses, tmp_path: Path
) -> None:
    folder = tmp_path / "case"
    runs = await worker.run(candidate(LATE.format(action=action)), "f", [case(folder, 1.0, str(folder))], 20)
    assert isinstance(runs[0], Ran) or runs[0].finding.code in ("K110", "K505")
    assert not any(descendants(pid) for pid in worker.pids)
    before = sorted(folder.iterdir())
    await still_works(worker, tmp_path / "good")
    assert sorted(folder.iterdir()) == before


async def test_a_flood_of_print_costs_nothing_but_time(worker: CandidateProcesses, tmp_path: Path) -> None:
    files = cases(tmp_path / "flood", 1)
    source = "def f(x):\n    for _ in range(20_000): print('x' * 1000)\n    return 'printed'"
    runs = await worker.run(candidate(source), "f", files, 60)
    assert [type(run) for run in runs] == [Ran]
    assert output(files[0]) == "printed"
    logs = worker._runner.log
    assert logs.stat().st_size < 1 << 20
    await still_works(worker, tmp_path / "good")


async def test_scratch_folders_are_gone(worker: CandidateProcesses, tmp_path: Path) -> None:
    files = cases(tmp_path / "case", 1)
    runs = await worker.run(candidate("import os\ndef f(x):\n    return os.getcwd()"), "f", files, 20)
    assert [type(run) for run in runs] == [Ran]
    assert not Path(output(files[0])).exists()
    assert alive(worker.pids) == list(worker.pids)
