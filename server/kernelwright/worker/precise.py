"""The same function in float64: casts to smaller floats and factories of them stay at float64."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from kernelwright.worker.inputs import LiveCall, rebuild

_WIDER = {
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


class Float64(TorchDispatchMode):
    """Every floating result is float64, whatever dtype the program asks for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(_wider_dtype, (args, kwargs or {}))
        if func in (torch.ops.aten._softmax.default, torch.ops.aten._log_softmax.default):
            args = (*args[:2], False)  # the input is float64 already: there is no half to widen
        result = func(*args, **kwargs)
        return tree_map(widen, result)


def _wider_dtype(value: Any) -> Any:
    return _WIDER.get(value, value) if isinstance(value, torch.dtype) else value


def widen(value: Any) -> Any:
    """A tensor of a smaller float as float64; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.dtype in _WIDER:
        wide = value.detach().to(_WIDER[value.dtype])
        return torch.nn.Parameter(wide, value.requires_grad) if isinstance(value, torch.nn.Parameter) else wide
    return value


def run_in_float64(call: LiveCall, perturbation: int | None = None) -> tuple[Any, LiveCall]:
    """The result in float64 and the call after it. `perturbation` is a seed: inputs move by up to two float32 ulps."""
    generator = torch.Generator().manual_seed(perturbation or 0)

    def convert(value: torch.Tensor) -> torch.Tensor:
        wide = widen(value)
        if perturbation is None or not (wide.is_floating_point() or wide.is_complex()):
            return wide if wide is not value else value.detach().clone()
        factors = torch.rand(wide.shape, generator=generator, dtype=torch.float64) - 0.5
        return (wide.detach() * (1 + factors * 4 * 2.0**-24).to(wide.device)).to(wide.dtype)

    wide_call = rebuild(call, convert)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), Float64():
            return wide_call.run(), wide_call
    finally:
        torch.set_default_dtype(default)
