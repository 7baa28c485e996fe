"""One frozen tree of settings, every field defaulted, parsed once. `package.json` repeats the defaults; a test compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from kernelwright.errors import UsageError


@dataclass(frozen=True)
class AnthropicSettings:
    model: str = "claude-opus-4-5"
    base_url: str = ""


@dataclass(frozen=True)
class OpenAISettings:
    model: str = "gpt-5.2-codex"
    base_url: str = ""


@dataclass(frozen=True)
class BudgetSettings:
    """What one request may cost. Minutes are wall-clock minutes for the whole request."""

    rounds: int = 4
    minutes: float = 10.0


@dataclass(frozen=True)
class VerifySettings:
    """`seconds` bounds the running of cases, not the compilation; `case_seconds` one batch in the sandbox."""

    seconds: float = 60.0
    case_seconds: float = 30.0
    architectures: tuple[str, ...] = ("sm_80", "sm_90", "sm_120")


@dataclass(frozen=True)
class Settings:
    """Every setting, as `kernelwright.*` in the editor."""

    interpreter: str = ""
    provider: Literal["builtin", "anthropic", "openai", "scripted"] = "builtin"
    placement: Literal["inline", "sibling"] = "inline"
    fallback_warnings: bool = True
    code_lens: bool = True
    anthropic: AnthropicSettings = field(default_factory=AnthropicSettings)
    openai: OpenAISettings = field(default_factory=OpenAISettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    verify: VerifySettings = field(default_factory=VerifySettings)


def parse(data: Mapping[str, Any]) -> tuple[Settings, tuple[str, ...]]:
    """Read the editor's settings object (camelCase keys). Bad values keep the default and give a message each."""
    problems: list[str] = []
    return _parse(Settings(), data, "kernelwright", problems), tuple(problems)


def parse_strict(data: Mapping[str, Any]) -> Settings:
    """Like `parse`, for the command line: the first bad value raises UsageError."""
    settings, problems = parse(data)
    if problems:
        raise UsageError(problems[0])
    return settings


def camel(name: str) -> str:
    """fallback_warnings → fallbackWarnings."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _parse(default: Any, data: Mapping[str, Any], prefix: str, problems: list[str]) -> Any:
    hints = get_type_hints(type(default))
    changes: dict[str, Any] = {}
    for entry in fields(default):
        key = camel(entry.name)
        if key not in data or data[key] is None:
            continue
        value, current = data[key], getattr(default, entry.name)
        if is_dataclass(current):
            if isinstance(value, Mapping):
                changes[entry.name] = _parse(current, value, f"{prefix}.{key}", problems)
            else:
                problems.append(f"{prefix}.{key} must be an object, not {value!r}")
            continue
        converted = _convert(hints[entry.name], value)
        if converted is None:
            problems.append(f"{prefix}.{key} must be {_describe(hints[entry.name])}, not {value!r}; using {current!r}")
        else:
            changes[entry.name] = converted
    return replace(default, **changes)


def _convert(hint: Any, value: Any) -> Any:
    """The value in the hinted type, or None where it does not fit."""
    if get_origin(hint) is Literal:
        return value if value in get_args(hint) else None
    if get_origin(hint) is tuple:
        good = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        return tuple(value) if good else None
    if hint is bool:
        return value if isinstance(value, bool) else None
    if hint is int:
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
    if hint is float:
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
        return float(value) if good else None
    return value if isinstance(value, str) else None


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if get_origin(hint) is tuple:
        return "a list of strings"
    return {bool: "true or false", int: "a positive whole number", float: "a positive number"}.get(hint, "a string")
