"""The prompt: Markdown templates filled from the task. It says nothing of how a kernel is judged. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from string import Template

from kernelwright.model import Argument, Call, Counterexample, Graph, Json, Node, Parameter, Refuted, Target, Task
from kernelwright.providers.context import Context, find_context

MAX_CHARACTERS = 60_000
"""About 15,000 tokens: small beside any model's window, large beside any function."""
MAX_CALLS = 8


@dataclass(frozen=True)
class Prompt:
    """What is sent. `left_out` says what did not fit."""

    system: str
    user: str
    left_out: tuple[str, ...] = ()


def render(task: Task, tried: Sequence[Refuted]) -> Prompt:
    """The prompt for a first draft, or for a repair of the last refused one and no other."""
    parts = _fitted(task)
    hardware = task.hardware
    user = _template("task").substitute(
        qualname=task.target.qualname,
        source=_fence(_own_source(task.target)),
        helpers=f"\nIt uses, from the same file:\n\n{_fence(parts.helpers)}\n" if parts.helpers else "",
        origin=task.inputs.origin,
        inputs="\n".join(parts.calls) or "- unknown",
        graph=parts.graph,
        hardware=f"{_gpu(task)}; torch {hardware.torch}, Triton {hardware.triton}, Python {hardware.python}",
        floor=_floor(task.graphs),
        left_out=f"Left out for its size: {'; '.join(parts.left_out)}.\n" if parts.left_out else "",
        instruction=f"The user asks: {task.instruction}\n" if task.instruction else "",
        signature=_signature(task.target),
    )
    if tried:
        user += "\n" + _repair(tried[-1])
    # A lone surrogate in the user's text cannot be sent.
    return Prompt(_template("system").template, user.encode("utf-8", "replace").decode(), tuple(parts.left_out))


def _template(name: str) -> Template:
    return Template(resources.files("kernelwright.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8"))


# --- what fits -------------------------------------------------------------------------------------------------------


@dataclass
class _Parts:
    helpers: str
    graph: str
    calls: list[str]
    left_out: list[str] = field(default_factory=list)


def _fitted(task: Task) -> _Parts:
    """The parts of the prompt within its budget: the graph shrinks first, then the helpers, the farthest first.

    The function itself always stays whole.
    """
    context, calls = find_context(task.target), [_call_line(call) for call in task.inputs.calls]
    graph = "\n".join("\n".join(_graph_lines(graph)) for graph in task.graphs) or "none"
    parts = _Parts(context.text(), graph, calls[:MAX_CALLS])
    if len(calls) > MAX_CALLS:
        parts.left_out.append(f"{len(calls) - MAX_CALLS} of {len(calls)} calls")
    room = MAX_CHARACTERS - len(task.target.source)
    if len(parts.helpers) + len(parts.graph) > room:
        parts.graph = "\n".join(_graph_summary(graph) for graph in task.graphs)
        parts.left_out.append("the operations of the traced graph")
    dropped: list[str] = []
    while context.pieces and len(parts.helpers) + len(parts.graph) > room:
        dropped.append(context.pieces[-1].name)
        context = Context(context.pieces[:-1])
        parts.helpers = context.text()
    if dropped:
        parts.left_out.append(f"the text of {', '.join(reversed(dropped))}")
    return parts


# --- the task --------------------------------------------------------------------------------------------------------


def _own_source(target: Target) -> str:
    """The function without a dispatch decorator of ours from an earlier run."""
    lines = target.source.replace("\r\n", "\n").rstrip().split("\n")
    kept = [line for line in lines if not line.strip().startswith("@_kernelwright_")]
    return textwrap.dedent("\n".join(kept))


