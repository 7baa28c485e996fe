"""K101: the candidate is Python."""

from __future__ import annotations

from kernelwright.checks.reading import finding, read
from kernelwright.model import Candidate, Finding, Task
from kernelwright.ports import TritonApi


def parses(candidate: Candidate, task: Task, api: TritonApi) -> Finding | None:
    """The source parses and is not empty."""
    try:
        tree = read(candidate.source).tree
    except SyntaxError as error:
        return finding("K101", f"the module does not parse: {error.msg}; give one whole Python module", error.lineno)
    except (ValueError, RecursionError, MemoryError) as error:
        return finding("K101", f"the module does not parse: {error}; give one whole Python module")
    return None if tree.body else finding("K101", "the module is empty; give one whole Python module")
