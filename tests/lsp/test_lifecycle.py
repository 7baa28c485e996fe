"""Start, settings, folders, notebooks and the end: nothing of ours outlives the client."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from lsp_client import PLAIN, Client, Start
from lsprotocol import types as lsp

SOURCE = "import torch\n\n\ndef propose_a(x):\n    return torch.relu(x)\n"
HANG = "import torch\n\n\ndef hang_checking(x):\n    return torch.relu(x)\n"


async def test_what_is_announced(start: Start) -> None:
    client = await start()
    announced = client.initialized_with.capabilities
    assert [*announced.execute_command_provider.commands] == [
        f"kernelwright.server.{name}" for name in ("accept", "reject", "remove", "generate", "recheck")
    ]
    assert [*announced.code_action_provider.code_action_kinds] == ["refactor.rewrite", "quickfix"]
    assert announced.notebook_document_sync is not None and announced.hover_provider
    assert client.initialized_with.server_info.name == "kernelwright"


async def test_nothing_heavy_is_loaded(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    assert (await client.ask("generate", {"uri": uri, "qualname": "propose_a"}))["outcome"] == "proposed"
    process = Path(f"/proc/{client._server.pid}")
    if not process.exists():
        pytest.skip("needs /proc")
    mapped = (process / "maps").read_text()
    assert not [name for name in ("torch", "triton", "numpy") if f"/{name}/" in mapped]
    resident_kb = next(line.split()[1] for line in (process / "status").read_text().splitlines() if "VmRSS" in line)
    assert int(resident_kb) < 100 * 1024


@pytest.mark.parametrize("module", ["torch", "triton", "numpy", "anthropic", "openai"])
def test_the_server_does_not_import(module: str) -> None:
    program = f"import kernelwright.lsp.server, kernelwright.app, sys; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_settings_are_pulled_and_a_bad_one_is_shown_once(start: Start, uri: str) -> None:
    client = await start(settings={"provider": "scripted", "budget": {"rounds": "many"}})
    client.open(uri, SOURCE)
    await client.ask("generate", {"uri": uri, "qualname": "propose_a"})
    assert (await client.ask("status", {}))["provider"] == "scripted"
    client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams(None))
    client.set_configuration({"provider": "openai", "budget": {"rounds": "many"}}, section="kernelwright")
    client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams(None))
    await client.until(lambda: client.answered >= 3)
    assert (await client.ask("status", {}))["provider"] == "openai"
    assert [shown.message for shown in client.messages] == [
        "kernelwright.budget.rounds must be a positive whole number, not 'many'; using 4"
    ]


async def test_settings_are_taken_as_pushed_where_they_cannot_be_asked_for(start: Start) -> None:
    client = await start(PLAIN, options={"settings": {"provider": "scripted"}})
    assert (await client.ask("generate", {"uri": "untitled:x", "qualname": "f"}))["outcome"] == "error"
    assert (await client.ask("status", {}))["provider"] == "scripted"
    pushed = {"kernelwright": {"provider": "anthropic"}}
    client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams(pushed))
    assert (await client.ask("status", {}))["provider"] == "anthropic"


async def test_a_change_of_settings_lets_the_running_job_finish(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, HANG)
    params = {"uri": uri, "qualname": "hang_checking", "workDoneToken": "t"}
    job = asyncio.ensure_future(client.ask("generate", params, msg_id="job"))
    await client.until(lambda: "Checking values 0/212" in client.said("t"))
    client.set_configuration({"provider": "scripted"}, section="kernelwright")
    client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams(None))
    await client.until(lambda: client.answered >= 2)
    assert (await client.ask("status", {}))["provider"] == "scripted"
    assert not any(line.startswith("closed") for line in client.logged())
    client.cancel_request(lsp.CancelParams("job"))
    with pytest.raises(Exception, match="canceled"):
        await job
    assert [line.split()[0] for line in client.logged()] == ["core", "generate", "core", "cancelled", "closed"]


async def test_each_file_belongs_to_its_innermost_folder(start: Start, tmp_path: Path) -> None:
    outer, inner, elsewhere = tmp_path / "outer", tmp_path / "outer" / "inner", tmp_path / "elsewhere"
    client = await start(folders=[outer, inner])
    for folder in (outer, inner, elsewhere):
        uri = (folder / "a.py").as_uri()
        client.open(uri, SOURCE)
        assert (await client.ask("generate", {"uri": uri, "qualname": "propose_a"}))["outcome"] == "proposed"
    cores = [line.split()[1] for line in client.logged() if line.startswith("core")]
    assert cores == ["outer", "inner", "elsewhere"]
    removed = lsp.WorkspaceFoldersChangeEvent([], [lsp.WorkspaceFolder(inner.as_uri(), "inner")])
    client.workspace_did_change_workspace_folders(lsp.DidChangeWorkspaceFoldersParams(removed))
    await client.until(lambda: client.answered >= 2)
    assert "closed inner" in client.logged() and "closed outer" not in client.logged()


@pytest.mark.parametrize("uri", ["untitled:Untitled-1", "vscode-vfs://github/a/b/model.py"])
async def test_documents_without_a_file(start: Start, uri: str) -> None:
    client = await start()
    client.open(uri, SOURCE)
    assert len(await client.lenses(uri)) == 1
    assert (await client.ask("generate", {"uri": uri, "qualname": "propose_a"}))["outcome"] == "proposed"


async def test_notebook_cells_are_documents(start: Start, tmp_path: Path) -> None:
    client = await start()
    notebook = (tmp_path / "n.ipynb").as_uri()
    uris = [notebook.replace("file:", "vscode-notebook-cell:") + f"#W{number}" for number in range(3)]
    texts = ["import torch\n", SOURCE, "from torch import exp\n\ndef propose_b(x):\n    return exp(x)"]
    cells = [lsp.NotebookCell(lsp.NotebookCellKind.Code, uri) for uri in uris]
    documents = [lsp.TextDocumentItem(uri, "python", 1, text) for uri, text in zip(uris, texts, strict=True)]
    client.notebook_document_did_open(
        lsp.DidOpenNotebookDocumentParams(lsp.NotebookDocument(notebook, "jupyter-notebook", 1, cells), documents)
    )
    assert [len(await client.lenses(uri)) for uri in uris] == [0, 1, 1]
    result = await client.ask("generate", {"uri": uris[1], "qualname": "propose_a"})
    change = lsp.NotebookDocumentCellContentChanges(
        lsp.VersionedTextDocumentIdentifier(2, uris[1]),
        [lsp.TextDocumentContentChangeWholeDocument(SOURCE.replace("relu", "tanh"))],
    )
    client.notebook_document_did_change(
        lsp.DidChangeNotebookDocumentParams(
            lsp.VersionedNotebookDocumentIdentifier(2, notebook),
            lsp.NotebookDocumentChangeEvent(cells=lsp.NotebookDocumentCellChanges(text_content=[change])),
        )
    )
    await client.until(lambda: client.changes and client.changes[-1].proposals[0].state == "stale")
    assert not (await client.command("accept", result["proposal"]["id"]))["applied"]
    client.notebook_document_did_close(
        lsp.DidCloseNotebookDocumentParams(
            lsp.NotebookDocumentIdentifier(notebook), [lsp.TextDocumentIdentifier(uri) for uri in uris]
        )
    )
    assert (await client.ask("status", {}))["state"] == "ready"


async def hanging(start: Start, uri: str) -> tuple[Client, asyncio.Future[object]]:
    """A client with one job at work and one that waits for its turn."""
    client = await start()
    client.open(uri, HANG + "\n\ndef hang_writing(x):\n    return torch.exp(x)\n")
    jobs = []
    for name in ("hang_checking", "hang_writing"):
        params = {"uri": uri, "qualname": name, "workDoneToken": name}
        jobs.append(asyncio.ensure_future(client.ask("generate", params)))
        await client.until(lambda name=name: client.said(name))
    return client, asyncio.gather(*jobs, return_exceptions=True)


async def test_shutdown_with_work_in_flight(start: Start, uri: str) -> None:
    client, jobs = await hanging(start, uri)
    await client.shutdown_session()
    assert client._server.returncode == 0
    await jobs
    assert client.logged()[-2:] == ["cancelled hang_checking", f"closed {Path(uri).parent.name}"]


async def test_a_client_that_vanishes_leaves_nothing(start: Start, uri: str) -> None:
    client, jobs = await hanging(start, uri)
    client._server.stdin.close()
    assert await asyncio.wait_for(client._server.wait(), 10) == 1
    jobs.cancel()
    assert client.logged()[-2:] == ["cancelled hang_checking", f"closed {Path(uri).parent.name}"]
