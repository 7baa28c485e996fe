"""The provider: one module of text for all variants that can be generated, and what it claims to cover."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.model import (
    Candidate,
    Fixed,
    Generating,
    Graph,
    Refusal,
    Refuted,
    Target,
    Task,
    TensorDomain,
    Variant,
)
from kernelwright.ports import Report
from kernelwright.providers.builtin import helpers, ops_collective, ops_complex, ops_pointwise, ops_views
from kernelwright.providers.builtin.dispatch import dispatch
from kernelwright.providers.builtin.ir import FLOATS, Unsupported
from kernelwright.providers.builtin.launcher import Generation, Module
from kernelwright.providers.builtin.texts import fold
from kernelwright.source.expressions import evaluate

OPS = (ops_pointwise, ops_views, ops_collective, ops_complex)
"""The tables of lowerings, imported so that they register."""
SUPPORTED = {*FLOATS, "int64", "int32", "int16", "int8", "uint8", "bool", ops_complex.COMPLEX}


@dataclass(frozen=True)
class BuiltinProvider:
    """Implements ports.Provider without a model: the same graphs always give the same text."""

    name: str = "builtin"

    async def draft(self, task: Task, tried: Sequence[Refuted], report: Report) -> Candidate | Refusal:
        """The module for all variants, or why there is none. It has one answer: a refuted one is not improved."""
        report(Generating(self.name, "", len(tried) + 1))
        if any(refuted.candidate.provider == self.name for refuted in tried):
            return Refusal(f"the built-in generator's kernel was refuted: {tried[-1].finding.message}")
        return generate(task)


def generate(task: Task) -> Candidate | Refusal:
    """The candidate for the task's graphs; a Refusal when the first graph, or none, can be generated."""
    made: list[tuple[Graph, Module]] = []
    notes: list[str] = []
    first: Refusal | None = None
    for position, graph in enumerate(task.graphs):
        outcome = graph.refusal or needless(graph, [known for known, _ in made]) or _variant(task.target, graph)
        if isinstance(outcome, Refusal):
            first = first or outcome
            if position == 0:
                return outcome
            notes.append(f"calls {', '.join(map(str, graph.calls))} keep the original body: {outcome.reason}")
        else:
            made.append((graph, outcome))
    if not made:
        return first or Refusal("nothing was traced")
    source = assemble(task.target, made)
    # A variant of fixed dtypes comes before one that serves every floating dtype, whose lists would fit its tensors too.
    variants = tuple(sorted((claim(graph, module) for graph, module in made), key=lambda variant: variant.same_dtype))
    return Candidate(source, "builtin", entry=task.target.name, variants=variants, notes=tuple(notes))


def needless(graph: Graph, made: Sequence[Graph]) -> Refusal | None:
    """Why this variant needs no kernels of its own, once others have some."""
    if made and any(0 in placeholder.shape for placeholder in graph.placeholders):
        return Refusal("a tensor without elements needs no kernel")
    for known in made:
        if _is_case_of(graph, known):
            return Refusal(f"sizes of 1 are served by the kernels of call {known.calls[0]}")
    return None


def _is_case_of(graph: Graph, general: Graph) -> bool:
    """Whether `graph` is `general` with sizes of 1 for some symbols, the same for all tensors, within its guards."""
    pairs = list(zip(graph.placeholders, general.placeholders, strict=False))
    if len(graph.placeholders) != len(general.placeholders) or graph.fixed != general.fixed:
        return False
    sizes: dict[str, int] = {}
    for mine, theirs in pairs:
        if (mine.path, mine.dtype, len(mine.shape)) != (theirs.path, theirs.dtype, len(theirs.shape)):
            return False
        for here, there in zip(mine.shape, theirs.shape, strict=True):
            extent = here if isinstance(here, int) else graph.symbols.get(here)
            known = extent is not None and isinstance(there, str) and sizes.setdefault(there, extent) == extent
            if not known and here != there:
                return False
    values: dict[str, float] = {**general.symbols, **sizes}
    values |= {scalar.name: scalar.example for scalar in graph.scalars}
    return all(_holds(guard, values) for guard in general.guards)


def _holds(guard: str, values: dict[str, float]) -> bool:
    try:
        return bool(evaluate(guard, values))
    except (KeyError, ValueError, ZeroDivisionError, OverflowError):
        return False


def _variant(target: Target, graph: Graph) -> Module | Refusal:
    for placeholder in graph.placeholders:
        if placeholder.dtype not in SUPPORTED:
            return Refusal(
                f"{placeholder.path} is {placeholder.dtype}: the built-in generator has no {placeholder.dtype}"
            )
    try:
        return Generation(target, graph, main_dtype(graph)).run()
    except Unsupported as stop:
        return Refusal(stop.reason, stop.op, stop.line)


