"""The real server with a scripted core: how a request ends is the function's name. Run as a program.

    propose*, keep*, decline*, fail*, ask*, badinputs*, crash*      end that way
    hang_starting, hang_tracing, hang_writing, hang_checking        reach that stage and wait to be cancelled
    pause*                                                          waits until the status is asked, then proposes
    print*                                                          writes to standard output in every way, then proposes
Every start, cancel and close goes to the file that $SCRIPT_LOG names, a line each.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernelwright.errors import (
    BadInputs,
    EnvironmentProblem,
    InputsNeeded,
    KernelwrightError,
    StaleProposal,
    TargetNotFound,
)
from kernelwright.history import SqliteHistory
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
from kernelwright.source.edit import AcceptedKernel, Edit, accepted, propose, restore
from kernelwright.source.locate import find_target, find_targets
from kernelwright.source.module import assemble

HARDWARE = Hardware(None, ("sm_80", "sm_90"), "2.13.0", "3.7.1", "3.11")
MODULE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def _copy(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < size), mask=offsets < size)


def {name}({parameters}):
    out = torch.empty_like(x)
    _copy[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""


class ScriptedCore:
    """A core whose requests end as the target's name says. A kernel is a marker line and a decorator."""

    def __init__(self, settings: Settings, root: Path) -> None:
        self.settings = settings
        self.root = root
        self.history = SqliteHistory(None)
        self.asked = asyncio.Event()
        log(f"core {root.name} provider={settings.provider}")

    def targets(self, document: Document) -> tuple[Target, ...]:
        return find_targets(document)

    def accepted(self, document: Document) -> tuple[AcceptedKernel, ...]:
        return accepted(document)

    def inputs_for(self, target: Target, given: str | None = None) -> Inputs:
        if given or not target.name.startswith("ask"):
            return Inputs("literal", given or "x: f32[8]")
        raise InputsNeeded(f"nothing says what {target.qualname} is called with", "x: f32[1024]")

    def edit(self, outcome: Proposed, document: Document) -> Edit:
        try:
            target = find_target(document, outcome.task.target.qualname)
        except TargetNotFound as error:
            raise StaleProposal(str(error)) from error
        if target.source_hash != outcome.evidence.source_hash:
            raise StaleProposal(f"{target.qualname} changed since this kernel was checked")
        return propose(target, outcome.source, outcome.evidence, placement=self.settings.placement)

    def restore(self, document: Document, qualname: str) -> Edit:
        return restore(document, qualname)

    def status(self) -> dict[str, Any]:
        self.asked.set()
        return {"provider": self.settings.provider, "note": "", "interpreter": sys.executable}

    async def generate(
        self, document: Document, qualname: str, *, inputs: str | None = None, instruction: str = "", report: Report
    ) -> Outcome:
        log(f"generate {qualname}")
        try:
            target = find_target(document, qualname)
            found = self.inputs_for(target, inputs)
            await walk(target, report)
            if target.name.startswith("pause"):
                await self.asked.wait()
            return self._end(Task(target, found, (), HARDWARE, instruction))
        except asyncio.CancelledError:
            log(f"cancelled {qualname}")
            raise

    async def recheck(self, document: Document, qualname: str, *, report: Report) -> Verdict:
        target = find_target(document, qualname)
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
        candidate = MODULE.format(name=target.name, parameters=", ".join(entry.name for entry in target.parameters))
        module = assemble(candidate, target, passed().domain)
        proposed = Proposed(task, passed(), evidence, module)
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


def log(line: str) -> None:
    path = os.environ.get("SCRIPT_LOG")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    sys.exit(serve(ScriptedCore))
