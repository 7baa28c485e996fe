"""What the command line shows: outcomes, verdicts and events as text or as JSON values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, TextIO

from kernelwright.model import (
    CandidatePassed,
    CandidateRefuted,
    Checking,
    Counterexample,
    Declined,
    Domain,
    Event,
    Failed,
    Generating,
    Kept,
    Measurement,
    Outcome,
    Passed,
    Proposed,
    Refuted,
    Starting,
    Target,
    Task,
    Traced,
    Tracing,
    Verdict,
)
from kernelwright.source.describe import describe_domain


class Progress:
    """Prints each stage once; a stage that counts is rewritten in place on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = ""

    def __call__(self, event: Event) -> None:
        line = stage(event)
        if line and line != self._last:
            print(f"· {line}", file=self._stream, flush=True)
            self._last = line


def stage(event: Event) -> str:
    """One line for an event; "" for what the outcome says anyway."""
    match event:
        case Starting(interpreter):
            return f"starting workers in {interpreter}"
        case Tracing(target):
            return f"tracing {target.qualname}"
        case Generating(provider=provider, waiting=waiting) if waiting:
            return f"{provider}: {waiting}"
        case Traced(graphs, inputs):
            kinds = ", ".join(dict.fromkeys(graph.kind for graph in graphs))
            return f"traced {len(inputs.calls)} call(s) into {len(graphs)} variant(s): {kinds}"
        case Generating(provider, model, number, 0, _):
            return f"round {number}: {provider}{' ' + model if model else ''} writes the kernel"
        case Checking(_, "values", done, total):
            return f"checking values: {done} of {total} cases"
        case Checking(_, text, _, _):
            return text
        case CandidateRefuted(verdict):
            return f"refuted: {verdict.finding.code} {verdict.finding.message}"
        case CandidatePassed(verdict):
            return f"passed {len(verdict.results)} cases"
    return ""


# --- JSON ------------------------------------------------------------------------------------------------------------


def outcome_json(outcome: Outcome, provider: str, diff: str | None) -> dict[str, Any]:
    """The object of design.md's "The command line"."""
    base: dict[str, Any] = {
        "outcome": type(outcome).__name__.lower(),
        "target": _target(outcome).qualname,
        "provider": provider,
        "reason": None,
        "verdict": None,
        "measurement": None,
        "source": None,
        "edit": diff,
    }
    match outcome:
        case Proposed(_, passed, evidence, source, measurement):
            note = None if measurement else "there is no GPU on this machine: the kernel was checked, not timed"
            timed = _measurement(measurement)
            return base | {
                "reason": note,
                "verdict": verdict_json(passed),
                "source": source,
                "measurement": timed,
                "evidence": evidence.id,
            }
        case Kept(_, passed, measurement, source):
            reason = "correct, but not faster than torch.compile: keep that"
            timed = _measurement(measurement)
            return base | {"reason": reason, "verdict": verdict_json(passed), "source": source, "measurement": timed}
        case Declined(_, refusal, by):
            return base | {"reason": refusal.reason, "op": refusal.op, "line": refusal.line, "provider": by or provider}
        case Failed(_, last, attempts):
            reason = f"no candidate passed in {attempts} round(s): {last.finding.message}"
            return base | {"reason": reason, "verdict": verdict_json(last), "attempt": last.candidate.source}
    raise AssertionError(outcome)


def verdict_output(verdict: Verdict, qualname: str) -> dict[str, Any]:
    """What `kernelwright verify --json` prints."""
    passed = isinstance(verdict, Passed)
    reason = None if passed else verdict.finding.message  # type: ignore[union-attr]
    outcome = "passed" if passed else "refuted"
    return {"outcome": outcome, "target": qualname, "reason": reason, "verdict": verdict_json(verdict)}


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as design.md has it."""
    if isinstance(verdict, Refuted):
        return {
            "passed": False,
            "cases": verdict.cases,
            "domain": None,
            "finding": asdict(verdict.finding),
            "counterexample": _counterexample(verdict.counterexample),
        }
    return {
        "passed": True,
        "cases": len(verdict.results),
        "max_error": verdict.max_error,
        "max_share": verdict.max_share,
        "domain": _domain(verdict.domain),
        "architectures": list(verdict.architectures),
        "on_gpu": verdict.on_gpu,
        "skipped": list(verdict.skipped),
        "finding": None,
        "counterexample": None,
    }


def _domain(domain: Domain) -> dict[str, Any]:
    dtypes = sorted({dtype for variant in domain.variants for tensor in variant.tensors for dtype in tensor.dtypes})
    return {"text": describe_domain(domain), "dtypes": dtypes} | asdict(domain)


def _counterexample(counterexample: Counterexample | None) -> dict[str, Any] | None:
    if counterexample is None:
        return None
    tensors = [argument for argument in counterexample.arguments if argument.tensor]
    return asdict(counterexample) | {
        "seed": counterexample.case.seed,
        "shapes": {argument.path: argument.tensor.shape for argument in tensors if argument.tensor},
        "dtypes": {argument.path: argument.tensor.dtype for argument in tensors if argument.tensor},
        "strides": {argument.path: argument.tensor.strides for argument in tensors if argument.tensor},
    }


def _measurement(measurement: Measurement | None) -> dict[str, Any] | None:
    if measurement is None:
        return None
    names = ("gpu", "eager_ms", "compile_ms", "kernel_ms", "floor_ms", "ci95")
    return {name: getattr(measurement, name) for name in names}


def analysis_row(target: Target, task: Task | None, problem: str | None) -> dict[str, Any]:
    """One target of `kernelwright analyse`."""
    row: dict[str, Any] = {"qualname": target.qualname, "line": target.def_line + 1, "problem": problem}
    if task is None:
        return row
    graph = task.graphs[0] if task.graphs else None
    if graph is None:
        return row | {"problem": "no call of the inputs reaches it"}
    refusal = asdict(graph.refusal) if graph.refusal else None
    return row | {"class": graph.kind, "bytes": graph.bytes_moved, "flops": graph.flops, "refusal": refusal}


def profile_json(task: Task) -> dict[str, Any]:
    """The floor's ingredients a variant. Times need a GPU and are null without one."""
    rows = [
        {"calls": list(graph.calls), "class": graph.kind, "bytes": graph.bytes_moved, "flops": graph.flops}
        for graph in task.graphs
    ]
    return {"target": task.target.qualname, "gpu": task.hardware.gpu, "variants": rows, "measurement": None}


