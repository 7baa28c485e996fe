"""Mends for Triton's interpreter, so that it computes on the CPU what a GPU would.

Needed on Triton 3.2 to 3.9 (measured on 3.7.1): bfloat16 and float8 are held as integers and added as such; rounding to
them is off by one in an eighth of all values; float arguments keep Python's type; `libdevice` returns None; `autotune`
wants a driver; `device_assert` is off; reductions with a function of one's own call Python once an element; every call of
a device function patches the language anew. A kernel's module is not given the interpreter's own globals, so that a
missing import is missing here, too.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import triton
import triton.language as tl
from triton.runtime import driver
from triton.runtime import interpreter as stock

from kernelwright.worker import libdevice
from kernelwright.worker.stub_driver import StubDriver
from kernelwright.worker.wire import EnvironmentProblem

ESSENTIAL: dict[str, tuple[str, ...]] = {
    "InterpreterBuilder": (
        *("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas", "create_addptr"),
        *("create_dot", "cast_impl", "create_fp_to_fp", "create_fabs", "binary_op", "ternary_op", "unary_op"),
        *("create_splat", "create_broadcast", "create_expand_dims", "create_reshape", "create_trans", "set_grid_idx"),
    ),
    "GridExecutor": ("__call__", "_init_args_hst", "_restore_args_dev"),
    "InterpretedFunction": ("__call__", "rewrite"),
    "FunctionRewriter": ("_compile_and_exec",),
    "ReduceOps": ("generic_reduce", "apply_impl", "min_max", "to_tensor"),
    "ScanOps": ("generic_scan",),
}
"""What this module and the sanitizer replace or call, by class."""
ESSENTIAL_FUNCTIONS = ("TensorHandle", "interpreter_builder", "_implicit_cvt", "_patch_lang")

_NARROW_FLOATS = {
    name: np.dtype(getattr(ml_dtypes, held))
    for name, held in {
        "bf16": "bfloat16",
        "fp8e4nv": "float8_e4m3fn",
        "fp8e5": "float8_e5m2",
        "fp8e4b8": "float8_e4m3fnuz",
        "fp8e5b16": "float8_e5m2fnuz",
    }.items()
}
"""Triton's names for the types that numpy itself lacks."""
_RAW = {held: np.dtype(f"uint{8 * held.itemsize}") for held in _NARROW_FLOATS.values()}

Handle = stock.TensorHandle


def check_hooks() -> None:
    """Whether the installed Triton's interpreter has the places that are mended.

    Raises:
        EnvironmentProblem: it lacks one.
    """
    wanted = [(getattr(stock, name, None), name, names) for name, names in ESSENTIAL.items()]
    missing = [f"{name}.{entry}" for holder, name, names in wanted for entry in names if not hasattr(holder, entry)]
    missing += [name for name in ESSENTIAL_FUNCTIONS if not hasattr(stock, name)]
    if missing:
        raise EnvironmentProblem(
            f"the interpreter of triton {triton.__version__} lacks {', '.join(missing[:4])}, which checking without a GPU "
            "needs: Triton 3.2 to 3.9 have it; install the one that your torch asks for, or check on a machine with a GPU"
        )


def mend() -> None:
    """Put every mend in place, once a process, before any kernel runs."""
    check_hooks()
    np.seterr(all="ignore")  # a GPU does not complain of overflow or 0/0
    driver.set_active(StubDriver())
    builder = stock.interpreter_builder
    changes = {
        name: value
        for name, value in {"debug": True, "sanitize_overflow": False}.items()
        if hasattr(builder.options, name)
    }
    builder.options = dataclasses.replace(builder.options, **changes)
    stock._get_np_dtype = _held_as
    stock._implicit_cvt = _convert_argument
    for name, function in _BUILDER.items():
        setattr(stock.InterpreterBuilder, name, function)
    stock.ReduceOps.generic_reduce = _reduce
    stock.ReduceOps.apply_impl = _apply_reduction
    stock.ScanOps.generic_scan = _scan
    stock._patch_lang = _patch_language
    stock.InterpretedFunction.__call__ = _call_device_function
    stock.FunctionRewriter._compile_and_exec = _compile_kernel
    libdevice.install(_call_libdevice)
    if hasattr(stock, "RESERVED_KWS"):  # Triton 3.2 forgot some of what its own autotuner passes
        stock.RESERVED_KWS += ["num_buffers_warp_spec", "num_consumer_groups", "reg_dec_producer", "reg_inc_consumer"]
    stock._implicit_cvt(1)  # imports what Triton imports at the first launch, before a fork rather than after each


