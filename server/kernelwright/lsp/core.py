"""What the server asks of the core: `kernelwright.app.App`, or a scripted one in tests. No import of pygls here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from kernelwright.model import Document, Inputs, Outcome, Proposed, Target, Verdict
from kernelwright.ports import History, Report
from kernelwright.settings import Settings
from kernelwright.source.edit import AcceptedKernel, Edit


class Core(Protocol):
    """One workspace folder's worth of Kernelwright. The methods that are not async look at text and never wait."""

    settings: Settings
    history: History

    def targets(self, document: Document) -> tuple[Target, ...]: ...

    def accepted(self, document: Document) -> tuple[AcceptedKernel, ...]: ...

    def inputs_for(self, target: Target, given: str | None = None) -> Inputs:
        """Raises: InputsNeeded, BadInputs."""
        ...

    def edit(self, outcome: Proposed, document: Document) -> Edit:
        """Raises: StaleProposal."""
        ...

    def restore(self, document: Document, qualname: str) -> Edit:
        """Raises: UsageError."""
        ...

    def status(self) -> dict[str, Any]: ...

    async def generate(
        self, document: Document, qualname: str, *, inputs: str | None = None, instruction: str = "", report: Report
    ) -> Outcome:
        """Raises: KernelwrightError; cancelling it ends its workers."""
        ...

    async def recheck(self, document: Document, qualname: str, *, report: Report) -> Verdict:
        """Raises: KernelwrightError; cancelling it ends its workers."""
        ...

    async def close(self) -> None: ...


CoreFactory: TypeAlias = Callable[[Settings, Path], Core]
