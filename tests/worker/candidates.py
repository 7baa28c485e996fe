"""Case folders and candidates for the tests of the candidate worker."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kernelwright.model import Candidate, Case
from kernelwright.ports import CaseFiles
from kernelwright.sandbox.candidate import CandidateProcesses
from kernelwright.worker import wire

HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n"
GOOD = HEADER + textwrap.dedent("""
    @triton.jit
    def twice_kernel(x, o, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        m = i < n
        tl.store(o + i, tl.load(x + i, mask=m) * 2, mask=m)

    def f(x):
        o = torch.empty_like(x)
        twice_kernel[(triton.cdiv(x.numel(), 128),)](x, o, x.numel(), B=128)
        return o
    """)


def candidate(source: str, *, header: bool = True) -> Candidate:
    """A candidate whose entry is `f`; line 1 of `source` is line `1 + HEADER's` of the candidate."""
    return Candidate((HEADER if header else "") + textwrap.dedent(source), "test", entry="f")


def line_of(made: Candidate, text: str) -> int:
    """The 1-based line of a candidate that holds a text."""
    return next(number for number, line in enumerate(made.source.splitlines(), 1) if text in line)


def case(folder: Path, *args: Any, **kwargs: Any) -> CaseFiles:
    """A case folder for one call."""
    wire.write_call(folder, wire.CallData(args, kwargs))
    return CaseFiles(Case(0), folder)


def cases(folder: Path, count: int = 2, size: int = 300) -> list[CaseFiles]:
    return [case(folder / str(number), torch.randn(size)) for number in range(count)]


def output(files: CaseFiles) -> Any:
    return wire.read_output(files.folder)


def processes(folder: Path, interpreter: str = sys.executable, **options: Any) -> CandidateProcesses:
    return CandidateProcesses(interpreter, folder, folder / "logs", **options)


def alive(pids: Sequence[int]) -> list[int]:
    """Those processes that still run; one that waits to be reaped does not."""
    return [pid for pid in pids if _state(pid) not in ("", "Z", "X")]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    """Every process below a process."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _parent(int(entry.name)) == pid:
            found += [int(entry.name), *descendants(int(entry.name))]
    return found


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1
