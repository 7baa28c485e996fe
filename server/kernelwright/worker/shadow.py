"""Shadow memory: for every element of a storage, who wrote and read it in this launch, and whether anyone ever wrote it.

numpy only; knows nothing of Triton. Programs are numbered 0, 1, ... in a launch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
NOBODY, SEVERAL = -1, -2


@dataclass(frozen=True)
class Conflict:
    """Two programs of one launch touch one element, and the result depends on which comes first."""

    text: str
    lanes: Array
    """Positions in the access, of the lanes that conflict."""


@dataclass
class Shadow:
    """One storage of `nbytes` bytes at address `base`, seen as elements of `item` bytes."""

    base: int
    nbytes: int
    item: int
    initialised: Array | None = None
    """A bool an element; None where all of it was written before the candidate ran."""
    writer: Array = field(init=False, default=None)
    reader: Array = field(init=False, default=None)
    atomic: Array = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.begin_launch()

    def begin_launch(self) -> None:
        """Forget who touched what: launches follow one another."""
        count = self.nbytes // self.item
        self.writer = np.full(count, NOBODY, np.int32)
        self.reader = np.full(count, NOBODY, np.int32)
        self.atomic = np.zeros(count, bool)

    def refine(self, item: int) -> None:
        """See the storage as smaller elements from now on."""
        if self.initialised is not None:
            self.initialised = np.repeat(self.initialised, self.item // item)
        self.item = item
        self.begin_launch()

    def elements(self, addresses: Array, size: int) -> Array:
        """Element numbers of accesses of `size` bytes each; several a lane where the access is wider than an element."""
        first = (addresses - np.uint64(self.base)).astype(np.int64) // self.item
        if size <= self.item:
            return first
        return (first[:, None] + np.arange(size // self.item)).ravel()

    def undefined(self, elements: Array) -> Array | None:
        """Which of these elements nobody ever wrote; None where all were."""
        if self.initialised is None:
            return None
        missing = ~self.initialised[elements]
        return missing if missing.any() else None

    def load(self, elements: Array, program: int) -> Conflict | None:
        """Note a read by a program."""
        writer = self.writer[elements]
        others = (writer != NOBODY) & (writer != program)
        reader = self.reader[elements]
        self.reader[elements] = np.where((reader == NOBODY) | (reader == program), program, SEVERAL)
        if not others.any():
            return None
        lane = int(np.argmax(others))
        text = f"program {program} reads element {int(elements[lane])} that program {int(writer[lane])} writes"
        return Conflict(text, np.nonzero(others)[0])

    def store(self, elements: Array, program: int, *, atomic: bool = False) -> Conflict | None:
        """Note a write by a program. Atomic writes do not conflict with each other."""
        writer, reader = self.writer[elements], self.reader[elements]
        written = (writer != NOBODY) & (writer != program)
        if atomic:
            written &= ~self.atomic[elements]
        read = np.zeros_like(written) if atomic else (reader != NOBODY) & (reader != program)
        self.writer[elements] = program
        self.atomic[elements] = atomic
        if self.initialised is not None:
            self.initialised[elements] = True
        if written.any():
            lane = int(np.argmax(written))
            text = f"programs {int(writer[lane])} and {program} both write element {int(elements[lane])}"
            return Conflict(text, np.nonzero(written)[0])
        if read.any():
            lane = int(np.argmax(read))
            who = "several programs read" if reader[lane] == SEVERAL else f"program {int(reader[lane])} reads"
            text = f"program {program} writes element {int(elements[lane])} that {who}"
            return Conflict(text, np.nonzero(read)[0])
        return None

    def view(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array | None:
        """`initialised` as a tensor of the storage sees it; sizes, strides and offset in elements of `item` bytes."""
        if self.initialised is None:
            return None
        return np.lib.stride_tricks.as_strided(self.initialised[offset:], shape, strides)


def overlapping_lanes(addresses: Array, values: Array) -> bool:
    """Whether two lanes of one store write different values to one address."""
    if addresses.size < 2 or (addresses[1:] > addresses[:-1]).all():
        return False
    order = np.argsort(addresses, kind="stable")
    sorted_addresses, raw = addresses[order], values[order]
    same = sorted_addresses[1:] == sorted_addresses[:-1]
    return bool((same & (raw[1:] != raw[:-1])).any())
