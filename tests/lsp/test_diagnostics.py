"""Diagnostics, pulled and pushed: refusals where they arise, evidence that no longer matches."""

from __future__ import annotations

from typing import Any

import pytest
from lsp_client import FULL, PLAIN, Client, Start
from lsprotocol import types as lsp

SOURCE = """\
import torch


def decline_a(x):
    return torch.sort(x)


    # the line above is to blame
def fail_b(x):
    return torch.exp(x)


def propose_c(x):
    return torch.exp(x)
"""


async def pulled(client: Client, uri: str) -> list[lsp.Diagnostic]:
    params = lsp.DocumentDiagnosticParams(lsp.TextDocumentIdentifier(uri))
    return list((await client.text_document_diagnostic_async(params)).items)


def shown(diagnostics: Any) -> list[tuple[Any, ...]]:
    return [
        (item.range.start.line, item.range.start.character, item.range.end.character, item.severity, item.code)
        for item in diagnostics
    ]


DECLINED = (4, 4, 24, lsp.DiagnosticSeverity.Information, "declined")
FAILED = (8, 0, 14, lsp.DiagnosticSeverity.Warning, "K201")


async def test_refusals_lie_where_they_arise(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    assert await pulled(client, uri) == []
    for name in ("decline_a", "fail_b"):
        await client.ask("generate", {"uri": uri, "qualname": name})
    assert client.diagnostic_refresh_count > 0
    declined, failed = await pulled(client, uri)
    assert shown([declined, failed]) == [DECLINED, FAILED]
    assert declined.message == "no kernel by builtin: sort has no kernel (line 5)"
    assert "got nan, expected 0.5" in failed.message and failed.source == "kernelwright"
    assert client.diagnostics == {}


async def test_a_refusal_moves_with_its_function_and_goes_when_that_changes(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    await client.ask("generate", {"uri": uri, "qualname": "decline_a"})
    client.change(uri, "# above\n" + SOURCE, 2)
    assert [item[0] for item in shown(await pulled(client, uri))] == [5]
    client.change(uri, SOURCE.replace("sort", "exp"), 3)
    assert await pulled(client, uri) == []
    client.change(uri, SOURCE, 4)
    assert shown(await pulled(client, uri)) == [DECLINED]
    await client.ask("generate", {"uri": uri, "qualname": "decline_a", "inputs": "x: f32[2]"})
    assert shown(await pulled(client, uri)) == [DECLINED]


async def test_stale_evidence_warns_and_offers_fixes(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    proposal = (await client.ask("generate", {"uri": uri, "qualname": "propose_c"}))["proposal"]
    client.change(uri, proposal["proposedText"], 2)
    assert await pulled(client, uri) == []
    changed = proposal["proposedText"].replace(
        "def propose_c(x):\n    return torch.exp", "def propose_c(x):\n    return torch.tanh"
    )
    client.change(uri, changed, 3)
    (stale,) = await pulled(client, uri)
    assert (stale.severity, stale.code) == (lsp.DiagnosticSeverity.Warning, "stale-evidence")
    fixes = await client.actions(uri, stale.range.start.line, diagnostics=[stale], only=["quickfix"])
    assert [(fix["title"], fix["kind"], fix["command"]["command"]) for fix in fixes] == [
        ("Re-check the kernel of `propose_c`", "quickfix", "kernelwright.recheck"),
        ("Remove the kernel of `propose_c`", "quickfix", "kernelwright.remove"),
    ]
    lenses = [lens.command.title for lens in await client.lenses(uri)]
    assert "kernel was checked against other text · Re-check" in lenses
    hover = await client.hover(uri, stale.range.start.line)
    assert hover and "The function changed since" in hover


async def test_a_client_that_does_not_pull_gets_them_pushed(start: Start, uri: str) -> None:
    client = await start(PLAIN)
    client.open(uri, SOURCE)
    await client.until(lambda: client.pushed(uri) == [])
    await client.ask("generate", {"uri": uri, "qualname": "fail_b"})
    await client.until(lambda: shown(client.pushed(uri) or []) == [FAILED])
    client.change(uri, SOURCE.replace("exp(x)\n\n\ndef propose", "tanh(x)\n\n\ndef propose"), 2)
    await client.until(lambda: client.pushed(uri) == [])
    client.change(uri, SOURCE, 3)
    await client.until(lambda: client.pushed(uri))
    client.text_document_did_close(lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(uri)))
    await client.until(lambda: client.pushed(uri) == [])


@pytest.mark.parametrize(("capabilities", "announced"), [(FULL, True), (PLAIN, False)])
async def test_pulling_is_announced_only_to_who_can_refresh(start: Start, capabilities: Any, announced: bool) -> None:
    client = await start(capabilities)
    assert (client.initialized_with.capabilities.diagnostic_provider is not None) == announced
