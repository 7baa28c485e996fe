"""GPT and Codex models through the Responses API, streamed, on OpenAI's own SDK."""

from __future__ import annotations

from typing import Any

from kernelwright.model import Usage
from kernelwright.providers.failures import explain_code
from kernelwright.providers.prompt import Prompt
from kernelwright.providers.remote import CONNECT_S, MAX_OUTPUT_TOKENS, Answer, Reading, RemoteProvider, take_text


class OpenAIProvider(RemoteProvider):
    """`name` is "openai"."""

    name = "openai"

    def connect(self, sdk: Any) -> Any:
        # Retries are ours: they count against the request's budget and are reported.
        client = sdk.AsyncOpenAI(
            api_key=self._key,
            base_url=self.base_url or None,
            max_retries=0,
            timeout=sdk.Timeout(self._limit_s, connect=CONNECT_S),
        )
        _ = client.responses  # imported when first touched
        return client

    async def open(self, client: Any, prompt: Prompt) -> Any:
        return await client.responses.create(
            model=self.model,
            instructions=prompt.system,
            input=prompt.user,
            max_output_tokens=MAX_OUTPUT_TOKENS,
            store=False,
            stream=True,
        )

    def reading(self) -> Reading:
        return _ResponseReading(self.model)


class _ResponseReading:
    """Deltas of text or of a refusal, then the whole response as completed, incomplete or failed."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._pieces: list[str] = []
        self._refused = False
        self._response: Any = None
        self._usage = Usage()

    def take(self, event: Any) -> str:
        if event.type == "response.output_text.delta":
            return take_text(self._pieces, event.delta)
        if event.type == "response.refusal.delta":
            self._refused = True
        elif event.type in ("response.completed", "response.incomplete"):
            self._response, self._usage = event.response, _usage(event.response)
            self._refused |= _reason(event.response) == "content_filter"
        elif event.type == "response.failed":
            raise explain_code("openai", self._model, event.response.error.code, event.response.error.message)
        elif event.type == "error":
            raise explain_code("openai", self._model, event.code, event.message)
        return ""

    def answer(self) -> Answer | None:
        if self._response is None:
            return None
        if self._refused:
            return Answer("".join(self._pieces), self._usage, "refused")
        truncated = _reason(self._response) == "max_output_tokens"
        return Answer("".join(self._pieces), self._usage, "truncated" if truncated else "complete")


def _reason(response: Any) -> str | None:
    return response.incomplete_details.reason if response.incomplete_details else None


def _usage(response: Any) -> Usage:
    usage = response.usage
    if usage is None:  # some servers that speak this API count nothing
        return Usage()
    details = usage.input_tokens_details
    return Usage(usage.input_tokens or 0, usage.output_tokens or 0, (details.cached_tokens or 0) if details else 0)
