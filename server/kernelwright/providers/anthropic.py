"""Claude through the Messages API, streamed, on Anthropic's own SDK."""

from __future__ import annotations

from typing import Any, Literal

from kernelwright.model import Usage
from kernelwright.providers.prompt import Prompt
from kernelwright.providers.remote import CONNECT_S, MAX_OUTPUT_TOKENS, Answer, Reading, RemoteProvider, take_text


class AnthropicProvider(RemoteProvider):
    """`name` is "anthropic"."""

    name = "anthropic"

    def connect(self, sdk: Any) -> Any:
        # Retries are ours: they count against the request's budget and are reported.
        client = sdk.AsyncAnthropic(
            api_key=self._key,
            base_url=self.base_url or None,
            max_retries=0,
            timeout=sdk.Timeout(self._limit_s, connect=CONNECT_S),
        )
        _ = client.messages  # imported when first touched
        return client

    async def open(self, client: Any, prompt: Prompt) -> Any:
        return await client.messages.create(
            model=self.model,
            max_tokens=MAX_OUTPUT_TOKENS,
            # The rules are the same for every function, so they are cached on the provider's side.
            system=[{"type": "text", "text": prompt.system, "cache_control": {"type": "ephemeral"}}],
            messages=[{"role": "user", "content": prompt.user}],
            stream=True,
        )

    def reading(self) -> Reading:
        return _MessageReading()


class _MessageReading:
    """message_start, then deltas of content blocks, then message_delta with the reason to stop, then message_stop."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._input = self._output = self._cached = 0
        self._reason: str | None = None
        self._ended = False

    def take(self, event: Any) -> str:
        if event.type == "message_start":
            usage = event.message.usage
            self._input, self._cached = usage.input_tokens or 0, usage.cache_read_input_tokens or 0
        elif event.type == "content_block_delta" and event.delta.type == "text_delta":
            return take_text(self._pieces, event.delta.text)
        elif event.type == "message_delta":
            self._reason, self._output = event.delta.stop_reason, event.usage.output_tokens or 0
        elif event.type == "message_stop":
            self._ended = True
        return ""

    def answer(self) -> Answer | None:
        if not self._ended or self._reason is None:
            return None
        usage = Usage(self._input, self._output, self._cached)
        return Answer("".join(self._pieces), usage, _stopped(self._reason))


def _stopped(reason: str) -> Literal["complete", "truncated", "refused"]:
    if reason in ("max_tokens", "model_context_window_exceeded"):
        return "truncated"
    return "refused" if reason == "refusal" else "complete"
