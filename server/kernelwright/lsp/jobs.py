"""Long jobs: one a target, one at a time in all (the GPU is one), each cancellable, all gone at shutdown.

No import of pygls. A job is an asyncio task: either the request's own, which the client cancels by its id, or one that a
command started. Nothing here waits for the client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from kernelwright.errors import UsageError

logger = logging.getLogger(__name__)

Key = tuple[str, str]
"""(uri, qualname)"""


class Busy(UsageError):
    """The target is being worked on already."""


class Jobs:
    """The running and waiting jobs, in the order in which they asked."""

    def __init__(self) -> None:
        self._tasks: dict[Key, asyncio.Task[Any]] = {}
        self._tokens: dict[int | str, asyncio.Task[Any]] = {}
        self._background: set[asyncio.Task[Any]] = set()
        self._turn = asyncio.Lock()

    @property
    def count(self) -> int:
        """How many jobs run or wait."""
        return len(self._tasks)

    @asynccontextmanager
    async def turn(self, key: Key, token: int | str | None, waiting: Callable[[], None]) -> AsyncIterator[None]:
        """Make the calling task the target's job, and wait until it may run; `waiting` is called if it has to.

        Raises:
            Busy: another task works on this target.
        """
        task = asyncio.current_task()
        assert task is not None
        if key in self._tasks:
            raise Busy(f"{key[1]} is already being worked on: wait for it, or cancel it first")
        self._tasks[key] = task
        if token is not None:
            self._tokens[token] = task
        try:
            if self._turn.locked():
                waiting()
            async with self._turn:
                yield
        finally:
            del self._tasks[key]
            if token is not None:
                self._tokens.pop(token, None)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work that no request waits for. It is kept until it ends; what it raises is logged."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel_token(self, token: int | str) -> None:
        """Cancel the job that reports under a progress token, if it still runs."""
        task = self._tokens.get(token)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel everything and wait until it has ended, so that no worker is left."""
        tasks = {*self._tasks.values(), *self._background} - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a background job failed", exc_info=task.exception())
