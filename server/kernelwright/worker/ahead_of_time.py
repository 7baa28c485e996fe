"""Compiles what a candidate launches for GPUs that are not there. Runs in a process without the interpreter.

The entry is called on the case's tensors; every launch compiles its kernel for each architecture instead, with the types,
constants and alignments of the real arguments. The interpreter accepts code that the compiler rejects, so a candidate must
pass both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernelwright.worker import job, wire
from kernelwright.worker.stub_driver import StubDriver, shared_memory

MAX_FINDINGS = 8
_stock_run: Callable[..., Any] | None = None


def mend() -> None:
    """Check that launches can be taken over, and put a driver in place that needs no GPU.

    Raises:
        EnvironmentProblem: this Triton launches in another way.
    """
    import triton
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    global _stock_run
    if not hasattr(JITFunction, "run") or not hasattr(driver, "set_active"):
        raise wire.EnvironmentProblem(
            f"triton {triton.__version__} cannot be made to compile without a GPU: use Triton 3.2 to 3.9"
        )
    _stock_run = JITFunction.run
    driver.set_active(StubDriver())


def compile_cases(order: job.Order, answers: job.Answers) -> None:
    """The body of a compiling child: call the entry for each folder, compile what it launches."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    job.settle(order)
    stub = StubDriver(order.architectures)
    driver.set_active(stub)
    compiler = Compiler(order, answers, stub)
    JITFunction.run = lambda kernel, *arguments, **options: compiler.launch(kernel, arguments, options)
    with job.report(answers, 0, order.file):
        entry = job.load(order)
    for folder in order.folders:
        data = wire.read_call(folder, on_cpu=True)
        try:
            job.call(entry, data)
        except BaseException as error:
            # Nothing was computed, so what follows a launch may well fail; what comes before one may not.
            if not compiler.launches:
                text = f"raises {job.describe(job.root_cause(error))} before its first launch"
                compiler.note(job.finding("K110", text, job.candidate_line(error, order.file)))
    answers.send(end=True, findings=compiler.findings)


@dataclass
class Compiler:
    """Takes the place of a launch."""

    order: job.Order
    answers: job.Answers
    stub: StubDriver
    launches: int = 0
    findings: list[Any] = field(default_factory=list)
    _refused: set[tuple[int, str]] = field(default_factory=set)
    seconds: float = 0.0

    def launch(self, kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Compile for each architecture; equal signatures are compiled once, by Triton's own cache."""
        self.launches += 1
        compiled = None
        for architecture in self.order.architectures:
            if (id(kernel), architecture) in self._refused:
                continue
            self.stub.architecture = architecture
            started = time.perf_counter()
            try:
                compiled = self._compile(kernel, architecture, arguments, options) or compiled
            except Exception as error:  # whatever the compiler raises is a refusal
                self._refused.add((id(kernel), architecture))
                self.note(self._refusal(kernel, architecture, error))
            self.seconds += time.perf_counter() - started
        return compiled

    def note(self, finding: Any) -> None:
        if len(self.findings) < MAX_FINDINGS and finding not in self.findings:
            self.findings.append(finding)

    def _compile(self, kernel: Any, architecture: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        assert _stock_run is not None
        self.answers.send(compiling=f"{kernel.__name__} for {architecture}")
        if not hasattr(kernel, "device_caches"):  # Triton 3.2 keeps one binder a kernel, for the first target
            kernel.cache.clear()
            kernel.binder = None
        compiled = _stock_run(kernel, *arguments, **{**options, "grid": (1,), "warmup": True})
        needed, limit = getattr(compiled.metadata, "shared", 0), shared_memory(architecture)
        if needed > limit:
            text = f"{kernel.__name__} needs {needed} bytes of shared memory for {architecture}, which has {limit}"
            self.note(job.finding("K121", text, self._first_line(kernel)))
        return compiled

    def _refusal(self, kernel: Any, architecture: str, error: BaseException) -> Any:
        innermost = _innermost(error)
        text = " ".join(_words(innermost).split())
        line = self._line(kernel, innermost)
        return job.finding("K120", f"{kernel.__name__} does not compile for {architecture}: {text}", line)

    def _line(self, kernel: Any, error: BaseException) -> int | None:
        """The candidate's line of a compilation error, found through the text of the function that holds it."""
        node, source = getattr(error, "node", None), getattr(error, "src", None)
        if node is None or not isinstance(source, str):
            return None
        wanted = [line.strip() for line in source.splitlines()]
        lines = [line.strip() for line in self.order.source.splitlines()]
        for start in range(len(lines) - len(wanted) + 1):
            if lines[start : start + len(wanted)] == wanted:
                return int(start + node.lineno)
        return self._first_line(kernel)

    def _first_line(self, kernel: Any) -> int | None:
        code = getattr(getattr(kernel, "fn", None), "__code__", None)
        return code.co_firstlineno if code is not None and code.co_filename == str(self.order.file) else None


def _innermost(error: BaseException) -> BaseException:
    """The compilation error that started it: a helper's, rather than that of the kernel that calls it."""
    while hasattr(error.__cause__, "node"):
        assert error.__cause__ is not None
        error = error.__cause__
    return error


def _words(error: BaseException) -> str:
    """What is wrong, without the copy of the source that Triton's messages hold."""
    message = getattr(error, "error_message", None)
    if message:
        return str(message)
    cause = error.__cause__
    if hasattr(error, "node") and cause is not None:
        return job.describe(cause)
    return job.describe(error)
