"""Our messages: read strictly, written in camelCase, the same on both sides."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

import pytest

from kernelwright.lsp import protocol
from kernelwright.lsp.protocol import (
    GenerateParams,
    GenerateResult,
    InitializationOptions,
    ProposalChange,
    ProposalInfo,
    ProposalsChanged,
    ProposalsParams,
    StatusParams,
    read,
    write,
)
from kernelwright.settings import camel

TYPESCRIPT = Path(__file__).parents[2] / "client" / "src" / "protocol.ts"


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (GenerateParams, {"uri": "u", "qualname": "q"}, GenerateParams("u", "q")),
        (
            GenerateParams,
            {"uri": "u", "qualname": "q", "inputs": None, "workDoneToken": 3, "newer": True},
            GenerateParams("u", "q", work_done_token=3),
        ),
        (ProposalsParams, None, ProposalsParams()),
        (StatusParams, {}, StatusParams()),
        (InitializationOptions, {"clientCommands": True}, InitializationOptions(True)),
    ],
)
def test_read(kind: type, data: object, message: object) -> None:
    assert read(kind, data) == message


@pytest.mark.parametrize(
    ("kind", "data", "says"),
    [
        (GenerateParams, {"qualname": "q"}, "uri is missing"),
        (GenerateParams, {"uri": None, "qualname": "q"}, "uri is missing"),
        (GenerateParams, {"uri": "u", "qualname": ["q"]}, "qualname must be str"),
        (GenerateParams, {"uri": "u", "qualname": "q", "workDoneToken": 1.5}, "workDoneToken must be int or str"),
        (GenerateParams, "u", "params must be an object"),
        (InitializationOptions, {"clientCommands": "yes"}, "clientCommands must be bool"),
    ],
)
def test_read_refuses(kind: type, data: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(kind, data)


def test_write() -> None:
    info = ProposalInfo("i", "u", "q", "t", "s", "a", "b", None)
    result = GenerateResult("proposed", "m", "q", proposal=info)
    body = {"id": "i", "uri": "u", "qualname": "q", "title": "t", "summary": "s"}
    assert write(result) == {
        "outcome": "proposed", "message": "m", "qualname": "q",
        "proposal": {**body, "originalText": "a", "proposedText": "b"},
    }  # fmt: skip
    changed = ProposalsChanged("u", (ProposalChange("i", "q", "stale"),))
    assert write(changed) == {"uri": "u", "proposals": [{"id": "i", "qualname": "q", "state": "stale"}]}


def typescript() -> dict[str, dict[str, bool]]:
    """The interfaces of protocol.ts: name → field → whether it may be absent."""
    found = re.findall(r"export interface (\w+) \{\n(.*?)\n\}", TYPESCRIPT.read_text(encoding="utf-8"), re.DOTALL)
    return {name: {key: bool(mark) for key, mark in re.findall(r"^  (\w+)(\??):", body, re.M)} for name, body in found}


@pytest.mark.parametrize("name", sorted(typescript()))
def test_the_client_says_the_same(name: str) -> None:
    kind = getattr(protocol, name)
    assert is_dataclass(kind)
    ours = {camel(entry.name): entry.default is not MISSING for entry in fields(kind)}
    # What only plain clients send is no business of ours in TypeScript; nor is how null is written there.
    ours.pop("settings", None)
    theirs = typescript()[name]
    assert ours.keys() == theirs.keys()
    if name.endswith("Params"):
        assert ours == theirs


def test_both_sides_know_the_same_methods() -> None:
    text = TYPESCRIPT.read_text(encoding="utf-8")
    methods = set(re.findall(r"'(kernelwright/\w+)'", text))
    assert methods == {*protocol.REQUESTS, protocol.PROPOSALS_CHANGED}
