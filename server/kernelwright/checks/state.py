"""K108: nothing is kept from one call to the next: no cache, no buffer, no counter at module level."""

from __future__ import annotations

import ast

from kernelwright.checks.reading import Reading, finding, read
from kernelwright.model import Candidate, Finding, Task
from kernelwright.ports import TritonApi

_CONTAINERS = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
_MAKERS = frozenset({"list", "dict", "set", "bytearray", "defaultdict", "deque", "OrderedDict", "Counter"})
_CONSTANT_CALLS = frozenset({"torch.device", "torch.finfo", "torch.iinfo", "torch.Size"})


def state(candidate: Candidate, task: Task, api: TritonApi) -> Finding | None:
    """Mutable values at module level that a host function reads, mutable defaults, buffers made at import."""
    reading = read(candidate.source)
    for function in reading.functions.values():
        for default in (*function.args.defaults, *filter(None, function.args.kw_defaults)):
            if _mutable(default):
                return finding(
                    "K108", f"{function.name} keeps state in a mutable default: make it anew in each call", default
                )
    read_by_host = {
        part.id for function in reading.functions.values() for part in ast.walk(function) if isinstance(part, ast.Name)
    }
    for node in reading.tree.body:
        for name, value in _bindings(node):
            if _touches_torch(reading, value):
                return finding("K108", f"{name} asks torch at import: do it in the launcher, for each call", node)
            if name in read_by_host and _mutable(value):
                return finding(
                    "K108", f"{name} is mutable and the launcher uses it: a call must not depend on another", node
                )
    return None


def _bindings(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        return [(ast.unparse(target), node.value) for target in node.targets]
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return [(ast.unparse(node.target), node.value)]
    return []


def _mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        name = value.func.id if isinstance(value.func, ast.Name) else getattr(value.func, "attr", "")
        return name in _MAKERS
    return isinstance(value, _CONTAINERS)


def _touches_torch(reading: Reading, value: ast.expr) -> bool:
    """Whether a module-level value calls into torch or Triton's driver: it would also need a GPU to import."""
    for part in ast.walk(value):
        dotted = reading.dotted(part.func) if isinstance(part, ast.Call) else None
        if dotted and dotted.split(".")[0] == "torch" and dotted not in _CONSTANT_CALLS:
            return True
        if dotted and dotted.startswith("triton.runtime.driver"):
            return True
    return False