# --- Text ------------------------------------------------------------------------------------------------------------


def outcome_text(outcome: Outcome, diff: str | None) -> str:
    """What people read at the end."""
    match outcome:
        case Proposed(task, passed, evidence, _, measurement):
            timed = "" if measurement else "\nnot timed: there is no GPU on this machine"
            head = f"proposed: a Triton kernel for {task.target.qualname} (evidence {evidence.id})"
            return f"{diff}\n{head}\n{verdict_text(passed)}{timed}"
        case Kept():
            return "kept: the kernel is right but not faster than torch.compile: keep that"
        case Declined(target, refusal, _):
            where = f" (line {refusal.line})" if refusal.line else ""
            return f"declined: {target.qualname} cannot be a kernel{where}: {refusal.reason}"
        case Failed(_, last, attempts):
            return f"failed after {attempts} round(s)\n{verdict_text(last)}"
    raise AssertionError(outcome)


def verdict_text(verdict: Verdict) -> str:
    """Cases, domain and error; or the finding and its counterexample."""
    if isinstance(verdict, Passed):
        where = verdict.on_gpu or "Triton's interpreter on the CPU"
        lines = [
            f"verdict: passed {len(verdict.results)} cases on {where}",
            f"domain: {describe_domain(verdict.domain)}",
            f"largest error: {verdict.max_error:.3g} on ordinary values; at most {verdict.max_share:.0%} of what is allowed",
            f"compiled ahead of time for: {', '.join(verdict.architectures) or 'nothing'}",
        ]
        lines += [f"limitation: {text}" for text in verdict.domain.limitations]
        return "\n".join(lines + [f"not checked: {text}" for text in verdict.skipped])
    line = f" (line {verdict.finding.line} of the candidate)" if verdict.finding.line else ""
    text = f"verdict: refuted, {verdict.finding.code}: {verdict.finding.message}{line}"
    return f"{text}\n{counterexample_text(verdict.counterexample)}" if verdict.counterexample else text


def counterexample_text(counterexample: Counterexample) -> str:
    """The smallest failing case in a few lines."""
    lines = [f"  case: {counterexample.case.describe()}"]
    for argument in counterexample.arguments:
        if argument.tensor:
            tensor = argument.tensor
            lines.append(f"  {argument.path}: {tensor.dtype}{list(tensor.shape)} strides {tensor.strides}")
        else:
            lines.append(f"  {argument.path} = {argument.value}")
    if counterexample.got or counterexample.expected:
        at = f"{counterexample.output}{list(counterexample.index)}"
        lines.append(f"  at {at}: got {counterexample.got}, expected {counterexample.expected}")
    return "\n".join(lines)


def profile_text(task: Task) -> str:
    """One line a variant."""
    lines = [f"{task.target.qualname} on {task.hardware.gpu or 'no GPU: nothing can be timed here'}"]
    for graph in task.graphs:
        size = f"{graph.bytes_moved / 1e6:.3f} MB must move, {graph.flops / 1e9:.3f} GFLOP"
        lines.append(f"  calls {', '.join(map(str, graph.calls))}: {graph.kind}; {size}")
    return "\n".join(lines)


def analysis_text(rows: list[dict[str, Any]]) -> str:
    """One line a target."""
    lines = []
    for row in rows:
        detail = row["problem"] or row.get("class", "")
        if row.get("refusal"):
            detail = f"no kernel: {row['refusal']['reason']}"
        lines.append(f"{row['line']:5d}  {row['qualname']}: {detail}")
    return "\n".join(lines) or "no function here uses torch"


def doctor_text(rows: list[dict[str, str]]) -> str:
    """One line a check, with what to do about it."""
    marks = {"ok": "✓", "limited": "~", "missing": "✗"}
    lines = [f"{marks[row['state']]} {row['name']}: {row['detail']}" for row in rows]
    return "\n".join(lines)


def _target(outcome: Outcome) -> Target:
    return outcome.target if isinstance(outcome, Declined) else outcome.task.target
