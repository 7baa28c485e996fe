"""A call's arguments with fake tensors and traced scalars in their place, and a record of what was read of `self`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from kernelwright.worker import wire
from kernelwright.worker.inputs import plain
from kernelwright.worker.wire import Json

_INTERNALS = (vars(nn.Module()).keys() | {"__dict__", "__class__", "_compiled_call_impl"}) - {"training"}


@dataclass
class Shadow:
    """Makes the copies. `tensor` and `scalar` give what stands for a tensor or a float at a path."""

    tensor: Callable[[str, torch.Tensor], Any]
    scalar: Callable[[str, float], Any]
    fixed: dict[str, Json] = field(default_factory=dict)
    """Path → value that the trace depends on: plain arguments, and attributes of `self` when they are read."""
    objects: dict[int, tuple[Any, str, dict[str, Any]]] = field(default_factory=dict)
    """id of a copy → the copy, its path and its attributes as they were."""
    _memo: dict[int, Any] = field(default_factory=dict)

    def argument(self, path: str, value: Any) -> Any:
        """The copy of an argument (or of a container or object in one)."""
        if isinstance(value, torch.Tensor):
            return self.tensor(path, value)
        if isinstance(value, float):
            return self.scalar(path, value)
        if isinstance(value, (nn.Module,)) or (
            wire.is_plain_object(value) and not isinstance(value, (list, tuple, dict))
        ):
            return self.object(path, value)
        copied = self._container(path, value, self.argument)
        if copied is None:
            self.fixed[path] = plain(value)
            return value
        return copied

    def object(self, path: str, value: Any) -> Any:
        """A copy of an object whose class records reads of its plain attributes; methods and `super()` work."""
        if id(value) in self._memo:
            return self._memo[id(value)]
        cls = _recording_class(type(value), self)
        try:
            copied: Any = object.__new__(cls)
        except TypeError:  # a class with a layout of its own: used as it is
            return value
        self._memo[id(value)] = copied
        state = {name: self._attribute(path, name, item) for name, item in vars(value).items()}
        copied.__dict__.update(state)
        self.objects[id(copied)] = (copied, path, dict(state))
        return copied

    def _attribute(self, path: str, name: str, value: Any) -> Any:
        if name in ("_parameters", "_buffers", "_modules") and isinstance(value, dict):
            return {key: self._attribute(path, key, item) for key, item in value.items()}
        path = f"{path}[{name}]" if name.isdigit() else f"{path}.{name}"
        return self._inner(path, value)

    def _inner(self, path: str, value: Any) -> Any:
        """As `argument`, but plain values are recorded only when they are read."""
        if isinstance(value, torch.Tensor):
            return self.tensor(path, value)
        if isinstance(value, float):
            return self.scalar(path, value)
        if isinstance(value, nn.Module) or (wire.is_plain_object(value) and not callable(value)):
            return self.object(path, value)
        copied = self._container(path, value, self._inner)
        return value if copied is None else copied

    def _container(self, path: str, value: Any, each: Callable[[str, Any], Any]) -> Any:
        if isinstance(value, torch.Size):
            return None
        if isinstance(value, (list, tuple)):
            items = [each(f"{path}[{position}]", item) for position, item in enumerate(value)]
            if type(value) in (list, tuple):
                return type(value)(items)
            return type(value)(*items) if hasattr(value, "_fields") else None
        if type(value) is dict or type(value).__name__ == "OrderedDict":
            return type(value)((key, each(f"{path}[{key!r}]", item)) for key, item in value.items())
        return None

    def record_read(self, copied: Any, name: str, value: Any) -> None:
        """Called by the recording classes."""
        if name in _INTERNALS or id(copied) not in self.objects:
            return
        path = f"{self.objects[id(copied)][1]}.{name}"
        if value is None or isinstance(value, (bool, int, str)):
            self.fixed.setdefault(path, plain(value))
        elif isinstance(value, (tuple, list)) and value and all(isinstance(item, (bool, int, str)) for item in value):
            self.fixed.setdefault(path, {"repr": repr(value)})

    def assigned(self) -> str | None:
        """The path of an attribute that the function rebound, if it did."""
        for copied, path, before in self.objects.values():
            for name, value in vars(copied).items():
                if name not in before or before[name] is not value:
                    return f"{path}.{name}"
            for table in ("_parameters", "_buffers"):
                now, then = vars(copied).get(table), before.get(table)
                if isinstance(now, dict) and now is not then:
                    return path
        return None


def _recording_class(cls: type, shadow: Shadow) -> type:
    def __getattribute__(self: Any, name: str) -> Any:
        value = cls.__getattribute__(self, name)  # type: ignore[call-arg]
        shadow.record_read(self, name, value)
        return value

    def __getattr__(self: Any, name: str) -> Any:
        value = cls.__getattr__(self, name)  # type: ignore[attr-defined]
        shadow.record_read(self, name, value)
        return value

    methods: dict[str, Any] = {"__getattribute__": __getattribute__}
    if hasattr(cls, "__getattr__"):
        methods["__getattr__"] = __getattr__
    return type(cls.__name__, (cls,), {**methods, "__module__": cls.__module__, "__qualname__": cls.__qualname__})
