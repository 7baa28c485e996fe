"""The candidate worker's trusted half: imports torch and Triton once, forks a child a job, watches and ends it.

It stays single-threaded and never starts CUDA, so that a fork is safe. What a child says comes over a pipe that the
candidate can reach too: a line without the job's nonce is a forgery. The outputs count only after every process of the
job is dead.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import re
import resource
import secrets
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from kernelwright.worker import confine, job, wire
from kernelwright.worker.api import triton_api
from kernelwright.worker.environment import Toolchain, prepare
from kernelwright.worker.stub_driver import check_architectures

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
MEMORY = 4 << 30
"""Bytes that a job may reserve, at most half of what is free."""
MAX_ANSWER = 1 << 20
MAX_OUTPUT = 4 << 30
"""Bytes that a case folder may hold in the end."""
TAIL = 8192
"""Characters of printed text that are kept: a crash is often explained there."""
GRACE_S = 2.0

Json: TypeAlias = Any
Body: TypeAlias = Callable[[job.Answers], None]


def serve(channel: wire.Channel, role: str) -> None:
    """Answer requests until the end of input. `role` is "candidate" or "compile"."""
    zygote = Zygote(role)
    wire.serve_requests(
        channel,
        {
            "api": lambda request, emit: triton_api(zygote.tools()),
            "strength": lambda request, emit: asdict(confine.strength()),
            "run": lambda request, emit: zygote.run(request),
            "compile": lambda request, emit: zygote.compile(request),
        },
    )


@dataclass
class End:
    """How a job ended: what came over the pipe, what it printed last, and its exit."""

    nonce: str
    answers: list[Json] = field(default_factory=list)
    forged: bool = False
    timed_out: bool = False
    status: int = 0
    cpu_s: float = 0.0
    printed: str = ""

    @property
    def complete(self) -> bool:
        return bool(self.answers) and (self.answers[-1].get("end") is True or "crashed" in self.answers[-1])


class Zygote:
    """One warm process, one job at a time."""

    def __init__(self, role: str) -> None:
        self.role = role
        self._tools: Toolchain | None = None
        self._fault: wire.Fault | None = None
        self._child = 0
        _become_reaper()
        signal.signal(signal.SIGTERM, self._end_with_parent)
        try:
            self._tools = prepare(role)
        except wire.EnvironmentProblem as problem:
            self._fault = problem  # told with every request: the server decides what becomes of it
        gc.collect()
        gc.freeze()

    def tools(self) -> Toolchain:
        """The imported torch and Triton.

        Raises:
            EnvironmentProblem: they could not be imported.
        """
        if self._tools is None:
            raise self._fault or wire.EnvironmentProblem("the worker could not start")
        return self._tools

    # --- the operations

    def run(self, request: Json) -> Json:
        """Run the folders in one fork; see the package's docstring."""
        tools = self.tools()
        order = self._order(request, tools)
        if tools.gpu:
            with _scratch() as cache:
                return self._run_on_gpu(request, order, tools, cache)
        with _scratch() as scratch:
            order = replace(order, walls=replace(order.walls, scratch=scratch))
            return {"runs": self._finish(order, self._fork(order, request, tools.run))}

    def _run_on_gpu(self, request: Json, order: job.Order, tools: Toolchain, cache: Path) -> Json:
        """Compile in a fork that may start the compilers, then run in one that may start nothing."""
        compiling = replace(order, discard=True, walls=replace(order.walls, scratch=cache, programs=tools.programs))
        end = self._fork(compiling, request, tools.run)
        if not end.complete or "crashed" in end.answers[-1]:
            return {"runs": self._finish(compiling, end)}
        with _scratch() as scratch:
            walls = replace(order.walls, scratch=scratch, readable=(*order.walls.readable, cache))
            running = replace(order, walls=replace(walls, kernels=cache / "triton"))
            return {"runs": self._finish(running, self._fork(running, request, tools.run))}

    def compile(self, request: Json) -> Json:
        """Compile what the folders launch for each architecture, in one fork."""
        tools = self.tools()
        if tools.compile is None:
            raise RuntimeError("this worker runs candidates; it does not compile")
        check_architectures(request["architectures"])
        with _scratch() as scratch:
            order = self._order(request, tools)
            order = replace(
                order,
                architectures=tuple(request["architectures"]),
                walls=replace(order.walls, scratch=scratch, programs=tools.programs),
            )
            end = self._fork(order, request, tools.compile)
            return {"findings": _compile_findings(order, end, float(request["limit_s"]))}

    def _order(self, request: Json, tools: Toolchain) -> job.Order:
        folders = job.case_folders(request["folders"])
        for folder in folders:
            (folder / "outputs.json").unlink(missing_ok=True)
        limit = float(request["limit_s"])
        walls = confine.Walls(
            scratch=Path("/nonexistent"),
            writable=folders,
            gpu=tools.gpu,
            memory=_memory(),
            cpu_s=int(4 * limit) + 4,
        )
        sanitize = bool(request.get("sanitize", True))
        return job.Order(request["source"], request["entry"], folders, secrets.token_hex(16), walls, sanitize)

    def _finish(self, order: job.Order, end: End) -> list[Json]:
        """One result a case that was reached, from what the child said and how it ended."""
        results: list[Json] = []
        for number, answer in enumerate(end.answers):
            if "crashed" in answer or "case" not in answer:
                break
            problem = _check_outputs(order, order.folders[number])
            if problem:
                return [*results, {"crashed": problem}]
            results.append({"seconds": answer["seconds"], "findings": answer["findings"]})
        if end.answers and "crashed" in end.answers[-1]:
            return [*results, {"crashed": end.answers[-1]["crashed"]}]
        if not end.complete or end.status or end.timed_out:
            results = results[: len(order.folders) - 1]  # whatever it said last, it did not end well
            return [*results, {"crashed": ending(end, order)}]
        return results

    # --- the fork

    def _fork(self, order: job.Order, request: Json, body: Callable[[job.Order, job.Answers], None]) -> End:
        answer_read, answer_write = os.pipe()
        print_read, print_write = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            _be_child(order, answer_write, print_write, body)
        os.close(answer_write)
        os.close(print_write)
        end = End(order.nonce)
        try:
            _listen(end, answer_read, print_read, time.monotonic() + float(request["limit_s"]))
        finally:
            self._end_child(end)
            _drain(end, print_read)
            os.close(answer_read)
            os.close(print_read)
        return end

    def _end_child(self, end: End) -> None:
        """Kill the job's process group, whoever is left of it, and wait for all of them."""
        child, self._child = self._child, 0
        if not (end.timed_out or end.forged):  # it is on its way out: let it, so that its status means something
            end.timed_out = not _ends_soon(child)
        _kill(child, group=True)
        _, end.status, usage = os.wait4(child, 0)
        end.cpu_s = usage.ru_utime + usage.ru_stime
        while strays := _children():
            for stray in strays:
                _kill(stray)
            os.waitpid(-1, 0)

    def _end_with_parent(self, *_: object) -> None:
        """The server is gone, or asked us to end: take the job along, with everything that it started."""
        if self._child:
            _kill(self._child, group=True)
        for stray in _children():
            _kill(stray)
        os._exit(0)


