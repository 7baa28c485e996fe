"""The judgement of one output against eager and against float64: which errors a right kernel may make.

The rule: errors are measured from the float64 result, and may be a few times eager's own, plus rounding of the output's
dtype, plus what inputs that differ by two float32 ulps would change (the function's conditioning). It holds for the
largest error, for the root mean square, and for each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

UNIT = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float8_e4m3fn: 2.0**-4,
    torch.float8_e5m2: 2.0**-3,
}
"""An ulp of one, halved for float32 and float64 and whole for the small floats: they round more than once."""
TINY = {torch.float16: 2.0**-24, torch.float32: 2.0**-149, torch.bfloat16: 2.0**-133}
"""The spacing of subnormals: no output can be closer than half of that."""


@dataclass(frozen=True)
class Agreement:
    """Worst error and what it may be, in the output's units."""

    error: float
    limit: float


@dataclass(frozen=True)
class Difference:
    """Where an output is wrong. `index` is the element; error and limit are None where they have no meaning."""

    code: str
    message: str
    index: tuple[int, ...] = ()
    got: str = ""
    expected: str = ""
    error: float | None = None
    limit: float | None = None


@dataclass(frozen=True)
class Truth:
    """One output as eager gives it, as float64 gives it, and how far perturbed inputs move that (same shape)."""

    eager: torch.Tensor
    precise: torch.Tensor
    moved: torch.Tensor | None = None
    unordered: bool = False


def compare_tensor(got: torch.Tensor, truth: Truth) -> Agreement | Difference:
    """Compare one output. All tensors are on the CPU."""
    eager = truth.eager
    if tuple(got.shape) != tuple(eager.shape):
        return Difference(
            "K202",
            f"the shape is {list(got.shape)}, not {list(eager.shape)}",
            (),
            str(list(got.shape)),
            str(list(eager.shape)),
        )
    if got.dtype != eager.dtype:
        return Difference("K203", f"the dtype is {_name(got)}, not {_name(eager)}", (), _name(got), _name(eager))
    if got.numel() == 0:
        return Agreement(0.0, 0.0)
    if got.is_complex():
        real = torch.view_as_real
        moved = None if truth.moved is None else truth.moved.unsqueeze(-1).expand(*truth.moved.shape, 2)
        return compare_tensor(
            real(got.resolve_conj()), Truth(real(eager.resolve_conj()), real(truth.precise.resolve_conj()), moved)
        )
    if truth.unordered:
        got, truth = _sorted(got, truth)
    if not got.is_floating_point():
        return _compare_exact(got, truth)
    return _compare_non_finite(got, truth) or _compare_finite(got, truth)


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _sorted(got: torch.Tensor, truth: Truth) -> tuple[torch.Tensor, Truth]:
    """Ties in any order: floating outputs by value; of integers only that they are as different as eager's."""
    if got.is_floating_point():
        moved = None if truth.moved is None else truth.moved.amax(-1, keepdim=True).expand(truth.moved.shape)
        return got.sort(-1).values, Truth(truth.eager.sort(-1).values, truth.precise.sort(-1).values, moved)
    low, high = truth.eager.min(), truth.eager.max().clamp_min(got.shape[-1])
    ranks = [_distinct(tensor) for tensor in (got, truth.eager)]
    inside = (got >= torch.minimum(low, low * 0)) & (got <= torch.maximum(high, got.max().clamp_max(1 << 20)))
    return torch.where(inside, ranks[0], -1), Truth(ranks[1], ranks[1])


def _distinct(tensor: torch.Tensor) -> torch.Tensor:
    """For each element, how often its value stands in its row."""
    return (tensor.unsqueeze(-1) == tensor.unsqueeze(-2)).sum(-1)


