"""A candidate and the guard of its checked domain as one self-contained module that imports torch, triton and math only."""

from __future__ import annotations

import ast
import re

from kernelwright.model import Domain, Target
from kernelwright.source.guard import render_guard
from kernelwright.source.paths import Names
from kernelwright.source.rename import module_names, rename
from kernelwright.source.syntax import Text

GUARD_START = "# --- where the kernel runs: made from what was checked ---"
GUARD_END = "# --- end of where the kernel runs ---"
OWN_SUPPORTS = "_candidate_supports"
_GUARD = re.compile(rf"\n*{re.escape(GUARD_START)}\n.*?{re.escape(GUARD_END)}\n?", re.DOTALL)


def assemble(candidate_source: str, target: Target, domain: Domain) -> str:
    """The module. A guard that an earlier assembly left is replaced; the candidate's own `supports` stays a condition.

    Raises:
        ValueError: the candidate does not parse or has no kernel: the static checks let no such candidate pass.
    """
    source = _GUARD.sub("\n", candidate_source.replace("\r\n", "\n")).strip("\n") + "\n"
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ValueError(f"the candidate does not parse: {error}") from error
    if target.name != "supports" and "supports" in module_names(tree):
        source = rename(source, {"supports": OWN_SUPPORTS})
    source = _with_imports(source, ("math", "torch", "triton"))
    tree = ast.parse(source)
    kernel = kernel_expression(tree)
    if kernel is None:
        raise ValueError("the candidate has no Triton kernel")
    own = OWN_SUPPORTS if OWN_SUPPORTS in module_names(tree) else ""
    prefix = guard_prefix(tree)
    guard = render_guard(target, domain, kernel, prefix=prefix, any_device=switches_device(tree), extra=own)
    source = _with_imports(source, ("math",) if "math." in guard else ())
    return f"{_without_unused_imports(source, guard)}\n\n{GUARD_START}\n{guard}{GUARD_END}\n"


def kernels(tree: ast.Module) -> list[ast.FunctionDef]:
    """The module-level functions that are decorated with triton.jit, under whatever else."""
    return [node for node in tree.body if isinstance(node, ast.FunctionDef) and any(map(is_jit, node.decorator_list))]


def is_jit(decorator: ast.expr) -> bool:
    """Whether a decorator is triton.jit, bare or called."""
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    return ast.unparse(decorator) in ("triton.jit", "jit", "triton.runtime.jit")


def kernel_expression(tree: ast.Module) -> str | None:
    """An expression for the first kernel's jitted function: `.fn` for each decorator around triton.jit."""
    for node in kernels(tree):
        around = next(index for index, decorator in enumerate(node.decorator_list) if is_jit(decorator))
        return node.name + ".fn" * around
    return None


def guard_prefix(tree: ast.Module) -> str:
    """The shortest prefix with which none of the guard's names is taken."""
    taken = module_names(tree)
    clash = any(name.startswith(("_why_not", "_interpreted", "_overlaps", "_is_dense")) for name in taken)
    return Names(taken).fresh("guard") if clash else ""


def switches_device(tree: ast.Module) -> bool:
    """Whether the launcher makes the tensors' device the current one itself."""
    return any(
        isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.cuda.device", "torch.cuda.device_of")
        for node in ast.walk(tree)
    )


def _with_imports(source: str, modules: tuple[str, ...]) -> str:
    """The source with plain imports of what it does not import yet, after its last import or docstring."""
    tree = ast.parse(source)
    bound = module_names(tree)
    missing = [name for name in modules if name not in bound]
    if not missing:
        return source
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    docstring = ast.get_docstring(tree, clean=False) is not None
    after = (imports[-1].end_lineno if imports else tree.body[0].end_lineno if docstring else 0) or 0
    lines = source.split("\n")
    added = [f"import {name}" for name in missing]
    return "\n".join([*lines[:after], *added, *lines[after:]])


def _without_unused_imports(source: str, guard: str) -> str:
    """The source without plain one-name imports that neither it nor the guard uses."""
    text, tree = Text(source), ast.parse(source)
    used = {node.id for part in (tree, ast.parse(guard)) for node in ast.walk(part) if isinstance(node, ast.Name)}
    drop = {
        node.lineno - 1
        for node in tree.body
        if isinstance(node, ast.Import)
        and len(node.names) == 1
        and (node.names[0].asname or node.names[0].name).split(".")[0] not in used
        and text.bare(node.lineno - 1).strip() == ast.unparse(node)
    }
    return "".join(line for number, line in enumerate(text.lines) if number not in drop)
