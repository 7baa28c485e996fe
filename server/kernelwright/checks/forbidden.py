"""K103: nothing in the candidate reaches outside it, runs text as code, or changes torch or Triton.

A first fence that gives a clear message. The sandbox is the one that holds.
"""

from __future__ import annotations

import ast
import re

from kernelwright.checks.reading import Reading, finding, read
from kernelwright.model import Candidate, Finding, Task
from kernelwright.ports import TritonApi

NAMES = frozenset(
    {"exec", "eval", "compile", "open", "input", "breakpoint", "globals", "locals", "vars", "setattr", "delattr", "dir"}
) | {"__import__", "__builtins__", "__loader__", "__spec__"}  # fmt: skip
MODULES = frozenset(
    {"os", "sys", "ctypes", "inspect", "gc", "subprocess", "builtins", "importlib", "threading", "multiprocessing"}
    | {"pickle", "socket", "shutil", "pathlib", "io", "signal", "weakref", "types", "atexit", "tempfile", "asyncio"}
)
# The guard that we write ourselves asks these two questions; see source/guard.py.
PERMITTED = (
    "torch._C._functorch.peek_interpreter_stack",
    "torch.autograd.forward_ad._current_level",
    "torch.jit.is_tracing",
)
DOTTED = re.compile(
    r"torch\.(ops|classes|library|compile|load|save|serialization|hub|package|distributed|multiprocessing|utils|_\w+|fx"
    r"|overrides|export|jit|set_\w+|manual_seed|from_file|cuda\.(memory|graphs|jiterator|set_\w+)"
    r"|autograd\.(Function|function|graph)|backends)\b"
    r"|triton\.(compiler|compile|backends|tools|knobs|runtime\.(jit|cache|build|interpreter)|language\.(core|semantic)\._\w+)\b"
)


def forbidden(candidate: Candidate, task: Task, api: TritonApi) -> Finding | None:
    """Every node of the module."""
    reading = read(candidate.source)
    nodes = list(ast.walk(reading.tree))
    # Of a.b.c only the whole is judged: what is allowed is allowed as a whole.
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and id(node) in inner:
            continue
        found = _name(node) or _attribute(reading, node) or _assignment(reading, node) or _construct(node)
        if found:
            return finding("K103", found, node)
    for node in reading.tree.body:
        if isinstance(node, ast.For | ast.While | ast.With | ast.Try | ast.Delete | ast.Assert | ast.Raise) or (
            isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        ):
            return finding("K103", "runs code when it is imported: keep to imports, constants and functions", node)
    return None


def _name(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Name):
        return None
    if node.id in NAMES:
        return f"uses {node.id}: a kernel needs no such thing; drop it"
    return f"uses the module {node.id}: only torch, triton and math are there; drop it" if node.id in MODULES else None


def _attribute(reading: Reading, node: ast.AST) -> str | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr" and node.args:
        name = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else "_"
        if str(name).startswith("_") or reading.dotted(node.args[0]) is not None:
            return "uses getattr in place of a plain attribute: write the attribute out"
    if not isinstance(node, ast.Attribute):
        return None
    attributes = [part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)]
    hidden = next((name for name in attributes if name.startswith("__")), None)
    if hidden:
        return f"reads {hidden}: attributes with two underscores are not for kernels; drop it"
    dotted = reading.dotted(node)
    if dotted is None or dotted in PERMITTED:
        return None
    if DOTTED.match(dotted):
        return f"uses {dotted}: the launcher may allocate outputs and launch kernels, nothing else; drop it"
    through = next((name for name in attributes if name in MODULES), None)
    return f"reaches the module {through} through {dotted}: drop it" if through else None


def _assignment(reading: Reading, node: ast.AST) -> str | None:
    """Monkeypatching: an attribute of a module, of a function or of a kernel is set."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = [part for target in node.targets for part in ast.walk(target) if isinstance(part, ast.expr)]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    for target in targets:
        if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store | ast.Del):
            return f"sets {ast.unparse(target)}: a candidate changes no attribute of anything; drop it"
        if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store) and target.id in reading.imports:
            return f"binds the imported name {target.id} anew: choose another name"
    return None


def _construct(node: ast.AST) -> str | None:
    if isinstance(node, ast.Global | ast.Nonlocal):
        return (
            f"declares {', '.join(node.names)} {type(node).__name__.lower()}: a launcher keeps no state between calls"
        )
    if isinstance(node, ast.ClassDef):
        return f"defines the class {node.name}: functions are enough; drop it"
    if isinstance(node, ast.Yield | ast.YieldFrom):
        return "is a generator: return the result instead"
    if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
        return "catches exceptions: let them reach the caller"
    return None
