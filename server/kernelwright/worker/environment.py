"""What the user's interpreter offers a candidate worker: torch, Triton, a GPU, a compiler; or what to install.

Decides between CUDA and Triton's interpreter before Triton is imported, because Triton reads TRITON_INTERPRET once.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from kernelwright.worker import job, wire

TRITON_FOR_TORCH = {(2, 6): "3.2", (2, 7): "3.3", (2, 8): "3.4", (2, 9): "3.5", (2, 10): "3.6", (2, 11): "3.6"}
"""The Triton that each torch was built against; later ones in NEWEST_TRITON. Never upgrade the user's own."""
NEWEST_TRITON = "3.7"
GPU_ARCHITECTURES = (75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)
"""Compute capabilities whose assembler Triton may ask for its version."""
OLDEST_TORCH = (2, 6)
OLDEST_TRITON = (3, 2)

Body: TypeAlias = Callable[[job.Order, job.Answers], None]


@dataclass(frozen=True)
class Toolchain:
    """A prepared process. `run` and `compile` are what a forked child executes."""

    torch: str
    triton: str
    gpu: bool
    run: Body
    compile: Body | None = None
    programs: tuple[Path, ...] = ()
    """What a compiling child may execute."""


def prepare(role: str) -> Toolchain:
    """Import torch and Triton for the role, start no thread and no CUDA.

    Raises:
        EnvironmentProblem: something is missing; the message has the command that installs it.
    """
    _one_thread()
    torch = _import_torch()
    gpu = role == "candidate" and os.environ.get("TRITON_INTERPRET") != "1" and _has_gpu()
    interpret = role == "candidate" and not gpu
    os.environ["TRITON_INTERPRET"] = "1" if interpret else "0"
    triton = _import_triton(torch, interpret)
    torch.set_num_threads(1)
    programs = compilers(triton, with_c=gpu)
    if interpret:
        from kernelwright.worker import interpreter, sanitizer

        interpreter.mend()
        return Toolchain(torch.__version__, triton.__version__, False, sanitizer.run_sanitized)
    if gpu:
        if not _c_compiler():
            raise wire.EnvironmentProblem(
                "Triton needs a C compiler for its first launch on a GPU and none was found: install gcc "
                "(for example `sudo apt-get install gcc`) or set CC"
            )
        ask_programs()
        return Toolchain(torch.__version__, triton.__version__, True, run_unwatched, None, programs)
    from kernelwright.worker import ahead_of_time

    ahead_of_time.mend()
    return Toolchain(torch.__version__, triton.__version__, False, run_unwatched, ahead_of_time.compile_cases, programs)


def ask_programs() -> None:
    """Have Triton ask its programs now what it asks each of them once: a confined job can start none.

    Starts no CUDA. Triton remembers the answers for the life of the process, and so of its forks.
    """
    from triton.backends.nvidia import compiler, driver
    from triton.runtime import build

    ask_version: Any = getattr(compiler, "get_ptxas_version", None)
    for architecture in GPU_ARCHITECTURES if ask_version else ():
        try:
            ask_version(architecture)
        except TypeError:  # before Triton 3.3 there was one assembler for all of them
            ask_version()
    if hasattr(driver, "libcuda_dirs"):
        driver.libcuda_dirs()
    if hasattr(build, "platform_key"):
        build.platform_key()  # starts `file`; without it the name of every cached launcher would differ


def run_unwatched(order: job.Order, answers: job.Answers) -> None:
    """Run the cases with nothing watching memory: on a GPU."""
    job.run_cases(order, answers, lambda number: job.Unwatched())


def _one_thread() -> None:
    """A fork copies one thread only, so a pool that libraries start at import must have none."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ[name] = "1"
    if sys.version_info < (3, 10):  # noqa: UP036 - it is the user's interpreter, not ours
        raise wire.EnvironmentProblem(
            f"{sys.executable} is Python {sys.version.split()[0]}; Kernelwright needs 3.10 or newer: choose another with the "
            "setting kernelwright.interpreter"
        )


def _import_torch() -> Any:
    torch = _import("torch", f"{_pip()} torch")
    if _version(torch) < OLDEST_TORCH:
        raise wire.EnvironmentProblem(f"torch {torch.__version__} is too old, 2.6 is needed: {_pip()} --upgrade torch")
    return torch


def _import_triton(torch: Any, interpret: bool) -> Any:
    if not sys.platform.startswith("linux"):
        raise wire.EnvironmentProblem(
            f"Triton has no build for {sys.platform}: choose an interpreter on Linux or in WSL"
        )
    wanted = TRITON_FOR_TORCH.get(_version(torch), NEWEST_TRITON)
    if interpret:
        _import("numpy", f"{_pip()} numpy")
        _import("ml_dtypes", f"{_pip()} ml_dtypes", "to check bfloat16 and float8 without a GPU ")
    triton = _import("triton", f"{_pip()} 'triton=={wanted}.*'")
    if _version(triton) < OLDEST_TRITON:
        raise wire.EnvironmentProblem(
            f"triton {triton.__version__} is too old, 3.2 is needed: {_pip()} 'triton=={wanted}.*'"
        )
    return triton


def _import(name: str, command: str, purpose: str = "") -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise wire.EnvironmentProblem(
                f"{name} is needed {purpose}and {sys.executable} has none: {command}"
            ) from None
        raise wire.EnvironmentProblem(f"{name} does not import in {sys.executable} ({error}): {command}") from error


def _pip() -> str:
    return f"{sys.executable} -m pip install"


def _version(module: Any) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", module.__version__)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _has_gpu() -> bool:
    """Whether torch sees a GPU, asked in a child: a process that started CUDA cannot fork."""
    child = os.fork()
    if child == 0:
        try:
            import torch

            os._exit(0 if torch.cuda.is_available() else 1)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def compilers(triton: Any, *, with_c: bool) -> tuple[Path, ...]:
    """Folders of programs that Triton starts to compile: its own assemblers, and the C compiler where it launches."""
    backends = Path(triton.__file__).parent / "backends"
    found = [*backends.glob("*/bin")]
    for name, value in os.environ.items():
        if re.fullmatch(r"TRITON_(PTXAS|PTXAS_BLACKWELL|CUOBJDUMP|NVDISASM|LLD)_PATH", name) and Path(value).exists():
            found.append(Path(value).resolve())
    found += [folder for folder in (Path("/opt/rocm/llvm/bin"),) if folder.is_dir()]
    if with_c:
        tools = [Path(path).resolve() for path in (_c_compiler(), shutil.which("ldconfig")) if path]
        # A compiler outside of /usr keeps its passes, headers and libraries beside its bin folder.
        roots = {tool.parent.parent if tool.parent.name == "bin" else tool.parent for tool in tools}
        found += [
            *(root for root in roots if root not in (Path("/"), Path("/usr"))),
            *(folder for folder in map(Path, ("/usr/bin", "/usr/lib", "/usr/libexec")) if folder.is_dir()),
        ]
    return tuple(found)


def _c_compiler() -> str | None:
    return shutil.which(os.environ.get("CC", "")) or shutil.which("gcc") or shutil.which("clang")
