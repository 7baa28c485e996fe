"""Settings: parsed once, defaults in one place, and the editor's package.json in step with them."""

import json
from dataclasses import fields, is_dataclass, replace
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
        ({"openai": {"baseUrl": "http://h/v1"}}, lambda s: s.openai.base_url, "http://h/v1"),
        ({"verify": {"caseSeconds": 1.5}}, lambda s: s.verify.case_seconds, 1.5),
        ({"budget": {"rounds": 9}}, lambda s: s.budget, replace(Settings().budget, rounds=9)),
        ({"verify": {"architectures": []}}, lambda s: s.verify.architectures, ()),
        ({"unknown": 1, "fallback_warnings": False}, lambda s: s, Settings()),
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
        ({"verify": {"architectures": ["sm_90", 3]}}, "kernelwright.verify.architectures must be a list of strings"),
        ({"verify": {"seconds": "60"}}, "kernelwright.verify.seconds must be a positive number"),
        ({"verify": {"seconds": float("nan")}}, "kernelwright.verify.seconds must be a positive number"),
        ({"budget": {"rounds": 2.5}}, "kernelwright.budget.rounds must be a positive whole number"),
        ({"provider": ["openai"]}, "kernelwright.provider must be one of"),
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


TYPES = {bool: {"type": "boolean"}, int: {"type": "integer", "minimum": 1}, str: {"type": "string"}}
TYPES |= {float: {"type": "number", "exclusiveMinimum": 0}, tuple: {"type": "array", "items": {"type": "string"}}}


def declared():
    """The settings that the editor offers: key → schema."""
    return json.loads(PACKAGE.read_text(encoding="utf-8"))["contributes"]["configuration"]["properties"]


def test_good_values_survive_bad_ones():
    settings, problems = parse({"provider": "gemini", "codeLens": False, "budget": {"rounds": 0, "minutes": 3}})
    assert (settings.code_lens, settings.budget.minutes, settings.budget.rounds) == (
        False,
        3.0,
        Settings().budget.rounds,
    )
    assert len(problems) == 2


@pytest.mark.parametrize(
    ("name", "key"), [("provider", "provider"), ("fallback_warnings", "fallbackWarnings"), ("a_b_c", "aBC")]
)
def test_camel(name, key):
    assert camel(name) == key


def test_package_json_offers_every_setting_and_no_other():
    # The client's own setting, which the server never sees: the protocol trace.
    assert set(declared()) - {"kernelwright.trace.server"} == {key for key, *_ in leaves(Settings())}


@pytest.mark.parametrize(("key", "value", "hint"), list(leaves(Settings())), ids=lambda part: str(part)[:40])
def test_package_json_repeats_default_and_type(key, value, hint):
    schema = declared()[key]
    assert schema["default"] == (list(value) if isinstance(value, tuple) else value)
    plain = {"type": "string"} if get_origin(hint) is Literal else TYPES[get_origin(hint) or hint]
    assert {name: schema.get(name) for name in plain} == plain
    offered = set(get_args(hint)) - HIDDEN if get_origin(hint) is Literal else set()
    assert set(schema.get("enum", ())) == offered


def test_the_editor_s_defaults_parse_to_ours():
    nested = {}
    for key, schema in declared().items():
        *path, name = key.split(".")[1:]
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[name] = schema["default"]
    assert parse(nested) == (Settings(), ())
