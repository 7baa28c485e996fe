"""Static checks: what can be told of a candidate from its text. One file a check, in the order in which they are asked."""

from __future__ import annotations

from kernelwright.checks.api_names import api_names
from kernelwright.checks.forbidden import forbidden
from kernelwright.checks.imports import imports
from kernelwright.checks.kernel_scope import kernel_scope
from kernelwright.checks.launcher import launcher
from kernelwright.checks.launches import launches
from kernelwright.checks.parses import parses
from kernelwright.checks.signatures import signatures
from kernelwright.checks.state import state
from kernelwright.model import Candidate, Finding, Task
from kernelwright.ports import Check, TritonApi

CHECKS: tuple[Check, ...] = (
    parses,
    imports,
    forbidden,
    signatures,
    api_names,
    launches,
    launcher,
    state,
    kernel_scope,
)


def run_checks(candidate: Candidate, task: Task, api: TritonApi) -> Finding | None:
    """The first finding, or None. Each check relies on those before it."""
    return next((found for check in CHECKS if (found := check(candidate, task, api))), None)


__all__ = ["CHECKS", "run_checks"]
