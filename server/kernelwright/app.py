"""The composition root: the only place that names plug-ins. Both front ends, editor and command line, call this."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kernelwright.checks import run_checks
from kernelwright.doctor import examine
from kernelwright.errors import InputsNeeded, StaleProposal, UsageError
from kernelwright.history import SqliteHistory
from kernelwright.model import (
    Candidate,
    Declined,
    Document,
    Domain,
    Finding,
    Inputs,
    Outcome,
    Passed,
    Proposed,
    Starting,
    Target,
    Task,
    Verdict,
)
from kernelwright.pipeline import Pipeline
from kernelwright.ports import CandidateWorker, History, ReferenceWorker, Report, ignore
from kernelwright.providers.table import create
from kernelwright.sandbox.candidate import CandidateProcesses
from kernelwright.sandbox.reference import ReferenceProcess
from kernelwright.settings import Settings
from kernelwright.source.edit import AcceptedKernel, Edit, accepted, propose, restore
from kernelwright.source.inputs import find_inputs, inputs_from_spec, suggest
from kernelwright.source.locate import find_target, find_targets
from kernelwright.source.module import assemble
from kernelwright.verify.verifier import CaseVerifier


def default_home(environment: Mapping[str, str]) -> Path:
    """Where history and logs live: KERNELWRIGHT_HOME, else the platform's data folder."""
    if environment.get("KERNELWRIGHT_HOME"):
        return Path(environment["KERNELWRIGHT_HOME"]).expanduser()
    if sys.platform == "win32" and environment.get("LOCALAPPDATA"):
        return Path(environment["LOCALAPPDATA"]) / "kernelwright"
    base = environment.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "kernelwright"


