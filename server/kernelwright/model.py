"""The words of the project: one frozen value per stage. Standard library only.

A stage takes the value before and returns the next:
Target → Inputs → Graph → Task → Candidate → Verdict → Measurement → Outcome, with Events sent sideways.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Json: TypeAlias = Any
Dim: TypeAlias = int | str
"""A size: a number, or a Python expression over the graph's symbols such as "s0" or "s0 // 2"."""


# --- Target ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Document:
    """A text as the editor or the disk holds it now; `version` is the editor's, None for a file read from disk."""

    uri: str
    path: str
    text: str
    version: int | None = None


@dataclass(frozen=True)
class Span:
    """Lines are 0-based, columns are 0-based code points; `end` is exclusive."""

    start_line: int
    start_column: int
    end_line: int
    end_column: int


ParameterKind = Literal["positional_only", "positional_or_keyword", "var_positional", "keyword_only", "var_keyword"]


@dataclass(frozen=True)
class Parameter:
    """One parameter as written; `default` and `annotation` are source text."""

    name: str
    kind: ParameterKind = "positional_or_keyword"
    default: str | None = None
    annotation: str | None = None


@dataclass(frozen=True)
class Target:
    """A function or method in a document. `source` is its text from the first decorator to its last line."""

    document: Document
    qualname: str
    source: str
    span: Span
    def_line: int
    parameters: tuple[Parameter, ...]
    kind: Literal["function", "method", "staticmethod", "classmethod"] = "function"
    is_async: bool = False
    decorators: tuple[str, ...] = ()
    nested: bool = False

    @property
    def name(self) -> str:
        return self.qualname.rsplit(".", 1)[-1]

    @property
    def source_hash(self) -> str:
        """Hash of the function's own text, blind to indentation, line endings and a dispatch decorator of ours."""
        lines = [line.rstrip() for line in self.source.replace("\r\n", "\n").split("\n")]
        kept = [line.strip() for line in lines if not line.strip().startswith("@_kernelwright_")]
        return digest("\n".join(kept))


def digest(text: str) -> str:
    """A short content hash: 16 hex digits of SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# --- Inputs ----------------------------------------------------------------------------------------------------------

InputsOrigin = Literal["file", "literal", "comment", "annotated", "asked", "recorded", "inferred"]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor without its values. Strides and offset count elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0
    device: str = "cpu"
    requires_grad: bool = False


@dataclass(frozen=True)
class Argument:
    """One leaf that a call hands over. `path` is "x", "self.proj.weight" or "cache[0]".

    Exactly one of `tensor` and `value` is meaningful: `tensor` is None for a scalar, and then `value` is the value as
    JSON, or {"repr": ...} for what JSON cannot hold (a dtype, a device).
    """

    path: str
    tensor: TensorSpec | None = None
    value: Json = None


@dataclass(frozen=True)
class Call:
    """One call of the target, as the reference worker saw it."""

    index: int
    arguments: tuple[Argument, ...]
    note: str = ""
    raises: str | None = None


@dataclass(frozen=True)
class Inputs:
    """The calls to check and time with, and where they came from.

    `spec` is what makes them again: "PATH.py:FUNCTION" for origin "file", else a literal such as
    "x: bf16[8192, 4096], eps=1e-6". `calls` is filled in by the reference worker.
    """

    origin: InputsOrigin
    spec: str
    where: str = ""
    calls: tuple[Call, ...] = ()


# --- Graph -----------------------------------------------------------------------------------------------------------

GraphClass = Literal[
    "pointwise",
    "row reduction",
    "full reduction",
    "scan",
    "matmul with epilogue",
    "attention",
    "gather/scatter",
    "other",
]


@dataclass(frozen=True)
class Placeholder:
    """A tensor that the graph reads. `node` is its name in the graph, `path` where the caller finds it."""

    node: str
    path: str
    dtype: str
    shape: tuple[Dim, ...]
    contiguous: bool = True
    """Whether the example was contiguous."""
    needs_contiguous: bool = False
    """Whether the trace is valid only for a contiguous tensor (it calls `.view` on it, say)."""
    mutated_by: str | None = None
    """The node whose value the function writes back into this tensor, if it does."""


@dataclass(frozen=True)
class Scalar:
    """A Python number that the graph uses at run time: `name` in expressions, `path` where the caller finds it."""

    name: str
    path: str
    type: Literal["float", "int"]
    example: float


@dataclass(frozen=True)
class Fixed:
    """A non-tensor argument whose value the trace depends on: the kernel is valid for this value only."""

    path: str
    value: Json


@dataclass(frozen=True)
class Node:
    """One core-ATen call. `op` is "aten.mul.Tensor", "getitem" and so on.

    In `args` and `kwargs`: {"node": name} is another node's value, {"expr": text} a Python expression over symbols and
    scalars, {"dtype": "float32"}, {"device": "cuda"}, {"memory_format": ...}, {"layout": ...} and {"float": "inf"}
    what they say; lists, numbers, booleans, strings and null stand for themselves. `line` is 1-based in the document.
    `shape` and `dtype` are None for a node with several results; `results` then holds one (shape, dtype) each.
    """

    name: str
    op: str
    args: tuple[Json, ...] = ()
    kwargs: Mapping[str, Json] = field(default_factory=dict)
    shape: tuple[Dim, ...] | None = None
    dtype: str | None = None
    results: tuple[tuple[tuple[Dim, ...], str], ...] = ()
    line: int | None = None


@dataclass(frozen=True)
class Refusal:
    """Why this cannot be a kernel: the op (or construct) and the 1-based line in the document that stop it."""

    reason: str
    op: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class Graph:
    """The target traced on fake tensors for one variant of its arguments (which are None, which branch is taken).

    `guards` are Python boolean expressions over symbols and scalars that must hold for the trace to be valid.
    `output` is a tree: {"node": name}, {"placeholder": path} (the very argument), {"tuple": [...]}, {"list": [...]},
    {"dict": {...}}, {"value": json}.
    """

    calls: tuple[int, ...]
    placeholders: tuple[Placeholder, ...]
    nodes: tuple[Node, ...]
    output: Json
    symbols: Mapping[str, int] = field(default_factory=dict)
    """Symbol → its size in the example."""
    scalars: tuple[Scalar, ...] = ()
    fixed: tuple[Fixed, ...] = ()
    guards: tuple[str, ...] = ()
    kind: GraphClass = "other"
    bytes_moved: int = 0
    """Bytes that must move for the example: each input once, each output once."""
    flops: int = 0
    refusal: Refusal | None = None


# --- Task and Candidate ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hardware:
    """What will run the kernel. `gpu` is None on a machine without one; `architectures` are compiled for anyway."""

    gpu: str | None
    architectures: tuple[str, ...]
    torch: str
    triton: str
    python: str
    platform: str = ""


@dataclass(frozen=True)
class Task:
    """All that a provider is told. `key` identifies the question."""

    target: Target
    inputs: Inputs
    graphs: tuple[Graph, ...]
    hardware: Hardware
    instruction: str = ""

    @property
    def key(self) -> str:
        return digest(f"{self.target.source_hash}\n{self.inputs.spec}\n{self.instruction}\n{self.hardware.gpu}")


@dataclass(frozen=True)
class Usage:
    """Tokens as the provider billed them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True)
