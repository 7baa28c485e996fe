"""Claude through the Messages API, streamed, on Anthropic's own SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright.model import Usage
from kernelwright.providers.prompt import Prompt
from kernelwright.providers.remote import (
    MAX_OUTPUT_TOKENS,
    Answer,
    RemoteProvider,
    Retryable,
    broken_stream_errors,
    cause_of,
    explain_status,
    load_sdk,
    retry_after_s,
)


class AnthropicProvider(RemoteProvider):
    """`name` is "anthropic"; the SDK is imported at the first draft."""

    name = "anthropic"

    async def stream(self, prompt: Prompt, on_text: Callable[[str], None]) -> Answer:
        sdk = await load_sdk("anthropic")
        # Retries are ours (they count against the request's budget and are reported), so the SDK does none.
        async with sdk.AsyncAnthropic(api_key=self._key, base_url=self.base_url or None, max_retries=0) as client:
            try:
                return await self._stream(client, prompt, on_text)
            except sdk.APIStatusError as error:
                wait = retry_after_s(error.response.headers.get("retry-after"))
                raise explain_status(self.name, self.model, _status(error), str(error.message), wait) from None
            except sdk.APIConnectionError as error:
                raise Retryable(
                    f"cannot reach anthropic ({cause_of(error)}): check the network, proxy and base URL"
                ) from None
            except sdk.APIError as error:
                raise Retryable(f"anthropic's stream broke off: {error.message}") from None
            except broken_stream_errors() as error:
                raise Retryable(f"anthropic's stream broke off: {type(error).__name__}: {error}") from None

    async def _stream(self, client: Any, prompt: Prompt, on_text: Callable[[str], None]) -> Answer:
        async with client.messages.stream(
            model=self.model,
            max_tokens=MAX_OUTPUT_TOKENS,
            # The rules are the same for every function, so they are cached on the provider's side.
            system=[{"type": "text", "text": prompt.system, "cache_control": {"type": "ephemeral"}}],
            messages=[{"role": "user", "content": prompt.user}],
        ) as stream:
            async for piece in stream.text_stream:
                on_text(piece)
            message = await stream.get_final_message()
        if message.stop_reason is None:
            raise Retryable("anthropic's stream ended before the answer did: try again")
        text = "".join(block.text for block in message.content if block.type == "text")
        usage = Usage(
            message.usage.input_tokens, message.usage.output_tokens, message.usage.cache_read_input_tokens or 0
        )
        cut_off = message.stop_reason in ("max_tokens", "model_context_window_exceeded")
        stopped = "truncated" if cut_off else "refused" if message.stop_reason == "refusal" else "complete"
        return Answer(text, usage, stopped)


def _status(error: Any) -> int:
    """An error event in mid-stream comes with the stream's status 200; its own type says what it is."""
    body = error.body if isinstance(error.body, dict) else {}
    kind = (body.get("error") or {}).get("type") if isinstance(body.get("error"), dict) else None
    known = {"overloaded_error": 529, "rate_limit_error": 429, "api_error": 500, "authentication_error": 401}
    return int(error.status_code) if error.status_code >= 400 else known.get(str(kind), 500)
