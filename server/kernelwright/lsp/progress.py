"""Events of the core → work-done progress: begin, at most about ten reports a second, and always an end."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from lsprotocol import types as lsp

from kernelwright.model import (
    CandidatePassed,
    CandidateRefuted,
    Checking,
    Event,
    Finished,
    Generating,
    Starting,
    Traced,
    Tracing,
)

MIN_INTERVAL_S = 0.1

Send = Callable[[lsp.ProgressParams], None]


class Progress:
    """One job's progress. With no token it says nothing. Use it as a context manager; leaving it ends the progress.

    Calling it with an event reports the event's stage; a new stage is always sent, a count only when it is time.
    """

    def __init__(self, send: Send, token: int | str | None, title: str) -> None:
        self._send = send
        self._token = token
        self._title = title
        self._stage: object = None
        self._sent = 0.0
        self.result = ""

    def __enter__(self) -> Progress:
        self._notify(lsp.WorkDoneProgressBegin(title=self._title, cancellable=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._notify(lsp.WorkDoneProgressEnd(message=self.result or ("Cancelled" if kind else None)))

    def __call__(self, event: Event) -> None:
        self.say(stage_text(event), stage_key(event))

    def say(self, message: str, stage: object = None) -> None:
        """Report a message now, unless it only counts on in the present stage."""
        now = time.monotonic()
        if not message or (stage is not None and stage == self._stage and now - self._sent < MIN_INTERVAL_S):
            return
        self._stage, self._sent = stage, now
        self._notify(lsp.WorkDoneProgressReport(message=message))

    def _notify(self, value: lsp.WorkDoneProgressBegin | lsp.WorkDoneProgressReport | lsp.WorkDoneProgressEnd) -> None:
        if self._token is not None:
            self._send(lsp.ProgressParams(token=self._token, value=value))


def stage_key(event: Event) -> object:
    """Events of one key differ by a count only."""
    if isinstance(event, Checking):
        return Checking, event.candidate.id, event.stage
    if isinstance(event, Generating):
        return Generating, event.round
    return type(event)


def stage_text(event: Event) -> str:
    """An event for people, or "" for one that needs no words."""
    match event:
        case Starting():
            return "Starting workers"
        case Tracing():
            return "Tracing"
        case Traced(graphs=graphs):
            kinds = ", ".join(dict.fromkeys(graph.kind for graph in graphs))
            return f"Traced: {kinds}" if kinds else "Traced"
        case Generating(provider=provider, waiting=waiting) if waiting:
            return f"{provider}: {waiting}"
        case Generating(provider=provider, model=model, round=number, characters=characters):
            again = f", round {number}" if number > 1 else ""
            size = f", {characters:,} characters" if characters else ""
            return f"Writing kernel ({' '.join(part for part in (provider, model) if part)}{again}){size}"
        case Checking(stage="values", done=done, total=total):
            return f"Checking values {done}/{total}"
        case Checking(stage="guard"):
            return "Checking the guard"
        case Checking(stage=stage):
            return stage[:1].upper() + stage[1:]
        case CandidateRefuted(verdict=verdict):
            return f"Refuted ({verdict.finding.code}): {verdict.finding.message}"
        case CandidatePassed(verdict=verdict):
            return f"Passed {len(verdict.results)} cases"
        case Finished():
            return ""
