"""What every model provider shares: the prompt, one streamed answer, patience within the budget, the code in the reply.

A subclass per wire protocol makes the SDK's client, opens the stream, and reads its events. The SDKs are imported at the
first draft, in a thread. Every failure leaves here as a ProviderError that says what to do and holds no key.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from kernelwright.errors import ProviderError
from kernelwright.model import Candidate, Generating, Refusal, Refuted, Task, Usage
from kernelwright.ports import Report
from kernelwright.providers.failures import (
    Retryable,
    check_base_url,
    explain_connection,
    explain_status,
)
from kernelwright.providers.keys import redact, usable, variable
from kernelwright.providers.prompt import Prompt, render
from kernelwright.providers.reply import find_code

MAX_OUTPUT_TOKENS = 32_000
CONNECT_S = 10.0
LIMIT_S = 600.0


@dataclass(frozen=True)
class Answer:
    """One streamed answer, and why it ended."""

    text: str
    usage: Usage
    stopped: Literal["complete", "truncated", "refused"] = "complete"


class Reading(Protocol):
    """Reads one stream's events, which are the SDK's own objects with any field missing or wrong."""

    def take(self, event: Any) -> str:
        """The text that an event adds, "" for none.

        Raises:
            Retryable, ProviderError: the event tells of a failure.
        """
        ...

    def answer(self) -> Answer | None:
        """The whole answer, or None where the stream ended before it did."""
        ...


class RemoteProvider(ABC):
    """Implements ports.Provider. `limit_s` bounds one draft: waiting, streaming and asking again, all together."""

    name: str

    def __init__(
        self,
        model: str,
        key: str,
        base_url: str = "",
        limit_s: float = LIMIT_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.model, self.base_url = model, base_url
        self._key, self._limit_s, self._sleep = key, limit_s, sleep

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    @abstractmethod
    def connect(self, sdk: Any) -> Any:
        """A client of the SDK that retries nothing, with the resource that streams already imported. Takes a while."""

    @abstractmethod
    async def open(self, client: Any, prompt: Prompt) -> Any:
        """Send the request; the SDK's stream of events."""

    @abstractmethod
    def reading(self) -> Reading: ...

    async def draft(self, task: Task, tried: Sequence[Refuted], report: Report) -> Candidate | Refusal:
        """Ask for one module, once more where the answer is cut off or holds no code."""
        deadline = asyncio.get_running_loop().time() + self._limit_s
        try:
            return await asyncio.wait_for(self._draft(task, tried, report, deadline), self._limit_s)
        except asyncio.TimeoutError:  # not the built-in one before Python 3.11
            raise ProviderError(
                f"{self.name} did not finish within {self._limit_s / 60:g} min: try again, choose another model, "
                "or raise kernelwright.budget.minutes"
            ) from None
        except ProviderError as error:
            raise ProviderError(redact(str(error), self._key), error.retry_after_s) from None

    async def _draft(
        self, task: Task, tried: Sequence[Refuted], report: Report, deadline: float
    ) -> Candidate | Refusal:
        # In a thread, as a long file takes a while to read.
        prompt, number = await asyncio.to_thread(render, task, tried), len(tried) + 1
        answer = await self._ask(prompt, number, report, deadline)
        code = find_code(answer.text, task.target.name)
        if answer.stopped != "refused" and (code is None or answer.stopped == "truncated" or not code.complete):
            spent = answer.usage
            answer = await self._ask(_again(prompt, answer), number, report, deadline)
            answer = Answer(answer.text, _add(spent, answer.usage), answer.stopped)
            code = find_code(answer.text, task.target.name)
        if answer.stopped == "refused":
            return Refusal(f"{self.name} declined to answer: change the instruction, or choose another provider")
        if code is None or answer.stopped == "truncated":
            what = "was cut off at its token limit" if answer.stopped == "truncated" else "held no code"
            raise ProviderError(
                f"the answer of {self.model} {what}, twice: choose another model, or a smaller function"
            )
        notes = tuple(f"the prompt left out {part}" for part in prompt.left_out)
        return Candidate(code.source, self.name, self.model, task.target.name, notes=notes, usage=answer.usage)

    async def _ask(self, prompt: Prompt, number: int, report: Report, deadline: float) -> Answer:
        """One answer, with patience: waits as long as the provider asks, else longer each time, with jitter."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(prompt, number, report)
            except Retryable as failure:
                wait = failure.wait_s if failure.wait_s is not None else 2.0**attempt * random.uniform(0.5, 1.0)
                if attempt >= failure.attempts:
                    raise ProviderError(str(failure), failure.wait_s) from None
                if asyncio.get_running_loop().time() + wait > deadline:
                    raise ProviderError(
                        f"{failure} (It would take {wait:.0f} s, more than is left of kernelwright.budget.minutes.)",
                        failure.wait_s,
                    ) from None
                why = redact(f"waiting {wait:.0f} s: {failure}", self._key)
                report(Generating(self.name, self.model, number, waiting=why))
                await self._sleep(wait)

    async def _attempt(self, prompt: Prompt, number: int, report: Report) -> Answer:
        """One request. Whatever ends it, cancellation too, closes its connection."""
        check_base_url(self.name, self.base_url)
        if not usable(self._key):
            raise ProviderError(f"the API key of {self.name} has characters that no key has: set {variable(self.name)}")
        sdk, client = await asyncio.to_thread(self._prepare)
        async with client:
            try:
                return await self._stream(client, prompt, number, report)
            except sdk.APIStatusError as error:
                raise explain_status(self.name, self.model, error) from None
            except sdk.APIConnectionError as error:
                raise explain_connection(self.name, error) from None
            except (sdk.APIError, *_broken()) as error:
                raise Retryable(
                    f"{self.name}'s stream broke off ({type(error).__name__}: {error}): try again"
                ) from None

    async def _stream(self, client: Any, prompt: Prompt, number: int, report: Report) -> Answer:
        reading, received, events = self.reading(), 0, 0
        stream = await self.open(client, prompt)
        async with stream:
            async for event in stream:
                events += 1
                if piece := _taken(reading, event, self.name):
                    received += len(piece)
                    report(Generating(self.name, self.model, number, received))
            kind = stream.response.headers.get("content-type", "")
        if not events and "event-stream" not in kind:
            raise ProviderError(
                f"what answered for {self.name} does not speak its API (it sent {kind or 'nothing'}): check the base URL"
            )
        answer = reading.answer()
        if answer is None:
            raise Retryable(f"{self.name}'s stream ended before the answer did: try again")
        return answer

    def _prepare(self) -> tuple[Any, Any]:
        """The SDK and a client of it. Runs in a thread: the import takes a second or two, and the editor must not wait.

        Raises:
            ProviderError: the SDK is not installed.
        """
        sdk = load_sdk(self.name)
        return sdk, self.connect(sdk)


def load_sdk(name: str) -> Any:
    """Import a provider's SDK.

    Raises:
        ProviderError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ProviderError(
            f"the package {name} is missing ({error}): install it with {sys.executable} -m pip install {name}"
        ) from error


