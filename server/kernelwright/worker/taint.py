"""Which lanes of a value are undefined: read where nothing is, or out of a wrapped 32-bit product.

A lane that was masked off without `other`, or read from memory that nobody wrote, is undefined; so is what is computed
from it. That is no fault until it is stored, or decides where. Handles of Triton's interpreter carry it in `attr`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
Handle: TypeAlias = Any
KEY = "kernelwright.undefined"
REGION = "kernelwright.region"


@dataclass(frozen=True)
class Undefined:
    """Why lanes are undefined: the finding's code, its words, and the line that made them so."""

    code: str
    words: str
    line: int | None


Lanes: TypeAlias = dict[Undefined, Array]
"""A boolean mask of the value's shape for each reason."""


def lanes(handle: Handle) -> Lanes:
    """The undefined lanes of a value; {} for almost every value."""
    attributes = getattr(handle, "attr", None)
    return attributes.get(KEY, {}) if attributes else {}


def mark(handle: Handle, found: Lanes) -> None:
    """Note undefined lanes of a value, beside those that it has."""
    if found:
        handle.attr[KEY] = merge([lanes(handle), found], handle.data.shape)


def merge(parts: Iterable[Lanes], shape: tuple[int, ...]) -> Lanes:
    """The union of several, broadcast to a shape; what does not broadcast is dropped."""
    merged: Lanes = {}
    for part in parts:
        for reason, mask in part.items():
            try:
                mask = np.broadcast_to(mask, shape)
            except ValueError:
                continue
            if mask.any():
                merged[reason] = merged[reason] | mask if reason in merged else mask
    return merged


def each(found: Lanes, change: Callable[[Array], Array]) -> Lanes:
    """The same reasons with every mask changed."""
    return {reason: change(mask) for reason, mask in found.items()}


def elementwise(result: Handle, *inputs: Handle) -> Handle:
    """A lane of the result is undefined where a lane of an input is."""
    parts = [lanes(handle) for handle in inputs]
    if any(parts):
        mark(result, merge(parts, result.data.shape))
    return result


def of_binary(result: Handle, left: Handle, right: Handle, operation: Any) -> Handle:
    """Like elementwise, but `False & x`, `True | x` and `0 * x` (whole numbers) are defined whatever x is."""
    first, second = lanes(left), lanes(right)
    if not (first or second):
        return result
    shape = result.data.shape
    first, second = merge([first], shape), merge([second], shape)
    if result.data.dtype.kind in "biu":
        absorbing = {np.bitwise_and: 0, np.multiply: 0, np.bitwise_or: -1 if result.data.dtype != np.bool_ else 1}
        if operation in absorbing:
            first, second = (
                _without(first, _absorbs(right, second, absorbing[operation], shape)),
                _without(second, _absorbs(left, first, absorbing[operation], shape)),
            )
    mark(result, merge([first, second], shape))
    return result


def _absorbs(handle: Handle, undefined: Lanes, value: int, shape: tuple[int, ...]) -> Array:
    data = np.broadcast_to(handle.data, shape)
    defined = ~any_of(undefined, shape)
    return defined & (data == np.array(value).astype(data.dtype))


def _without(found: Lanes, mask: Array) -> Lanes:
    return each(found, lambda lane: lane & ~mask)


def any_of(found: Lanes, shape: tuple[int, ...]) -> Array:
    """Lanes that are undefined for any reason."""
    result = np.zeros(shape, bool)
    for mask in found.values():
        result = result | np.broadcast_to(mask, shape)
    return result


def of_select(result: Handle, condition: Handle, left: Handle, right: Handle) -> Handle:
    """A lane takes after the side that is chosen; an undefined condition makes it undefined."""
    parts = [lanes(handle) for handle in (condition, left, right)]
    if any(parts):
        shape = result.data.shape
        chosen = np.broadcast_to(condition.data, shape).astype(bool)
        kept = [each(merge([parts[1]], shape), lambda mask: mask & chosen)]
        kept.append(each(merge([parts[2]], shape), lambda mask: mask & ~chosen))
        mark(result, merge([parts[0], *kept], shape))
    return result


def of_dot(result: Handle, a: Handle, b: Handle, c: Handle) -> Handle:
    """An undefined element of `a` spoils its row, one of `b` its column."""
    rows = each(lanes(a), lambda mask: np.broadcast_to(mask, a.data.shape).any(axis=-1, keepdims=True))
    columns = each(lanes(b), lambda mask: np.broadcast_to(mask, b.data.shape).any(axis=-2, keepdims=True))
    if rows or columns or lanes(c):
        mark(result, merge([rows, columns, lanes(c)], result.data.shape))
    return result


def of_reduction(inputs: Iterable[Handle], axis: int | None) -> Lanes:
    """Masks with the axis kept as size 1; all of the value for axis None."""
    found: Lanes = {}
    for handle in inputs:
        reduced = each(lanes(handle), lambda mask: mask.any(axis=axis, keepdims=True))
        for reason, mask in reduced.items():
            found[reason] = found[reason] | mask if reason in found else mask
    return found


def wrapped(left: Handle, right: Handle, result: Handle, operation: Any) -> Array | None:
    """Lanes of a signed 32-bit sum, difference or product that wrapped around; None where there are none."""
    if result.data.dtype != np.int32 or operation not in (np.add, np.subtract, np.multiply):
        return None
    if left.data.dtype != np.int32 or right.data.dtype != np.int32:
        return None
    found = operation(left.data, right.data, dtype=np.int64) != result.data
    return found if found.any() else None
