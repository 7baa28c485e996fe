"""A Triton driver for a machine without a GPU: it names a target, so that kernels compile, and times nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from kernelwright.worker.wire import BadInputs

SHARED_MEMORY = {
    "sm_75": 65536,
    "sm_80": 166912,
    "sm_86": 101376,
    "sm_87": 166912,
    "sm_89": 101376,
    "sm_90": 232448,
    "sm_100": 232448,
    "sm_103": 232448,
    "sm_120": 101376,
    "sm_121": 101376,
    "gfx950": 163840,
}
"""Bytes of shared memory that one program may have (CUDA programming guide, table of compute capabilities)."""
AMD_SHARED_MEMORY = 65536


def target_of(architecture: str) -> Any:
    """The compiler's target for "sm_90" or "gfx942".

    Raises:
        ValueError: a name of neither form.
    """
    from triton.backends.compiler import GPUTarget

    if found := re.fullmatch(r"sm_(\d+)a?", architecture):
        return GPUTarget("cuda", int(found[1]), 32)
    if re.fullmatch(r"gfx[0-9a-f]+", architecture):
        return GPUTarget("hip", architecture, 64 if architecture.startswith("gfx9") else 32)
    raise ValueError(f"unknown GPU architecture {architecture!r}: use names such as sm_90 or gfx942")


def shared_memory(architecture: str) -> int:
    """Bytes of shared memory that one program may have on this architecture."""
    fallback = AMD_SHARED_MEMORY if architecture.startswith("gfx") else min(SHARED_MEMORY.values())
    return SHARED_MEMORY.get(architecture, fallback)


def check_architectures(names: Sequence[str]) -> None:
    """Whether every name is an architecture that can be compiled for.

    Raises:
        BadInputs: one is not.
    """
    for name in names:
        try:
            target_of(name)
        except ValueError as error:
            raise BadInputs(str(error)) from None


class StubDriver:
    """Stands in for Triton's active driver. `architecture` may be changed between compilations.

    Every architecture is a device of its own to Triton, so that its caches of compiled kernels stay apart.
    """

    def __init__(self, architectures: Sequence[str] = ("sm_90",)) -> None:
        self.architectures = tuple(architectures)
        self.architecture = self.architectures[0]
        self.utils = self

    def get_current_target(self) -> Any:
        return target_of(self.architecture)

    def get_current_device(self) -> int:
        return self.architectures.index(self.architecture)

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """Nothing to set."""

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return _run_once

    def get_device_interface(self) -> Any:
        import torch

        return torch.cpu

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(1, dtype=torch.int32)

    def clear_cache(self, cache: Any) -> None:
        """Nothing is timed, so no cache matters."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """What launchers ask for to size a persistent grid: an H100's numbers."""
        return {
            "multiprocessor_count": 132,
            "max_shared_mem": shared_memory(self.architecture),
            "max_num_regs": 65536,
            "warpSize": 32,
            "sm_clock_rate": 1_980_000,
            "mem_clock_rate": 2_619_000,
            "mem_bus_width": 5120,
        }


def _run_once(function: Callable[[], Any], quantiles: Any = None, **options: Any) -> list[float]:
    """The autotuner's benchmark: every configuration runs once, so that each is checked, and the first one wins."""
    function()
    return [1.0, 1.0, 1.0]