def _be_child(order: job.Order, answer_write: int, print_write: int, body: Any) -> None:
    """The child's whole life; never returns."""
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(print_write, 1)
        os.dup2(print_write, 2)
        os.closerange(3, answer_write)
        os.closerange(answer_write + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        faulthandler.enable(2)
        body(order, job.Answers(answer_write, order.nonce))
        os._exit(0)
    except BaseException:  # the child's main: our own fault, seen as printed text
        import traceback

        os.write(2, b"fault of the worker:\n" + traceback.format_exc().encode())
    finally:
        os._exit(70)


def _listen(end: End, answer_read: int, print_read: int, deadline: float) -> None:
    """Collect answers and printed text until the answers' end is closed, the answer is whole, or the time is up."""
    poll = select.poll()
    poll.register(answer_read, select.POLLIN)
    poll.register(print_read, select.POLLIN)
    buffer = bytearray()
    while not (end.complete or end.forged):
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            end.timed_out = True
            return
        for descriptor, _ in poll.poll(remaining * 1000):
            data = os.read(descriptor, 65536)
            if descriptor == print_read:
                end.printed = (end.printed + data.decode(errors="replace"))[-TAIL:]
                if not data:
                    poll.unregister(print_read)
            elif not data:
                end.forged = bool(buffer)
                return
            else:
                buffer += data
                _take_answers(end, buffer)


def _take_answers(end: End, buffer: bytearray) -> None:
    """Move whole lines from the buffer to the answers; anything odd is a forgery."""
    while b"\n" in buffer and not end.forged:
        line, _, rest = bytes(buffer).partition(b"\n")
        buffer[:] = rest
        answer = _parse_answer(line, end)
        if answer is None:
            end.forged = True
        else:
            end.answers.append(answer)
    if len(buffer) > MAX_ANSWER:
        end.forged = True


def _parse_answer(line: bytes, end: End) -> Json | None:
    """An answer of the form that job.py sends, with the nonce and in its turn; None for anything else."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict) or answer.pop("nonce", None) != end.nonce:
        return None
    turn = sum("case" in earlier for earlier in end.answers)
    if answer.keys() == {"end"} or (answer.keys() == {"compiling"} and isinstance(answer["compiling"], str)):
        return answer
    if answer.keys() == {"end", "findings"}:
        return answer if _are_findings(answer["findings"]) else None
    if answer.get("case") != turn:
        return None
    if answer.keys() == {"case", "crashed"} and _are_findings([answer["crashed"]]):
        return answer
    good = answer.keys() == {"case", "seconds", "findings"} and isinstance(answer["seconds"], float)
    return answer if good and _are_findings(answer["findings"]) else None


def _are_findings(items: Json) -> bool:
    return isinstance(items, list) and all(
        isinstance(item, dict)
        and item.keys() == {"code", "message", "line"}
        and re.fullmatch(r"K\d{3}", str(item["code"])) is not None
        and isinstance(item["message"], str)
        and len(item["message"]) <= job.MAX_MESSAGE
        and (item["line"] is None or type(item["line"]) is int)
        for item in items
    )


def ending(end: End, order: job.Order) -> Json:
    """The finding for a job that ended without its answers."""
    line = _printed_line(end.printed, order)
    if end.timed_out:
        return job.finding("K501", "does not finish within the time limit", line)
    if end.forged:
        return job.finding(
            "K505", "a reply that the worker did not send came over its private pipe: forged or malformed"
        )
    if os.WIFSIGNALED(end.status):
        return _by_signal(os.WTERMSIG(end.status), end, order, line)
    code = os.waitstatus_to_exitcode(end.status)
    if code == 70 and "fault of the worker" in end.printed:
        raise RuntimeError(end.printed)
    if any(words in end.printed for words in ("MemoryError", "bad_alloc")):
        return job.finding("K502", "runs out of memory", line)
    return job.finding("K504", f"exits with status {code} without an answer", line)


def _by_signal(number: int, end: End, order: job.Order, line: int | None) -> Json:
    name = signal.Signals(number).name
    if number == signal.SIGXCPU or (number == signal.SIGKILL and end.cpu_s >= order.walls.cpu_s):
        return job.finding("K501", f"uses more than {order.walls.cpu_s} s of processor time", line)
    if number == signal.SIGKILL or "bad_alloc" in end.printed:
        return job.finding("K502", "was killed by the system: most likely out of memory", line)
    return job.finding("K503", f"crashes with {name}", line)


def _printed_line(printed: str, order: job.Order) -> int | None:
    """The candidate's line in a fault handler's traceback."""
    found = re.search(rf'File "{re.escape(str(order.file))}", line (\d+)', printed)
    return int(found[1]) if found else None


def _check_outputs(order: job.Order, folder: Path) -> Json | None:
    """A finding unless the folder holds this job's outputs, as plain files of bearable size."""
    try:
        message = json.loads(wire.read_regular(folder / "outputs.json", wire.MAX_JSON_BYTES))
        if not isinstance(message, dict) or message.get("nonce") != order.nonce:
            raise wire.Malformed("its outputs belong to another run")
    except (wire.Malformed, ValueError, RecursionError) as error:
        return job.finding("K505", f"its outputs cannot be read: {error}")
    size = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(folder))
    if size > MAX_OUTPUT:
        return job.finding("K502", f"writes {size >> 20} MiB of output")
    return None


