"""The real server with the real core and workers: few tests, because each starts torch."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from lsp_client import FULL, Client
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

EXAMPLES = Path(__file__).parents[2] / "examples"
GONE_S = 2.0
"""How long workers may outlive their job."""

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches processes through Linux's pidfds")


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of `kernelwright serve` in a folder with copies of the examples."""
    for example in EXAMPLES.glob("*.py"):
        shutil.copy(example, tmp_path)
    client = Client(tmp_path / "none.log", {"": {"kernelwright": {}}})
    env = {**os.environ, "KERNELWRIGHT_HOME": str(tmp_path / "home")}
    await client.start_io(sys.executable, "-I", "-X", "utf8", "-m", "kernelwright", "serve", env=env)
    folder = lsp.WorkspaceFolder(tmp_path.as_uri(), "examples")
    client.initialized_with = await client.initialize_session(
        lsp.InitializeParams(FULL, initialization_options={"clientCommands": True}, workspace_folders=[folder])
    )
    yield client
    if client._server.returncode is None:
        await client.shutdown_session()
    await client.stop()


def open_example(client: Client, tmp_path: Path, name: str) -> str:
    uri = (tmp_path / name).as_uri()
    client.open(uri, (tmp_path / name).read_text())
    return uri


def descendants(root: int) -> set[int]:
    """The processes below one, however deep."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in {root, *found}} - found:
        found |= more
    return found


async def gone(pids: set[int]) -> None:
    """Wait until every process has ended, for GONE_S at most."""
    loop = asyncio.get_running_loop()
    waits: dict[int, asyncio.Future[None]] = {}
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        waits[pid] = loop.create_future()
        loop.add_reader(handle, end, loop, handle, waits[pid])
    if waits:
        await asyncio.wait(waits.values(), timeout=GONE_S)
    left = [pid for pid, ended in waits.items() if not ended.done()]
    assert not left, [describe(pid) for pid in left]


def end(loop: asyncio.AbstractEventLoop, handle: int, ended: asyncio.Future[None]) -> None:
    loop.remove_reader(handle)
    os.close(handle)
    ended.set_result(None)


def describe(pid: int) -> str:
    """What a process is, for a failure's message."""
    process = Path(f"/proc/{pid}")
    try:
        return f"{pid}: {process.joinpath('stat').read_text()[:60]} {process.joinpath('cmdline').read_text()[-80:]}"
    except OSError:
        return f"{pid}: gone by now"


async def start_job(client: Client, tmp_path: Path, stage: str) -> tuple[asyncio.Future[object], set[int]]:
    """A job that has reached a stage, and the processes that work for it."""
    uri = open_example(client, tmp_path, "softmax.py")
    params = {"uri": uri, "qualname": "tempered_softmax", "workDoneToken": "t"}
    client.progress_reports["t"] = []
    request = client.protocol.send_request_async("kernelwright/generate", params, "job")
    job = asyncio.ensure_future(request)
    await client.until(lambda: any(message.startswith(stage) for message in client.said("t")), seconds=120)
    return job, descendants(client._server.pid)


async def test_examples_have_their_lenses(client: Client, tmp_path: Path) -> None:
    counts = {
        path.name: len(await client.lenses(open_example(client, tmp_path, path.name))) for path in tmp_path.glob("*.py")
    }
    assert counts == dict.fromkeys(counts, 1)


async def test_what_cannot_be_a_kernel_is_declined_on_its_line(client: Client, tmp_path: Path) -> None:
    uri = open_example(client, tmp_path, "declined.py")
    request = client.protocol.send_request_async("kernelwright/generate", {"uri": uri, "qualname": "keep_confident"})
    result = await request
    assert result.outcome == "declined", result.message
    params = lsp.DocumentDiagnosticParams(lsp.TextDocumentIdentifier(uri))
    (shown,) = (await client.text_document_diagnostic_async(params)).items
    assert "scores[confident]" in (tmp_path / "declined.py").read_text().splitlines()[shown.range.start.line]


@pytest.mark.parametrize("stage", ["Starting workers", "Writing kernel", "Checking"])
async def test_a_cancelled_job_leaves_no_process_at_work(client: Client, tmp_path: Path, stage: str) -> None:
    job, workers = await start_job(client, tmp_path, stage)
    client.cancel_request(lsp.CancelParams("job"))
    with pytest.raises(JsonRpcException, match="canceled"):
        await job
    assert client.ended("t")
    await gone(workers)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_server_leaves_no_process(client: Client, tmp_path: Path, how: signal.Signals) -> None:
    job, workers = await start_job(client, tmp_path, "Checking")
    assert workers
    client._server.send_signal(how)
    await gone(workers)
    job.cancel()
