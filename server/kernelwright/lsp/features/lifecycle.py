"""Start, settings, folders, end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.uris import from_fs_path

from kernelwright.lsp import protocol
from kernelwright.lsp.features import diagnostics
from kernelwright.lsp.session import KernelwrightServer

logger = logging.getLogger(__name__)
SECTION = "kernelwright"


def register(server: KernelwrightServer) -> None:
    """Handle initialize, initialized, settings, folders, trace and shutdown."""

    @server.feature(lsp.INITIALIZE)
    def initialize(ls: KernelwrightServer, params: lsp.InitializeParams) -> None:
        ls.options = read_options(params.initialization_options)
        if diagnostics.client_pulls(params.capabilities):
            diagnostics.register_pull(ls)

    @server.feature(lsp.INITIALIZED)
    async def initialized(ls: KernelwrightServer, params: lsp.InitializedParams) -> None:
        watch_settings(ls)
        await configure(ls, ls.options.settings)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def changed(ls: KernelwrightServer, params: lsp.DidChangeConfigurationParams) -> None:
        pushed = params.settings
        await configure(ls, pushed.get(SECTION) if isinstance(pushed, Mapping) else None)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    async def folders_changed(ls: KernelwrightServer, params: lsp.DidChangeWorkspaceFoldersParams) -> None:
        await ls.cores.drop_except(set(ls.roots()))
        await configure(ls, None)

    @server.feature(lsp.SET_TRACE)
    def set_trace(ls: KernelwrightServer, params: lsp.SetTraceParams) -> None:
        verbose = params.value == lsp.TraceValue.Verbose
        logging.getLogger("kernelwright").setLevel(logging.DEBUG if verbose else logging.INFO)

    @server.feature(lsp.SHUTDOWN)
    async def shutdown(ls: KernelwrightServer, params: None) -> None:
        await ls.close()


def read_options(data: object) -> protocol.InitializationOptions:
    """The client's options; ones that make no sense count as absent."""
    try:
        return protocol.read(protocol.InitializationOptions, data)
    except ValueError as error:
        logger.warning("initializationOptions: %s", error)
        return protocol.InitializationOptions()


def watch_settings(server: KernelwrightServer) -> None:
    """Have the client tell us when settings change, where it does that on request."""
    if capability(server.client_capabilities, "workspace", "did_change_configuration", "dynamic_registration"):
        method, options = lsp.WORKSPACE_DID_CHANGE_CONFIGURATION, {"section": SECTION}
        registration = lsp.Registration("kernelwright-settings", method, options)
        server.client_register_capability(lsp.RegistrationParams([registration]))


async def configure(server: KernelwrightServer, pushed: object) -> None:
    """Ask the client for its settings, for each folder and for none; take what it pushed where it cannot be asked."""
    if capability(server.client_capabilities, "workspace", "configuration"):
        roots: list[Path | None] = [None, *server.roots()]
        items = [lsp.ConfigurationItem(from_fs_path(str(root)) if root else None, SECTION) for root in roots]
        answers = await server.workspace_configuration_async(lsp.ConfigurationParams(items))
        configured = {root: as_settings(answer) for root, answer in zip(roots, answers, strict=False)}
    else:
        configured = {None: as_settings(pushed)}
    await server.cores.configure(configured)
    server.configured.set()
    for uri in server.workspace.text_documents:
        server.redraw(uri)


def as_settings(data: object) -> Mapping[str, Any]:
    """A settings object as the client sent it; anything else counts as empty."""
    return data if isinstance(data, Mapping) else {}


def capability(capabilities: object, *path: str) -> bool:
    """Whether the client says that it can do something: capability(c, "workspace", "configuration")."""
    for name in path:
        capabilities = getattr(capabilities, name, None)
    return bool(capabilities)
