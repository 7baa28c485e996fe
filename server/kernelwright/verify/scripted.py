"""The shipped fake of ports.Verifier: gives the verdicts it was made with, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kernelwright.model import Candidate, Task, Verdict
from kernelwright.ports import Report


@dataclass
class ScriptedVerifier:
    """`answers` makes each verdict from the candidate; `seen` keeps the candidates in order."""

    answers: Iterable[Callable[[Candidate], Verdict]]
    seen: list[Candidate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._remaining = iter(self.answers)

    async def verify(self, task: Task, candidate: Candidate, report: Report) -> Verdict:
        self.seen.append(candidate)
        return next(self._remaining)(candidate)
