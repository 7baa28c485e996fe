"""One core a root, made when it is first needed and again when its settings change.

A core that a job still uses is closed when the job ends, so changing a setting kills nobody's work.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelwright.errors import KernelwrightError
from kernelwright.lsp.core import Core, CoreFactory
from kernelwright.settings import Settings, parse

logger = logging.getLogger(__name__)


class Cores:
    """The cores by root. `warn` shows a message to the person; each is shown once."""

    def __init__(self, factory: CoreFactory, warn: Callable[[str], None]) -> None:
        self._factory = factory
        self._warn = warn
        self._warned: set[str] = set()
        self._settings: dict[Path | None, Settings] = {}
        self._cores: dict[Path, Core] = {}
        self._users: Counter[int] = Counter()
        self._retired: dict[int, Core] = {}

    def settings(self, root: Path | None) -> Settings:
        """The settings that hold in a root; None asks for those of no folder."""
        return self._settings.get(root) or self._settings.get(None) or Settings()

    def get(self, root: Path) -> Core | None:
        """The root's core; None when it cannot be made, which is shown to the person."""
        if root not in self._cores:
            try:
                self._cores[root] = self._factory(self.settings(root), root)
            except KernelwrightError as error:
                self.warn_once(str(error))
                return None
        return self._cores[root]

    @asynccontextmanager
    async def lease(self, core: Core) -> AsyncIterator[Core]:
        """Keep a core open while a job uses it."""
        self._users[id(core)] += 1
        try:
            yield core
        finally:
            self._users[id(core)] -= 1
            if not self._users[id(core)] and id(core) in self._retired:
                await self._retired.pop(id(core)).close()

    async def configure(self, configured: Mapping[Path | None, Mapping[str, Any]]) -> None:
        """Take new settings, the whole of them by root, and retire the cores that were made with others."""
        self._settings = {root: self._parse(data) for root, data in configured.items()}
        for root, core in tuple(self._cores.items()):
            if core_settings(core.settings) != core_settings(self.settings(root)):
                await self._retire(root)

    async def drop_except(self, roots: set[Path]) -> None:
        """Retire the cores of folders that were removed."""
        for root in tuple(self._cores):
            if root not in roots:
                await self._retire(root)

    async def close(self) -> None:
        """Close every core, in use or not."""
        cores = [*self._cores.values(), *self._retired.values()]
        self._cores.clear()
        self._retired.clear()
        for core in cores:
            try:
                await core.close()
            except KernelwrightError:
                logger.exception("closing")

    def warn_once(self, message: str) -> None:
        """Show a message, unless it was shown before."""
        if message not in self._warned:
            self._warned.add(message)
            self._warn(message)

    def _parse(self, data: Mapping[str, Any]) -> Settings:
        settings, problems = parse(data)
        for problem in problems:
            self.warn_once(problem)
        return settings

    async def _retire(self, root: Path) -> None:
        core = self._cores.pop(root)
        if self._users[id(core)]:
            self._retired[id(core)] = core
        else:
            await core.close()


def core_settings(settings: Settings) -> Settings:
    """Only what a core is made from: the lens is the server's own affair."""
    return replace(settings, code_lens=True)
