"""What every model provider shares: the prompt, patience within limits, the reply, and words for each failure.

One subclass a wire protocol says how to stream one answer; everything else is here.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.errors import ProviderError
from kernelwright.model import Candidate, Generating, Refusal, Refuted, Task, Usage
from kernelwright.ports import Report
from kernelwright.providers.prompt import Prompt, render
from kernelwright.providers.reply import find_code

MAX_OUTPUT_TOKENS = 32_000
ATTEMPTS = 5
LONGEST_WAIT_S = 60.0
STREAM_DEADLINE_S = 600.0
"""One answer, first byte to last: a drip that never ends is a failure too."""


@dataclass(frozen=True)
class Answer:
    """One streamed answer. `stopped` is why it ended, in our words."""

    text: str
    usage: Usage
    stopped: str = "complete"
    """ "complete", "truncated" or "refused"."""


class Retryable(Exception):
    """A failure that may pass: the message for when it does not, and how long the provider asked us to wait."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class RemoteProvider(ABC):
    """Implements ports.Provider over one streaming call, `stream`."""

    name: str

    def __init__(
        self, model: str, key: str, base_url: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.model, self.base_url = model, base_url
        self._key = key
        self._sleep = sleep

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    @abstractmethod
    async def stream(self, prompt: Prompt, on_text: Callable[[str], None]) -> Answer:
        """Stream one answer, handing over each piece of text.

        Raises:
            Retryable: it may work later.
            ProviderError: it will not.
        """

    async def draft(self, task: Task, tried: Sequence[Refuted], report: Report) -> Candidate | Refusal:
        """Ask for one module; a truncated or empty answer is asked for once more."""
        prompt = render(task, tried)
        number = len(tried) + 1
        answer = await self._ask(prompt, number, report)
        code = find_code(answer.text, task.target.name)
        if answer.stopped != "refused" and (code is None or answer.stopped == "truncated" or not code.complete):
            first = answer.usage
            shorter = Prompt(prompt.system, f"{prompt.user}\n{_again(answer)}", prompt.left_out)
            answer = await self._ask(shorter, number, report)
            answer = Answer(answer.text, _add(first, answer.usage), answer.stopped)
            code = find_code(answer.text, task.target.name)
        if answer.stopped == "refused":
            return Refusal(f"{self.name} declined to answer: change the instruction, or choose another provider")
        if code is None or answer.stopped == "truncated":
            what = "was cut off at its token limit" if answer.stopped == "truncated" else "holds no code"
            raise ProviderError(f"the answer of {self.model} {what}, twice: choose another model")
        notes = tuple(f"the prompt left out {part}" for part in prompt.left_out)
        return Candidate(code.source, self.name, self.model, task.target.name, notes=notes, usage=answer.usage)

    async def _ask(self, prompt: Prompt, number: int, report: Report) -> Answer:
        """One answer, with patience: waits as long as the provider asks, else longer each time, with jitter."""
        for attempt in range(1, ATTEMPTS + 1):
            received = 0

            def on_text(piece: str) -> None:
                nonlocal received
                received += len(piece)
                report(Generating(self.name, self.model, number, received))

            try:
                return await asyncio.wait_for(self.stream(prompt, on_text), STREAM_DEADLINE_S)
            except Retryable as failure:
                wait = failure.wait_s if failure.wait_s is not None else 2.0**attempt * random.uniform(0.5, 1.0)
                if attempt == ATTEMPTS or wait > LONGEST_WAIT_S:
                    raise ProviderError(self._redacted(str(failure)), failure.wait_s) from None
                await self._sleep(wait)
            except TimeoutError:
                raise ProviderError(
                    f"{self.name} did not finish its answer within {STREAM_DEADLINE_S:.0f} s: try again, or another model"
                ) from None
            except ProviderError as failure:
                raise ProviderError(self._redacted(str(failure))) from None
        raise AssertionError("the last attempt returns or raises")

    def _redacted(self, message: str) -> str:
        """No key ever leaves in a message."""
        return message.replace(self._key, "[key]") if self._key else message


def explain_status(provider: str, model: str, status: int, detail: str, wait_s: float | None) -> Exception:
    """The exception for an HTTP status: what happened and what to do."""
    detail = detail[:300]
    if status in (401, 403):
        return ProviderError(
            f"{provider} refused the API key ({status}): set a valid one with 'Kernelwright: Set API Key' "
            f"or the environment variable {provider.upper()}_API_KEY. {detail}"
        )
    if status == 404:
        return ProviderError(
            f"{provider} knows no model {model!r}: set kernelwright.{provider}.model to one that it offers. {detail}"
        )
    if status == 429:
        return Retryable(f"{provider} limits how often you may ask (429): wait, or raise your quota. {detail}", wait_s)
    if status in (408, 409) or status >= 500:
        return Retryable(f"{provider} is overloaded or failing ({status}): try again later. {detail}", wait_s)
    return ProviderError(f"{provider} rejected the request ({status}): {detail}")


def retry_after_s(value: str | None) -> float | None:
    """A retry-after header in seconds; a date or nonsense is None."""
    try:
        return max(0.0, float(value)) if value is not None else None
    except ValueError:
        return None


def _again(answer: Answer) -> str:
    if answer.stopped == "truncated":
        return (
            "Your last answer was cut off at the token limit. Answer with the whole module, shorter and without prose."
        )
    return "Your last answer held no complete python fence. Answer with one fence that holds the whole module."


def _add(left: Usage, right: Usage) -> Usage:
    return Usage(
        left.input_tokens + right.input_tokens,
        left.output_tokens + right.output_tokens,
        left.cached_tokens + right.cached_tokens,
    )


async def load_sdk(name: str) -> Any:
    """Import an SDK in a thread: it takes a second or more, and the editor must not wait.

    Raises:
        ProviderError: it is not installed.
    """
    try:
        return await asyncio.to_thread(importlib.import_module, name)
    except ImportError as error:
        raise ProviderError(
            f"the {name} package is missing in the server's Python: python -m pip install {name} ({error})"
        ) from error


def broken_stream_errors() -> tuple[type[Exception], ...]:
    """What a stream that breaks off raises: the HTTP library's own errors (which one depends on the SDK's age)."""
    loaded = [sys.modules[name] for name in ("httpx2", "httpx") if name in sys.modules]
    return (OSError, ValueError, RuntimeError, *(module.HTTPError for module in loaded))


def cause_of(error: BaseException) -> str:
    """Why a connection failed, in the words of the layer below."""
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {cause}"[:200]
