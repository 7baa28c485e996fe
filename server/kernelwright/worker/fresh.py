"""Memory that `torch.empty` and its kin gave out: which of its elements anyone has written since."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.worker.shadow import Shadow

_ALLOCATORS = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")


@dataclass
class Allocation:
    """One storage from `torch.empty`, and the candidate's line that asked for it. Keeps it alive: addresses are keys."""

    shadow: Shadow
    storage: Any
    line: int | None


@dataclass
class FreshMemory(TorchDispatchMode):
    """While entered, fills every new empty tensor with 0xFF (NaN) and follows what torch itself writes to it."""

    line: Callable[[], int | None]
    allocations: dict[int, Allocation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and importing torch._dynamo to say so takes a second and a half."""
        return False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.rpartition("::")[2]
        if name in _ALLOCATORS:
            made = function(*args, **(kwargs or {}))
            self._allocate(made)
            return made
        result = function(*args, **(kwargs or {}))
        for value, argument in zip((*args, *(kwargs or {}).values()), function._schema.arguments):  # noqa: B905
            alias = argument.alias_info
            if alias is not None and alias.is_write and isinstance(value, Tensor):
                self.wrote(value)
        return result

    def _allocate(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if tensor.device.type != "cpu" or not size:
            return
        ctypes.memset(address, 0xFF, size)
        item = tensor.element_size()
        initialised = np.zeros(size // item, bool)
        self.allocations[address] = Allocation(Shadow(address, size, item, initialised), storage, self.line())

    def wrote(self, tensor: Any) -> None:
        """Torch wrote all elements of a tensor."""
        allocation = self.of(tensor)
        seen = None if allocation is None else view_of(allocation.shadow, tensor)
        if seen is not None:
            seen[...] = True

    def of(self, tensor: Any) -> Allocation | None:
        """The allocation that a tensor lies in, if it came from here."""
        if tensor.device.type != "cpu":
            return None
        found = self.allocations.get(tensor.untyped_storage().data_ptr())
        return found if found is not None and found.shadow.nbytes == tensor.untyped_storage().nbytes() else None


def view_of(shadow: Shadow, tensor: Any) -> Any:
    """`shadow.initialised` in the shape of a tensor of that storage; None where all is initialised or sizes differ."""
    if shadow.initialised is None:
        return None
    scale, rest = divmod(tensor.element_size(), shadow.item)
    if scale == 1:
        return shadow.view(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())
    if rest or not scale or not tensor.is_contiguous():
        shadow.initialised = None  # seen through another type: what is written can no longer be told
        return None
    start = tensor.storage_offset() * scale
    return shadow.initialised[start : start + tensor.numel() * scale]
