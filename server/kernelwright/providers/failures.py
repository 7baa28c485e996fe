"""What goes wrong between us and a model, in words that say what to do, and whether trying again may help. Pure."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from kernelwright.errors import ProviderError
from kernelwright.providers.keys import variable
from kernelwright.settings import Settings

ATTEMPTS = 5
DETAIL_CHARACTERS = 300
# An error event in mid-stream comes under the stream's own status 200: the type in its body says what it is.
# Types of the Messages API and codes of the Responses API, as the HTTP statuses that they have elsewhere.
_STATUSES = {
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "context_length_exceeded": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class Retryable(Exception):
    """A failure that may pass. `wait_s` is how long the provider asked us to wait, `attempts` how often it is worth it."""

    def __init__(self, message: str, wait_s: float | None = None, attempts: int = ATTEMPTS) -> None:
        super().__init__(message)
        self.wait_s, self.attempts = wait_s, attempts


def explain_status(provider: str, model: str, error: Any) -> Exception:
    """The exception for an SDK's APIStatusError (`status_code`, `body`, `response`)."""
    code, detail = _code_and_detail(error.body)
    status = _STATUSES.get(code, 500) if error.status_code < 400 else int(error.status_code)
    if code == "insufficient_quota":  # comes as a 429, but no wait helps
        status = 402
    return explain(provider, model, status, detail, retry_after_s(error.response.headers))


def explain_code(provider: str, model: str, code: str | None, message: str | None) -> Exception:
    """The exception for a failure told inside a stream."""
    return explain(provider, model, _STATUSES.get(code or "", 500), message or code or "", None)


def explain(provider: str, model: str, status: int, detail: str, wait_s: float | None) -> Exception:
    """What happened and what to do: a ProviderError where asking again cannot help, else a Retryable."""
    said = f" It said: {detail[:DETAIL_CHARACTERS]}" if detail else ""
    if status in (401, 403):
        return ProviderError(
            f"{provider} refused the API key ({status}): set a valid one with 'Kernelwright: Set API Key' "
            f"or the environment variable {variable(provider)}.{said}"
        )
    if status == 402:
        return ProviderError(f"your {provider} account has no credit left: add some there, or use another key.{said}")
    if status == 404:
        default = getattr(Settings(), provider).model
        return ProviderError(
            f"{provider} knows no model {model!r} (404): set kernelwright.{provider}.model to one that your key may use, "
            f"such as {default!r}, and check the base URL if you set one.{said}"
        )
    if status == 413:
        return ProviderError(f"the request is too large for {model} (413): choose a smaller function.{said}")
    if status == 429:
        return Retryable(f"{provider} limits how often you may ask (429): wait, or raise your limit.{said}", wait_s)
    if status in (408, 409) or status >= 500:
        return Retryable(f"{provider} is overloaded or failing ({status}): try again later.{said}", wait_s)
    return ProviderError(
        f"{provider} rejected the request ({status}): check kernelwright.{provider}.model and baseUrl.{said}"
    )


def explain_connection(provider: str, error: BaseException) -> Exception:
    """The exception for an SDK's APIConnectionError: refused, no such name, timed out, no trusted certificate."""
    causes = list(_causes(error))
    text = str(causes[-1]) or type(causes[-1]).__name__
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return ProviderError(
            f"no secure connection to {provider}: {text[:DETAIL_CHARACTERS]}. Behind a proxy of your company's, set "
            f"SSL_CERT_FILE to its certificate; for a server without TLS, let kernelwright.{provider}.baseUrl say http://"
        )
    # A second attempt is for a network that is just coming up; more would only delay the message.
    return Retryable(
        f"cannot reach {provider} ({text[:DETAIL_CHARACTERS]}): check the network, proxy and base URL", attempts=2
    )


def check_base_url(provider: str, base_url: str) -> None:
    """Complain of a base URL that is none, before a library does in words of its own.

    Raises:
        ProviderError: it is no http or https address.
    """
    try:
        parts = urlsplit(base_url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if base_url and not good:
        raise ProviderError(
            f"the base URL of {provider} is not an address: write https://host/path in kernelwright.{provider}.baseUrl "
            f"or {provider.upper()}_BASE_URL"
        )


def retry_after_s(headers: Any) -> float | None:
    """The seconds that the provider asks us to wait; None where it gives none, a date or nonsense."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None


def _code_and_detail(body: object) -> tuple[str, str]:
    """The error's code or type, and its message, of either API's error body, wrapped in "error" or not."""
    if not isinstance(body, dict):
        return "", body if isinstance(body, str) else ""
    error = body.get("error", body)
    if not isinstance(error, dict):
        return "", str(error)
    names = [error.get("code"), error.get("type")]
    known = [name for name in names if isinstance(name, str) and name in _STATUSES]
    return (known or [""])[0], str(error.get("message") or "")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what lies below it, the lowest last."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        yield current
        current = current.__cause__ or current.__context__
