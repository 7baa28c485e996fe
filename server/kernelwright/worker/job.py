"""What a forked child does: shut itself in, load one candidate, run it on case folders, say so on a private pipe.

Everything after `load` runs beside hostile code in one process; the zygote believes nothing of what is said here, and
the reference worker reads the outputs as hostile files.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from kernelwright.worker import confine, wire

MODULE = "kernelwright_candidate"
MAX_MESSAGE = 600
_NO_MEMORY = ("can't allocate memory", "cannot allocate memory", "out of memory", "File too large", "bad_alloc")

Json: TypeAlias = Any


class Fault(Exception):
    """A candidate's fault, found while it is loaded or run; `finding` is its JSON form."""

    def __init__(self, code: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.finding = finding(code, message, line)


def finding(code: str, message: str, line: int | None = None) -> Json:
    """model.Finding as JSON."""
    return {"code": code, "message": message[:MAX_MESSAGE], "line": line}


@dataclass(frozen=True)
class Order:
    """One job: the candidate's text, the function to call and the folders to call it with."""

    source: str
    entry: str
    folders: tuple[Path, ...]
    nonce: str
    walls: confine.Walls
    sanitize: bool = True
    architectures: tuple[str, ...] = ()
    discard: bool = False
    """Whether the run only serves to compile, so that its outputs are not written."""

    @property
    def file(self) -> Path:
        return self.walls.scratch / "candidate.py"


@dataclass
class Answers:
    """The private pipe, from the child's side."""

    descriptor: int
    nonce: str
    sent: int = field(default=0)

    def send(self, **message: Json) -> None:
        data = memoryview(json.dumps({"nonce": self.nonce, **message}, allow_nan=False).encode() + b"\n")
        while data:
            data = data[os.write(self.descriptor, data) :]
        self.sent += 1


def settle(order: Order) -> None:
    """Move into the scratch folder, forget the environment and shut the door."""
    os.chdir(order.walls.scratch)
    tempfile.tempdir = None
    confine.forget_environment()
    confine.confine(order.walls)


def load(order: Order) -> Callable[..., Any]:
    """Execute the candidate's text as a module of its own and return its entry.

    Raises:
        Fault: K111 it does not import, K112 it has no such function.
    """
    path = order.file
    path.write_text(order.source, encoding="utf-8")
    module = types.ModuleType(MODULE)
    module.__file__ = str(path)
    sys.modules[MODULE] = module
    try:
        exec(compile(order.source, str(path), "exec", dont_inherit=True), module.__dict__)
    except SyntaxError as error:
        raise Fault("K111", f"the module does not parse: {error.msg}", error.lineno) from error
    except BaseException as error:  # a candidate may raise anything, SystemExit included
        raise Fault("K111", f"the module does not import: {describe(error)}", candidate_line(error, path)) from error
    entry = getattr(module, order.entry, None)
    if not callable(entry):
        raise Fault("K112", f"the module defines no function {order.entry}")
    return entry


def call(entry: Callable[..., Any], data: wire.CallData) -> Any:
    """Call the entry as the user's code would in inference: with gradients on, a guard rightly refuses parameters."""
    import torch

    args = data.args if data.owner is None else (data.owner, *data.args)
    if data.method == "classmethod":
        args = (types.SimpleNamespace(), *args)  # stands for `cls`: a kernel has no use for the class
    with torch.no_grad():
        value = entry(*args, **data.kwargs)
        if inspect.isawaitable(value):
            return asyncio.run(_wait(value))
        return value


async def _wait(value: Any) -> Any:
    return await value


def run_cases(order: Order, answers: Answers, watch: Callable[[int], Any]) -> None:
    """Run the folders one after the other, and answer for each; stop at the first that fails.

    `watch(number)` is a context that gives an object with `findings()`: the sanitizer, or nothing.
    """
    settle(order)
    calls = [wire.read_call(folder) for folder in order.folders]  # before any of the candidate's code runs
    with report(answers, 0, order.file):
        entry = load(order)
        for number, data in enumerate(calls):
            with report(answers, number, order.file):
                _run_case(order, answers, entry, number, data, watch)
    answers.send(end=True)


def _run_case(
    order: Order,
    answers: Answers,
    entry: Callable[..., Any],
    number: int,
    data: wire.CallData,
    watch: Callable[[int], Any],
) -> None:
    watcher = None
    try:
        with watch(number) as watcher:
            started = time.perf_counter()
            value = call(entry, data)
            seconds = time.perf_counter() - started
            watcher.finish(value)
    except BaseException:
        found = watcher.findings() if watcher is not None else []
        if found:  # an access that was masked off may be why it raised
            answers.send(case=number, crashed=found[0])
            os._exit(0)
        raise
    if not order.discard:
        _write(order, order.folders[number], data, value)
    answers.send(case=number, seconds=seconds, findings=watcher.findings())


def _write(order: Order, folder: Path, data: wire.CallData, value: Any) -> None:
    try:
        wire.write_back(folder, data)
        wire.write_output(folder, value, order.nonce)
    except OSError as error:
        if _is_memory(error):
            raise
        raise Fault("K505", f"its outputs cannot be written: {describe(error)}") from error


@contextlib.contextmanager
def report(answers: Answers, number: int, file: Path) -> Iterator[None]:
    """Answer for a case that failed, and end the process there."""
    try:
        yield
        return
    except Fault as fault:
        found = fault.finding
    except (SystemExit, GeneratorExit) as error:
        found = finding("K504", f"the candidate exits: {type(error).__name__}", candidate_line(error, file))
    except wire.Unsupported as error:
        found = finding("K110", f"what it returns is not data: {error}")
    except BaseException as error:  # a candidate may raise anything
        root = root_cause(error)
        code = "K502" if _is_memory(root) else "K110"
        found = finding(code, f"raises {describe(root)}", candidate_line(error, file))
    answers.send(case=number, crashed=found)
    os._exit(0)


class Unwatched:
    """The watcher that sees nothing: for a GPU, where the interpreter's sanitizer has no place."""

    def __enter__(self) -> Unwatched:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def finish(self, value: Any) -> None:
        """Nothing to look at."""

    def findings(self) -> list[Json]:
        return []


def root_cause(error: BaseException) -> BaseException:
    """The exception that started a chain; Triton's interpreter wraps what a kernel raises."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def describe(error: BaseException) -> str:
    """ "ValueError: shapes differ", on one line."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def candidate_line(error: BaseException, file: Path) -> int | None:
    """The innermost 1-based line of the candidate that an exception passed through."""
    found = None
    seen: BaseException | None = error
    while seen is not None:
        for frame in traceback.extract_tb(seen.__traceback__):
            if frame.filename == str(file):
                found = frame.lineno
        seen = seen.__cause__
    return found


def _is_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY)


def case_folders(names: Sequence[str]) -> tuple[Path, ...]:
    return tuple(Path(name).resolve() for name in names)
