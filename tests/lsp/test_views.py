"""Lenses, code actions and hover: what a person sees of a function, from first sight to an accepted kernel."""

from __future__ import annotations

import pytest
from lsp_client import PLAIN, Start

SOURCE = """\
import torch


class Model:
    def propose_forward(self, x):
        return torch.relu(x)


def propose_norm(x):
    def inner(y):
        return torch.exp(y)

    return inner(x)


def no_kernel_here(x):
    return x
"""


def shown(lenses):
    return [(lens.range.start.line, lens.command.title, lens.command.command) for lens in lenses]


async def test_only_functions_that_use_torch_have_a_lens(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    lenses = await client.lenses(uri)
    title, command = "Generate Triton kernel", "kernelwright.generate"
    assert shown(lenses) == [(4, title, command), (8, title, command), (9, title, command)]
    assert [*lenses[0].command.arguments] == [uri, "Model.propose_forward"]
    assert [*lenses[2].command.arguments] == [uri, "propose_norm.<locals>.inner"]


async def test_a_pending_proposal_changes_lens_action_and_hover(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    assert await client.hover(uri, 8) is None
    result = await client.ask("generate", {"uri": uri, "qualname": "propose_norm"})
    assert (result["outcome"], result["message"]) == (
        "proposed",
        "propose_norm: a kernel that passed 2 cases, max error 1.25e-07",
    )
    proposal = result["proposal"]["id"]
    lenses = [lens for lens in await client.lenses(uri) if lens.range.start.line == 8]
    assert shown(lenses) == [
        (8, "Review kernel", "kernelwright.review"),
        (8, "Accept", "kernelwright.accept"),
        (8, "Reject", "kernelwright.reject"),
    ]
    assert all([*lens.command.arguments] == [uri, "propose_norm", proposal] for lens in lenses)
    actions = await client.actions(uri, 8, only=["refactor"])
    assert [(action["title"].split()[0], action["kind"]) for action in actions] == [
        ("Review", "refactor.rewrite"),
        ("Accept", "refactor.rewrite"),
        ("Reject", "refactor.rewrite"),
    ]
    hover = await client.hover(uri, 8)
    assert hover and "| cases | 2 |" in hover and "1.25e-07" in hover and "Not yet accepted" in hover


async def test_an_accepted_kernel_is_shown_with_its_evidence(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    proposal = (await client.ask("generate", {"uri": uri, "qualname": "propose_norm"}))["proposal"]
    assert (await client.command("accept", proposal["id"]))["applied"]
    client.change(uri, proposal["proposedText"], 2)
    line = proposal["proposedText"].splitlines().index("def propose_norm(x):")
    lenses = [lens for lens in await client.lenses(uri) if lens.command.arguments[1] == "propose_norm"]
    assert shown(lenses) == [
        (line, "✓ checked kernel · Re-check", "kernelwright.recheck"),
        (line, "Remove", "kernelwright.remove"),
    ]
    hover = await client.hover(uri, line)
    assert (
        hover
        and "Checked Triton kernel of `propose_norm`" in hover
        and "| domain | float32/bfloat16, x [s0, s1]" in hover
    )
    assert [action["title"] for action in await client.actions(uri, line)] == [
        "Re-check the kernel of `propose_norm`",
        "Remove the kernel of `propose_norm`",
    ]


async def test_a_kernel_from_another_machine_is_described_by_its_header(start: Start, uri: str) -> None:
    first = await start()
    first.open(uri, SOURCE)
    text = (await first.ask("generate", {"uri": uri, "qualname": "propose_norm"}))["proposal"]["proposedText"]
    second = await start()
    second.open(uri, text)
    hover = await second.hover(uri, text.splitlines().index("def propose_norm(x):"))
    assert hover and "written by builtin on 2026-12-01" in hover and "made on another machine" in hover


async def test_a_kernel_whose_decorator_was_taken_off_is_called_unused(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    proposal = (await client.ask("generate", {"uri": uri, "qualname": "propose_norm"}))["proposal"]
    assert (await client.command("accept", proposal["id"]))["applied"]
    client.change(uri, proposal["proposedText"].replace("\n@_kernelwright_propose_norm\n", "\n"), 2)
    titles = [lens.command.title for lens in await client.lenses(uri)]
    assert "checked kernel without its decorator: not used · Re-check" in titles


@pytest.mark.parametrize(
    ("line", "only", "titles"),
    [
        (4, None, ["Generate Triton kernel for `propose_forward`"]),
        (5, ["refactor.rewrite"], ["Generate Triton kernel for `propose_forward`"]),
        (10, ["refactor"], ["Generate Triton kernel for `inner`"]),
        (12, None, ["Generate Triton kernel for `propose_norm`"]),
        (8, ["quickfix"], []),
        (8, ["refactor.extract"], []),
        (8, ["source"], []),
        (15, None, []),
        (0, None, []),
    ],
)
async def test_code_actions_follow_the_cursor_and_the_kinds(start: Start, uri: str, line, only, titles) -> None:
    client = await start()
    client.open(uri, SOURCE)
    assert [action["title"] for action in await client.actions(uri, line, only=only)] == titles


async def test_the_lens_can_be_switched_off(start: Start, uri: str) -> None:
    client = await start(settings={"codeLens": False})
    client.open(uri, SOURCE)
    await client.ask("generate", {"uri": uri, "qualname": "decline"})
    assert await client.lenses(uri) == []


async def test_a_plain_client_gets_the_servers_own_commands_and_no_review(start: Start, uri: str) -> None:
    client = await start(PLAIN, options={})
    client.open(uri, SOURCE)
    assert {lens.command.command for lens in await client.lenses(uri)} == {"kernelwright.server.generate"}
    await client.ask("generate", {"uri": uri, "qualname": "propose_norm"})
    lenses = [lens for lens in await client.lenses(uri) if lens.range.start.line == 8]
    assert [lens.command.title for lens in lenses] == ["Accept", "Reject"]
    assert (await client.command("accept", *lenses[0].command.arguments))["applied"]


@pytest.mark.parametrize(("language", "name"), [("markdown", "notes.md"), ("plaintext", "model.py")])
async def test_other_languages_are_left_alone(start: Start, uri: str, language: str, name: str) -> None:
    client = await start()
    other = uri.replace("model.py", name)
    client.open(other, SOURCE, language=language)
    assert await client.lenses(other) == [] and await client.actions(other, 4) == []


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"position": {"line": 10, "character": 3}}, ("propose_norm.<locals>.inner", 9, 8)),
        ({"position": {"line": 12, "character": 0}}, ("propose_norm", 8, 4)),
        ({"qualname": "Model.propose_forward"}, ("Model.propose_forward", 4, 8)),
        ({"position": {"line": 16, "character": 0}}, None),
        ({"qualname": "gone"}, None),
        ({}, None),
    ],
)
async def test_which_target_is_where(start: Start, uri: str, asked, answer) -> None:
    client = await start()
    client.open(uri, SOURCE)
    expected = {}
    if answer:
        name, line, character = answer
        expected = {"qualname": name, "position": {"line": line, "character": character}}
    assert await client.ask("targetAt", {"uri": uri, **asked}) == expected