def main_dtype(graph: Graph) -> str | None:
    """The dtype of all floating arguments where they share one: the kernels then serve every floating dtype."""
    floating = {placeholder.dtype for placeholder in graph.placeholders if placeholder.dtype in FLOATS}
    return floating.pop() if len(floating) == 1 else None


def claim(graph: Graph, module: Module) -> Variant:
    uniform = main_dtype(graph) is not None
    tensors = tuple(
        TensorDomain(
            path=tensor.path,
            dtypes=FLOATS if uniform and tensor.dtype in FLOATS else (tensor.dtype,),
            shape=tensor.shape,
            layout="contiguous" if tensor.needs_contiguous else "any",
            mutated=tensor.mutated_by is not None,
        )
        for tensor in graph.placeholders
    )
    fixed = tuple(Fixed(item.path, item.value) for item in graph.fixed)
    guards = tuple(dict.fromkeys((*graph.guards, *module.guards)))
    return Variant(tensors, graph.scalars, fixed, guards, same_dtype=uniform)


# --- The module's text -----------------------------------------------------------------------------------------------


def assemble(target: Target, made: Sequence[tuple[Graph, Module]]) -> str:
    """Imports, helpers, kernels (equal ones once), launchers, and the function that chooses between them."""
    kernels: dict[str, list[str]] = {}
    launchers: dict[str, list[str]] = {}
    names: list[str] = []
    for _, module in made:
        renamed = _merge(kernels, module)
        lines = [_substitute(line, renamed) for line in module.lines]
        names.append(_launcher(target, launchers, lines, len(made)))
    wanted = set().union(*(module.helpers for _, module in made))
    body = [part for name in sorted(wanted) for part in [*helpers.TEXT[name], "", ""]]
    for lines in kernels.values():
        body += [*lines, "", ""]
    if len(set(names)) == 1:
        body += _define(target, target.name, launchers[names[0]])
    else:
        for name in dict.fromkeys(names):
            body += [*_define(target, name, launchers[name], plain=True), "", ""]
        body += _define(target, target.name, dispatch(target, [graph for graph, _ in made], names))
    return "\n".join([*_imports(body), "", "", *body]) + "\n"


def _imports(body: list[str]) -> list[str]:
    used = "\n".join(body)
    lines = ["import math", ""] if "math." in used else []
    lines += ["import torch", "import triton", "import triton.language as tl"]
    return [*lines, "from triton.language.extra import libdevice"] if "libdevice." in used else lines


def _merge(kernels: dict[str, list[str]], module: Module) -> dict[str, str]:
    """Add the kernels that are new; the others' names become those of their equals."""
    renamed: dict[str, str] = {}
    for name, lines in module.kernels.items():
        equal = next((known for known, text in kernels.items() if _body(text, known) == _body(lines, name)), None)
        free, number = name, 2
        while equal is None and free in kernels:
            free, number = f"{name}_{number}", number + 1
        renamed[name] = equal or free
        if equal is None:
            kernels[free] = [_substitute(line, {name: free}) for line in lines]
    return renamed


def _body(lines: list[str], name: str) -> list[str]:
    return [_substitute(line, {name: "_kernel"}) for line in lines]


def _substitute(line: str, renamed: dict[str, str]) -> str:
    for old, new in renamed.items():
        line = re.sub(rf"(?<=[ (]){old}(?=[(\[]|$)", new, line)
    return line


def _launcher(target: Target, launchers: dict[str, list[str]], lines: list[str], count: int) -> str:
    name = next((known for known, text in launchers.items() if text == lines), None)
    if name is None:
        name = target.name if count == 1 else f"_launch_{target.name}_{len(launchers) + 1}"
        launchers[name] = lines
    return name


def _define(target: Target, name: str, lines: list[str], plain: bool = False) -> list[str]:
    kind = "async def" if target.is_async and not plain else "def"
    return [*fold(f"{kind} {name}({', '.join(parameters(target, defaults=not plain))}):"), *lines]


def parameters(target: Target, defaults: bool = True) -> list[str]:
    """The target's parameters as written, without annotations; a default that needs the user's module becomes None."""
    words: list[str] = []
    kinds = [parameter.kind for parameter in target.parameters]
    for position, parameter in enumerate(target.parameters):
        if parameter.kind == "keyword_only" and "var_positional" not in kinds and kinds[position - 1] != "keyword_only":
            words.append("*")
        star = {"var_positional": "*", "var_keyword": "**"}.get(parameter.kind, "")
        default = f"={_default(parameter.default)}" if parameter.default is not None and defaults else ""
        words.append(f"{star}{parameter.name}{default}")
        last = position + 1 == len(kinds) or kinds[position + 1] != "positional_only"
        if parameter.kind == "positional_only" and last:
            words.append("/")
    return words


def _default(words: str) -> str:
    try:
        tree = ast.parse(words, mode="eval")
    except SyntaxError:
        return "None"
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return words if names <= {"torch", "math", "float", "int"} else "None"
