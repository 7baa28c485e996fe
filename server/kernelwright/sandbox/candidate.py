"""The candidate worker as a port: two warm zygotes, one that runs candidates and one that compiles them.

Interpreter and compiler cannot share a process. Nothing that comes back is believed; the outputs lie in the case folders,
for the reference worker to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.errors import WorkerError
from kernelwright.model import Candidate, Finding, Json
from kernelwright.ports import CaseFiles, Crashed, Ran, TritonApi
from kernelwright.sandbox.codec import decode
from kernelwright.sandbox.process import WorkerProcess


@dataclass(frozen=True)
class Strength:
    """How strong the sandbox is on this machine: Landlock's version (0: none), seccomp or not, and whose rights."""

    landlock_abi: int
    seccomp: bool
    user: str

    def describe(self) -> str:
        parts = [f"Landlock {self.landlock_abi}" if self.landlock_abi else "no Landlock: files are not shut off"]
        parts.append("seccomp" if self.seccomp else "no seccomp: system calls are not filtered")
        return ", ".join(parts)


class CandidateProcesses:
    """Implements ports.CandidateWorker. Both processes start at their first use, and stay warm."""

    def __init__(self, interpreter: str, root: Path, log_folder: Path, *, sanitize: bool = True) -> None:
        self._sanitize = sanitize
        self._runner = WorkerProcess(interpreter, "candidate", root, log_folder / "candidate.log")
        self._compiler = WorkerProcess(interpreter, "compile", root, log_folder / "compile.log")
        self._api: TritonApi | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that run now."""
        return tuple(pid for pid in (self._runner.pid, self._compiler.pid) if pid is not None)

    async def start(self) -> None:
        """Import torch and Triton in both processes ahead of the first request."""
        await asyncio.gather(self._runner.start(), self._compiler.start())

    async def api(self) -> TritonApi:
        """The names of the installed Triton, asked once.

        Raises:
            EnvironmentProblem: torch or Triton is missing or too old; the message has the command that mends it.
        """
        if self._api is None:
            answer = await self._runner.request("api")
            modules = {name: frozenset(names) for name, names in answer["modules"].items()}
            self._api = TritonApi(str(answer["version"]), modules)
        return self._api

    async def strength(self) -> Strength:
        """How strong the sandbox is here."""
        return decode(await self._runner.request("strength"), Strength)

    async def run(
        self, candidate: Candidate, entry: str, cases: Sequence[CaseFiles], limit_s: float
    ) -> tuple[Ran | Crashed, ...]:
        """See ports.CandidateWorker. `limit_s` is wall-clock seconds for all of the cases together."""
        if not cases:
            return ()
        answer = await self._runner.request(
            "run",
            source=candidate.source,
            entry=entry or candidate.entry,
            folders=[str(case.folder) for case in cases],
            limit_s=limit_s,
            sanitize=self._sanitize,
        )
        runs = answer["runs"]
        if not 0 < len(runs) <= len(cases):
            raise WorkerError(f"the candidate worker answered {len(runs)} of {len(cases)} cases")
        return tuple(_run(files, run) for files, run in zip(cases, runs, strict=False))

    async def compile(
        self, candidate: Candidate, entry: str, cases: Sequence[CaseFiles], architectures: Sequence[str], limit_s: float
    ) -> tuple[Finding, ...]:
        """See ports.CandidateWorker. `limit_s` is wall-clock seconds for everything."""
        if not cases or not architectures:
            return ()
        answer = await self._compiler.request(
            "compile",
            source=candidate.source,
            entry=entry or candidate.entry,
            folders=[str(case.folder) for case in cases],
            architectures=list(architectures),
            limit_s=limit_s,
        )
        return tuple(decode(item, Finding) for item in answer["findings"])

    async def close(self) -> None:
        """Kill both process groups and everything below them, and wait until they are gone."""
        await asyncio.gather(self._runner.close(), self._compiler.close())

    def kill(self) -> None:
        """Kill both at once, without waiting."""
        self._runner.kill()
        self._compiler.kill()


def _run(files: CaseFiles, run: Json) -> Ran | Crashed:
    if "crashed" in run:
        return Crashed(files, decode(run["crashed"], Finding))
    return Ran(files, float(run["seconds"]), tuple(decode(item, Finding) for item in run["findings"]))
