"""Starts scripted servers, and sees to it that they end."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from lsp_client import FULL, Client, Start
from lsprotocol import types as lsp

SCRIPTED = Path(__file__).parent / "scripted_server.py"


@pytest_asyncio.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts servers: start(capabilities, options=..., folders=..., settings=...) → an initialised client."""
    clients: list[Client] = []

    async def start_one(
        capabilities: lsp.ClientCapabilities = FULL,
        options: dict[str, Any] | None = None,
        folders: list[Path] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> Client:
        log = tmp_path / f"script{len(clients)}.log"
        client = Client(log, {"": {"kernelwright": settings or {}}})
        clients.append(client)
        env = {"SCRIPT_LOG": str(log), "PATH": "/usr/bin:/bin"}
        await client.start_io(sys.executable, "-I", "-X", "utf8", str(SCRIPTED), env=env)
        client.initialized_with = await client.initialize_session(
            lsp.InitializeParams(
                capabilities,
                initialization_options=options if options is not None else {"clientCommands": True},
                workspace_folders=[
                    lsp.WorkspaceFolder(folder.as_uri(), folder.name) for folder in folders or [tmp_path]
                ],
            )
        )
        return client

    yield start_one
    for client in clients:
        server = client._server
        if server and server.returncode is None:
            await client.shutdown_session()
        await client.stop()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return (tmp_path / "model.py").as_uri()
