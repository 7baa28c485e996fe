"""Where the sanitizer takes part in Triton's interpreter: methods wrapped while it is entered, then put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from triton.runtime import interpreter as stock

from kernelwright.worker import taint
from kernelwright.worker.taint import Handle

if TYPE_CHECKING:
    from kernelwright.worker.sanitizer import Sanitizer

Method = Callable[..., Any]

_ELEMENTWISE = (
    *("unary_op", "cast_impl", "create_fp_to_fp", "create_fabs", "create_erf", "create_rsqrt", "create_idiv"),
    *("create_umulhi", "create_fma", "create_libdevice"),
)
"""Methods whose handles line up lane by lane with the result."""
_RESHAPING: dict[str, Callable[..., Any]] = {
    "create_reshape": lambda mask, shape, *rest: mask.reshape(shape),
    "create_trans": lambda mask, order: np.transpose(mask, order),
    "create_expand_dims": lambda mask, axis: np.expand_dims(mask, axis),
    "create_broadcast": lambda mask, shape: np.broadcast_to(mask, shape),
    "create_bitcast": lambda mask, kind: mask,
    "create_unsplat": lambda mask: mask.any(keepdims=True).reshape(1),
}


class Hooks:
    """The wrapped methods of one sanitizer."""

    def __init__(self, sanitizer: Sanitizer) -> None:
        self._sanitizer = sanitizer
        self._saved: list[tuple[Any, str, Any]] = []

    def install(self) -> None:
        builder = stock.InterpreterBuilder
        for name in _ELEMENTWISE:
            self._wrap(builder, name, _elementwise)
        for name, change in _RESHAPING.items():
            self._wrap(builder, name, _reshaping(change))
        for name, wrapper in {
            "binary_op": self._binary,
            "ternary_op": _ternary,
            "create_dot": _dot,
            "create_splat": _splat,
            "create_addptr": _addptr,
            "create_join": _join,
            "create_split": _split,
            "create_masked_load": self._load,
            "create_masked_store": self._store,
            "create_atomic_rmw": self._atomic,
            "create_atomic_cas": self._swap,
            "set_grid_idx": self._place,
        }.items():
            self._wrap(builder, name, wrapper)
        self._wrap(stock.ReduceOps, "apply_impl", _reduce)
        self._wrap(stock.ScanOps, "apply_impl", _scan)
        self._wrap(stock.GridExecutor, "_init_args_hst", self._begin)
        self._wrap(stock.GridExecutor, "_restore_args_dev", _nothing_to_restore)
        self._wrap(stock, "_implicit_cvt", self._convert)
        for holder in ("BlockPointerHandle", "TensorDescHandle"):
            if hasattr(stock, holder):
                self._wrap(getattr(stock, holder), "materialize_pointers", _materialize)

    def remove(self) -> None:
        while self._saved:
            holder, name, original = self._saved.pop()
            setattr(holder, name, original)

    def _wrap(self, holder: Any, name: str, wrapper: Callable[[Method], Method]) -> None:
        original = getattr(holder, name, None)
        if original is not None:
            self._saved.append((holder, name, original))
            setattr(holder, name, wrapper(original))

    # --- what the sanitizer itself decides

    def _begin(self, original: Method) -> Method:
        def begin(executor: Any, arguments: Any, named: Any) -> Any:
            names = [*executor.arg_names[: len(arguments)], *named]
            self._sanitizer.begin(names, [*arguments, *named.values()])
            return list(arguments), dict(named)  # they lie on the CPU: no copy is needed

        return begin

    def _convert(self, original: Method) -> Method:
        def convert(argument: Any) -> Any:
            value = original(argument)
            if hasattr(argument, "data_ptr"):
                value.handle.attr[taint.REGION] = self._sanitizer.region_of(argument)
            return value

        return convert

    def _place(self, original: Method) -> Method:
        def place(builder: Any, x: int, y: int, z: int) -> None:
            original(builder, *self._sanitizer.place(x, y, z, builder.grid_dim))

        return place

    def _load(self, original: Method) -> Method:
        def load(builder: Any, pointers: Handle, mask: Any, other: Any, *rest: Any, **named: Any) -> Handle:
            lanes = _lanes(mask, pointers)
            allowed, undefined = self._sanitizer.load(pointers, lanes, other is not None)
            fill = _poison(pointers, lanes) if other is None else other
            result = original(builder, pointers, _mask(allowed), fill, *rest, **named)
            if other is not None and taint.lanes(other):
                taint.mark(result, taint.each(taint.lanes(other), lambda found: found & ~lanes))
            taint.mark(result, undefined)
            return result

        return load

    def _store(self, original: Method) -> Method:
        def store(builder: Any, pointers: Handle, value: Handle, mask: Any, *rest: Any, **named: Any) -> Any:
            allowed = self._sanitizer.store(pointers, value, _lanes(mask, pointers))
            return original(builder, pointers, value, _mask(allowed), *rest, **named)

        return store

    def _atomic(self, original: Method) -> Method:
        def atomic(builder: Any, operation: Any, pointers: Handle, value: Handle, mask: Any, *rest: Any) -> Handle:
            if str(operation).endswith("XCHG"):
                self._sanitizer.take_lock(False)
            allowed = self._sanitizer.atomic(pointers, value, _lanes(mask, pointers))
            return original(builder, operation, pointers, value, _mask(allowed), *rest)

        return atomic

    def _swap(self, original: Method) -> Method:
        def swap(builder: Any, pointers: Handle, expected: Handle, value: Handle, *rest: Any) -> Handle:
            allowed = self._sanitizer.atomic(pointers, value, np.ones(pointers.data.shape, bool))
            if not allowed.all():
                return stock.TensorHandle(np.zeros_like(value.data), expected.dtype.scalar)
            result = original(builder, pointers, expected, value, *rest)
            if (result.data == expected.data).all():
                self._sanitizer.take_lock(True)
            return result

        return swap

    def _binary(self, original: Method) -> Method:
        def binary(builder: Any, left: Handle, right: Handle, operation: Any) -> Handle:
            result = taint.of_binary(original(builder, left, right, operation), left, right, operation)
            wrapped = taint.wrapped(left, right, result, operation)
            if wrapped is not None:
                self._sanitizer.wrapped(result, wrapped)
            return result

        return binary


# --- how undefined lanes and tensors travel --------------------------------------------------------------------------


def _keep_region(result: Handle, source: Handle) -> Handle:
    region = source.attr.get(taint.REGION)
    if region is not None:
        result.attr[taint.REGION] = region
    return result


def _elementwise(original: Method) -> Method:
    def operation(builder: Any, *arguments: Any, **named: Any) -> Handle:
        handles = [item for item in arguments if isinstance(item, stock.TensorHandle)]
        return taint.elementwise(original(builder, *arguments, **named), *handles)

    return operation


def _reshaping(change: Callable[..., Any]) -> Callable[[Method], Method]:
    def wrapper(original: Method) -> Method:
        def operation(builder: Any, value: Handle, *arguments: Any) -> Handle:
            result = _keep_region(original(builder, value, *arguments), value)
            found = taint.lanes(value)
            if found:
                taint.mark(result, taint.each(found, lambda mask: change(mask, *arguments)))
            return result

        return operation

    return wrapper


def _ternary(original: Method) -> Method:
    def ternary(builder: Any, first: Handle, second: Handle, third: Handle, operation: Any) -> Handle:
        result = original(builder, first, second, third, operation)
        if operation is np.where:
            _keep_region(result, second)
            return taint.of_select(result, first, second, third)
        return taint.elementwise(result, first, second, third)

    return ternary


def _dot(original: Method) -> Method:
    def dot(builder: Any, a: Handle, b: Handle, c: Handle, *rest: Any, **named: Any) -> Handle:
        return taint.of_dot(original(builder, a, b, c, *rest, **named), a, b, c)

    return dot


def _splat(original: Method) -> Method:
    def splat(builder: Any, *arguments: Any) -> Handle:
        value = next(item for item in arguments if isinstance(item, stock.TensorHandle))  # its place differs by version
        result = _keep_region(original(builder, *arguments), value)
        found = taint.lanes(value)
        if found:
            taint.mark(result, taint.each(found, lambda mask: np.full(result.data.shape, mask.any())))
        return result

    return splat


def _addptr(original: Method) -> Method:
    def addptr(builder: Any, pointer: Handle, offset: Handle) -> Handle:
        return _keep_region(taint.elementwise(original(builder, pointer, offset), pointer, offset), pointer)

    return addptr


def _join(original: Method) -> Method:
    def join(builder: Any, left: Handle, right: Handle) -> Handle:
        result = original(builder, left, right)
        for side, value in enumerate((left, right)):
            for reason, mask in taint.lanes(value).items():
                lanes = np.zeros(result.data.shape, bool)
                lanes[..., side] = mask
                taint.mark(result, {reason: lanes})
        return result

    return join


def _split(original: Method) -> Method:
    def split(builder: Any, value: Handle) -> tuple[Handle, Handle]:
        results = original(builder, value)
        for side, result in enumerate(results):
            found = {reason: mask[..., side] for reason, mask in taint.lanes(value).items()}
            taint.mark(result, found)
        return tuple(results)

    return split


def _reduce(original: Method) -> Method:
    def reduce(operation: Any, values: Any) -> Any:
        results = original(operation, values)
        found = taint.of_reduction([value.handle for value in values], operation.axis)
        if not found:
            return results
        for result in results if isinstance(results, (tuple, list)) else (results,):
            taint.mark(result.handle, {reason: _fit(mask, result.handle.data.shape) for reason, mask in found.items()})
        return results

    return reduce


def _fit(mask: Any, shape: tuple[int, ...]) -> Any:
    """A reduced mask in the result's shape: the axis may be gone, or a scalar held as one element."""
    return mask.reshape(shape) if mask.size == int(np.prod(shape)) else np.full(shape, mask.any())


