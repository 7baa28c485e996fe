"""K107: the entry launches a Triton kernel of the candidate's."""

from __future__ import annotations

import ast

from kernelwright.checks.reading import entry_name, finding, read
from kernelwright.model import Candidate, Finding, Task
from kernelwright.ports import TritonApi


def launches(candidate: Candidate, task: Task, api: TritonApi) -> Finding | None:
    """There is a function under triton.jit, and a host function that the entry reaches launches one."""
    reading, entry = read(candidate.source), entry_name(candidate, task)
    if not reading.kernels:
        return finding(
            "K107",
            "there is no kernel: write one under @triton.jit and launch it as kernel[grid](...)",
            reading.functions.get(entry),
        )
    for node in reading.reachable(entry).values():
        named = any(isinstance(part, ast.Name) and part.id in reading.kernels for part in ast.walk(node))
        launched = any(isinstance(part, ast.Call) and isinstance(part.func, ast.Subscript) for part in ast.walk(node))
        if named and launched:
            return None
    kernel = next(iter(reading.kernels.values()))
    line = reading.functions.get(entry, kernel)
    return finding("K107", f"{entry} launches no kernel: launch {kernel.name}[grid](...) from it", line)
