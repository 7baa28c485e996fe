"""A case's inputs: a call of the user's with other sizes, dtypes, values, layouts or scalars, all from a seed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kernelwright.worker import wire
from kernelwright.worker.classify import sizes_of
from kernelwright.worker.inputs import LiveCall, Maker, duplicate, leaves, rebuild
from kernelwright.worker.wire import Json

_KEPT = 3
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class NotApplicable(Exception):
    """The case has no meaning for this function. `exception` names what the function itself raised."""

    def __init__(self, reason: str, exception: str | None = None) -> None:
        super().__init__(reason)
        self.exception = exception


@dataclass
class Builder:
    """Makes cases of one target. `graph_of` and `symbols_of` say how sizes hang together, by call."""

    maker: Maker
    dtype: str
    graph_of: Mapping[int, Json]
    symbols_of: Mapping[int, Mapping[str, int]]
    _made: dict[tuple[str, str, int], list[LiveCall]] = field(default_factory=dict)

    def build(self, case: Json) -> LiveCall:
        """The call of this case.

        Raises:
            NotApplicable: it cannot be made.
        """
        from_file = self.maker.origin == "file"
        dtype = case["dtype"] if case.get("dtype") and from_file else self.dtype
        calls = self._calls(case.get("device", "cpu"), dtype, case.get("seed", 0))
        if not 0 <= case["call"] < len(calls):
            raise NotApplicable(f"there is no call {case['call']}")
        call = calls[case["call"]]
        generator = torch.Generator().manual_seed(1000 + case.get("seed", 0))
        if case.get("sizes"):
            call = self._resize(call, case["sizes"], generator)
        if case.get("dtype") and not from_file:
            call = cast(call, case["dtype"])
        if case.get("values", "user") != "user":
            call = fill(call, case["values"], generator)
        if case.get("layout", "user") != "user":
            call = lay_out(call, case["layout"])
        for path, value in (case.get("scalars") or {}).items():
            call = set_scalar(call, path, float(value))
        return duplicate(call)

    def _calls(self, device: str, dtype: str, seed: int) -> list[LiveCall]:
        """The calls as the user makes them, kept: they may be large, and many cases start from the same ones."""
        key = (device, dtype, seed)
        if key not in self._made:
            while len(self._made) >= _KEPT:
                del self._made[next(iter(self._made))]
            self._made[key] = self.maker.make(device, dtype, seed)
        return self._made[key]

    def _resize(self, call: LiveCall, sizes: Mapping[str, int], generator: torch.Generator) -> LiveCall:
        graph = self.graph_of.get(call.index)
        if graph is None or graph["refusal"]:
            raise NotApplicable("sizes can only be changed where the call was traced")
        before = self.symbols_of[call.index]
        after = {**before, **{name: int(size) for name, size in sizes.items()}}
        shapes = {item["path"]: item["shape"] for item in graph["placeholders"]}
        made: dict[int, torch.Tensor] = {}
        for path, value in leaves(call):
            if isinstance(value, torch.Tensor) and path in shapes:
                shape = sizes_of(shapes[path], after)
                if min(shape, default=0) < 0:
                    raise NotApplicable(f"{path} would have the shape {shape}")
                if shape != list(value.shape):
                    value_there = resized(value, shape, generator)
                    made[id(value)] = _like(value, into_range(value_there, value, before, after))
                elif not (value.is_floating_point() or value.is_complex()):
                    made[id(value)] = into_range(value, value, before, after)
        return rebuild(call, lambda value: made.get(id(value), value))


def cast(call: LiveCall, dtype_name: str) -> LiveCall:
    """The call with every floating tensor of the main dtype (that of the first one) in another dtype."""
    tensors = [value for _, value in leaves(call) if isinstance(value, torch.Tensor)]
    main = next((value.dtype for value in tensors if value.dtype in FLOATS), None)
    dtype = wire.dtype_of(dtype_name)
    return rebuild(call, lambda value: _like(value, value.detach().to(dtype)) if value.dtype == main else value)


def _like(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """`new` as a parameter where `old` is one, with gradients asked for alike."""
    if isinstance(old, torch.nn.Parameter):
        return torch.nn.Parameter(new, old.requires_grad)
    return new.requires_grad_(old.requires_grad) if old.requires_grad else new


def resized(value: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """A tensor of another shape whose values are drawn from the old one's."""
    flat = value.detach().flatten().cpu()
    if flat.numel() == 0:
        noise = torch.randn(shape, generator=generator)
        new = noise.to(value.dtype) if value.is_floating_point() else torch.zeros(shape, dtype=value.dtype)
    else:
        picked = torch.randint(0, flat.numel(), (math.prod(shape),), generator=generator)
        new = flat[picked].reshape(shape)
    return new.to(value.device)