# --- Types -----------------------------------------------------------------------------------------------------------

_stock_np_dtype = stock._get_np_dtype
_stock_convert_argument = stock._implicit_cvt


def _held_as(kind: Any) -> np.dtype[Any]:
    """The numpy dtype that holds a Triton type."""
    scalar = kind.element_ty if isinstance(kind, tl.block_type) else kind
    narrow = None if isinstance(scalar, tl.pointer_type) else _NARROW_FLOATS.get(getattr(scalar, "name", ""))
    return _stock_np_dtype(kind) if narrow is None else narrow


def _convert_argument(argument: Any) -> Any:
    """A kernel's argument as a value of Triton's: floats are fp32 scalars, as a GPU gets them."""
    if isinstance(argument, bool):
        return tl.tensor(Handle(np.array([argument], np.bool_), tl.int1), tl.int1)
    if isinstance(argument, float):
        return tl.tensor(Handle(np.array([argument], np.float32), tl.float32), tl.float32)
    return _stock_convert_argument(argument)


def _cast(self: Any, value: Any, kind: Any) -> Any:
    """Between any two types, through float32 where one of them is narrow; rounds to the nearest, ties to even."""
    held, data = _held_as(kind.scalar), value.data
    if data.dtype in _RAW and held != data.dtype:
        data = data.astype(np.float32)
    if held in _RAW and data.dtype not in (np.float32, np.float64):
        data = data.astype(np.float32)
    return Handle(data.astype(held), kind.scalar)


def _cast_float(self: Any, value: Any, kind: Any, rounding: Any = None) -> Any:
    if getattr(rounding, "name", "") == "RTZ" and _held_as(kind.scalar) == _NARROW_FLOATS["bf16"]:
        bits = np.ascontiguousarray(value.data, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return Handle(bits.view(np.float32).astype(_NARROW_FLOATS["bf16"]), kind.scalar)
    return _cast(self, value, kind)


def _constant_bf16(self: Any, value: float) -> Any:
    return Handle(np.array([value], _NARROW_FLOATS["bf16"]), tl.bfloat16)


# --- Memory ----------------------------------------------------------------------------------------------------------


def _load(self: Any, pointers: Any, mask: Any, other: Any, *modifiers: Any, **named: Any) -> Any:
    kind = pointers.get_element_ty()
    held = _held_as(kind)
    raw = _RAW.get(held, held)
    shape = pointers.data.shape
    fill = np.zeros(shape, held) if other is None else np.broadcast_to(other.data, shape).astype(held, copy=False)
    data = stock._interpreter.load(pointers.data, _mask(mask), np.ascontiguousarray(fill).view(raw), raw)
    return Handle(data.view(held), kind)


def _store(self: Any, pointers: Any, value: Any, mask: Any, *modifiers: Any, **named: Any) -> Any:
    data = value.data
    if data.dtype in _RAW:
        data = np.ascontiguousarray(data).view(_RAW[data.dtype])
    return stock._interpreter.store(pointers.data, data, _mask(mask))


def _mask(mask: Any) -> Any:
    """Block pointers hand over a bare array."""
    return getattr(mask, "data", mask) if not isinstance(mask, np.ndarray) else mask


_CELL = {1: ctypes.c_uint8, 2: ctypes.c_uint16}
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "FADD": lambda old, new: old + new,
    "MAX": max,
    "UMAX": max,
    "MIN": min,
    "UMIN": min,
    "XCHG": lambda old, new: new,
}
_stock_atomic = stock.InterpreterBuilder.create_atomic_rmw