def _scan(original: Method) -> Method:
    def scan(operation: Any, values: Any) -> Any:
        results = original(operation, values)
        for value in values:
            for reason, mask in taint.lanes(value.handle).items():
                ordered = np.flip(mask, operation.axis) if operation.reverse else mask
                spread = np.logical_or.accumulate(ordered, axis=operation.axis)
                spread = np.flip(spread, operation.axis) if operation.reverse else spread
                for result in results if isinstance(results, (tuple, list)) else (results,):
                    taint.mark(result.handle, {reason: spread})
        return results

    return scan


def _materialize(original: Method) -> Method:
    def materialize(handle: Any, argument: Any) -> Any:
        pointers, masks = original(handle, argument)
        return _keep_region(pointers, handle.base), masks

    return materialize


def _nothing_to_restore(original: Method) -> Method:
    return lambda *arguments: None


def _lanes(mask: Any, pointers: Handle) -> Any:
    """The mask of an access as an array of the pointers' shape; an undefined mask counts as set."""
    data = mask if isinstance(mask, np.ndarray) else mask.data
    return np.broadcast_to(np.asarray(data, bool), pointers.data.shape)


def _mask(allowed: Any) -> Handle:
    return stock.TensorHandle(np.ascontiguousarray(allowed), stock.tl.int1)


def _poison(pointers: Handle, lanes: Any) -> Handle | None:
    """NaN for masked-off lanes without `other`, so that using them shows in the values, too."""
    kind = pointers.get_element_ty()
    held = stock._get_np_dtype(kind)
    if lanes.all() or not kind.is_floating():
        return None
    return stock.TensorHandle(np.full(pointers.data.shape, np.nan, np.float32).astype(held), kind)