def into_range(
    values: torch.Tensor, old: torch.Tensor, before: Mapping[str, int], after: Mapping[str, int]
) -> torch.Tensor:
    """Integers that could index a dimension go on pointing into it when it shrinks; negative ones are marks and stay."""
    if (
        values.is_floating_point()
        or values.is_complex()
        or values.dtype is torch.bool
        or not (values.numel() and old.numel())
    ):
        return values
    largest = int(old.max())
    shrunk = [after[name] for name, size in before.items() if size > largest >= after[name] > 0]
    return torch.where(values >= 0, values % min(shrunk), values) if shrunk else values


# --- Values ----------------------------------------------------------------------------------------------------------


def fill(call: LiveCall, kind: str, generator: torch.Generator) -> LiveCall:
    """The call with other values in its floating tensors. Parameters get new values only where they are constant: a
    weight of ones or zeros hides a kernel that forgets it."""
    planted = False

    def convert(value: torch.Tensor) -> torch.Tensor:
        nonlocal planted
        if not (value.is_floating_point() or value.is_complex()):
            return value
        if isinstance(value, torch.nn.Parameter):
            return _like(value, _fresh(value, generator)) if _is_constant(value) and kind != "zeros" else value
        new = values_of(kind, tuple(value.shape), generator, value.dtype)
        if kind == "nonfinite" and not planted and new.numel():
            plant(new)
            planted = True
        return _like(value, _in_layout_of(value, new.to(value.device)))

    return rebuild(call, convert)


def _is_constant(value: torch.Tensor) -> bool:
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())


def _fresh(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return (torch.randn(value.shape, generator=generator) * 0.5 + 1).to(value.dtype).to(value.device)


def values_of(kind: str, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    """Random values: the kinds are chosen because each uncovers wrong kernels that the others let pass."""
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    made = {
        "small": lambda: normal * 1e-3,
        "large": lambda: normal * 40,
        "offset": lambda: normal + 100,
        "positive": lambda: torch.rand(shape, generator=generator, dtype=torch.float64),
        "outlier": lambda: normal * torch.where(torch.rand(shape, generator=generator) < 0.01, 50.0, 1.0),
        "zeros": lambda: normal * 0,
    }.get(kind, lambda: normal)()
    return made.to(dtype)


def plant(values: torch.Tensor) -> None:
    """NaN at the start, inf in the middle, -inf at the end, in different rows where there are any."""
    flat = values.view(-1)
    flat[flat.numel() // 2] = float("inf")
    flat[-1] = float("-inf")
    flat[0] = float("nan")


def _in_layout_of(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """`new`'s values in a tensor laid out like `old`; an expanded one becomes dense."""
    if 0 in old.stride() or old.numel() == 0:
        return new
    made = torch.empty_strided(old.shape, old.stride(), dtype=old.dtype, device=old.device)
    return made.copy_(new)


# --- Layouts ---------------------------------------------------------------------------------------------------------


def lay_out(call: LiveCall, kind: str) -> LiveCall:
    """The call with its tensors (not the parameters) in another layout."""
    return rebuild(
        call,
        lambda value: value if isinstance(value, torch.nn.Parameter) else _like(value, layout(value.detach(), kind)),
    )


def layout(value: torch.Tensor, kind: str) -> torch.Tensor:
    """The same values elsewhere in memory. Of "expanded" only the first slice's values remain."""
    if kind == "contiguous" or value.dim() == 0 or value.numel() == 0:
        return value.contiguous()
    if kind == "transposed":
        return value.transpose(-1, -2).contiguous().transpose(-1, -2) if value.dim() > 1 else value.contiguous()
    if kind == "stepped":
        room = torch.zeros(*value.shape[:-1], value.shape[-1] * 2, dtype=value.dtype, device=value.device)
        room[..., ::2] = value
        return room[..., ::2]
    if kind == "offset":
        room = torch.zeros(value.numel() + 1, dtype=value.dtype, device=value.device)
        room[1:] = value.flatten()
        return room[1:].view(value.shape)
    if kind == "expanded":
        return value[:1].contiguous().expand(value.shape) if value.dim() > 1 else value.contiguous()
    raise NotApplicable(f"there is no layout {kind!r}")


# --- Scalars ---------------------------------------------------------------------------------------------------------


def set_scalar(call: LiveCall, path: str, value: float) -> LiveCall:
    """The call with another number at `path`.

    Raises:
        NotApplicable: there is no such place.
    """
    if path.startswith("self."):
        return _set_on_owner(call, path, value)
    names = list(call.bound())
    if not re.fullmatch(r"\w+", path) or path not in names:
        raise NotApplicable(f"{path} cannot be set")
    position = names.index(path)
    if path not in call.kwargs and position < len(call.args):
        return replace(call, args=(*call.args[:position], value, *call.args[position + 1 :]))
    return replace(call, kwargs={**call.kwargs, path: value})


def _set_on_owner(call: LiveCall, path: str, value: float) -> LiveCall:
    changed = duplicate(call)
    target: Any = changed.owner
    *steps, last = re.findall(r"\.(\w+)|\[(\d+)\]", path)
    for name, index in steps:
        target = target[int(index)] if index else getattr(target, name)
    if not last[0] or not hasattr(target, last[0]):
        raise NotApplicable(f"{path} cannot be set")
    setattr(target, last[0], value)
    return changed
