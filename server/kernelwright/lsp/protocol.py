"""Our own messages, beside LSP's. Mirrors client/src/protocol.ts field by field: change both or neither.

Keys are camelCase on the wire and snake_case here; a field that is None is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from kernelwright.model import Json
from kernelwright.settings import camel

GENERATE = "kernelwright/generate"
RECHECK = "kernelwright/recheck"
PROPOSALS = "kernelwright/proposals"
INPUTS = "kernelwright/inputs"
VALIDATE_INPUTS = "kernelwright/validateInputs"
STATUS = "kernelwright/status"
TARGET_AT = "kernelwright/targetAt"
PROPOSALS_CHANGED = "kernelwright/proposalsChanged"

REQUESTS = frozenset({GENERATE, RECHECK, PROPOSALS, INPUTS, VALIDATE_INPUTS, STATUS, TARGET_AT})

ProposalState = Literal["pending", "accepted", "rejected", "stale"]
T = TypeVar("T")


# --- from the client -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GenerateParams:
    uri: str
    qualname: str
    inputs: str | None = None
    instruction: str | None = None
    work_done_token: int | str | None = None


@dataclass(frozen=True)
class RecheckParams:
    uri: str
    qualname: str
    work_done_token: int | str | None = None


@dataclass(frozen=True)
class ProposalsParams:
    uri: str | None = None


@dataclass(frozen=True)
class InputsParams:
    uri: str
    qualname: str


@dataclass(frozen=True)
class ValidateInputsParams:
    text: str


@dataclass(frozen=True)
class StatusParams:
    """Nothing to say."""


@dataclass(frozen=True)
class TargetAtParams:
    """Asks which target holds `position` (LSP's), or where the target `qualname` is now."""

    uri: str
    position: Json = None
    qualname: str | None = None


# --- to the client ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProposalInfo:
    """A pending proposal as a diff of the document as it is now. `summary` is Markdown."""

    id: str
    uri: str
    qualname: str
    title: str
    summary: str
    original_text: str
    proposed_text: str
    version: int | None


@dataclass(frozen=True)
class GenerateResult:
    """How a request ended. What a person can mend is an outcome here, never a JSON-RPC error."""

    outcome: Literal["proposed", "kept", "declined", "failed", "inputsNeeded", "invalidInputs", "stale", "error"]
    message: str
    qualname: str
    proposal: ProposalInfo | None = None
    suggestion: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class RecheckResult:
    outcome: Literal["passed", "refuted", "error"]
    message: str


@dataclass(frozen=True)
class ProposalsResult:
    proposals: tuple[ProposalInfo, ...]


@dataclass(frozen=True)
class InputsResult:
    """`spec` is "" when nothing says what the function is called with; `suggestion` prefills the box then."""

    spec: str
    origin: str
    suggestion: str
    problem: str | None = None


@dataclass(frozen=True)
class ValidateInputsResult:
    problem: str | None = None


@dataclass(frozen=True)
class StatusResult:
    state: Literal["ready", "busy", "problem"]
    provider: str
    interpreter: str
    message: str
    jobs: int


@dataclass(frozen=True)
class TargetAtResult:
    """The target and LSP's position of its name; neither where there is none."""

    qualname: str | None = None
    position: Json = None


@dataclass(frozen=True)
class ProposalChange:
    id: str
    qualname: str
    state: ProposalState


@dataclass(frozen=True)
class ProposalsChanged:
    uri: str
    proposals: tuple[ProposalChange, ...]


@dataclass(frozen=True)
class CommandResult:
    """What the accept, reject and remove commands answer."""

    applied: bool
    message: str


@dataclass(frozen=True)
class InitializationOptions:
    """`client_commands`: the client has its own `kernelwright.*` commands. `settings`: for one that cannot be asked."""

    client_commands: bool = False
    settings: Json = None


# --- the wire --------------------------------------------------------------------------------------------------------


def read(kind: type[T], data: object) -> T:
    """A message's params as `kind`.

    Raises:
        ValueError: a field is missing or of another type; the text names it.
    """
    if data is None:
        data = {}
    if not isinstance(data, Mapping):
        raise ValueError(f"params must be an object, not {data!r}")
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for entry in fields(kind):  # type: ignore[arg-type]  # every caller hands a dataclass
        value = data.get(camel(entry.name))
        if value is None:
            if entry.default is MISSING:
                raise ValueError(f"{camel(entry.name)} is missing")
            continue
        accepted = tuple(part for part in get_args(hints[entry.name]) or (hints[entry.name],) if isinstance(part, type))
        if hints[entry.name] is not Any and not isinstance(value, accepted):
            raise ValueError(f"{camel(entry.name)} must be {' or '.join(part.__name__ for part in accepted)}")
        values[entry.name] = value
    return kind(**values)


def write(message: Any) -> Json:
    """A message of ours as JSON."""
    if is_dataclass(message) and not isinstance(message, type):
        pairs = ((camel(entry.name), getattr(message, entry.name)) for entry in fields(message))
        return {key: write(value) for key, value in pairs if value is not None}
    return [write(item) for item in message] if isinstance(message, tuple) else message
