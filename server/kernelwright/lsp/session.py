"""The server's state, and what several features do with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from kernelwright import __version__
from kernelwright.lsp.core import CoreFactory
from kernelwright.lsp.cores import Cores
from kernelwright.lsp.documents import Documents, Snapshot, root_of
from kernelwright.lsp.documents import folders as workspace_folders
from kernelwright.lsp.endpoint import Endpoint
from kernelwright.lsp.jobs import Jobs
from kernelwright.lsp.proposals import Proposal, Proposals, Refusals
from kernelwright.lsp.protocol import (
    PROPOSALS_CHANGED,
    InitializationOptions,
    ProposalChange,
    ProposalsChanged,
    write,
)
from kernelwright.settings import Settings

if TYPE_CHECKING:
    from pygls.server import ServerErrors

logger = logging.getLogger(__name__)

CONFIGURATION_WAIT_S = 3.0
CLOSE_WAIT_S = 5.0


class KernelwrightServer(LanguageServer):
    """The language server of one editor window."""

    protocol: Endpoint

    def __init__(self, factory: CoreFactory) -> None:
        # Every kind of notebook: a cell is Python or it is not, whoever made the notebook.
        cells = lsp.NotebookDocumentFilterWithCells(notebook="*", cells=[lsp.NotebookCellLanguage(language="python")])
        super().__init__(
            "kernelwright",
            __version__,
            notebook_document_sync=lsp.NotebookDocumentSyncOptions(notebook_selector=[cells]),
            protocol_cls=Endpoint,
        )
        self.options = InitializationOptions()
        self.cores = Cores(factory, self.show_warning)
        self.documents = Documents(self.cores)
        self.proposals = Proposals()
        self.refusals = Refusals()
        self.jobs = Jobs()
        self.configured = asyncio.Event()
        self.pulls_diagnostics = False
        self.problem = ""
        """What is wrong with the person's environment, as the last job found it; "" when that one could run."""
        self._updates: dict[str, asyncio.TimerHandle] = {}
        self._listeners: list[Callable[[KernelwrightServer, str], None]] = []

    # --- looking up

    def snapshot(self, uri: str) -> Snapshot | None:
        """The document as it is now, or None for one that is not ours to serve."""
        return self.documents.snapshot(self.workspace, uri)

    def roots(self) -> tuple[Path, ...]:
        """The workspace's folders."""
        return workspace_folders(self.workspace)

    def settings_for(self, uri: str) -> Settings:
        """The settings that hold for a document."""
        return self.cores.settings(root_of(uri, self.roots()))

    async def wait_configured(self) -> None:
        """Wait for the client's settings, but not for ever: a client may never answer."""
        try:
            await asyncio.wait_for(self.configured.wait(), CONFIGURATION_WAIT_S)
        except asyncio.TimeoutError:
            logger.warning("the client has not sent its settings: using the defaults")
            self.configured.set()

    # --- telling the client

    def announce(self, uri: str, decided: Iterable[Proposal] = ()) -> None:
        """Tell of a document's proposals, the just decided ones with the open ones, and redraw what shows them."""
        listed = [*decided, *self.proposals.open_in(uri)]
        changes = tuple(ProposalChange(proposal.id, proposal.qualname, proposal.state) for proposal in listed)
        self.protocol.notify(PROPOSALS_CHANGED, write(ProposalsChanged(uri, changes)))
        self.redraw(uri)

    def redraw(self, uri: str) -> None:
        """Have the lenses and diagnostics of a document asked for anew, or send them."""
        workspace = self.client_capabilities.workspace
        if workspace and workspace.code_lens and workspace.code_lens.refresh_support:
            self.workspace_code_lens_refresh(None)
        if self.pulls_diagnostics:
            self.workspace_diagnostic_refresh(None)
        else:
            self.update_soon(uri)

    def update_soon(self, uri: str, delay_s: float = 0.0) -> None:
        """Run `update` once a burst of changes is over."""
        if uri in self._updates:
            self._updates[uri].cancel()
        self._updates[uri] = asyncio.get_running_loop().call_later(delay_s, self._update, uri)

    def on_update(self, listener: Callable[[KernelwrightServer, str], None]) -> None:
        """Have `listener(server, uri)` called when a document or what is known of it changed."""
        self._listeners.append(listener)

    def show_warning(self, message: str) -> None:
        """Show a message to the person."""
        self.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Warning, message))

    def report_server_error(self, error: Exception, source: ServerErrors) -> None:
        """Our own faults go to the log: pygls would send each to the person, also when the connection is what broke."""
        logger.error("%s: %s", source.__name__, error, exc_info=error)

    # --- ending

    async def close(self) -> None:
        """Cancel the jobs, then end the workers; nothing is left running."""
        for handle in self._updates.values():
            handle.cancel()
        try:
            await asyncio.wait_for(self._close(), CLOSE_WAIT_S)
        except asyncio.TimeoutError:
            logger.error("workers did not end within %s s; they end with this process", CLOSE_WAIT_S)

    async def _close(self) -> None:
        await self.jobs.close()
        await self.cores.close()

    def _update(self, uri: str) -> None:
        self._updates.pop(uri, None)
        for listener in self._listeners:
            listener(self, uri)
