"""K105: every name of Triton's that the candidate uses exists in the user's Triton."""

from __future__ import annotations

import ast
import difflib

from kernelwright.checks.reading import LIBDEVICE, Reading, finding, read
from kernelwright.model import Candidate, Finding, Task
from kernelwright.ports import TritonApi

# Names of other libraries and of older Tritons, with what they are called now.
RENAMED = {
    "arctan2": "libdevice.atan2",
    "arctan": "libdevice.atan",
    "power": "libdevice.pow",
    "sign": "tl.where(x > 0, 1, tl.where(x < 0, -1, 0))",
    "float": "tl.float32",
    "half": "tl.float16",
    "double": "tl.float64",
    "int": "tl.int32",
    "long": "tl.int64",
    "bool": "tl.int1",
    "amax": "tl.max",
    "amin": "tl.min",
    "mean": "tl.sum(x) / n",
    "matmul": "tl.dot",
    "gelu": "libdevice.erf",
    "relu": "tl.maximum(x, 0)",
    "silu": "x * tl.sigmoid(x)",
    "concat": "tl.join",
    "arange_like": "tl.arange",
    "ones": "tl.full",
    "pow": "libdevice.pow",
    "uint8_t": "tl.uint8",
    "range": "range, tl.range or tl.static_range",
}


def api_names(candidate: Candidate, task: Task, api: TritonApi) -> Finding | None:
    """Dotted names that start at an import of Triton's, and the imports themselves."""
    reading = read(candidate.source)
    for node in ast.walk(reading.tree):
        dotted = reading.dotted(node) if isinstance(node, ast.Attribute) else None
        missing = _missing(dotted, api) if dotted else None
        if (
            missing is None
            and isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "triton"
        ):
            missing = next(filter(None, (_missing(f"{node.module}.{alias.name}", api) for alias in node.names)), None)
        if missing:
            module, name = missing
            hint = _hint(name, module, reading, api)
            shown = _as_written(module, name, reading)
            return finding("K105", f"{shown} does not exist in triton {api.version}{hint}", node)
    return None


def _missing(dotted: str, api: TritonApi) -> tuple[str, str] | None:
    """(module, name) of the part that does not exist; None when all does, or when it is not known."""
    if not dotted.startswith("triton.") or "triton" not in api.modules:
        return None
    module = max(
        (known for known in api.modules if dotted.startswith(f"{known}.")),
        key=lambda known: len(known),
        default="triton",
    )
    name = dotted[len(module) + 1 :].split(".")[0]
    children = {
        known.removeprefix(f"{module}.").split(".")[0] for known in api.modules if known.startswith(f"{module}.")
    }
    return None if name in api.modules[module] | children or name.startswith("_") else (module, name)


def _as_written(module: str, name: str, reading: Reading) -> str:
    alias = next((alias for alias, origin in reading.imports.items() if origin == module), module)
    return f"{alias}.{name}"


def _hint(name: str, module: str, reading: Reading, api: TritonApi) -> str:
    library = next((known for known in LIBDEVICE if name in api.modules.get(known, frozenset())), None)
    if library and module != library:
        return f"; use libdevice.{name} (from triton.language.extra import libdevice)"
    if name in RENAMED:
        return f"; use {RENAMED[name]}"
    elsewhere = [known for known, names in api.modules.items() if name in names and known != module]
    if elsewhere:
        return f"; use {_as_written(elsewhere[0], name, reading)}"
    close = difflib.get_close_matches(name, sorted(api.modules[module]), 1, 0.75)
    return f"; did you mean {_as_written(module, close[0], reading)}?" if close else "; write it with what there is"