def _compare_exact(got: torch.Tensor, truth: Truth) -> Agreement | Difference:
    """Integers and bools: eager's or float64's value; off by one only as often as eager is off from float64."""
    eager, precise = truth.eager, truth.precise.to(truth.eager.dtype)
    wrong = (got != eager) & (got != precise)
    if not bool(wrong.any()):
        return Agreement(0.0, 0.0)
    unsure = int((eager != precise).sum())
    distance = (got.double() - precise.double()).abs()
    by_one = wrong & (distance <= 1)
    if not bool((wrong & ~by_one).any()) and int(by_one.sum()) <= unsure:
        return Agreement(1.0, 1.0)
    bad = wrong & ~by_one if bool((wrong & ~by_one).any()) else wrong
    index = _first(bad)
    message = f"{int(wrong.sum())} of {got.numel()} values are wrong"
    return Difference(
        "K201", message, index, str(got[index].item()), str(eager[index].item()), float(distance[index]), 0.0
    )


def _first(mask: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(position) for position in torch.unravel_index(mask.flatten().to(torch.int8).argmax(), mask.shape))


def _compare_non_finite(got: torch.Tensor, truth: Truth) -> Difference | None:
    """NaN and infinities where eager or float64 has them, and nowhere else."""
    value, eager, precise = got.double(), truth.eager.double(), truth.precise.double()
    largest = torch.finfo(got.dtype).max
    overflow = precise.isfinite() & (precise.abs() > largest * (1 - UNIT[got.dtype]))
    precise = torch.where(overflow & value.isinf(), precise.sign() * float("inf"), precise)
    wrong = torch.zeros(got.shape, dtype=torch.bool)
    wrong |= value.isnan() & ~eager.isnan() & ~precise.isnan()
    wrong |= value.isinf() & (value != eager) & (value != precise)
    wrong |= value.isfinite() & ~eager.isfinite() & ~precise.isfinite()
    if not bool(wrong.any()):
        return None
    index = _first(wrong)
    expected = (
        truth.precise[index].item()
        if truth.precise[index].isfinite() == eager[index].isfinite()
        else eager[index].item()
    )
    message = f"NaN or infinity differs in {int(wrong.sum())} of {got.numel()} values"
    return Difference("K205", message, index, _text(got[index]), str(expected))


def _text(value: torch.Tensor) -> str:
    return f"{value.item():.9g}"


def _compare_finite(got: torch.Tensor, truth: Truth) -> Agreement | Difference:
    value, eager, precise = got.double(), truth.eager.double(), truth.precise.double()
    fits = precise.isfinite() & value.isfinite()
    zero = torch.zeros_like(value)
    error = torch.where(fits, (value - precise).abs(), zero)
    own = torch.where(fits & eager.isfinite(), (eager - precise).abs(), zero)
    size = torch.where(fits, precise.abs(), zero)
    moved = zero if truth.moved is None else torch.where(fits & truth.moved.isfinite(), truth.moved.double(), zero)
    limit, rms_limit, rows = _limits(got.dtype, own, size, moved)
    worst = float(error.max())
    if worst > limit:
        return _wrong(got, precise, error, limit, "largest error")
    if _rms(error) > rms_limit:
        return _wrong(got, precise, error, rms_limit, "root mean square error", _rms(error))
    if rows is not None:
        over = error.amax(-1) > rows
        if bool(over.any()):
            row = _first(over)
            masked = torch.zeros_like(error)
            masked[row] = error[row]
            return _wrong(got, precise, masked, float(rows[row]), "largest error of its row")
    return Agreement(worst, limit)


def _limits(
    dtype: torch.dtype, own: torch.Tensor, size: torch.Tensor, moved: torch.Tensor
) -> tuple[float, float, torch.Tensor | None]:
    """Limits for the largest error, the root mean square and each row."""
    unit, small = UNIT[dtype], dtype not in (torch.float32, torch.float64)
    tiny = TINY.get(dtype, 0.0)
    most = 1.0 if small else 4.0
    base = 4 * float(own.max()) + most * unit * float(size.max()) + tiny
    # A badly conditioned case must not let anything pass, zeros for example.
    limit = min(base + 8 * float(moved.max()), max(base, 0.5 * float(size.max())))
    rms = (1.25 if small else 2.0) * _rms(own) + (0.25 if small else 4.0) * unit * _rms(size) + 8 * _rms(moved) + tiny
    rms = min(rms, max(0.5 * _rms(size), 1.25 * _rms(own) + unit * _rms(size) + tiny))
    if own.dim() < 2:
        return limit, rms, None
    typical = torch.maximum(own.amax(-1), own.mean() * 4)
    rows = 4 * typical + most * unit * size.amax(-1) + 8 * moved.amax(-1).clamp_min(float(moved.mean())) + tiny
    return limit, rms, rows