class Candidate:
    """One module of source text. It defines a function of the target's name and, optionally, `supports`."""

    source: str
    provider: str
    model: str = ""
    entry: str = ""
    variants: tuple[Variant, ...] = ()
    """What the provider says it covers; () means: whatever the user's calls show. Always checked, never believed."""
    notes: tuple[str, ...] = ()
    usage: Usage = Usage()

    @property
    def id(self) -> str:
        return digest(self.source)


# --- Domain ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TensorDomain:
    """What one tensor argument may be. `shape` has an expression a dim; a name that is new there is defined there."""

    path: str
    dtypes: tuple[str, ...]
    shape: tuple[Dim, ...]
    layout: Literal["any", "contiguous", "dense"] = "any"
    mutated: bool = False


@dataclass(frozen=True)
class Variant:
    """One combination of arguments that a kernel covers."""

    tensors: tuple[TensorDomain, ...]
    scalars: tuple[Scalar, ...] = ()
    fixed: tuple[Fixed, ...] = ()
    guards: tuple[str, ...] = ()
    min_size: Mapping[str, int] = field(default_factory=dict)
    max_size: Mapping[str, int] = field(default_factory=dict)
    same_dtype: bool = True
    """Whether the floating tensors must share one dtype; else each tensor's own list holds position by position."""


@dataclass(frozen=True)
class Domain:
    """Where a kernel may run. Made from what passed, not from what a provider claims."""

    device: str
    variants: tuple[Variant, ...]
    gradients: bool = False
    limitations: tuple[str, ...] = ()


# --- Verification ----------------------------------------------------------------------------------------------------

ValueKind = Literal["user", "normal", "small", "large", "offset", "positive", "outlier", "nonfinite", "zeros"]
LayoutKind = Literal["user", "contiguous", "transposed", "stepped", "offset", "expanded"]


