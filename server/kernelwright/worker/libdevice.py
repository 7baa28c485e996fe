"""`libdevice.*` in numpy: under Triton's interpreter these functions return None."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

_MODULES = (
    "triton.language.extra.libdevice",
    "triton.language.extra.cuda.libdevice",
    "triton.language.extra.hip.libdevice",
)


def _exactly(function: Callable[[float], float]) -> Any:
    return np.vectorize(function, otypes=[np.float64])


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except ValueError:  # a pole
        return math.inf


def _tgamma(x: float) -> float:
    try:
        return math.gamma(x)
    except (ValueError, OverflowError):
        return math.nan if x <= 0 else math.inf


_EXACT: dict[str, Any] = {
    "erf": _exactly(math.erf),
    "erfc": _exactly(math.erfc),
    "lgamma": _exactly(_lgamma),
    "tgamma": _exactly(_tgamma),
    "normcdf": _exactly(lambda x: 0.5 * math.erfc(-x / math.sqrt(2.0))),
}
_SAME_NAME = (
    *(
        "tanh",
        "sinh",
        "cosh",
        "exp",
        "expm1",
        "exp2",
        "log",
        "log1p",
        "log2",
        "log10",
        "sin",
        "cos",
        "tan",
        "cbrt",
        "sqrt",
    ),
    *("floor", "ceil", "trunc", "rint", "isnan", "isinf", "hypot", "copysign", "fmax", "fmin", "fmod"),
)
_RENAMED: dict[str, Any] = {
    "abs": np.abs,
    "fabs": np.abs,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "nearbyint": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp10": lambda x: np.power(np.array(10, x.dtype), x),
    "round": lambda x: np.trunc(x + np.copysign(np.array(0.5, x.dtype), x)),
    "fdim": lambda x, y: np.maximum(x - y, 0),
    "fma": lambda x, y, z: x * y + z,
    "finitef": np.isfinite,
    "isfinited": np.isfinite,
    "signbit": np.signbit,
    "div_rn": np.divide,
    "fast_dividef": np.divide,
    "fast_expf": np.exp,
    "fast_exp10f": lambda x: np.power(np.array(10, x.dtype), x),
    "fast_logf": np.log,
    "fast_log2f": np.log2,
    "fast_log10f": np.log10,
    "fast_powf": np.power,
    "fast_tanhf": np.tanh,
    "fast_sinf": np.sin,
    "fast_cosf": np.cos,
    "fast_tanf": np.tan,
}
FUNCTIONS: dict[str, Any] = {**{name: getattr(np, name) for name in _SAME_NAME}, **_RENAMED, **_EXACT}


def install(call: Callable[..., Any]) -> None:
    """Make every libdevice function that is known here `call(function, *arguments)`; the rest says that it is missing."""
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for function in [name for name in dir(module) if not name.startswith("_")]:
            value = getattr(module, function)
            if callable(value) and getattr(value, "__module__", "") == module.__name__:
                setattr(module, function, _bind(call, function))


def _bind(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    def function(*arguments: Any, **options: Any) -> Any:
        if name not in FUNCTIONS:
            raise NotImplementedError(f"libdevice.{name} cannot be checked without a GPU")
        return call(FUNCTIONS[name], *arguments)

    function.__name__ = name
    return function
