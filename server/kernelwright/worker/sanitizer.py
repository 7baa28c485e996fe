"""Watches every memory access of kernels under Triton's interpreter.

K301 load out of bounds, K302 store out of bounds, K303 race between programs, K304 read of memory that nobody wrote,
K305 output never written, K306 masked-off lanes without `other` that are used, K307 misaligned access, K308 an offset that
overflows 32 bits. A pointer may only touch the tensor that it was made from; a lane that may not is masked off, so that a
bad kernel does not harm this process. Programs run in a shuffled order, the same for the same case.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter as stock
from triton.runtime.jit import TensorWrapper

from kernelwright.worker import job, taint
from kernelwright.worker.fresh import FreshMemory, view_of
from kernelwright.worker.hooks import Hooks
from kernelwright.worker.shadow import Array, Conflict, Shadow, overlapping_lanes
from kernelwright.worker.taint import Handle, Undefined

MAX_FINDINGS = 8


def run_sanitized(order: job.Order, answers: job.Answers) -> None:
    """Run the cases under the sanitizer, or without it where the order says so."""
    if not order.sanitize:
        job.run_cases(order, answers, lambda number: job.Unwatched())
        return
    job.run_cases(order, answers, lambda number: Sanitizer(order.file, seed=number))


@dataclass(frozen=True)
class Region:
    """What one tensor argument may touch: bytes `low` up to `high` of a storage."""

    name: str
    low: int
    high: int
    item: int
    shadow: Shadow


@dataclass
class Sanitizer:
    """A context in which kernels are watched. `file` is the candidate's; `seed` None keeps the programs in order."""

    file: Path
    seed: int | None = 0
    launches: int = 0
    _found: dict[tuple[str, int | None, str], Any] = field(default_factory=dict)
    _regions: list[Region] = field(default_factory=list)
    _shadows: dict[int, Shadow] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)
    """The storages of arguments: while they live, no other storage has their address."""
    _order: list[int] = field(default_factory=list)
    _lock_holder: int | None = None

    def __post_init__(self) -> None:
        self.fresh = FreshMemory(self.line)
        self._hooks = Hooks(self)

    def __enter__(self) -> Sanitizer:
        self._hooks.install()
        self.fresh.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.fresh.__exit__(*error)
        self._hooks.remove()

    def findings(self) -> list[Any]:
        """What was found, in order, as JSON."""
        return list(self._found.values())[:MAX_FINDINGS]

    def report(self, code: str, message: str, line: int | None, about: str = "") -> None:
        """Note a finding once for each code, line and tensor."""
        self._found.setdefault((code, line, about), job.finding(code, message, line))

    def line(self) -> int | None:
        """The candidate's line that is being executed: the innermost of its frames."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == str(self.file):
                return frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return None

    # --- launches

    def begin(self, names: list[str], values: list[Any]) -> None:
        """A kernel starts with these arguments."""
        self.launches += 1
        self._regions, self._lock_holder, self._order = [], None, []
        for name, value in zip(names, values, strict=False):
            self._add(name, value)
        for shadow in {id(region.shadow): region.shadow for region in self._regions}.values():
            shadow.begin_launch()

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, tuple):
            for position, item in enumerate(value):
                self._add(f"{name}[{position}]", item)
        elif hasattr(value, "base") and hasattr(value, "block_shape"):
            self._add(name, value.base)
        elif hasattr(value, "data_ptr"):
            self._regions.append(self._region(name, unwrap(value)))

    def _region(self, name: str, tensor: torch.Tensor) -> Region:
        storage, item = tensor.untyped_storage(), tensor.element_size()
        extent = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
        low = tensor.data_ptr()
        high = low + (extent if tensor.numel() else 0) * item
        allocation = self.fresh.of(tensor)
        if allocation is not None:
            shadow = allocation.shadow
        else:
            known = self._shadows.get(storage.data_ptr())
            if known is None or known.nbytes != storage.nbytes():
                known = self._shadows[storage.data_ptr()] = Shadow(storage.data_ptr(), storage.nbytes(), item)
                self._kept.append(storage)
            shadow = known
        if item < shadow.item:
            shadow.refine(item)
        return Region(name, low, high, item, shadow)

    def region_of(self, argument: Any) -> Region | None:
        """The region of an argument of this launch."""
        tensor = unwrap(argument)
        low = tensor.data_ptr()
        return next(
            (region for region in self._regions if region.low == low and region.item == tensor.element_size()), None
        )

    def place(self, x: int, y: int, z: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
        """Which program runs as the (x, y, z)th."""
        if self.seed is None:
            return x, y, z
        if not self._order:
            self._order = list(range(grid[0] * grid[1] * grid[2]))
            random.Random(self.seed).shuffle(self._order)
        chosen = self._order[(x * grid[1] + y) * grid[2] + z]
        return chosen // (grid[1] * grid[2]), chosen // grid[2] % grid[1], chosen % grid[2]

    def program(self) -> int:
        """The number of the running program, x fastest."""
        (x, y, z), (nx, ny, _) = stock.interpreter_builder.grid_idx, stock.interpreter_builder.grid_dim
        return (z * ny + y) * nx + x

    # --- accesses

    def load(self, pointers: Handle, mask: Array, has_other: bool) -> tuple[Array, taint.Lanes]:
        """Check a load. Returns the lanes that may be read, and those of its result that are undefined."""
        allowed, region = self._admit("load", pointers, mask)
        undefined: taint.Lanes = {}
        if not has_other and not mask.all():
            words = "lanes that the mask switches off have no `other`: they are undefined"
            undefined[Undefined("K306", words, self.line())] = ~mask
        if region is None or not allowed.any():
            return allowed, undefined
        size, elements = self._elements(region, pointers, allowed)
        missing = region.shadow.undefined(elements)
        if missing is not None:
            lanes = np.zeros(allowed.shape, bool)
            lanes[allowed] = missing.reshape(-1, max(1, size // region.shadow.item)).any(axis=1)
            undefined[Undefined("K304", f"reads elements of {region.name} that nobody wrote", self.line())] = lanes
        if not self._locked():
            self._report_conflict(region, region.shadow.load(elements, self.program()))
        return allowed, undefined

    def store(self, pointers: Handle, value: Handle, mask: Array) -> Array:
        """Check a store. Returns the lanes that may be written."""
        self._use(value, mask, "are stored")
        allowed, region = self._admit("store", pointers, mask)
        if region is None or not allowed.any():
            return allowed
        addresses = np.broadcast_to(pointers.data, allowed.shape)[allowed]
        written = _raw(np.broadcast_to(value.data, allowed.shape)[allowed])
        if overlapping_lanes(addresses, written):
            self.report(
                "K303",
                f"lanes of one store write different values to one element of {region.name}",
                self.line(),
                region.name,
            )
        _, elements = self._elements(region, pointers, allowed)
        conflict = region.shadow.store(elements, self.program(), atomic=self._locked())
        if conflict is not None and not _rewrites(addresses, written, conflict):
            self._report_conflict(region, conflict)
        return allowed

    def atomic(self, pointers: Handle, value: Handle, mask: Array) -> Array:
        """Check an atomic operation. Returns the lanes that may be changed."""
        self._use(value, mask, "are stored")
        allowed, region = self._admit("store", pointers, mask)
        if region is None or not allowed.any():
            return allowed
        _, elements = self._elements(region, pointers, allowed)
        if region.shadow.undefined(elements) is not None:
            self.report(
                "K304", f"an atomic operation on elements of {region.name} that nobody wrote", self.line(), region.name
            )
        self._report_conflict(region, region.shadow.store(elements, self.program(), atomic=True))
        return allowed

    def take_lock(self, taken: bool) -> None:
        """A compare-and-swap succeeded, or an exchange released: between them, a program's accesses are in order."""
        self._lock_holder = self.program() if taken else None

    def _locked(self) -> bool:
        return self._lock_holder is not None and self._lock_holder == self.program()

    def _admit(self, kind: str, pointers: Handle, mask: Array) -> tuple[Array, Region | None]:
        """The lanes that stay inside of their tensor, and which tensor that is."""
        self._use(pointers, mask, "are used as an address")
        if not mask.any():
            return mask, None
        code = "K301" if kind == "load" else "K302"
        addresses = np.broadcast_to(pointers.data, mask.shape)
        region = pointers.attr.get(taint.REGION) or self._find(addresses[mask])
        if region is None:
            self.report(code, f"{kind} at an address that belongs to no argument", self.line())
            return np.zeros_like(mask), None
        size = _size(pointers)
        low, high = np.uint64(region.low), np.uint64(region.high)
        outside = mask & ((addresses < low) | (addresses + np.uint64(size) > high))
        if outside.any():
            self._report_outside(code, kind, region, addresses[outside], int(mask.sum()))
            mask = mask & ~outside
        if ((addresses[mask] - low) % np.uint64(size)).any():
            self.report("K307", f"misaligned {kind} of {size} bytes from {region.name}", self.line(), region.name)
        return mask, region

    def _find(self, addresses: Array) -> Region | None:
        first = int(addresses[0])
        return next((region for region in self._regions if region.low <= first < region.high), None)

    def _report_outside(self, code: str, kind: str, region: Region, addresses: Array, lanes: int) -> None:
        offsets = (addresses.astype(np.int64) - region.low) // region.item
        count = (region.high - region.low) // region.item
        low, high = int(offsets.min()), int(offsets.max())
        where = f"offset {low}" if low == high else f"offsets {low} to {high}"
        message = (
            f"{kind} out of bounds: {len(addresses)} of {lanes} lanes at {where} of {region.name} ({count} elements)"
        )
        self.report(code, message, self.line(), region.name)

    def _elements(self, region: Region, pointers: Handle, allowed: Array) -> tuple[int, Array]:
        size = _size(pointers)
        return size, region.shadow.elements(np.broadcast_to(pointers.data, allowed.shape)[allowed], size)

    def _report_conflict(self, region: Region, conflict: Conflict | None) -> None:
        if conflict is not None:
            self.report("K303", f"race on {region.name}: {conflict.text} in one launch", self.line(), region.name)

    def _use(self, handle: Handle, mask: Array, how: str) -> None:
        """Report undefined lanes where they matter. A wrapped number may be stored, but must not be an address."""
        for reason, lanes in taint.lanes(handle).items():
            if reason.code == "K308" and how == "are stored":
                continue
            try:
                used = np.broadcast_to(lanes, mask.shape) & mask
            except ValueError:
                continue
            if used.any():
                at = self.line()
                where = f" (line {at})" if at is not None and at != reason.line else ""
                self.report(reason.code, f"{reason.words}, and {how}{where}", reason.line)

    def wrapped(self, result: Handle, lanes: Array) -> None:
        """A signed 32-bit operation wrapped around."""
        words = "a 32-bit number overflows: compute the offset in 64 bits"
        taint.mark(result, {Undefined("K308", words, self.line()): lanes})

    # --- the end

    def finish(self, value: Any) -> None:
        """Look at what the entry returned: every element of it must have been written."""
        for path, tensor in _tensors(value, "the output"):
            allocation = self.fresh.of(tensor)
            seen = None if allocation is None else view_of(allocation.shadow, tensor)
            if seen is None or seen.all():
                continue
            missing = np.argwhere(
                ~np.asarray(seen).reshape(tuple(tensor.shape)) if seen.size == tensor.numel() else ~seen
            )
            first = ", ".join(str(int(index)) for index in missing[0])
            message = f"{path} is never written at {len(missing)} of {seen.size} elements, first at ({first})"
            self.report("K305", message, allocation.line if allocation else None)


def unwrap(argument: Any) -> torch.Tensor:
    """The tensor of an argument; `triton.reinterpret` wraps one."""
    return argument.base if isinstance(argument, TensorWrapper) else argument


def _tensors(value: Any, path: str) -> list[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        return [(path, value)]
    if isinstance(value, (tuple, list)):
        return [found for position, item in enumerate(value) for found in _tensors(item, f"output {position}")]
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in _tensors(item, f"output {key!r}")]
    return []


def _size(pointers: Handle) -> int:
    return max(1, pointers.get_element_ty().primitive_bitwidth // 8)


def _raw(values: Array) -> Array:
    """Values as unsigned numbers, so that NaN equals NaN."""
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def _rewrites(addresses: Array, written: Array, conflict: Conflict) -> bool:
    """Whether the conflicting lanes write what is there already, which no order of programs changes."""
    if len(addresses) != len(written) or conflict.lanes.max() >= len(addresses):
        return False
    lanes = conflict.lanes
    count = len(lanes)
    there = stock._interpreter.load(
        addresses[lanes], np.ones(count, bool), np.zeros(count, written.dtype), written.dtype
    )
    return bool((there == written[lanes]).all())