def _compile_findings(order: job.Order, end: End, limit_s: float) -> list[Json]:
    """What the compiler refused; a compiler that died or hung refused, too."""
    if end.complete and not end.forged:
        last = end.answers[-1]
        found = [last["crashed"]] if "crashed" in last else last.get("findings", [])
        return [_with_diagnostics(item, end.printed, order) for item in found]
    at = next((answer["compiling"] for answer in reversed(end.answers) if "compiling" in answer), "")
    item = ending(end, order)
    if item["code"] in ("K501", "K502", "K503") and at:
        words = {"K501": f"takes more than {limit_s:g} s to compile", "K502": "runs out of memory in the compiler"}
        item = job.finding("K120", f"{words.get(item['code'], 'crashes the compiler')} {at}", item["line"])
    return [_with_diagnostics(item, end.printed, order)]


def _with_diagnostics(item: Json, printed: str, order: job.Order) -> Json:
    """Add the line that the compiler printed for a failure that its exception does not place."""
    found = re.search(rf"{re.escape(str(order.file))}\"?:(\d+):\d+\)?: error: (.+)", printed)
    if item["line"] is not None or found is None:
        return item
    return job.finding(item["code"], f"{item['message']} ({found[2].strip()})", int(found[1]))


# --- processes -------------------------------------------------------------------------------------------------------


