"""Settings: parsed once, defaults in one place, and the editor's package.json in step with them."""

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from kernelwright.errors import UsageError
from kernelwright.settings import Settings, camel, parse, parse_strict

PACKAGE = Path(__file__).parents[2] / "package.json"
HIDDEN = {"scripted"}


def leaves(settings, prefix="kernelwright"):
    """(key, default, hint) of every setting."""
    hints = get_type_hints(type(settings))
    for entry in fields(settings):
        value, key = getattr(settings, entry.name), f"{prefix}.{camel(entry.name)}"
        if is_dataclass(value):
            yield from leaves(value, key)
        else:
            yield key, value, hints[entry.name]


def test_nothing_given_is_the_defaults():
    assert parse({}) == (Settings(), ())


@pytest.mark.parametrize(
    ("data", "read", "expected"),
    [
        ({"provider": "openai"}, lambda s: s.provider, "openai"),
        ({"fallbackWarnings": False}, lambda s: s.fallback_warnings, False),
        ({"anthropic": {"model": "m"}}, lambda s: s.anthropic.model, "m"),
        ({"budget": {"minutes": 2}}, lambda s: s.budget.minutes, 2.0),
        ({"verify": {"architectures": ["sm_90"]}}, lambda s: s.verify.architectures, ("sm_90",)),
        ({"unknown": 1}, lambda s: s, Settings()),
        ({"provider": None}, lambda s: s, Settings()),
    ],
)
def test_good_values(data, read, expected):
    settings, problems = parse(data)
    assert (read(settings), problems) == (expected, ())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"provider": "gemini"}, "kernelwright.provider must be one of"),
        ({"fallbackWarnings": "yes"}, "kernelwright.fallbackWarnings must be true or false"),
        ({"budget": {"rounds": 0}}, "kernelwright.budget.rounds must be a positive whole number"),
        ({"budget": {"rounds": True}}, "kernelwright.budget.rounds must be a positive whole number"),
        ({"budget": {"minutes": float("inf")}}, "kernelwright.budget.minutes must be a positive number"),
        ({"budget": 3}, "kernelwright.budget must be an object"),
        ({"verify": {"architectures": "sm_90"}}, "kernelwright.verify.architectures must be a list of strings"),
        ({"interpreter": 3}, "kernelwright.interpreter must be a string"),
    ],
)
def test_bad_values_keep_the_default_and_are_said(data, words):
    settings, problems = parse(data)
    assert settings == Settings()
    assert len(problems) == 1
    assert problems[0].startswith(words)
    with pytest.raises(UsageError):
        parse_strict(data)


def test_package_json_has_the_same_settings():
    declared = json.loads(PACKAGE.read_text())["contributes"]["configuration"]["properties"]
    ours = {key: (value, hint) for key, value, hint in leaves(Settings())}
    # Settings of the client alone: the protocol trace.
    assert {key for key in declared if key not in ours} <= {"kernelwright.trace.server"}
    for key, (value, hint) in ours.items():
        default = list(value) if isinstance(value, tuple) else value
        assert declared[key]["default"] == default, key
        if get_origin(hint) is Literal:
            assert set(declared[key]["enum"]) == set(get_args(hint)) - HIDDEN, key
