"""The names that the installed Triton has, for the static check that every `tl.*` of a candidate exists."""

from __future__ import annotations

import importlib
import types
from typing import Any

from kernelwright.worker.environment import Toolchain

MODULES = (
    "triton",
    "triton.language",
    "triton.language.core",
    "triton.language.math",
    "triton.language.standard",
    "triton.language.random",
    "triton.language.extra",
    "triton.language.extra.libdevice",
    "triton.language.extra.cuda",
    "triton.language.extra.cuda.libdevice",
    "triton.language.extra.hip",
    "triton.language.extra.hip.libdevice",
    "triton.runtime",
    "triton.testing",
    "triton.tools.tensor_descriptor",
)


def triton_api(tools: Toolchain) -> dict[str, Any]:
    """The wire form of ports.TritonApi: {"version", "modules": {module: [names]}}; absent modules are left out.

    "triton.language.tensor" and "triton.language.dtype" list the methods that a value and a type have in a kernel.
    """
    modules: dict[str, list[str]] = {}
    for name in MODULES:
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        modules[name] = _public(module)
    language = importlib.import_module("triton.language")
    for name in ("tensor", "dtype"):
        modules[f"triton.language.{name}"] = _public(getattr(language, name))
    return {"version": tools.triton, "modules": modules}


def _public(holder: Any) -> list[str]:
    """Public names, but not the modules that a module happened to import from elsewhere."""
    names = []
    for name in dir(holder):
        value = getattr(holder, name, None)
        foreign = isinstance(value, types.ModuleType) and not value.__name__.startswith("triton")
        if not name.startswith("_") and not foreign:
            names.append(name)
    return names
