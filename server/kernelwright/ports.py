"""The seams. Each has a real implementation and a fake that ships; `pipeline` sees nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from kernelwright.model import (
    Candidate,
    Case,
    Counterexample,
    Event,
    Finding,
    Graph,
    Hardware,
    Inputs,
    Json,
    Outcome,
    Refusal,
    Refuted,
    Target,
    Task,
    Verdict,
)

Report: TypeAlias = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The silent report."""


class Provider(Protocol):
    """Writes candidates."""

    @property
    def name(self) -> str:
        """The settings value that selects it."""
        ...

    async def draft(self, task: Task, tried: Sequence[Refuted], report: Report) -> Candidate | Refusal:
        """Write one candidate, given what was tried and why it failed. A Refusal says why none can be written.

        Raises:
            ProviderError: network, key, quota, malformed answer; the message says what to do.
        """
        ...


class Check(Protocol):
    """One static check: pure, no import of the candidate."""

    def __call__(self, candidate: Candidate, task: Task, api: TritonApi) -> Finding | None: ...


@dataclass(frozen=True)
class TritonApi:
    """Names that the user's Triton has, as the candidate worker lists them: "triton.language" → {"load", ...}."""

    version: str
    modules: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class CaseFiles:
    """A case as the reference worker wrote it out. `folder` holds call.json and the tensors' raw bytes."""

    case: Case
    folder: Path


@dataclass(frozen=True)
class NotApplicable:
    """The function itself rejects this case (or it has no meaning), so it says nothing of a kernel."""

    case: Case
    reason: str
    exception: str | None = None
    folder: Path | None = None
    """Where its inputs lie, for a call that must raise: the guard is checked with it."""


@dataclass(frozen=True)
class Ran:
    """A candidate's run of one case, as files of raw bytes in the case's folder; nothing in it is believed."""

    files: CaseFiles
    seconds: float
    findings: tuple[Finding, ...] = ()
    """What the interpreter's sanitizer saw."""


@dataclass(frozen=True)
class Crashed:
    """A candidate's run that ended otherwise: an exception, a signal, the wall clock, a forged or missing reply."""

    files: CaseFiles
    finding: Finding


@dataclass(frozen=True)
class Agreed:
    """Outputs within tolerance; both numbers in the output's units."""

    error: float
    limit: float


@dataclass(frozen=True)
class Disagreed:
    finding: Finding
    counterexample: Counterexample


class ReferenceWorker(Protocol):
    """The user's code in the user's interpreter: traces, makes inputs, computes the truth, compares."""

    async def start(self) -> None:
        """Start the process ahead of the first request."""
        ...

    async def load(self, target: Target, inputs: Inputs) -> Inputs:
        """Import the document's text, find the target, make its calls.

        Raises:
            BadInputs: the description does not fit the function.
            EnvironmentProblem: torch is missing.
        """
        ...

    async def trace(self) -> tuple[Graph, ...]:
        """One graph a variant; a graph's `refusal` says why that variant cannot be a kernel."""
        ...

    async def make(self, cases: Sequence[Case], folder: Path) -> tuple[CaseFiles | NotApplicable, ...]:
        """Write each case's inputs under a folder of its own."""
        ...

    async def judge(self, runs: Sequence[CaseFiles]) -> tuple[Agreed | Disagreed | NotApplicable, ...]:
        """Compute the truth for each case now, and compare the raw outputs that lie in its folder with it."""
        ...

    async def hardware(self) -> Hardware: ...

    async def close(self) -> None: ...


class CandidateWorker(Protocol):
    """Runs candidates in the sandbox. Its word is never taken."""

    async def start(self) -> None:
        """Start the processes ahead of the first request."""
        ...

    async def api(self) -> TritonApi: ...

    async def run(
        self, candidate: Candidate, entry: str, cases: Sequence[CaseFiles], limit_s: float
    ) -> tuple[Ran | Crashed, ...]:
        """Run the cases in one fresh sandboxed fork, stopping at the first that crashes it."""
        ...

    async def compile(
        self, candidate: Candidate, entry: str, cases: Sequence[CaseFiles], architectures: Sequence[str], limit_s: float
    ) -> tuple[Finding, ...]:
        """Compile every kernel that the cases launch for each architecture ("sm_90"); () when all compile."""
        ...

    async def close(self) -> None: ...


class Verifier(Protocol):
    async def verify(self, task: Task, candidate: Candidate, report: Report) -> Verdict: ...


class History(Protocol):
    """Append-only: runs, attempts, evidence; and the answers that people gave when asked for inputs."""

    def record_attempt(self, run: str, task: Task, verdict: Verdict) -> None: ...

    def record_outcome(self, run: str, outcome: Outcome) -> None: ...

    def evidence(self, evidence_id: str) -> Json | None:
        """The evidence kept under this id as JSON, or None."""
        ...

    def remember_inputs(self, path: str, qualname: str, spec: str) -> None: ...

    def remembered_inputs(self, path: str, qualname: str) -> str | None: ...

    def close(self) -> None: ...