@dataclass(frozen=True)
class Case:
    """One run of both sides: a call of the user's, changed in a stated way. Everything needed to make it again.

    `sizes` replaces symbols of the call's graph, `dtype` replaces every floating dtype of the call that equals the
    call's own main dtype, `scalars` replaces scalar arguments by path.
    """

    call: int
    seed: int = 0
    dtype: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    values: ValueKind = "user"
    layout: LayoutKind = "user"
    scalars: Mapping[str, float] = field(default_factory=dict)
    device: str = "cpu"

    def describe(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        parts = [f"call {self.call}", self.dtype or "", sizes, self.values, self.layout, f"seed {self.seed}"]
        return " · ".join(part for part in parts if part and part != "user")


@dataclass(frozen=True)
class Counterexample:
    """The smallest failing case, enough to replay: `arguments` says shapes, dtypes and strides."""

    case: Case
    arguments: tuple[Argument, ...]
    output: str = ""
    index: tuple[int, ...] = ()
    got: str = ""
    expected: str = ""
    error: float | None = None
    limit: float | None = None


@dataclass(frozen=True)
class Finding:
    """One fault. `code`: K1xx static, K2xx values, K3xx memory, K4xx integrity, K5xx resources.

    `line` is 1-based in the candidate's source.
    """

    code: str
    message: str
    line: int | None = None


@dataclass(frozen=True)
class CaseResult:
    """One case that passed: error and limit are in the output's own units, the worst over its outputs."""

    case: Case
    error: float
    limit: float


@dataclass(frozen=True)
class Passed:
    """The candidate is right wherever `domain` says, as far as the cases show."""

    candidate: Candidate
    domain: Domain
    results: tuple[CaseResult, ...]
    architectures: tuple[str, ...] = ()
    """GPU architectures that the kernels compiled for ahead of time."""
    on_gpu: str | None = None
    skipped: tuple[str, ...] = ()
    """What was not checked, and why."""

    @property
    def max_error(self) -> float:
        """The largest error on ordinary values, in the output's units."""
        ordinary = [result.error for result in self.results if result.case.values in ("user", "normal")]
        return max(ordinary, default=0.0)

    @property
    def max_share(self) -> float:
        """The largest error over all cases as a share of what was allowed there: 1.0 would be the limit."""
        return max((result.error / result.limit for result in self.results if result.limit > 0), default=0.0)


@dataclass(frozen=True)
class Refuted:
    """The candidate is wrong, unsafe or unfit; `finding` says why."""

    candidate: Candidate
    finding: Finding
    counterexample: Counterexample | None = None
    cases: int = 0


Verdict: TypeAlias = Passed | Refuted


@dataclass(frozen=True)
class Measurement:
    """Device times in milliseconds, medians. Only constructible from `Passed`: an unchecked kernel is never timed."""

    passed: Passed
    gpu: str
    eager_ms: float
    compile_ms: float
    kernel_ms: float
    floor_ms: float
    ci95: tuple[float, float]


# --- Outcome ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """What is kept with every kernel."""

    id: str
    provider: str
    model: str
    created: str
    hardware: Hardware
    source_hash: str
    domain: Domain
    cases: int
    max_error: float
    architectures: tuple[str, ...]
    inputs: str
    measurement: Measurement | None = None
    rounds: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proposed:
    """A kernel worth having: right, and faster by more than the noise where it could be timed."""

    task: Task
    passed: Passed
    evidence: Evidence
    source: str
    """The self-contained module: the kernel, its launcher, `supports`."""
    measurement: Measurement | None = None


@dataclass(frozen=True)
class Kept:
    """Correct but not faster: keep torch.compile."""

    task: Task
    passed: Passed
    measurement: Measurement
    source: str = ""


@dataclass(frozen=True)
class Declined:
    """Cannot be a kernel, or not by this provider."""

    target: Target
    refusal: Refusal
    provider: str = ""


@dataclass(frozen=True)
class Failed:
    """No candidate passed within the budget."""

    task: Task
    last: Refuted
    attempts: int = 1


Outcome: TypeAlias = Proposed | Kept | Declined | Failed


# --- Events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Starting:
    """The workers are coming up."""

    interpreter: str


@dataclass(frozen=True)
class Tracing:
    """The function is being loaded and traced."""

    target: Target


@dataclass(frozen=True)
class Traced:
    """The function was traced."""

    graphs: tuple[Graph, ...]
    inputs: Inputs


@dataclass(frozen=True)
class Generating:
    """A provider was asked; `characters` counts what has streamed in so far, `waiting` says why nothing does."""

    provider: str
    model: str
    round: int
    characters: int = 0
    waiting: str = ""


@dataclass(frozen=True)
class Checking:
    """Cases are being run: `done` of `total`; `stage` is for people ("values", "compiling for sm_90")."""

    candidate: Candidate
    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class CandidateRefuted:
    verdict: Refuted


@dataclass(frozen=True)
class CandidatePassed:
    verdict: Passed


@dataclass(frozen=True)
class Finished:
    outcome: Outcome


Event: TypeAlias = Starting | Tracing | Traced | Generating | Checking | CandidateRefuted | CandidatePassed | Finished
