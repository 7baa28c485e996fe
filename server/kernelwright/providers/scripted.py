"""The shipped fake of ports.Provider: replays replies through the same parsing as a model's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelwright.errors import ProviderError, UsageError
from kernelwright.model import Candidate, Generating, Refusal, Refuted, Task
from kernelwright.ports import Report
from kernelwright.providers.prompt import Prompt, render
from kernelwright.providers.reply import find_code


class ScriptedProvider:
    """Gives `replies` in order; `prompts` keeps what a model would have been sent."""

    name = "scripted"

    def __init__(self, replies: Sequence[str]) -> None:
        self._replies = list(replies)
        self.prompts: list[Prompt] = []

    @classmethod
    def from_folder(cls, folder: Path) -> ScriptedProvider:
        """Replies from 1.md, 2.md or 1.py, 2.py, ... of a folder.

        Raises:
            UsageError: it has none.
        """
        files = sorted(
            (path for path in folder.glob("*") if path.suffix in (".md", ".py") and path.stem.isdigit()),
            key=lambda path: int(path.stem),
        )
        if not files:
            raise UsageError(f"{folder} holds no replies: 1.md, 2.md, ... or 1.py, 2.py, ...")
        return cls([path.read_text(encoding="utf-8") for path in files])

    async def draft(self, task: Task, tried: Sequence[Refuted], report: Report) -> Candidate | Refusal:
        self.prompts.append(render(task, tried))
        if len(self.prompts) > len(self._replies):
            raise ProviderError("the script has no further reply")
        reply = self._replies[len(self.prompts) - 1]
        report(Generating(self.name, "script", len(tried) + 1, len(reply)))
        code = find_code(reply, task.target.name)
        if code is None:
            return Refusal("the scripted reply holds no code")
        return Candidate(code.source, self.name, "script", task.target.name)