class App:
    """One workspace folder's worth of Kernelwright. Starts nothing until it is asked to generate or verify.

    With `keep_warm` a fresh reference worker waits for the next request after each one.
    """

    def __init__(self, settings: Settings, *, root: Path, home: Path | None = None, keep_warm: bool = False) -> None:
        self.settings = settings
        self.root = root
        self.home = home or default_home(os.environ)
        self.interpreter = settings.interpreter or sys.executable
        self.provider, self.provider_note = create(settings, os.environ)
        self.history: History = SqliteHistory(self.home / "history.db")
        self._candidates: CandidateProcesses | None = None
        self._spare: ReferenceWorker | None = None
        self._keep_warm = keep_warm
        self._warming: asyncio.Future[None] | None = None

    # --- looking at text: no process, no waiting

    def targets(self, document: Document) -> tuple[Target, ...]:
        """The functions of a document that use torch."""
        return find_targets(document)

    def accepted(self, document: Document) -> tuple[AcceptedKernel, ...]:
        """The kernels of ours that the document holds."""
        return accepted(document)

    def inputs_for(self, target: Target, given: str | None = None) -> Inputs:
        """Where the calls come from: what was given, what the file says, what was answered before.

        Raises:
            InputsNeeded: nothing says it; the exception carries a literal to start from.
            BadInputs: what was given does not parse.
        """
        if given:
            return inputs_from_spec(given)
        found = find_inputs(target)
        if found:
            return found
        remembered = self.history.remembered_inputs(target.document.path, target.qualname)
        if remembered:
            return inputs_from_spec(remembered)
        suggestion = suggest(target)
        raise InputsNeeded(
            f"nothing says what {target.qualname} is called with. Give --inputs '{suggestion}' or PATH.py:FUNCTION, "
            f"or write a comment above it: # inputs: {suggestion}",
            suggestion,
        )

    def edit(self, outcome: Proposed, document: Document) -> Edit:
        """The edit that puts a proposal into the document as it is now.

        Raises:
            StaleProposal: the function changed since, or is gone.
        """
        try:
            target = find_target(document, outcome.task.target.qualname)
        except UsageError as error:
            raise StaleProposal(f"{outcome.task.target.qualname} is no longer in the file: generate again") from error
        if target.source_hash != outcome.evidence.source_hash:
            raise StaleProposal(f"{target.qualname} changed since this kernel was checked: generate again")
        return propose(
            target,
            outcome.source,
            outcome.evidence,
            placement=self.settings.placement,
            warn=self.settings.fallback_warnings,
        )

    def restore(self, document: Document, qualname: str) -> Edit:
        """The edit that takes an accepted kernel out again."""
        return restore(document, qualname)

    def status(self) -> dict[str, Any]:
        """What the editor's status item shows."""
        return {"provider": self.provider.name, "note": self.provider_note, "interpreter": self.interpreter}

    # --- running things

    async def generate(
        self,
        document: Document,
        qualname: str,
        *,
        inputs: str | None = None,
        instruction: str = "",
        report: Report = ignore,
    ) -> Outcome:
        """The whole request; see `Pipeline.run`. Cancelling it kills every worker."""
        target = find_target(document, qualname)
        found = self.inputs_for(target, inputs)
        async with self._pipeline(report) as pipeline:
            outcome = await pipeline.run(target, found, instruction, report)
        if inputs and not isinstance(outcome, Declined):
            self.history.remember_inputs(document.path, target.qualname, inputs)
        return outcome

    async def verify(
        self,
        document: Document,
        qualname: str,
        candidate: Candidate,
        *,
        inputs: str | None = None,
        report: Report = ignore,
    ) -> tuple[Task, Verdict]:
        """Check someone's kernel against the function: static checks and the verifier, no provider."""
        target = find_target(document, qualname)
        found = self.inputs_for(target, inputs)
        async with self._pipeline(report) as pipeline:
            task = await pipeline.trace(target, found, "", report)
            return task, await pipeline.judge(task, candidate, report)

    async def analyse(self, document: Document, qualname: str, *, inputs: str | None = None) -> Task:
        """Trace a function and nothing more."""
        target = find_target(document, qualname)
        found = self.inputs_for(target, inputs)
        async with self._pipeline(ignore) as pipeline:
            return await pipeline.trace(target, found, "", ignore)

    async def recheck(self, document: Document, qualname: str, *, report: Report = ignore) -> Verdict:
        """Check an accepted kernel against the function as it is now, with the inputs that it was checked with.

        Raises:
            UsageError: there is no accepted kernel, or this machine's history does not know it.
        """
        kernel = next((kernel for kernel in self.accepted(document) if kernel.qualname == qualname), None)
        if kernel is None:
            raise UsageError(f"{qualname} has no accepted kernel in this file")
        known = self.history.evidence(kernel.evidence_id)
        if known is None:
            raise UsageError(f"this machine's history has no evidence {kernel.evidence_id}: generate {qualname} again")
        candidate = Candidate(known["source"], known["provider"], known.get("model", ""), qualname.rsplit(".", 1)[-1])
        spec = str(known["inputs"]).partition(": ")[2]
        _, verdict = await self.verify(document, qualname, candidate, inputs=spec, report=report)
        return verdict

    async def examine(self) -> list[dict[str, str]]:
        """What this machine can do, for `doctor`: name, state ("ok", "limited" or "missing") and detail a row."""
        return await examine(
            self.settings, self.interpreter, self.provider_note, self._new_reference(), self._workers()
        )

    async def close(self) -> None:
        """End every worker; nothing is left running."""
        await self._end_workers()
        self.history.close()

    # --- composition

    @asynccontextmanager
    async def _pipeline(self, report: Report) -> AsyncIterator[Pipeline]:
        """A pipeline over a reference worker of its own: no module of the user's outlives the text it came from."""
        report(Starting(self.interpreter))
        candidates = self._workers()
        reference, self._spare = self._spare or self._new_reference(), None
        try:
            await asyncio.gather(reference.start(), candidates.start())
            yield self._compose(reference, candidates)
        except asyncio.CancelledError:
            # A cancelled request leaves no process behind, warm ones included.
            await asyncio.shield(asyncio.gather(reference.close(), self._end_workers()))
            raise
        finally:
            await reference.close()
        if self._keep_warm:
            self._spare = self._new_reference()
            self._warming = asyncio.ensure_future(self._spare.start())

    def _compose(self, reference: ReferenceWorker, candidates: CandidateWorker) -> Pipeline:
        async def static(candidate: Candidate, task: Task) -> Finding | None:
            return run_checks(candidate, task, await candidates.api())

        verifier = CaseVerifier(reference, candidates, self.settings.verify, _assemble_for_check)
        return Pipeline(self.provider, reference, verifier, self.history, _assemble, self.settings.budget, static)

    def _workers(self) -> CandidateProcesses:
        if self._candidates is None:
            self._candidates = CandidateProcesses(self.interpreter, self.root, self.home / "logs")
        return self._candidates

    def _new_reference(self) -> ReferenceWorker:
        return ReferenceProcess(self.interpreter, self.root, self.home / "logs")

    async def _end_workers(self) -> None:
        if self._warming is not None:
            await asyncio.gather(self._warming, return_exceptions=True)
        workers = [worker for worker in (self._spare, self._candidates) if worker is not None]
        self._spare = self._candidates = None
        await asyncio.gather(*(worker.close() for worker in workers))


def _assemble(target: Target, passed: Passed) -> str:
    return assemble(passed.candidate.source, target, passed.domain)


def _assemble_for_check(candidate: Candidate, task: Task, domain: Domain) -> str:
    return assemble(candidate.source, task.target, domain)