def _atomic(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *order: Any) -> Any:
    """Read-modify-write; lane by lane for the types that the stock code does not know."""
    held, name = value.data.dtype, str(operation).rsplit(".", 1)[-1]
    known = held not in _RAW and not (held == np.float16 and name in ("MAX", "MIN", "UMAX", "UMIN"))
    if known or name not in _COMBINE:
        return _stock_atomic(self, operation, pointers, value, mask, *order)
    shape = pointers.data.shape
    values, lanes = np.broadcast_to(value.data, shape).ravel(), np.broadcast_to(mask.data, shape).ravel()
    old = np.zeros(values.shape, held)
    for lane in np.nonzero(lanes)[0]:
        address = int(pointers.data.ravel()[lane])
        cell = np.ctypeslib.as_array(_CELL[held.itemsize].from_address(address)).reshape(1).view(held)
        old[lane] = cell[0]
        cell[0] = held.type(_COMBINE[name](cell[0], values[lane]))
    return Handle(old.reshape(shape), value.dtype.scalar)


# --- Arithmetic ------------------------------------------------------------------------------------------------------


def _absolute(self: Any, value: Any) -> Any:
    return Handle(np.abs(value.data), value.dtype.scalar)


def _dot(self: Any, a: Any, b: Any, c: Any, input_precision: Any, *rest: Any, **named: Any) -> Any:
    """a @ b + c with float32 accumulation, and with TF32's ten bits of mantissa where a GPU would use it."""
    left, right, start = _widen(a.data), _widen(b.data), _widen(c.data)
    precision = getattr(input_precision, "name", str(input_precision)).upper()
    if a.data.dtype == np.float32 and precision == "TF32":
        left, right = _round_to_tf32(left), _round_to_tf32(right)
    product = np.matmul(left, right, dtype=start.dtype) + start
    return Handle(product.astype(c.data.dtype), c.dtype.scalar)


def _widen(data: Any) -> Any:
    return data.astype(np.float32) if data.dtype in _RAW or data.dtype == np.float16 else data


