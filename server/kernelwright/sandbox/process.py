"""Worker processes from the server's side: spawn, ask, cancel, kill. Whoever spawns kills the whole group."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import kernelwright
from kernelwright import errors
from kernelwright.errors import EnvironmentProblem, KernelwrightError, WorkerError
from kernelwright.model import Json

PACKAGE_ROOT = Path(kernelwright.__file__).resolve().parent.parent
TOO_OLD = 86
"""Exit status of an interpreter older than the worker's own syntax."""
BOOTSTRAP = (
    f"import os, sys; sys.version_info >= (3, 10) or os._exit({TOO_OLD}); "
    "root = sys.argv.pop(1); sys.path[:] = [p for p in sys.path if p]; sys.path.insert(0, root); "
    "import kernelwright.worker.main as m; sys.path.remove(root); raise SystemExit(m.main())"
)
SECRET_WORDS = ("API_KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
MAX_LINE = 64 << 20
"""Bytes of one reply."""
MAX_LOG = 1 << 20
"""Bytes; a longer log is begun anew with the next process."""


def worker_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The server's environment without anything that looks like a key."""
    kept = {name: value for name, value in os.environ.items() if not any(word in name.upper() for word in SECRET_WORDS)}
    return kept | dict(extra)


class WorkerProcess:
    """One worker in a process group of its own, asked over private pipes, one request at a time.

    Cancelling a request kills the worker: a request is never left running behind the caller's back. The next request
    starts a fresh one.
    """

    def __init__(
        self, interpreter: str, role: str, root: Path, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.interpreter, self.role, self.root, self.log = interpreter, role, root, log
        self._environment = dict(environment or {})
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._write_fd = -1
        self._transport: asyncio.ReadTransport | None = None
        self._number = 0
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process's id while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def request(self, op: str, **fields: Json) -> Json:
        """Ask and wait for the answer.

        Raises:
            KernelwrightError: the class that the worker names (BadInputs, EnvironmentProblem, ...).
            WorkerError: it died or answered nonsense.
        """
        async with self._turn:
            try:
                if self.pid is None:
                    await self._start()
                return await self._exchange(op, fields)
            except BaseException as error:
                # Also cancellation: after it the worker is in the middle of something, so it goes.
                if not isinstance(error, KernelwrightError) or isinstance(error, WorkerError):
                    await asyncio.shield(self._end())
                raise

    async def start(self) -> None:
        """Start now rather than at the first request."""
        async with self._turn:
            try:
                if self.pid is None:
                    await self._start()
            except BaseException:
                await asyncio.shield(self._end())
                raise

    async def close(self) -> None:
        """Kill the group and wait until it is gone. Harmless when nothing runs."""
        await asyncio.shield(self._end())

    def kill(self) -> None:
        """Kill the group at once, without waiting."""
        if self._process is not None:
            _kill_tree(self._process.pid)

    async def _start(self) -> None:
        await self._end()  # what an earlier process left: its pipes
        read_request, self._write_fd = os.pipe()
        read_reply, write_reply = os.pipe()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("ab" if _size(self.log) < MAX_LOG else "wb") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *(self.interpreter, "-X", "utf8", "-c", BOOTSTRAP, str(PACKAGE_ROOT)),
                    *(self.role, str(read_request), str(write_reply)),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(read_request, write_reply),
                    cwd=self.root if self.root.is_dir() else None,
                    env=worker_environment(self._environment),
                    start_new_session=True,
                )
        except BaseException as error:
            os.close(read_reply)
            if not isinstance(error, OSError):
                raise
            raise EnvironmentProblem(
                f"the Python interpreter {self.interpreter} cannot be started ({error.strerror}): "
                "choose another one with the setting kernelwright.interpreter"
            ) from error
        finally:
            os.close(read_request)
            os.close(write_reply)
        self._reader = asyncio.StreamReader(limit=MAX_LINE)
        protocol = asyncio.StreamReaderProtocol(self._reader)
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(read_reply, "rb", buffering=0)
        self._transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)

    async def _exchange(self, op: str, fields: Mapping[str, Json]) -> Json:
        self._number += 1
        data = json.dumps({"id": self._number, "op": op, **fields}).encode() + b"\n"
        await asyncio.to_thread(self._write, data)
        while True:
            answer = await self._read()
            if answer.get("id") != self._number or "event" in answer:
                continue
            if answer.get("ok"):
                return answer.get("result")
            raise self._fault(answer.get("error") or {})

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        with contextlib.suppress(BrokenPipeError):  # it died: reading says so, with the log
            while view:
                view = view[os.write(self._write_fd, view) :]

    async def _read(self) -> dict[str, Json]:
        assert self._reader is not None
        try:
            line = await self._reader.readline()
            answer = json.loads(line) if line else None
        except ValueError as error:
            raise WorkerError(f"the {self.role} worker answered nonsense: {error}") from error
        if answer is None and await self._status() == TOO_OLD:
            raise EnvironmentProblem(
                f"{self.interpreter} is older than Python 3.10: choose another interpreter with the setting "
                "kernelwright.interpreter"
            )
        if not isinstance(answer, dict):
            raise WorkerError(f"the {self.role} worker ended unexpectedly. {self._last_words()}")
        return answer

    async def _status(self) -> int | None:
        """The exit status of a process that closed its pipe; None where it runs on all the same."""
        if self._process is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(self._process.wait(), 1)
        return None

    def _fault(self, error: Mapping[str, Json]) -> KernelwrightError:
        kind = getattr(errors, str(error.get("type")), None)
        message = str(error.get("message", "no message"))
        if isinstance(kind, type) and issubclass(kind, KernelwrightError) and kind is not errors.InputsNeeded:
            return kind(message)
        return WorkerError(f"the {self.role} worker has a fault: {message}")

    def _last_words(self) -> str:
        """The end of the log: why a worker died is usually there."""
        try:
            tail = self.log.read_text(encoding="utf-8", errors="replace")[-600:].strip()
        except OSError:
            return ""
        return f"Its log ends: {tail}" if tail else f"Its log, {self.log}, is empty."

    async def _end(self) -> None:
        process, self._process = self._process, None
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        if self._write_fd >= 0:
            os.close(self._write_fd)
            self._write_fd = -1
        if process is not None:
            below = _kill_tree(process.pid)
            await process.wait()
            while any(map(_runs, below)):  # they are dying: nothing of ours tells when, they are not our children
                await asyncio.sleep(0.005)


def _kill_tree(pid: int) -> list[int]:
    """SIGKILL a worker's group and everything below it, children that made groups of their own included.

    Returns the processes below it.
    """
    below = _descendants(pid)
    for child in below:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    return below


def _runs(pid: int) -> bool:
    """Whether a process is there and not just waiting to be reaped."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2][0] not in "ZX"
        )
    except (OSError, IndexError):
        return False


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _descendants(pid: int) -> list[int]:
    """Processes below `pid`, deepest last; empty where /proc does not exist."""
    found: list[int] = []
    queue = [pid]
    while queue:
        current = queue.pop()
        try:
            for task in Path(f"/proc/{current}/task").iterdir():
                children = [int(child) for child in (task / "children").read_text().split()]
                found += children
                queue += children
        except OSError:
            continue
    return found
