"""The prompt: Markdown templates filled from the task. Says nothing of checks, tolerances or inputs that are held back."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from string import Template

from kernelwright.model import Call, Counterexample, Graph, Refuted, Task

MAX_CHARACTERS = 60_000
"""About 15,000 tokens: small beside any model's window, large beside any function."""


@dataclass(frozen=True)
class Prompt:
    """What is sent. `left_out` says what did not fit."""

    system: str
    user: str
    left_out: tuple[str, ...] = ()


def render(task: Task, tried: Sequence[Refuted]) -> Prompt:
    """The prompt for a first draft, or for a repair of the last refused one."""
    left_out: list[str] = []
    helpers = _helpers(task)
    graph = "\n".join(_graph_lines(variant) for variant in task.graphs)
    if len(helpers) + len(graph) + len(task.target.source) > MAX_CHARACTERS:
        left_out.append("the traced graph")
        graph = "(left out: too long)"
    if len(helpers) + len(task.target.source) > MAX_CHARACTERS:
        left_out.append("the helpers it calls")
        helpers = ""
    user = _template("task").substitute(
        qualname=task.target.qualname,
        source=task.target.source.rstrip(),
        helpers=f"\nIt calls, from the same file:\n\n```python\n{helpers}\n```\n" if helpers else "",
        origin=task.inputs.origin,
        inputs="\n".join(_call_line(call) for call in task.inputs.calls[:8]),
        graph=graph,
        hardware=_hardware(task),
        floor=_floor(task.graphs),
        instruction=f"The user asks: {task.instruction}\n" if task.instruction else "",
    )
    if tried:
        user += "\n" + _repair(tried[-1])
    return Prompt(_template("system").template, user, tuple(left_out))


def _template(name: str) -> Template:
    return Template(resources.files("kernelwright.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8"))


def _repair(attempt: Refuted) -> str:
    finding = attempt.finding
    return _template("repair").substitute(
        source=attempt.candidate.source.rstrip(),
        code=finding.code,
        message=finding.message,
        line=f" (line {finding.line})" if finding.line else "",
        counterexample=_counterexample(attempt.counterexample),
    )


def _counterexample(counterexample: Counterexample | None) -> str:
    if counterexample is None:
        return ""
    lines = ["The smallest call that shows it:"]
    for argument in counterexample.arguments:
        tensor = argument.tensor
        value = f"{tensor.dtype}{list(tensor.shape)}, strides {tensor.strides}" if tensor else f"= {argument.value}"
        lines.append(f"- {argument.path}: {value}")
    if counterexample.got or counterexample.expected:
        at = f"{counterexample.output}{list(counterexample.index)}"
        lines.append(f"- at {at}: got {counterexample.got}, expected {counterexample.expected}")
    return "\n".join(lines) + "\n"


def _call_line(call: Call) -> str:
    parts = []
    for argument in call.arguments:
        tensor = argument.tensor
        parts.append(
            f"{argument.path}: {tensor.dtype}{list(tensor.shape)}" if tensor else f"{argument.path}={argument.value}"
        )
    return f"- {', '.join(parts)}" + (f" (must raise {call.raises})" if call.raises else "")


def _graph_lines(graph: Graph) -> str:
    lines = [f"variant of calls {', '.join(map(str, graph.calls))} ({graph.kind}):"]
    lines += [
        f"  {tensor.node}: {tensor.dtype}{list(tensor.shape)} from {tensor.path}" for tensor in graph.placeholders
    ]
    lines += [f"  {node.name} = {node.op} -> {node.dtype}{list(node.shape or ())}" for node in graph.nodes]
    return "\n".join(lines)


def _hardware(task: Task) -> str:
    hardware = task.hardware
    gpu = hardware.gpu or f"to be compiled for {', '.join(hardware.architectures) or 'NVIDIA GPUs'}"
    return f"{gpu}; torch {hardware.torch}, Triton {hardware.triton}"


def _floor(graphs: Sequence[Graph]) -> str:
    if not graphs:
        return "unknown"
    largest = max(graphs, key=lambda graph: graph.bytes_moved)
    return f"{largest.bytes_moved / 1e6:.3f} MB must move, {largest.flops / 1e9:.3f} GFLOP must be done"


def _helpers(task: Task) -> str:
    """The module-level functions, constants and the class head that the function's text names, transitively."""
    document = task.target.document.text
    try:
        tree = ast.parse(document)
    except (SyntaxError, ValueError):
        return ""
    definitions = {name: node for node in tree.body for name in _defined(node)}
    wanted, queue = dict[str, ast.stmt](), [*_names(task.target.source)]
    while queue:
        name = queue.pop()
        node = definitions.get(name)
        if node is None or name in wanted or name == task.target.qualname.split(".")[0]:
            continue
        wanted[name] = node
        queue += _names(ast.get_source_segment(document, node) or "")
    unique = {id(node): node for node in wanted.values()}
    ordered = sorted(unique.values(), key=lambda node: node.lineno)
    return "\n\n".join(ast.get_source_segment(document, node) or "" for node in ordered)


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


def _names(source: str) -> set[str]:
    try:
        tree = ast.parse(_dedent(source))
    except (SyntaxError, ValueError):
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _dedent(source: str) -> str:
    """A method's text starts indented: a class above it makes it a module."""
    return source if source[:1].strip() else f"class _:\n{source}"
