"""The real server with a scripted core: how a request ends is the function's name. Run as a program.

    propose*, keep*, decline*, fail*, ask*, badinputs*, crash*      end that way
    hang_starting, hang_tracing, hang_writing, hang_checking        reach that stage and wait to be cancelled
    pause*                                                          waits until the status is asked, then proposes
    print*                                                          writes to standard output in every way, then proposes
Every start, cancel and close goes to the file that $SCRIPT_LOG names, a line each.
"""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.errors import (
    BadInputs,
    EnvironmentProblem,
    InputsNeeded,
    KernelwrightError,
    StaleProposal,
    UsageError,
)
from kernelwright.history import SqliteHistory
from kernelwright.lsp.endpoint import split_lines
from kernelwright.lsp.server import serve
from kernelwright.model import (
    Argument,
    Candidate,
    Case,
    CaseResult,
    Checking,
    Counterexample,
    Declined,
    Document,
    Domain,
    Event,
    Evidence,
    Failed,
    Finding,
    Generating,
    Graph,
    Hardware,
    Inputs,
    Kept,
    Measurement,
    Outcome,
    Passed,
    Proposed,
    Refusal,
    Refuted,
    Span,
    Starting,
    Target,
    Task,
    TensorDomain,
    TensorSpec,
    Traced,
    Variant,
    Verdict,
)
from kernelwright.ports import Report
from kernelwright.settings import Settings

HARDWARE = Hardware(None, ("sm_80", "sm_90"), "2.13.0", "3.7.1", "3.11")
MARK = "# kernelwright: "


@dataclass(frozen=True)
class Kernel:
    qualname: str
    evidence_id: str
    source_hash: str


@dataclass(frozen=True)
class Change:
    after: str

    def apply(self, text: str) -> str:
        return self.after


class ScriptedCore:
    """A core whose requests end as the target's name says. A kernel is a marker line and a decorator."""

    def __init__(self, settings: Settings, root: Path) -> None:
        self.settings = settings
        self.root = root
        self.history = SqliteHistory(None)
        self.asked = asyncio.Event()
        log(f"core {root.name} provider={settings.provider}")

    def targets(self, document: Document) -> tuple[Target, ...]:
        return tuple(find(document))

    def accepted(self, document: Document) -> tuple[Kernel, ...]:
        marked = [line.strip()[len(MARK) :].split() for line in split_lines(document.text) if MARK in line]
        return tuple(Kernel(*words) for words in marked)

    def inputs_for(self, target: Target, given: str | None = None) -> Inputs:
        if given or not target.name.startswith("ask"):
            return Inputs("literal", given or "x: f32[8]")
        raise InputsNeeded(f"nothing says what {target.qualname} is called with", "x: f32[1024]")

    def edit(self, outcome: Proposed, document: Document) -> Change:
        target = require(document, outcome.task.target.qualname)
        if target is None or target.source_hash != outcome.evidence.source_hash:
            raise StaleProposal(f"{outcome.task.target.qualname} changed since this kernel was checked")
        lines = list(split_lines(document.text))
        ending = "\r\n" if lines[0].endswith("\r\n") else "\n"
        indent = " " * (len(lines[target.def_line]) - len(lines[target.def_line].lstrip()))
        lines.insert(target.def_line, f"{indent}@_kernelwright_{target.name}{ending}")
        mark = f"{MARK}{target.qualname} {outcome.evidence.id} {target.source_hash}{ending}"
        lines.insert(target.span.start_line, indent + mark)
        return Change("".join(lines))

    def restore(self, document: Document, qualname: str) -> Change:
        if all(kernel.qualname != qualname for kernel in self.accepted(document)):
            raise UsageError(f"{qualname} has no accepted kernel in this file")
        dropped = (f"{MARK}{qualname} ", f"@_kernelwright_{qualname.rsplit('.', 1)[-1]}")
        lines = split_lines(document.text)
        return Change("".join(line for line in lines if not line.strip().startswith(dropped)))

    def status(self) -> dict[str, Any]:
        self.asked.set()
        return {"provider": self.settings.provider, "note": "", "interpreter": sys.executable}

    async def generate(
        self, document: Document, qualname: str, *, inputs: str | None = None, instruction: str = "", report: Report
    ) -> Outcome:
        log(f"generate {qualname}")
        try:
            target = require(document, qualname)
            if target is None:
                raise UsageError(f"{qualname} is not in the file")
            found = self.inputs_for(target, inputs)
            await walk(target, report)
            if target.name.startswith("pause"):
                await self.asked.wait()
            return self._end(Task(target, found, (), HARDWARE, instruction))
        except asyncio.CancelledError:
            log(f"cancelled {qualname}")
            raise

    async def recheck(self, document: Document, qualname: str, *, report: Report) -> Verdict:
        target = require(document, qualname)
        assert target is not None
        await walk(target, report)
        return refuted() if "bad" in qualname else passed()

    async def close(self) -> None:
        log(f"closed {self.root.name}")

    def _end(self, task: Task) -> Outcome:
        target = task.target
        match target.name.split("_")[0].rstrip("0123456789"):
            case "decline":
                return Declined(target, Refusal("sort has no kernel", "aten.sort", target.def_line + 2), "builtin")
            case "fail":
                return Failed(task, refuted(), 2)
            case "keep":
                return Kept(task, passed(), Measurement(passed(), "H200", 1.0, 0.5, 0.6, 0.4, (0.5, 0.6)))
            case "badinputs":
                raise BadInputs("x: what is q32?")
            case "broken":
                raise KernelwrightError("the disk is full: free some space")
            case "noenv":
                raise EnvironmentProblem("python has no torch: pip install torch")
            case "crash":
                raise ZeroDivisionError("a fault of ours")
            case "print":
                shout()
        evidence = Evidence(
            id="e" + target.source_hash[:8],
            provider="builtin",
            model="",
            created="2026-12-01",
            hardware=HARDWARE,
            source_hash=target.source_hash,
            domain=passed().domain,
            cases=2,
            max_error=1.25e-7,
            architectures=("sm_80", "sm_90"),
            inputs="literal: x: f32[8]",
        )
        proposed = Proposed(task, passed(), evidence, "import triton\n")
        self.history.record_outcome("run", proposed)
        return proposed