def _fence(code: str) -> str:
    """Code in a fence longer than any that it holds, in a docstring say."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}python\n{code.rstrip()}\n{ticks}"


def _signature(target: Target) -> str:
    """`def name(x, *, eps=1e-6)`: the parameters without their annotations, which the module could not resolve."""
    parts: list[str] = []
    kinds = [parameter.kind for parameter in target.parameters]
    for index, parameter in enumerate(target.parameters):
        starred = "var_positional" in kinds
        if parameter.kind == "keyword_only" and not starred and kinds.index("keyword_only") == index:
            parts.append("*")
        parts.append(_parameter(parameter))
        if parameter.kind == "positional_only" and "positional_only" not in kinds[index + 1 :]:
            parts.append("/")
    return f"def {target.name}({', '.join(parts)})"


def _parameter(parameter: Parameter) -> str:
    stars = {"var_positional": "*", "var_keyword": "**"}.get(parameter.kind, "")
    return f"{stars}{parameter.name}" + (f"={parameter.default}" if parameter.default is not None else "")


def _call_line(call: Call) -> str:
    words = ", ".join(_argument(argument) for argument in call.arguments)
    note = f" ({call.note})" if call.note else ""
    return f"- {words}{note}" + (f" (must raise {call.raises})" if call.raises else "")


def _argument(argument: Argument) -> str:
    """`x: float32[8, 128]`, with strides where they are not the plain ones; or `eps=1e-06`."""
    tensor = argument.tensor
    if tensor is None:
        return f"{argument.path}={_plain(argument.value)}"
    odd = tensor.strides is not None and tensor.strides != _contiguous(tensor.shape)
    words = [f"{argument.path}: {tensor.dtype}{list(tensor.shape)}"]
    words += [f"strides {list(tensor.strides or ())}"] if odd else []
    words += [f"storage offset {tensor.offset}"] if tensor.offset else []
    words += ["requires grad"] if tensor.requires_grad else []
    return " ".join(words)


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _plain(value: Json) -> str:
    return str(value["repr"]) if isinstance(value, dict) and "repr" in value else repr(value)


def _gpu(task: Task) -> str:
    return task.hardware.gpu or f"to be compiled for {', '.join(task.hardware.architectures) or 'NVIDIA GPUs'}"


def _floor(graphs: Sequence[Graph]) -> str:
    largest = max(graphs, key=lambda graph: graph.bytes_moved, default=None)
    if largest is None or not largest.bytes_moved:
        return "unknown"
    return f"{largest.bytes_moved / 1e6:.3f} MB must move, {largest.flops / 1e9:.3f} GFLOP must be done"


# --- the graph -------------------------------------------------------------------------------------------------------


def _graph_lines(graph: Graph) -> list[str]:
    lines = [_graph_summary(graph)]
    for tensor in graph.placeholders:
        origin = "" if tensor.path == tensor.node else f", the argument {tensor.path}"
        written = f", overwritten with {tensor.mutated_by}" if tensor.mutated_by else ""
        lines.append(f"  {tensor.node}: {tensor.dtype}{_dims(tensor.shape)}{origin}{written}")
    for scalar in graph.scalars:
        origin = "" if scalar.path == scalar.name else f", the argument {scalar.path}"
        lines.append(f"  {scalar.name}: {scalar.type}{origin}")
    lines += [f"  {_node(node)}" for node in graph.nodes]
    return [*lines, f"  return {_operand(graph.output)}"]


def _graph_summary(graph: Graph) -> str:
    """One line: which calls, what sort, what holds there."""
    holds = [f"{fixed.path} is {_plain(fixed.value)}" for fixed in graph.fixed] + list(graph.guards)
    where = f", where {' and '.join(holds)}" if holds else ""
    refused = f"; untraced: {graph.refusal.reason}" if graph.refusal else ""
    return f"calls {', '.join(map(str, graph.calls))} ({graph.kind}{where}){refused}:"


def _node(node: Node) -> str:
    words = [_operand(value) for value in node.args]
    words += [f"{name}={_operand(value)}" for name, value in node.kwargs.items()]
    result = f" -> {node.dtype}{_dims(node.shape)}" if node.shape is not None else ""
    return f"{node.name} = {node.op}({', '.join(words)}){result}"


def _dims(shape: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _operand(value: Json) -> str:
    """An operand, or an output, of the graph's JSON as a person would write it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_operand, value))}]"
    if not isinstance(value, dict):
        return repr(value)
    if "dict" in value:
        return "{" + ", ".join(f"{name!r}: {_operand(item)}" for name, item in value["dict"].items()) + "}"
    ((kind, content),) = value.items() if len(value) == 1 else (("value", value),)
    if kind in ("tuple", "list"):
        brackets = "()" if kind == "tuple" else "[]"
        return brackets[0] + ", ".join(map(_operand, content)) + brackets[1]
    return repr(content) if kind in ("value", "device") else str(content)


# --- the repair ------------------------------------------------------------------------------------------------------


def _repair(attempt: Refuted) -> str:
    finding, source = attempt.finding, attempt.candidate.source.rstrip()
    return _template("repair").substitute(
        source=_fence(source),
        code=finding.code,
        message=finding.message,
        line=_line(source, finding.line),
        counterexample=_counterexample(attempt.counterexample),
    )


def _line(source: str, line: int | None) -> str:
    lines = source.split("\n")
    return f"Line {line}: `{lines[line - 1].strip()}`\n" if line and line <= len(lines) else ""


def _counterexample(counterexample: Counterexample | None) -> str:
    """The failing call and what it gave, without how it was found."""
    if counterexample is None:
        return ""
    lines = ["The smallest call that shows it:"]
    lines += [f"- {_argument_with_strides(argument)}" for argument in counterexample.arguments]
    if counterexample.got or counterexample.expected:
        at = f"{counterexample.output or 'output'}{list(counterexample.index)}"
        lines.append(f"- at {at}: got {counterexample.got}, expected {counterexample.expected}")
    return "\n".join(lines) + "\n"


def _argument_with_strides(argument: Argument) -> str:
    tensor = argument.tensor
    if tensor is None:
        return _argument(argument)
    strides = tensor.strides if tensor.strides is not None else _contiguous(tensor.shape)
    offset = f", storage offset {tensor.offset}" if tensor.offset else ""
    return f"{argument.path}: {tensor.dtype}{list(tensor.shape)}, strides {list(strides)}{offset}"
