"""The verifier: runs the plan against the reference, narrows or refutes, compiles, and checks the guard itself.

The candidate's outputs come back as raw bytes; the reference worker computes the truth afterwards and compares. Nothing
that the candidate says of itself counts.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelwright.model import (
    Candidate,
    Case,
    CaseResult,
    Checking,
    Counterexample,
    Domain,
    Finding,
    Graph,
    Passed,
    Refuted,
    Task,
    Variant,
    Verdict,
)
from kernelwright.ports import (
    Agreed,
    CandidateWorker,
    CaseFiles,
    Crashed,
    Disagreed,
    NotApplicable,
    ReferenceWorker,
    Report,
)
from kernelwright.settings import VerifySettings
from kernelwright.verify.domain import excludes_a_call, narrow, pair
from kernelwright.verify.plan import GPU, INTERPRETER, Limits, admissible, main_dtype, plan
from kernelwright.verify.shrink import smaller

BATCH = 12
"""Cases a sandboxed fork runs: a fork costs about as much as three small cases."""
SHRINK_ATTEMPTS = 16
COMPILE_SECONDS = 180.0
"""A kernel compiles in 0.1 to 0.3 s for an architecture; this is for a machine that is busy with other things."""


@dataclass(frozen=True)
class Failure:
    """A case that did not pass. `counterexample` is missing where the candidate gave no output to compare."""

    case: Case
    finding: Finding
    counterexample: Counterexample | None = None


@dataclass
class _Progress:
    """What one verification has seen so far."""

    candidate: Candidate
    folder: Path
    report: Report
    deadline: float
    total: int = 0
    done: int = 0
    results: list[CaseResult] = field(default_factory=list)
    kept: list[CaseFiles] = field(default_factory=list)
    limitations: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def say(self, stage: str) -> None:
        self.report(Checking(self.candidate, stage, self.done, self.total))


@dataclass(frozen=True)
class CaseVerifier:
    """Implements ports.Verifier. `assemble` makes the module with its guard, to check the guard too."""

    reference: ReferenceWorker
    candidates: CandidateWorker
    settings: VerifySettings
    assemble: Callable[[Candidate, Task, Domain], str]

    async def verify(self, task: Task, candidate: Candidate, report: Report) -> Verdict:
        """Check `candidate` over the plan; see the module's docstring."""
        folder = Path(tempfile.mkdtemp(prefix="kernelwright-cases-"))
        try:
            clock = asyncio.get_running_loop().time()
            state = _Progress(candidate, folder, report, clock + self.settings.seconds)
            return await self._verify(task, state)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _verify(self, task: Task, state: _Progress) -> Verdict:
        limits = GPU if task.hardware.gpu else INTERPRETER
        pairs = pair(task, state.candidate.variants)
        if not pairs:
            finding = Finding("K208", "the kernel covers none of the calls that it should be checked with")
            return Refuted(state.candidate, finding)
        plans = [(graph, variant, plan(task, graph, variant, limits)) for graph, variant in pairs]
        state.total = sum(len(cases) for _, _, cases in plans)
        covered: list[Variant] = []
        for position, (graph, variant, cases) in enumerate(plans):
            outcome = await self._run_variant(task, state, graph, variant, cases)
            if isinstance(outcome, Variant):
                covered.append(outcome)
                continue
            failure = await self._shrink(task, state, graph, variant, outcome)
            if position == 0 or outcome.finding.code.startswith(("K4", "K5")):
                return self._refute(state, failure)
            state.limitations.append(f"call {graph.calls[0]} runs the original body: {failure.finding.message}")
        domain = Domain("cuda", tuple(covered), False, tuple(dict.fromkeys(state.limitations)))
        return await self._finish(task, state, domain, limits)

    def _refute(self, state: _Progress, failure: Failure) -> Refuted:
        return Refuted(state.candidate, failure.finding, failure.counterexample, state.done)

    async def _run_variant(
        self, task: Task, state: _Progress, graph: Graph, variant: Variant, cases: Sequence[Case]
    ) -> Variant | Failure:
        """Run the cases of one variant. Returns the variant, narrowed where it had to be, or the failure."""
        queue = deque(cases)
        user_dtype, own = main_dtype(graph), set(graph.calls)
        while queue:
            if asyncio.get_running_loop().time() > state.deadline:
                state.skipped.append(f"{len(queue)} of {state.total} cases: the time limit was reached")
                break
            batch = [queue.popleft() for _ in range(min(BATCH, len(queue)))]
            failures, unfinished = await self._run(state, batch)
            queue.extendleft(reversed(unfinished))
            state.say("values")
            for failure in failures:
                if _guarded_anyway(variant, failure):
                    continue
                narrowed = None if _users_own(failure.case, own) else narrow(variant, failure.case, user_dtype)
                if narrowed and excludes_a_call(narrowed[0], task, own):
                    narrowed = None
                if narrowed is None and failure.finding.code == "K209":
                    continue  # it is these values that the function rejects, not a region that a guard can name
                if narrowed is None or failure.finding.code.startswith(("K4", "K5")):
                    return failure
                variant, words = narrowed
                state.limitations.append(f"{words}: {failure.finding.message}")
                inside = [case for case in queue if admissible_after(graph, variant, case, user_dtype)]
                state.total -= len(queue) - len(inside)
                queue = deque(inside)
        return variant

    async def _run(self, state: _Progress, cases: Sequence[Case]) -> tuple[list[Failure], list[Case]]:
        """Run one batch in one fork. Returns what failed, and what was not reached because of a crash."""
        made = await self.reference.make(cases, state.folder)
        files = [item for item in made if isinstance(item, CaseFiles)]
        state.done += len(made) - len(files)
        failures = [
            Failure(item.case, Finding("K209", f"{item.reason}, and the kernel would not"))
            for item in made
            if isinstance(item, NotApplicable) and item.exception
        ]
        if not files:
            return failures, []
        runs = await self.candidates.run(state.candidate, state.candidate.entry, files, self.settings.case_seconds)
        to_judge: list[CaseFiles] = []
        for run in runs:
            if isinstance(run, Crashed):
                failures.append(Failure(run.files.case, run.finding))
            elif run.findings:
                failures.append(Failure(run.files.case, run.findings[0]))
            else:
                to_judge.append(run.files)
        for item, judged in zip(to_judge, await self.reference.judge(to_judge), strict=True):
            self._take(state, item, judged, failures)
        state.done += len(runs)
        self._tidy(state, files)
        failures.sort(key=lambda failure: list(cases).index(failure.case))
        return failures, [item.case for item in files[len(runs) :]]

    def _take(
        self, state: _Progress, files: CaseFiles, judged: Agreed | Disagreed | NotApplicable, failures: list[Failure]
    ) -> None:
        if isinstance(judged, Agreed):
            state.results.append(CaseResult(files.case, judged.error, judged.limit))
            if self._worth_keeping(state, files.case):
                state.kept.append(files)
        elif isinstance(judged, Disagreed):
            failures.append(Failure(files.case, judged.finding, judged.counterexample))

    def _worth_keeping(self, state: _Progress, case: Case) -> bool:
        """One folder a call and dtype, for the compiler and the guard."""
        seen = {(kept.case.call, kept.case.dtype) for kept in state.kept}
        return (case.call, case.dtype) not in seen and 0 not in case.sizes.values()

    def _tidy(self, state: _Progress, files: Sequence[CaseFiles]) -> None:
        kept = {item.folder for item in state.kept}
        for item in files:
            if item.folder not in kept:
                shutil.rmtree(item.folder, ignore_errors=True)

    async def _shrink(self, task: Task, state: _Progress, graph: Graph, variant: Variant, failure: Failure) -> Failure:
        """A simpler case that still fails in the same way, found greedily within a few attempts."""
        if failure.finding.code.startswith(("K4", "K5")):
            return failure
        attempts = SHRINK_ATTEMPTS
        best = failure
        improved = True
        while improved and attempts > 0:
            improved = False
            for case in smaller(best.case, graph):
                if attempts == 0 or not admissible(graph, variant, case):
                    continue
                attempts -= 1
                failures, _ = await self._run(state, [case])
                if failures and failures[0].finding.code == failure.finding.code:
                    best, improved = failures[0], True
                    break
        return best if best.counterexample else replace(best, counterexample=await self._describe(task, best.case))

    async def _describe(self, task: Task, case: Case) -> Counterexample:
        """A counterexample for a case without outputs: the arguments as the call has them."""
        call = next((call for call in task.inputs.calls if call.index == case.call), None)
        return Counterexample(case, call.arguments if call else ())

    async def _finish(self, task: Task, state: _Progress, domain: Domain, limits: Limits) -> Verdict:
        """Compile ahead of time, then check that the guard admits what passed and nothing that must raise."""
        if not state.results:
            finding = Finding("K208", "no case could be run: the function rejects every input of the plan")
            return Refuted(state.candidate, finding)
        architectures = self.settings.architectures
        state.say("compiling for " + ", ".join(architectures))
        # One call a variant in each dtype: other sizes launch the same kernels.
        first = {graph.calls[0] for graph, _ in pair(task, domain.variants)}
        files = [item for item in state.kept if item.case.call in first]
        findings = await self.candidates.compile(
            state.candidate, state.candidate.entry, files, architectures, COMPILE_SECONDS
        )
        if findings:
            return Refuted(state.candidate, findings[0], None, state.done)
        state.say("guard")
        refused = await self._check_guard(task, state, domain)
        if refused:
            narrowed = "; ".join(state.limitations)
            message = f"{refused.message}. Its domain was narrowed: {narrowed}" if narrowed else refused.message
            return Refuted(state.candidate, replace(refused, message=message), None, state.done)
        return Passed(
            state.candidate,
            domain,
            tuple(state.results),
            tuple(architectures),
            task.hardware.gpu if limits is GPU else None,
            tuple(state.skipped),
        )

    async def _check_guard(self, task: Task, state: _Progress, domain: Domain) -> Finding | None:
        guarded = replace(state.candidate, source=self.assemble(state.candidate, task, domain))
        raising = [Case(call=call.index) for call in task.inputs.calls if call.raises]
        made = await self.reference.make(raising, state.folder)
        must_refuse = [CaseFiles(item.case, item.folder) for item in made if item.folder]
        covered = {call for graph, _ in pair(task, domain.variants) for call in graph.calls}
        must_admit = [item for item in state.kept if item.case.call in covered]
        if _has_supports(state.candidate):
            # Its own `supports` may be narrower than what was tried; the user's own calls it has to admit.
            must_admit = [item for item in must_admit if item.case.dtype is None]
        return await self._guard_answers(guarded, must_admit, True) or await self._guard_answers(
            guarded, must_refuse, False
        )

    async def _guard_answers(self, guarded: Candidate, files: Sequence[CaseFiles], admit: bool) -> Finding | None:
        if not files:
            return None
        for run in await self.candidates.run(guarded, "supports", files, self.settings.case_seconds):
            if isinstance(run, Crashed):
                return run.finding
            if _answer(run.files.folder) is not admit:
                verb = "refuses" if admit else "admits"
                reason = f" ({await self._why_not(guarded, run.files)})" if admit else ""
                return Finding("K208", f"the guard {verb} {run.files.case.describe()}{reason}")
        return None

    async def _why_not(self, guarded: Candidate, files: CaseFiles) -> object:
        """The guard's own reason, for the message."""
        runs = await self.candidates.run(guarded, "_why_not", [files], self.settings.case_seconds)
        return "its own supports" if isinstance(runs[0], Crashed) else _answer(files.folder)