def _rms(values: torch.Tensor) -> float:
    return float(values.pow(2).mean().sqrt())


def _wrong(
    got: torch.Tensor,
    precise: torch.Tensor,
    error: torch.Tensor,
    limit: float,
    what: str,
    measured: float | None = None,
) -> Difference:
    index = tuple(int(position) for position in torch.unravel_index(error.argmax(), error.shape))
    worst = float(error[index]) if measured is None else measured
    message = f"wrong values: the {what} is {worst:.3g}, and may be {limit:.3g}"
    return Difference("K201", message, index, _text(got[index]), f"{precise[index].item():.9g}", worst, limit)


# --- Trees -----------------------------------------------------------------------------------------------------------


def compare_trees(
    got: Any, eager: Any, precise: Any, moved: Any, unordered: bool, path: str = ""
) -> Agreement | tuple[str, Difference]:
    """Compare whole outputs. A difference comes with the path of the output, such as "[1]"."""
    if isinstance(eager, torch.Tensor):
        if not isinstance(got, torch.Tensor):
            return path, Difference("K204", f"output{path} is a {_kind(got)}, not a tensor", (), _kind(got), "tensor")
        result = compare_tensor(got.detach(), Truth(eager.detach(), precise.detach(), moved, unordered))
        return result if isinstance(result, Agreement) else (path, result)
    if isinstance(eager, (tuple, list, dict)):
        return _compare_containers(got, eager, precise, moved, unordered, path)
    same = got is eager or (type(got) is type(eager) and (got == eager or _close(got, eager)))
    if same:
        return Agreement(0.0, 0.0)
    message = f"output{path} is {got!r:.60}, not {eager!r:.60}"
    return path, Difference("K204", message, (), repr(got)[:60], repr(eager)[:60])


def _compare_containers(
    got: Any, eager: Any, precise: Any, moved: Any, unordered: bool, path: str
) -> Agreement | tuple[str, Difference]:
    same_kind = _kind(got) == _kind(eager)
    if not same_kind or len(got) != len(eager) or (isinstance(eager, dict) and [str(k) for k in eager] != list(got)):
        message = f"output{path} is a {_kind(got)}, not a {_kind(eager)} of {len(eager)}"
        return path, Difference("K204", message, (), _kind(got), _kind(eager))
    worst = Agreement(0.0, 0.0)
    for key in eager if isinstance(eager, dict) else range(len(eager)):
        part = None if moved is None else moved[key]
        item = got[str(key)] if isinstance(eager, dict) else got[key]
        result = compare_trees(item, eager[key], precise[key], part, unordered, f"{path}[{key!r}]")
        if isinstance(result, tuple):
            return result
        worst = max(worst, result, key=lambda each: each.error / (each.limit or 1.0))
    return worst


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "tensor"
    return next((kind.__name__ for kind in (tuple, list, dict) if isinstance(value, kind)), type(value).__name__)


def _close(left: Any, right: Any) -> bool:
    if not isinstance(left, float):
        return False
    return (left != left and right != right) or abs(left - right) <= 1e-6 * abs(right)


def distance_trees(left: Any, right: Any) -> Any:
    """How far the floating tensors of two equal trees lie apart, element by element."""
    if isinstance(left, torch.Tensor):
        if not (left.is_floating_point() or left.is_complex()):
            return None
        return torch.nan_to_num((left - right).abs(), 0.0, 0.0, 0.0)
    if isinstance(left, (tuple, list)):
        return [distance_trees(a, b) for a, b in zip(left, right, strict=True)]
    if isinstance(left, dict):
        return {key: distance_trees(left[key], right[key]) for key in left}
    return None


def larger_trees(left: Any, right: Any) -> Any:
    """Element by element the larger of two distances."""
    if isinstance(left, torch.Tensor):
        return torch.maximum(left, right)
    if isinstance(left, list):
        return [larger_trees(a, b) for a, b in zip(left, right, strict=True)]
    if isinstance(left, dict):
        return {key: larger_trees(left[key], right[key]) for key in left}
    return None
