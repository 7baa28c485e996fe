"""Which composite ops become primitive ones, and how: with the casts that eager CUDA makes, no more and no fewer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from kernelwright.worker.classify import words

aten = torch.ops.aten
_LOW = (torch.bfloat16, torch.float16)


@cache
def table() -> dict[Any, Callable[..., Any]]:
    """Op overload → its decomposition."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    # Functionalisation has taken mutations away before a decomposition is looked up; those of in-place ops would only
    # meet tensors that are still wrapped.
    chosen = {op: how for op, how in core_aten_decompositions().items() if not _is_in_place(op)}
    for packet in _PACKETS:
        for overload in _overloads(packet):
            if overload in decomposition_table:
                chosen[overload] = decomposition_table[overload]
    for overload in _KEPT:
        for each in _overloads(overload):
            chosen.pop(each, None)
    for packet, function in _OWN.items():
        for overload in _overloads(packet):
            chosen[overload] = function
    return chosen


def _is_in_place(op: Any) -> bool:
    return str(op).split(".")[1].endswith("_")


def _overloads(name: str) -> list[Any]:
    packet_name, _, only = name.partition(".")
    packet = getattr(aten, packet_name, None)
    if packet is None:
        return []
    names = [only] if only else packet.overloads()
    return [getattr(packet, each) for each in names if hasattr(packet, each)]


def _upcast(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float32) if x.dtype in _LOW else x


def _dims(x: torch.Tensor, dim: Any) -> list[int]:
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(x.dim()))
    return [dim] if isinstance(dim, int) else list(dim)


def _variance(x: torch.Tensor, dim: Any, correction: Any, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Variance and mean in float32 arithmetic, not rounded yet."""
    wide, dims = _upcast(x), _dims(x, dim)
    count: Any = 1
    for axis in dims:
        count = count * x.shape[axis]
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    total = (centred * centred).sum(dims, keepdim=keepdim)
    variance = total / (count - (1 if correction is None else correction))
    return variance, mean if keepdim else mean.squeeze(dims)


def _var(x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> torch.Tensor:
    return _variance(x, dim, correction, keepdim)[0].to(x.dtype)


def _std(x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> torch.Tensor:
    return _variance(x, dim, correction, keepdim)[0].sqrt().to(x.dtype)


def _var_mean(x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    variance, mean = _variance(x, dim, correction, keepdim)
    return variance.to(x.dtype), mean.to(x.dtype)


def _std_mean(x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    variance, mean = _variance(x, dim, correction, keepdim)
    return variance.sqrt().to(x.dtype), mean.to(x.dtype)


def _normalise(wide: torch.Tensor, dims: list[int], eps: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    rstd = torch.rsqrt((centred * centred).mean(dims, keepdim=True) + eps)
    return centred * rstd, mean, rstd


def _layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Statistics, scale and shift in float32, rounded once (aten/src/ATen/native/cuda/layer_norm_kernel.cu)."""
    dims = list(range(x.dim() - len(shape), x.dim()))
    y, mean, rstd = _normalise(_upcast(x), dims, eps)
    if weight is not None:
        y = y * _upcast(weight)
    if bias is not None:
        y = y + _upcast(bias)
    return y.to(x.dtype), mean, rstd


def _group_norm(x: Any, weight: Any, bias: Any, n: Any, c: Any, spatial: Any, groups: int, eps: float) -> Any:
    """As layer norm, over the channels of a group and all positions."""
    wide = _upcast(x).reshape(n, groups, (c // groups) * spatial)
    y, mean, rstd = _normalise(wide, [2], eps)
    y = y.reshape(x.shape)
    channel = [1, c] + [1] * (x.dim() - 2)
    if weight is not None:
        y = y * _upcast(weight).reshape(channel)
    if bias is not None:
        y = y + _upcast(bias).reshape(channel)
    return y.to(x.dtype), mean.squeeze(2), rstd.squeeze(2)


def _rms_norm(x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """In float32 with one rounding (the fused kernel; an absent eps is that of the arithmetic's dtype)."""
    wide = _upcast(x)
    dims = list(range(x.dim() - len(shape), x.dim()))
    small = torch.finfo(wide.dtype).eps if eps is None else eps
    rstd = torch.rsqrt((wide * wide).mean(dims, keepdim=True) + small)
    y = wide * rstd
    return (y if weight is None else y * _upcast(weight)).to(x.dtype), rstd


def _aminmax(x: torch.Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    dims = [] if dim is None else [dim]
    return x.amin(dims, keepdim), x.amax(dims, keepdim)


def _silu(x: torch.Tensor) -> torch.Tensor:
    wide = _upcast(x)
    return (wide * torch.sigmoid(wide)).to(x.dtype)


def _softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    wide = _upcast(x)
    power = torch.exp(wide - wide.amax(dim, keepdim=True))
    y = power / power.sum(dim, keepdim=True)
    return y if half_to_float else y.to(x.dtype)


def _log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    wide = _upcast(x)
    shifted = wide - wide.amax(dim, keepdim=True)
    y = shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))
    return y if half_to_float else y.to(x.dtype)


def _logsumexp(x: torch.Tensor, dim: Any, keepdim: bool = False) -> torch.Tensor:
    """Composite in eager: the maximum, its infinities set to 0, is taken out and put back, step by step in x's dtype."""
    dims = _dims(x, dim)
    highest = x.amax(dims, keepdim=True)
    shift = torch.where(highest.abs() == float("inf"), 0.0, highest)
    total = torch.exp(x - shift).sum(dims, keepdim=keepdim).log()
    return total + (shift if keepdim else shift.squeeze(dims))


_OWN: dict[str, Callable[..., Any]] = {
    "var.correction": _var,
    "std.correction": _std,
    "var_mean.correction": _var_mean,
    "std_mean.correction": _std_mean,
    "native_layer_norm.default": _layer_norm,
    "native_group_norm.default": _group_norm,
    "_fused_rms_norm.default": _rms_norm,
    "aminmax.default": _aminmax,
    "silu.default": _silu,
    "_softmax.default": _softmax,
    "_log_softmax.default": _log_softmax,
    "logsumexp.default": _logsumexp,
}
_PACKETS = words(
    "_softmax _log_softmax gelu nll_loss_forward nll_loss2d_forward addcmul addcdiv lerp hardtanh hardswish hardsigmoid "
    "leaky_relu elu softplus log_sigmoid_forward mish celu glu threshold mse_loss smooth_l1_loss huber_loss masked_fill "
    "nan_to_num std unbind clamp_min clamp_max logaddexp logaddexp2 sinc frac rsub prelu rrelu selu relu6 "
    "binary_cross_entropy soft_margin_loss margin_ranking_loss square heaviside xlogy hypot fill zeros_like ones_like "
    "full_like new_zeros new_ones new_full new_empty tril triu eye linspace repeat roll stack split split_with_sizes chunk "
    "narrow select_scatter slice_scatter diag_embed trace norm linalg_vector_norm dist cross_entropy_loss _unsafe_view "
    "isneginf isposinf signbit count_nonzero t reciprocal transpose index_select take_along_dim addmv addr mv dot"
)
_KEPT = words(
    "mean relu sum amax amin prod gather index scatter scatter_add scatter_reduce cumsum cumprod topk sort argmax argmin "
    "max.dim min.dim mm bmm cat slice.Tensor select.int arange.start_step full.default where.self transpose.int t.default "
    "reciprocal sigmoid tanh erf flip any all"
)
