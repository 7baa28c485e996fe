"""K109: kernels read no plain globals, and autotuning does not spoil what they update in place."""

from __future__ import annotations

import ast

from kernelwright.checks.reading import Reading, finding, read
from kernelwright.model import Candidate, Finding, Task
from kernelwright.ports import TritonApi
from kernelwright.source.rename import module_names

_ATOMICS = (
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "atomic_and",
    "atomic_or",
    "atomic_xor",
    "atomic_cas",
    "atomic_xchg",
)


def kernel_scope(candidate: Candidate, task: Task, api: TritonApi) -> Finding | None:
    """Each kernel in turn."""
    reading = read(candidate.source)
    plain = _plain_globals(reading)
    for kernel in reading.kernels.values():
        local = {argument.arg for argument in ast.walk(kernel.args) if isinstance(argument, ast.arg)}
        local |= module_names(ast.Module(kernel.body, []))
        for part in (part for statement in kernel.body for part in ast.walk(statement)):
            if isinstance(part, ast.Name) and part.id in plain and part.id not in local:
                message = f"{kernel.name} reads the global {part.id}: make it a tl.constexpr or a parameter"
                return finding("K109", f"{message}, since Triton refuses plain globals", part)
        spoiled = _spoiled(reading, kernel)
        if spoiled:
            return spoiled
    return None


def _plain_globals(reading: Reading) -> set[str]:
    """Module-level variables that are no tl.constexpr."""
    plain: set[str] = set()
    for node in reading.tree.body:
        if isinstance(node, ast.Assign):
            names = {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
            constant = isinstance(node.value, ast.Call) and (reading.dotted(node.value.func) or "").endswith(
                ".constexpr"
            )
            # A dtype under a short name (`F32 = tl.float32`) is as good as the name itself.
            alias = isinstance(node.value, ast.Attribute) and (reading.dotted(node.value) or "").startswith("triton.")
            plain |= set() if constant or alias else names
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            plain |= set() if (reading.dotted(node.annotation) or "").endswith(".constexpr") else {node.target.id}
    return plain


def _spoiled(reading: Reading, kernel: ast.FunctionDef) -> Finding | None:
    """Autotuning runs a kernel many times: what it updates in place must be restored before each."""
    for decorator in kernel.decorator_list:
        if not isinstance(decorator, ast.Call) or reading.dotted(decorator.func) not in (
            "triton.autotune",
            "triton.runtime.autotune",
        ):
            continue
        given = {
            constant.value
            for keyword in decorator.keywords
            if keyword.arg in ("restore_value", "reset_to_zero")
            for constant in ast.walk(keyword.value)
            if isinstance(constant, ast.Constant)
        }
        missing = sorted(_updated(reading, kernel) - given)
        if missing:
            names = ", ".join(missing)
            message = f"{kernel.name} is autotuned and updates {names} in place: give restore_value={missing!r}"
            return finding(
                "K109", f"{message} to @triton.autotune, else {names} is updated once a configuration", decorator
            )
    return None


def _updated(reading: Reading, kernel: ast.FunctionDef) -> set[str]:
    """The pointer parameters that the kernel both reads and writes, or updates atomically."""
    parameters = {argument.arg for argument in kernel.args.args}
    origins = _origins(kernel, parameters)
    read_, written, atomic = set[str](), set[str](), set[str]()
    for node in ast.walk(kernel):
        name = (reading.dotted(node.func) or "").rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or not node.args:
            continue
        pointers = _roots(node.args[0], parameters, origins)
        if name == "load":
            read_ |= pointers
        elif name == "store":
            written |= pointers
        elif name in _ATOMICS:
            atomic |= pointers
    return (read_ & written) | atomic


def _origins(kernel: ast.FunctionDef, parameters: set[str]) -> dict[str, set[str]]:
    """Local name → the pointer parameters that it is computed from, through any number of assignments."""
    origins: dict[str, set[str]] = {}
    assignments = [node for node in ast.walk(kernel) if isinstance(node, ast.Assign | ast.AugAssign)]
    for _ in range(len(assignments) + 1):
        before = {name: set(found) for name, found in origins.items()}
        for node in assignments:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    origins.setdefault(target.id, set()).update(_roots(node.value, parameters, origins))
        if origins == before:
            break
    return origins


def _roots(node: ast.expr, parameters: set[str], origins: dict[str, set[str]]) -> set[str]:
    """The pointer an address is built on: the leftmost name of a sum, followed through assignments."""
    while isinstance(node, ast.BinOp):
        node = node.left
    if not isinstance(node, ast.Name):
        return set()
    return ({node.id} if node.id in parameters else set()) | origins.get(node.id, set())
