"""The language server: `create_server` composes it, `serve` runs it on standard input and output."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import BinaryIO

from pygls.io_ import StdinAsyncReader, StdoutWriter, run_async

from kernelwright.lsp.core import CoreFactory
from kernelwright.lsp.features import actions, commands, diagnostics, hover, lenses, lifecycle, requests, sync
from kernelwright.lsp.session import KernelwrightServer
from kernelwright.lsp.stdio import take_stdio

logger = logging.getLogger(__name__)


def create_server(factory: CoreFactory) -> KernelwrightServer:
    """A server with every feature; `factory(settings, root)` makes a core when one is needed."""
    server = KernelwrightServer(factory)
    for feature in (lifecycle, sync, lenses, actions, hover, diagnostics, requests, commands):
        feature.register(server)
    return server


def serve(factory: CoreFactory | None = None) -> int:
    """Serve one client until it says exit or goes away. Returns the exit status: 0 after a proper shutdown."""
    streams = take_stdio()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("pygls").setLevel(logging.ERROR)
    if factory is None:
        from kernelwright.app import App

        factory = lambda settings, root: App(settings, root=root, keep_warm=True)  # noqa: E731
    try:
        asyncio.run(run(create_server(factory), *streams))
    except SystemExit as ending:
        return int(ending.code or 0)
    except (BrokenPipeError, KeyboardInterrupt):
        # The reading thread may be blocked for ever, and an ordinary exit would wait for it.
        os._exit(1)
    return 1


async def run(server: KernelwrightServer, reader: BinaryIO, writer: BinaryIO) -> None:
    """Handle messages until the input ends.

    Raises:
        SystemExit: the client sent `exit`.
    """
    server.protocol.set_writer(StdoutWriter(writer))
    # One thread of its own for reading: a busy pool must not make the server deaf.
    pool = ThreadPoolExecutor(1, "reader")
    try:
        await run_async(Event(), StdinAsyncReader(reader, pool), server.protocol, logger, server.report_server_error)
    finally:
        await server.close()
        pool.shutdown(wait=False)
