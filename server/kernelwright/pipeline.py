"""One request: target → inputs → graphs → task → [candidate → checks → verdict] × rounds → outcome.

Sees ports only. A candidate's faults are values; ours, and cancellation, are exceptions that travel up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from kernelwright.errors import KernelwrightError
from kernelwright.model import (
    Candidate,
    CandidatePassed,
    CandidateRefuted,
    Declined,
    Evidence,
    Failed,
    Finding,
    Finished,
    Generating,
    Graph,
    Inputs,
    Outcome,
    Passed,
    Proposed,
    Refusal,
    Refuted,
    Target,
    Task,
    Traced,
    Tracing,
    Verdict,
    digest,
)
from kernelwright.ports import History, Provider, ReferenceWorker, Report, Verifier
from kernelwright.settings import BudgetSettings


@dataclass(frozen=True)
class Pipeline:
    """Everything one request needs. `assemble` turns what passed into the self-contained module."""

    provider: Provider
    reference: ReferenceWorker
    verifier: Verifier
    history: History
    assemble: Callable[[Target, Passed], str]
    budget: BudgetSettings
    static: Callable[[Candidate, Task], Awaitable[Finding | None]]

    async def run(self, target: Target, inputs: Inputs, instruction: str, report: Report) -> Outcome:
        """Run the whole request.

        Raises:
            UsageError, WorkerError, ProviderError: ours or the caller's, never a candidate's.
            asyncio.CancelledError: the caller cancelled; finished attempts stay in the history.
        """
        task = await self.trace(target, inputs, instruction, report)
        outcome = declined(task) or await self._rounds(task, report)
        report(Finished(outcome))
        return outcome

    async def trace(self, target: Target, inputs: Inputs, instruction: str, report: Report) -> Task:
        """Load the target, make its calls, trace each variant."""
        report(Tracing(target))
        inputs = await self.reference.load(target, inputs)
        graphs = await self.reference.trace()
        report(Traced(graphs, inputs))
        return Task(target, inputs, graphs, await self.reference.hardware(), instruction)

    async def _rounds(self, task: Task, report: Report) -> Outcome:
        run = digest(f"{task.key}\n{datetime.now(timezone.utc).isoformat()}")
        tried: list[Refuted] = []
        deadline = asyncio.get_running_loop().time() + self.budget.minutes * 60
        for number in range(1, self.budget.rounds + 1):
            report(Generating(self.provider.name, "", number))
            try:
                draft = await self.provider.draft(task, tuple(tried), report)
            except KernelwrightError:
                # A provider that fails after a finished attempt loses nothing: the attempt is the outcome's evidence.
                if not tried:
                    raise
                break
            if isinstance(draft, Refusal):
                if tried:
                    break
                return self._keep(run, Declined(task.target, draft, self.provider.name))
            verdict = await self.judge(task, draft, report)
            self.history.record_attempt(run, task, verdict)
            if isinstance(verdict, Passed):
                return self._keep(run, self._propose(task, verdict, number))
            tried.append(verdict)
            repeated = sum(attempt.candidate.id == draft.id for attempt in tried) > 1
            if repeated or asyncio.get_running_loop().time() > deadline:
                break
        return self._keep(run, Failed(task, tried[-1], len(tried)))

    async def judge(self, task: Task, candidate: Candidate, report: Report) -> Verdict:
        """Static checks first, then the verifier."""
        finding = await self.static(candidate, task)
        verdict: Verdict
        verdict = Refuted(candidate, finding) if finding else await self.verifier.verify(task, candidate, report)
        report(CandidatePassed(verdict) if isinstance(verdict, Passed) else CandidateRefuted(verdict))
        return verdict

    def _propose(self, task: Task, passed: Passed, rounds: int) -> Proposed:
        source = self.assemble(task.target, passed)
        evidence = make_evidence(task, passed, source, rounds)
        return Proposed(task, passed, evidence, source)

    def _keep(self, run: str, outcome: Outcome) -> Outcome:
        self.history.record_outcome(run, outcome)
        return outcome


def declined(task: Task) -> Declined | None:
    """What the trace alone refuses: every variant, or the first call's."""
    refused = [graph for graph in task.graphs if graph.refusal]
    if not task.graphs:
        return Declined(task.target, Refusal("none of the calls reaches the function: each one must raise"))
    if len(refused) == len(task.graphs):
        return Declined(task.target, _first(refused))
    return None


def _first(graphs: list[Graph]) -> Refusal:
    return next(graph.refusal for graph in graphs if graph.refusal)


def make_evidence(task: Task, passed: Passed, source: str, rounds: int = 1) -> Evidence:
    """The record kept with a kernel; its id is a hash of the kernel's text and what it was checked against."""
    return Evidence(
        id=digest(f"{source}\n{task.target.source_hash}\n{task.inputs.spec}"),
        provider=passed.candidate.provider,
        model=passed.candidate.model,
        created=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        hardware=replace(task.hardware, gpu=passed.on_gpu),
        source_hash=task.target.source_hash,
        domain=passed.domain,
        cases=len(passed.results),
        max_error=passed.max_error,
        architectures=passed.architectures,
        inputs=f"{task.inputs.origin}: {task.inputs.spec}",
        rounds=rounds,
        notes=passed.candidate.notes + passed.skipped,
    )