async def walk(target: Target, report: Report) -> None:
    """Every stage in turn; hangs for ever in the one that the name says."""
    graph = Graph((0,), (), (), None, kind="row reduction")
    candidate = passed().candidate
    stages: list[tuple[str, Event]] = [
        ("starting", Starting(sys.executable)),
        ("tracing", Traced((graph,), Inputs("literal", "x: f32[8]"))),
        ("writing", Generating("builtin", "", 1)),
        *(("checking", Checking(candidate, "values", done, 212)) for done in range(213)),
        ("compiling", Checking(candidate, "compiling for sm_90", 1, 2)),
    ]
    for index, (stage, event) in enumerate(stages):
        report(event)
        last = index + 1 == len(stages) or stages[index + 1][0] != stage
        if last and target.name.startswith(f"hang_{stage}"):
            await asyncio.Event().wait()
        await asyncio.sleep(0)


def passed() -> Passed:
    tensor = TensorDomain("x", ("float32", "bfloat16"), ("s0", "s1"))
    results = (CaseResult(Case(0), 1e-7, 1e-6), CaseResult(Case(1), 1.25e-7, 1e-6))
    return Passed(Candidate("import triton\n", "builtin"), Domain("cuda", (Variant((tensor,)),)), results, ("sm_90",))


def refuted() -> Refuted:
    argument = Argument("x", TensorSpec("float32", (3, 5)))
    example = Counterexample(Case(0), (argument,), "", (2, 4), "nan", "0.5")
    return Refuted(Candidate("import triton\n", "builtin"), Finding("K201", "a value is wrong"), example, 7)


def shout() -> None:
    """Write to standard output as user code and its children may."""
    print("print", flush=True)
    os.write(1, b"Content-Length: 5\r\n\r\nhello")
    subprocess.run([sys.executable, "-c", "print('a child')"], check=True)


def require(document: Document, qualname: str) -> Target | None:
    return next((target for target in find(document) if target.qualname == qualname), None)


def find(document: Document) -> Iterator[Target]:
    """Every function whose text names torch; none while the file does not parse."""
    try:
        tree = ast.parse(document.text)
    except SyntaxError:
        return
    yield from walk_body(document, tree, "")


def walk_body(document: Document, parent: ast.AST, prefix: str) -> Iterator[Target]:
    lines = split_lines(document.text)
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef):
            yield from walk_body(document, node, f"{prefix}{node.name}.")
        if isinstance(node, ast.FunctionDef):
            start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
            source = "".join(lines[start : node.end_lineno])
            span = Span(start, node.col_offset, node.end_lineno or 0, 0)
            if "torch" in source:
                yield Target(document, prefix + node.name, source, span, node.lineno - 1, ())
            yield from walk_body(document, node, f"{prefix}{node.name}.<locals>.")


def log(line: str) -> None:
    path = os.environ.get("SCRIPT_LOG")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    sys.exit(serve(ScriptedCore))
