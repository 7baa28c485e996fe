"""What this machine can do, row by row, and what to do about what it cannot."""

from __future__ import annotations

import importlib.util
import shutil

from kernelwright.errors import KernelwrightError
from kernelwright.ports import ReferenceWorker
from kernelwright.sandbox.candidate import CandidateProcesses
from kernelwright.settings import Settings

Row = dict[str, str]


def _row(name: str, state: str, detail: str) -> Row:
    return {"name": name, "state": state, "detail": detail}


async def examine(
    settings: Settings, interpreter: str, provider_note: str, reference: ReferenceWorker, candidates: CandidateProcesses
) -> list[Row]:
    """Start the workers, ask them, end them. Never raises for what it is there to find."""
    rows = [_row("interpreter", "ok", interpreter)]
    try:
        rows += await _torch(reference)
        rows += await _sandbox(candidates)
    except KernelwrightError as error:
        rows.append(_row("workers", "missing", str(error)))
    finally:
        await reference.close()
        await candidates.close()
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    missing = "none found: Triton needs one at a kernel's first launch on a GPU (apt install gcc)"
    rows.append(_row("C compiler", "ok" if compiler else "limited", compiler or missing))
    rows += [_sdk(name) for name in ("anthropic", "openai")]
    rows.append(_row("provider", "limited" if provider_note else "ok", provider_note or settings.provider))
    return rows


async def _torch(reference: ReferenceWorker) -> list[Row]:
    found = await reference.hardware()
    no_gpu = "none: kernels run under Triton's interpreter on the CPU and are compiled ahead of time; nothing is timed"
    return [
        _row("torch", "ok", f"{found.torch} on Python {found.python}"),
        _row("triton", "ok" if found.triton else "missing", found.triton or "python -m pip install triton"),
        _row("GPU", "ok" if found.gpu else "limited", found.gpu or no_gpu),
    ]


async def _sandbox(candidates: CandidateProcesses) -> list[Row]:
    await candidates.api()
    strength = await candidates.strength()
    whole = strength.landlock_abi > 0 and strength.seccomp
    detail = f"{strength.describe()}, resource limits. A process with few rights, not a wall against a kernel exploit"
    return [_row("sandbox", "ok" if whole else "limited", detail)]


def _sdk(name: str) -> Row:
    if importlib.util.find_spec(name):
        return _row(f"{name} SDK", "ok", "installed")
    return _row(f"{name} SDK", "limited", f"not installed; to use that provider: python -m pip install {name}")