def _broken() -> tuple[type[Exception], ...]:
    """What a stream that breaks off raises beyond the SDK's errors: half an event, or the HTTP library's own.

    Which HTTP library it is depends on the SDK's age.
    """
    loaded = [sys.modules[name] for name in ("httpx2", "httpx") if name in sys.modules]
    return (json.JSONDecodeError, UnicodeDecodeError, *(module.HTTPError for module in loaded))


def _taken(reading: Reading, event: Any, name: str) -> str:
    """What an event adds. The SDKs do not validate events: a malformed one lacks what its type promises."""
    try:
        return reading.take(event)
    except (AttributeError, TypeError) as error:
        raise Retryable(f"{name} sent a malformed event ({error}): try again") from None


def take_text(pieces: list[str], text: Any) -> str:
    """Keep a piece of text and give it back.

    Raises:
        TypeError: it is none, in a malformed event.
    """
    if not isinstance(text, str):
        raise TypeError(f"text that is {text!r}")
    pieces.append(text)
    return text


def _again(prompt: Prompt, answer: Answer) -> Prompt:
    """The same question once more, with what was wrong with the answer."""
    if answer.stopped == "truncated":
        wish = (
            "Your last answer was cut off at the token limit. Answer with the whole module, shorter and without prose."
        )
    else:
        wish = "Your last answer held no complete python fence. Answer with one fence that holds the whole module."
    return Prompt(prompt.system, f"{prompt.user}\n{wish}\n", prompt.left_out)


def _add(left: Usage, right: Usage) -> Usage:
    return Usage(
        left.input_tokens + right.input_tokens,
        left.output_tokens + right.output_tokens,
        left.cached_tokens + right.cached_tokens,
    )