def _become_reaper() -> None:
    """Strays of a job come to us, not to init; and the parent's death is a signal that can be answered."""
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _kill(pid: int, *, group: bool = False) -> None:
    try:
        os.killpg(pid, signal.SIGKILL) if group else os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        if group:  # it has not made its own group yet
            os.kill(pid, signal.SIGKILL)


def _ends_soon(pid: int) -> bool:
    """Wait for the process to end by itself, but no longer than GRACE_S; whether it did."""
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], GRACE_S)[0])
    finally:
        os.close(descriptor)


def _children() -> list[int]:
    """Our own children, as the kernel lists them."""
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


def _drain(end: End, descriptor: int) -> None:
    """What was still in the pipe of printed text when everyone who could write to it was dead."""
    os.set_blocking(descriptor, False)
    try:
        while data := os.read(descriptor, 65536):
            end.printed = (end.printed + data.decode(errors="replace"))[-TAIL:]
    except BlockingIOError:
        return


def _memory() -> int:
    """Bytes that a job may reserve: half of what is available, at most MEMORY."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        available = int(re.search(r"MemAvailable:\s+(\d+) kB", text)[1]) << 10  # type: ignore[index]
    except (OSError, TypeError):
        return MEMORY
    return min(MEMORY, available // 2)


class _scratch:
    """A fresh private folder, gone afterwards."""

    def __enter__(self) -> Path:
        self.folder = Path(tempfile.mkdtemp(prefix="kernelwright-job-")).resolve()
        return self.folder

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