def _round_to_tf32(data: Any) -> Any:
    bits = np.ascontiguousarray(data, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def _libdevice(self: Any, function: Callable[..., Any], *handles: Any) -> Any:
    """An elementwise function of numpy's on handles; booleans come back as int32, as libdevice gives them."""
    widest = max(handles, key=lambda handle: handle.data.size)
    data = np.asarray(function(*(handle.data for handle in handles)))
    if data.dtype == np.bool_:
        return Handle(data.astype(np.int32), tl.int32)
    return Handle(data.astype(widest.data.dtype), widest.dtype.scalar)


def _to_tensor(value: Any) -> Any:
    semantic = getattr(stock, "interpreter_semantic", None)
    if semantic is not None:
        return semantic.to_tensor(value)
    return tl.semantic.to_tensor(value, stock.interpreter_builder)  # the older Triton


def _call_libdevice(function: Callable[..., Any], *arguments: Any) -> Any:
    tensors = [_to_tensor(argument) for argument in arguments]
    handle = stock.interpreter_builder.create_libdevice(function, *(tensor.handle for tensor in tensors))
    shape = max((tensor.shape for tensor in tensors), key=len)
    return tl.tensor(handle, tl.block_type(handle.dtype, list(shape)) if shape else handle.dtype)


_BUILDER: dict[str, Any] = {
    "cast_impl": _cast,
    "create_fp_to_fp": _cast_float,
    "get_bf16": _constant_bf16,
    "create_masked_load": _load,
    "create_masked_store": _store,
    "create_atomic_rmw": _atomic,
    "create_fabs": _absolute,
    "create_dot": _dot,
    "create_libdevice": _libdevice,
}


# --- Reductions and scans --------------------------------------------------------------------------------------------

_stock_apply_reduction = stock.ReduceOps.apply_impl


def _apply_reduction(self: Any, values: Any) -> Any:
    """numpy's argmin and argmax find a NaN, a GPU's comparison passes over it: with NaN, do what the function says."""
    standard = tl.standard
    names = ("_argmin_combine_tie_break_left", "_argmax_combine_tie_break_left")
    by_index = self.combine_fn in [getattr(standard, name, None) for name in names]
    data = values[0].handle.data
    if by_index and data.dtype.kind == "f" and np.isnan(data).any():
        return _reduce(self, values)
    return _stock_apply_reduction(self, values)


def _block(data: Any, kind: Any) -> Any:
    return tl.tensor(Handle(np.ascontiguousarray(data), kind), tl.block_type(kind, list(data.shape)))


def _combine(self: Any, left: list[Any], right: list[Any], kinds: list[Any]) -> list[Any]:
    """The user's function on whole arrays at once."""
    arguments = [_block(data, kind) for data, kind in zip(left + right, kinds + kinds, strict=True)]
    result = self.combine_fn.fn(*arguments)
    return [item.handle.data for item in (result if isinstance(result, tuple) else (result,))]


def _reduce(self: Any, values: Any) -> Any:
    """Pairwise, as a GPU does it: halve the axis until one element is left. Triton's sizes are powers of two."""
    whole = self.axis is None
    rank, axis = values[0].handle.data.ndim, 0 if whole else self.axis
    kinds = [value.dtype for value in values]
    arrays = [np.moveaxis(value.handle.data.ravel() if whole else value.handle.data, axis, -1) for value in values]
    while (size := arrays[0].shape[-1]) > 1:
        half = size // 2
        arrays = _combine(self, [a[..., :half] for a in arrays], [a[..., half:] for a in arrays], kinds)
    results = []
    for array, kind in zip(arrays, kinds, strict=True):
        data = array[..., 0]
        if self.keep_dims:
            data = data.reshape([1] * rank) if whole else np.expand_dims(data, axis)
        results.append(self.to_tensor(data if data.ndim else data.item(), kind))
    return results if len(results) > 1 else results[0]


def _scan(self: Any, values: Any) -> Any:
    """Inclusive scan by doubling (Hillis and Steele): log2(n) steps on whole arrays."""
    kinds = [value.dtype for value in values]
    arrays = [np.moveaxis(value.handle.data, self.axis, -1) for value in values]
    size, step = arrays[0].shape[-1], 1
    while (
        step < size
    ):  # whole arrays, because Triton's sizes are powers of two; the first `step` lanes stay as they are
        combined = _combine(self, [np.roll(a, step, axis=-1) for a in arrays], arrays, kinds)
        arrays = [
            np.concatenate([a[..., :step], b[..., step:]], axis=-1) for a, b in zip(arrays, combined, strict=True)
        ]
        step *= 2
    return [self.to_tensor(np.moveaxis(a, -1, self.axis), kind) for a, kind in zip(arrays, kinds, strict=True)]


# --- Functions -------------------------------------------------------------------------------------------------------

_stock_patch_language = stock._patch_lang


def _patch_language(function: Any) -> Any:
    """Patch the language for a launch as a whole, so that device functions need not do it again at every call."""
    return _stock_patch_language(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))


def _call_device_function(self: Any, *arguments: Any, **named: Any) -> Any:
    """Call a device function from a kernel; what it raises is told by the launch."""
    return self.rewrite()(*arguments, **named)


def _compile_kernel(self: Any, tree: Any) -> Any:
    """Compile a rewritten kernel in its own module's globals, with the names that the rewriting puts in."""
    namespace = dict(self.kwargs)
    module = self.fn.__globals__
    for name in ("interpreter_semantic", "interpreter_builder", "triton"):
        if hasattr(stock, name):
            module.setdefault(name, getattr(stock, name))
    exec(compile(tree, filename=self.filename, mode="exec", dont_inherit=True), module, namespace)
    return namespace[self.fn.__name__]
