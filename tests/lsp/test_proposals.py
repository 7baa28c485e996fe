"""From a proposal to a decision: accept on the text as it is now, refuse what went stale, one undo step."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest
from lsp_client import FULL, PLAIN, Client, Start, plain
from lsprotocol import types as lsp

SOURCE = """\
import torch


def propose_a(x):
    return torch.relu(x)


class Model:
    def propose_b(self, x):
        return torch.exp(x)  # 😀
"""


async def propose(client: Client, uri: str, source: str = SOURCE, qualname: str = "propose_a") -> dict[str, Any]:
    client.open(uri, source)
    return (await client.ask("generate", {"uri": uri, "qualname": qualname}))["proposal"]


def states(client: Client) -> list[list[str]]:
    return [[item["state"] for item in plain(change)["proposals"]] for change in client.changes]


def applied(text: str, edits: Any) -> str:
    """The text after edits whose columns are all 0, as ours are."""
    lines = text.splitlines(keepends=True)
    for edit in sorted(edits, key=lambda edit: edit.range.start.line, reverse=True):
        assert edit.range.start.character == edit.range.end.character == 0
        lines[edit.range.start.line : edit.range.end.line] = [edit.new_text]
    return "".join(lines)


async def test_accept_applies_a_versioned_minimal_labelled_edit(start: Start, uri: str) -> None:
    client = await start()
    proposal = await propose(client, uri)
    assert await client.command("accept", proposal["id"]) == {
        "applied": True,
        "message": "propose_a now has a checked kernel",
    }
    (sent,) = client.edits
    (change,) = sent.edit.document_changes
    assert (sent.label, change.text_document.uri, change.text_document.version) == (
        "Accept the Triton kernel for propose_a", uri, 1,
    )  # fmt: skip
    assert applied(SOURCE, change.edits) == proposal["proposedText"]
    assert all(edit.range.start == edit.range.end for edit in change.edits)
    assert states(client) == [["pending"], ["accepted"]]
    assert (await client.command("accept", proposal["id"]))["message"] == "this proposal was already accepted"


async def test_a_client_without_versioned_edits_gets_plain_ones(start: Start, uri: str) -> None:
    client = await start(PLAIN)
    proposal = await propose(client, uri)
    assert (await client.command("accept", proposal["id"]))["applied"]
    assert applied(SOURCE, client.edits[0].edit.changes[uri]) == proposal["proposedText"]


async def test_edits_above_are_no_obstacle(start: Start, uri: str) -> None:
    client = await start()
    proposal = await propose(client, uri)
    moved = '"""A new docstring 😀."""\n\n' + SOURCE
    client.change(uri, moved, 2)
    assert (await client.command("accept", proposal["id"]))["applied"]
    (change,) = client.edits[0].edit.document_changes
    assert change.text_document.version == 2
    assert applied(moved, change.edits) == moved[: len(moved) - len(SOURCE)] + proposal["proposedText"]


async def test_an_edit_of_the_function_makes_it_stale_and_an_undo_pending_again(start: Start, uri: str) -> None:
    client = await start()
    proposal = await propose(client, uri)
    client.change(uri, SOURCE.replace("relu", "tanh"), 2)
    await client.until(lambda: states(client)[-1:] == [["stale"]])
    assert {lens.command.title for lens in await client.lenses(uri)} == {"Generate Triton kernel"}
    assert await client.command("accept", proposal["id"]) == {
        "applied": False,
        "message": "propose_a changed since this kernel was checked",
    }
    assert client.edits == [] and await client.ask("proposals", {"uri": uri}) == {"proposals": []}
    client.change(uri, SOURCE, 3)
    await client.until(lambda: states(client)[-1:] == [["pending"]])
    assert (await client.command("accept", proposal["id"]))["applied"]


async def test_accepting_at_once_after_an_edit_refuses_too(start: Start, uri: str) -> None:
    client = await start()
    proposal = await propose(client, uri)
    client.change(uri, SOURCE.replace("relu", "tanh"), 2)
    result = await client.command("accept", proposal["id"])
    assert not result["applied"] and client.edits == [] and states(client)[-1] == ["stale"]


@pytest.mark.parametrize(
    ("edited", "outcome"),
    [(SOURCE.replace("relu", "tanh"), "stale"), ("import torch\n", "stale"), ("# above\n" + SOURCE, "proposed")],
)
async def test_an_edit_while_the_kernel_is_checked(start: Start, uri: str, edited: str, outcome: str) -> None:
    client = await start()
    client.open(uri, SOURCE.replace("propose_a", "pause_a"))
    params = {"uri": uri, "qualname": "pause_a", "workDoneToken": "t"}
    job = asyncio.ensure_future(client.ask("generate", params))
    await client.until(lambda: "Compiling for sm_90" in client.said("t"))
    client.change(uri, edited.replace("propose_a", "pause_a"), 2)
    await client.ask("status", {})
    result = await job
    assert result["outcome"] == outcome
    if outcome == "proposed":
        assert result["proposal"]["version"] == 2 and result["proposal"]["originalText"].startswith("# above\n")


async def test_reject(start: Start, uri: str) -> None:
    client = await start()
    proposal = await propose(client, uri)
    assert (await client.command("reject", proposal["id"]))["applied"]
    assert states(client) == [["pending"], ["rejected"]]
    assert {lens.command.title for lens in await client.lenses(uri)} == {"Generate Triton kernel"}
    for command in ("accept", "reject"):
        assert not (await client.command(command, proposal["id"]))["applied"]


async def test_a_new_proposal_takes_the_place_of_the_old(start: Start, uri: str) -> None:
    client = await start()
    first = await propose(client, uri)
    second = (await client.ask("generate", {"uri": uri, "qualname": "propose_a"}))["proposal"]
    assert [item["id"] for item in (await client.ask("proposals", {}))["proposals"]] == [second["id"]]
    assert "gone" in (await client.command("accept", first["id"]))["message"]


async def test_an_edit_that_the_editor_refuses_leaves_the_proposal_pending(start: Start, uri: str) -> None:
    client = await start()
    proposal = await propose(client, uri)
    client.accept_edits = False
    assert not (await client.command("accept", proposal["id"]))["applied"]
    client.accept_edits = True
    assert (await client.command("accept", proposal["id"]))["applied"]


async def test_remove_takes_the_kernel_out_again(start: Start, uri: str) -> None:
    client = await start()
    proposal = await propose(client, uri)
    client.change(uri, proposal["proposedText"], 2)
    assert (await client.command("remove", uri, "propose_a"))["applied"]
    assert applied(proposal["proposedText"], client.edits[0].edit.document_changes[0].edits) == SOURCE
    assert not (await client.command("remove", uri, "Model.propose_b"))["applied"]


async def test_a_failure_is_shown_to_a_plain_client(start: Start, uri: str) -> None:
    client = await start(PLAIN, options={})
    await client.command("accept", "no such id")
    assert [shown.message for shown in client.messages] == ["this proposal is gone: generate the kernel again"]


async def test_windows_line_endings_stay(start: Start, uri: str) -> None:
    client = await start()
    source = SOURCE.replace("\n", "\r\n")
    proposal = await propose(client, uri, source)
    assert "\n" not in proposal["proposedText"].replace("\r\n", "")
    assert (await client.command("accept", proposal["id"]))["applied"]
    (change,) = client.edits[0].edit.document_changes
    assert applied(source, change.edits) == proposal["proposedText"]


ENCODINGS = [
    (lsp.PositionEncodingKind.Utf8, 14),
    (lsp.PositionEncodingKind.Utf16, 12),
    (lsp.PositionEncodingKind.Utf32, 11),
]


@pytest.mark.parametrize(("encoding", "column"), ENCODINGS)
async def test_positions_count_as_the_client_does(start: Start, uri: str, encoding: str, column: int) -> None:
    general = lsp.GeneralClientCapabilities(position_encodings=[encoding])
    client = await start(lsp.ClientCapabilities(workspace=FULL.workspace, general=general))
    client.open(uri, "import torch\nx = '😀'\nif 1: '😀'; \n")
    # A real edit on a line with an emoji, in the client's units, then a function on a line after one.
    where = lsp.Range(lsp.Position(2, column), lsp.Position(2, column))
    client.text_document_did_change(
        lsp.DidChangeTextDocumentParams(
            lsp.VersionedTextDocumentIdentifier(2, uri),
            [lsp.TextDocumentContentChangePartial(where, "pass\n\ndef propose_a(x): return torch.exp(x, '😀')")],
        )
    )
    (lens,) = await client.lenses(uri)
    assert (lens.range.start, lens.range.end) == (lsp.Position(4, 4), lsp.Position(4, 13))
    result = await client.ask("generate", {"uri": uri, "qualname": "propose_a"})
    assert result["proposal"]["originalText"].splitlines()[2:5] == [
        "if 1: '😀'; pass",
        "",
        "def propose_a(x): return torch.exp(x, '😀')",
    ]


async def test_a_form_feed_is_no_line_end(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, "import torch\n\x0c\n# \x85 \u2028 \n\n\ndef propose_a(x):\n    return torch.relu(x)\n")
    assert [lens.range.start.line for lens in await client.lenses(uri)] == [5]
    where = lsp.Range(lsp.Position(5, 4), lsp.Position(5, 13))
    client.text_document_did_change(
        lsp.DidChangeTextDocumentParams(
            lsp.VersionedTextDocumentIdentifier(2, uri), [lsp.TextDocumentContentChangePartial(where, "propose_b")]
        )
    )
    assert [list(lens.command.arguments) for lens in await client.lenses(uri)] == [[uri, "propose_b"]]


CREATES = attrs.evolve(
    FULL,
    workspace=attrs.evolve(
        FULL.workspace,
        workspace_edit=lsp.WorkspaceEditClientCapabilities(
            document_changes=True, resource_operations=[lsp.ResourceOperationKind.Create]
        ),
    ),
)


async def test_a_sibling_file_is_created_first(start: Start, uri: str) -> None:
    client = await start(CREATES, settings={"placement": "sibling"})
    client.open(uri, SOURCE)
    proposal = (await client.ask("generate", {"uri": uri, "qualname": "propose_a"}))["proposal"]
    assert "@triton.jit" not in proposal["proposedText"] and "@triton.jit" in proposal["summary"]
    assert (await client.command("accept", proposal["id"]))["applied"]
    create, fill, change = client.edits[0].edit.document_changes
    assert (create.kind, create.uri) == ("create", uri.replace("model.py", "model_propose_a_triton.py"))
    assert fill.text_document.uri == create.uri and "@triton.jit" in fill.edits[0].new_text
    assert applied(SOURCE, change.edits) == proposal["proposedText"]


async def test_an_editor_that_cannot_create_files_is_told_so(start: Start, uri: str) -> None:
    client = await start(FULL, settings={"placement": "sibling"})
    proposal = await propose(client, uri)
    result = await client.command("accept", proposal["id"])
    assert not result["applied"] and "placement" in result["message"] and client.edits == []