def _has_supports(candidate: Candidate) -> bool:
    return re.search(r"^def supports\b", candidate.source, re.MULTILINE) is not None


def admissible_after(graph: Graph, variant: Variant, case: Case, user_dtype: str | None) -> bool:
    """Whether a case still lies inside a narrowed variant."""
    dtype = case.dtype or user_dtype
    floats = [tensor for tensor in variant.tensors if user_dtype in tensor.dtypes or dtype in tensor.dtypes]
    dtype_fits = case.dtype is None or any(case.dtype in tensor.dtypes for tensor in floats)
    contiguous = all(tensor.layout == "contiguous" for tensor in variant.tensors)
    layout_fits = not contiguous or case.layout in ("user", "contiguous")
    run_time = {scalar.path for scalar in variant.scalars}
    scalars_fit = all(path in run_time for path in case.scalars)
    return dtype_fits and layout_fits and scalars_fit and admissible(graph, variant, case)


def _guarded_anyway(variant: Variant, failure: Failure) -> bool:
    """A function that writes into a tensor rejects one that overlaps itself; every guard does so too."""
    mutates = any(tensor.mutated for tensor in variant.tensors)
    return failure.finding.code == "K209" and failure.case.layout == "expanded" and mutates


def _users_own(case: Case, calls: set[int]) -> bool:
    plain = case.values == "user" and case.layout == "user" and case.dtype is None
    return plain and case.call in calls


def _answer(folder: Path) -> object:
    """What `supports` returned; anything but one JSON boolean is no answer."""
    try:
        return json.loads((folder / "outputs.json").read_text(encoding="utf-8"))["output"]["value"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
