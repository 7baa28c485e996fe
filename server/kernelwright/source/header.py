"""The comment above an accepted kernel: who wrote it, what was checked, where, and how fast it is. Pure."""

from __future__ import annotations

import textwrap

from kernelwright.model import Evidence
from kernelwright.source.describe import describe_domain

WIDTH = 110
_KEEP = "\0"


def header(qualname: str, evidence: Evidence) -> list[str]:
    """The comment lines, without the markers around the block."""
    provider = " ".join(f"{evidence.provider} {evidence.model}".split())
    hardware = evidence.hardware
    written = f"A Triton kernel for {qualname}, written by {provider} on {evidence.created}"
    sentences = [
        f"{written} (torch {hardware.torch}, triton {hardware.triton}).",
        f"Checked in {evidence.cases} cases {_where(evidence)}; largest error {evidence.max_error:.3g} on ordinary values.",
        f"Runs for: {_unbroken(describe_domain(evidence.domain))}. Every other call runs the function's own body.",
        _speed(evidence),
    ]
    lines = [line for sentence in sentences for line in textwrap.wrap(sentence, WIDTH - 2, break_on_hyphens=False)]
    return [f"# {line}".replace(_KEEP, " ") for line in lines]


def _unbroken(words: str) -> str:
    """The list with no line break inside an item."""
    return ", ".join(item.replace(" ", _KEEP) for item in words.split(", "))


def _where(evidence: Evidence) -> str:
    if evidence.hardware.gpu:
        return f"on {evidence.hardware.gpu}"
    compiled = f"; compiled for {', '.join(evidence.architectures)}" if evidence.architectures else ""
    return f"with Triton's interpreter on the CPU{compiled}; not run on a GPU"


def _speed(evidence: Evidence) -> str:
    timed = evidence.measurement
    if timed is None:
        return "Not timed."
    low, high = timed.ci95
    return (
        f"{timed.kernel_ms:.3g} ms ({low:.3g} to {high:.3g}) on {timed.gpu}: {timed.eager_ms / timed.kernel_ms:.2f} times "
        f"as fast as eager ({timed.eager_ms:.3g} ms), {timed.compile_ms / timed.kernel_ms:.2f} times as fast as "
        f"torch.compile ({timed.compile_ms:.3g} ms)."
    )
