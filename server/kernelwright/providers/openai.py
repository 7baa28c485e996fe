"""GPT and Codex models through the Responses API, streamed, on OpenAI's own SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright.errors import ProviderError
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


class OpenAIProvider(RemoteProvider):
    """`name` is "openai"; the SDK is imported at the first draft."""

    name = "openai"

    async def stream(self, prompt: Prompt, on_text: Callable[[str], None]) -> Answer:
        sdk = await load_sdk("openai")
        async with sdk.AsyncOpenAI(api_key=self._key, base_url=self.base_url or None, max_retries=0) as client:
            try:
                return await self._stream(client, prompt, on_text)
            except sdk.APIStatusError as error:
                wait = retry_after_s(error.response.headers.get("retry-after"))
                raise explain_status(self.name, self.model, error.status_code, str(error.message), wait) from None
            except sdk.APIConnectionError as error:
                raise Retryable(
                    f"cannot reach openai ({cause_of(error)}): check the network, proxy and base URL"
                ) from None
            except sdk.APIError as error:
                raise Retryable(f"openai's stream broke off: {error.message}") from None
            except broken_stream_errors() as error:
                raise Retryable(f"openai's stream broke off: {type(error).__name__}: {error}") from None

    async def _stream(self, client: Any, prompt: Prompt, on_text: Callable[[str], None]) -> Answer:
        pieces: list[str] = []
        refused, response = False, None
        stream = await client.responses.create(
            model=self.model,
            instructions=prompt.system,
            input=prompt.user,
            max_output_tokens=MAX_OUTPUT_TOKENS,
            store=False,
            stream=True,
        )
        async with stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    pieces.append(event.delta)
                    on_text(event.delta)
                elif event.type == "response.refusal.delta":
                    refused = True
                elif event.type in ("response.completed", "response.incomplete", "response.failed"):
                    response = event.response
                elif event.type == "error":
                    raise _failure(event.code, event.message)
        if response is None:
            raise Retryable("openai's stream ended before the answer did: try again")
        return _answer("".join(pieces), response, refused)


def _answer(text: str, response: Any, refused: bool) -> Answer:
    if response.status == "failed":
        error = response.error
        raise _failure(getattr(error, "code", ""), getattr(error, "message", "no message"))
    usage = Usage()
    if response.usage is not None:
        details = response.usage.input_tokens_details
        cached = (details.cached_tokens or 0) if details else 0
        usage = Usage(response.usage.input_tokens, response.usage.output_tokens, cached)
    reason = response.incomplete_details.reason if response.incomplete_details else None
    if refused or reason == "content_filter":
        return Answer(text, usage, "refused")
    return Answer(text, usage, "truncated" if reason == "max_output_tokens" else "complete")


def _failure(code: str | None, message: str) -> Exception:
    text = f"openai failed ({code}): {message}"
    return Retryable(text) if code in ("server_error", "rate_limit_exceeded", None, "") else ProviderError(text)
