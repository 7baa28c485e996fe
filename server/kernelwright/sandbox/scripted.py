"""The shipped fakes of ports.ReferenceWorker and ports.CandidateWorker: they answer what they were made with.

No process, no torch. Whatever is not scripted succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelwright.model import Call, Candidate, Case, Finding, Graph, Hardware, Inputs, Target
from kernelwright.ports import Agreed, CaseFiles, Crashed, Disagreed, NotApplicable, Ran, TritonApi

Judged = Agreed | Disagreed | NotApplicable
HARDWARE = Hardware(None, ("sm_80", "sm_90", "sm_120"), "2.13.0", "3.7.1", "3.11.9", "Linux")


@dataclass
class ScriptedReference:
    """Loads any target with `calls`, traces it to `graphs`, and judges by `judgement` (agreement, if none is given)."""

    calls: tuple[Call, ...] = (Call(0, ()),)
    graphs: tuple[Graph, ...] = ()
    judgement: Callable[[Case], Judged] = lambda case: Agreed(0.0, 1e-6)
    unmakable: Mapping[int, NotApplicable] = field(default_factory=dict)
    """Calls, by index, that the function rejects."""
    machine: Hardware = HARDWARE
    judged: list[Case] = field(default_factory=list)
    closed: bool = False

    async def load(self, target: Target, inputs: Inputs) -> Inputs:
        return replace(inputs, calls=self.calls)

    async def trace(self) -> tuple[Graph, ...]:
        return self.graphs

    async def make(self, cases: Sequence[Case], folder: Path) -> tuple[CaseFiles | NotApplicable, ...]:
        return tuple(
            replace(self.unmakable[case.call], case=case)
            if case.call in self.unmakable
            else CaseFiles(case, folder / str(number))
            for number, case in enumerate(cases)
        )

    async def judge(self, runs: Sequence[CaseFiles]) -> tuple[Judged, ...]:
        self.judged += [run.case for run in runs]
        return tuple(self.judgement(run.case) for run in runs)

    async def hardware(self) -> Hardware:
        return self.machine

    async def close(self) -> None:
        self.closed = True


@dataclass
class ScriptedCandidates:
    """Runs nothing: `faults` says which cases crash, `seen` which the sanitizer finds fault with."""

    faults: Callable[[Case], Finding | None] = lambda case: None
    seen: Callable[[Case], Sequence[Finding]] = lambda case: ()
    refusals: tuple[Finding, ...] = ()
    """What the compiler refuses."""
    triton: TritonApi = field(default_factory=lambda: TritonApi("3.7.1", {}))
    ran: list[Case] = field(default_factory=list)
    closed: bool = False

    async def api(self) -> TritonApi:
        return self.triton

    async def run(
        self, candidate: Candidate, entry: str, cases: Sequence[CaseFiles], limit_s: float
    ) -> tuple[Ran | Crashed, ...]:
        results: list[Ran | Crashed] = []
        for files in cases:
            self.ran.append(files.case)
            fault = self.faults(files.case)
            if fault is not None:
                return (*results, Crashed(files, fault))
            results.append(Ran(files, 0.001, tuple(self.seen(files.case))))
        return tuple(results)

    async def compile(
        self, candidate: Candidate, entry: str, cases: Sequence[CaseFiles], architectures: Sequence[str], limit_s: float
    ) -> tuple[Finding, ...]:
        return self.refusals

    async def close(self) -> None:
        self.closed = True
