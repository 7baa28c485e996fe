"""The real SDKs against loopback servers: one contract, both providers, every failure."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from loopback import REPLY, Loopback, Response, anthropic_events, error_body, openai_events
from samples import CALL, TASK

from kernelwright.errors import ProviderError
from kernelwright.model import Candidate, Case, Counterexample, Finding, Generating, Refusal, Refuted, Usage
from kernelwright.providers.anthropic import AnthropicProvider
from kernelwright.providers.openai import OpenAIProvider
from kernelwright.providers.remote import load_sdk
from kernelwright.settings import Settings

KEY = "sk-very-secret-0123456789"
CODE = "def scale(x, factor=2.0):\n    return x\n"
KINDS = {"anthropic": (AnthropicProvider, ""), "openai": (OpenAIProvider, "/v1")}


def events(kind, text=REPLY, **changes):
    return (anthropic_events if kind == "anthropic" else openai_events)(text, **changes)


class Clock:
    """Stands for asyncio.sleep: notes the waits, waits for nothing."""

    def __init__(self):
        self.waits = []

    async def __call__(self, seconds):
        self.waits.append(seconds)


async def draft(kind, responses, tried=(), report=lambda event: None):
    """Ask the provider of `kind` against a server that answers `responses`; the result or what it raised."""
    make, path = KINDS[kind]
    clock = Clock()
    async with Loopback(responses) as server:
        provider = make("model-1", KEY, server.url + path, sleep=clock)
        try:
            result = await provider.draft(TASK, tried, report)
        except ProviderError as error:
            result = error
        return result, server, clock


@pytest.fixture(params=sorted(KINDS))
def kind(request):
    return request.param


async def test_a_streamed_answer_becomes_a_candidate(kind):
    reported = []
    result, server, _ = await draft(kind, [Response(events=events(kind))], report=reported.append)
    assert result == Candidate(CODE, kind, "model-1", "scale", usage=Usage(11, 7, 3))
    assert [event.characters for event in reported] == [len(REPLY) // 2, len(REPLY)]
    assert all(isinstance(event, Generating) for event in reported)
    request = server.requests[0]
    assert (request["model"], request["stream"]) == ("model-1", True)
    assert "def scale(x, factor=2.0)" in str(request)
    assert KEY in server.headers[0]
    assert KEY not in str(request)


async def test_a_repair_holds_the_one_last_finding(kind):
    first = Refuted(Candidate("FIRST", kind), Finding("K101", "first fault"))
    shown = Counterexample(Case(0), CALL.arguments, "output", (3, 1), "nan", "0.5")
    last = Refuted(Candidate("FINE\nSECOND", kind), Finding("K201", "second fault", 2), shown)
    _, server, _ = await draft(kind, [Response(events=events(kind))], (first, last))
    sent = str(server.requests[0])
    for text in (
        "SECOND",
        "K201",
        "second fault",
        "Line 2: `SECOND`",
        "got nan, expected 0.5",
        "float32[512, 4096], strides [4096, 1]",
    ):
        assert text in sent
    assert "first fault" not in sent
    assert "FIRST" not in sent


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "rejected the request (400)"),
        (401, "refused the API key"),
        (403, "refused the API key"),
        (404, "knows no model 'model-1' (404): set kernelwright.{0}.model to one that your key may use, such as '{1}'"),
        (402, "has no credit left"),
        (413, "too large for model-1"),
        (422, "rejected the request (422)"),
    ],
)
async def test_what_cannot_pass_is_said_at_once(kind, status, words):
    body = error_body(f"about {KEY}")
    result, server, clock = await draft(kind, [Response(status, body=body)])
    assert isinstance(result, ProviderError)
    assert words.format(kind, getattr(Settings(), kind).model) in str(result)
    assert "It said: about [key]" in str(result)
    assert KEY not in str(result) + repr(result)
    assert (len(server.requests), clock.waits) == (1, [])


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_what_may_pass_is_tried_again(kind, status):
    result, server, clock = await draft(
        kind, [Response(status, body=error_body("busy")), Response(events=events(kind))]
    )
    assert isinstance(result, Candidate)
    assert len(server.requests) == 2
    assert len(clock.waits) == 1
    assert 0 < clock.waits[0] <= 2


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "17"}, 17.0),
        ({"retry-after": "17", "retry-after-ms": "2500"}, 2.5),
        ({"retry-after": "0"}, 0.0),
    ],
)
async def test_retry_after_is_honoured_and_reported(kind, headers, wait):
    busy = Response(429, headers=headers, body=error_body(f"slow down, {KEY}"))
    reported = []
    result, _, clock = await draft(kind, [busy, Response(events=events(kind))], report=reported.append)
    assert isinstance(result, Candidate)
    assert clock.waits == [wait]
    assert reported[0].waiting.startswith(f"waiting {wait:.0f} s: {kind} limits how often you may ask (429)")
    assert KEY not in reported[0].waiting
    assert [event.waiting for event in reported[1:]] == ["", ""]


@pytest.mark.parametrize("value", ["Wed, 21 Oct 2026 07:28:00 GMT", "nan", "-1", "inf", ""])
async def test_a_senseless_retry_after_is_ignored(kind, value):
    busy = Response(429, headers={"retry-after": value}, body=error_body("busy"))
    result, _, clock = await draft(kind, [busy, Response(events=events(kind))])
    assert isinstance(result, Candidate)
    assert 0 < clock.waits[0] <= 2


async def test_a_wait_beyond_the_budget_ends_it(kind):
    busy = Response(429, headers={"retry-after": "3600"}, body=error_body("quota"))
    result, server, clock = await draft(kind, [busy])
    assert isinstance(result, ProviderError)
    assert result.retry_after_s == 3600
    assert "3600 s, more than is left of kernelwright.budget.minutes" in str(result)
    assert (len(server.requests), clock.waits) == (1, [])


async def test_it_gives_up_after_a_few_attempts(kind):
    result, server, clock = await draft(kind, [Response(503, body=error_body("down"))] * 9)
    assert isinstance(result, ProviderError)
    assert "try again later" in str(result)
    assert (len(server.requests), len(clock.waits)) == (5, 4)


async def test_a_drop_in_mid_stream_is_tried_again(kind):
    partial = events(kind)[:3] if kind == "anthropic" else events(kind)[:1]
    dropped = Response(events=partial, then="drop")
    result, server, _ = await draft(kind, [dropped, Response(events=events(kind))])
    assert isinstance(result, Candidate)
    assert len(server.requests) == 2


async def test_a_stream_that_ends_too_early_is_tried_again(kind):
    partial = events(kind, stop=None) if kind == "anthropic" else events(kind)[:2]
    result, server, _ = await draft(kind, [Response(events=partial), Response(events=events(kind))])
    assert isinstance(result, Candidate)
    assert len(server.requests) == 2


def raw(body, content_type="text/event-stream"):
    return Response(headers={"content-type": content_type}, body=body)


def with_error(kind, *error):
    """A stream that tells of a failure after its first piece of text."""
    return Response(events=[*events(kind)[: 3 if kind == "anthropic" else 1], *error])


def anthropic_error(type_):
    return "error", {"type": "error", "error": {"type": type_, "message": "told in mid-stream"}}


def openai_error(code):
    return "error", {
        "type": "error",
        "sequence_number": 3,
        "code": code,
        "message": "told in mid-stream",
        "param": None,
    }


def openai_failed(code):
    name, data = openai_events(status="failed")[-1]
    return name, {**data, "response": {**data["response"], "error": {"code": code, "message": "told in mid-stream"}}}


MALFORMED = {
    "half a JSON": ("both", lambda: raw("event: message_start\ndata: {not json\n\n")),
    "not UTF-8 in spirit": ("both", lambda: raw("event: message_start\ndata: \x00\x01\n\n")),
    "a list": ("both", lambda: raw("event: message_start\ndata: [1, 2]\n\n")),
    "no message in its start": ("anthropic", lambda: Response(events=[("message_start", {"type": "message_start"})])),
    "no usage": ("anthropic", lambda: Response(events=[("message_start", {"type": "message_start", "message": {}})])),
    "a delta without text": (
        "anthropic",
        lambda: Response(
            events=[("content_block_delta", {"type": "content_block_delta", "delta": {"type": "text_delta"}})]
        ),
    ),
    "no delta": (
        "openai",
        lambda: Response(events=[("response.output_text.delta", {"type": "response.output_text.delta"})]),
    ),
    "no response at its end": (
        "openai",
        lambda: Response(events=[*events("openai")[:2], ("response.completed", {"type": "response.completed"})]),
    ),
    "overloaded": ("anthropic", lambda: with_error("anthropic", anthropic_error("overloaded_error"))),
    "rate limit": ("anthropic", lambda: with_error("anthropic", anthropic_error("rate_limit_error"))),
    "an unknown type": ("anthropic", lambda: with_error("anthropic", anthropic_error("novel_error"))),
    "server error": ("openai", lambda: with_error("openai", openai_error("server_error"))),
    "no code": ("openai", lambda: with_error("openai", openai_error(None))),
    "failed": ("openai", lambda: with_error("openai", openai_failed("server_error"))),
}
OF_ONE_KIND = [(name, kind) for name, (of, _) in MALFORMED.items() for kind in sorted(KINDS) if of in (kind, "both")]


@pytest.mark.parametrize(("name", "kind"), OF_ONE_KIND)
async def test_a_stream_gone_wrong_is_tried_again(name, kind):
    result, server, clock = await draft(kind, [MALFORMED[name][1](), Response(events=events(kind))])
    assert isinstance(result, Candidate)
    assert (len(server.requests), len(clock.waits)) == (2, 1)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("anthropic", anthropic_error("invalid_request_error"), "anthropic rejected the request (400)"),
        ("anthropic", anthropic_error("authentication_error"), "anthropic refused the API key"),
        ("anthropic", anthropic_error("billing_error"), "no credit left"),
        ("openai", openai_error("invalid_prompt"), "openai rejected the request (400)"),
        ("openai", openai_failed("insufficient_quota"), "no credit left"),
    ],
)
async def test_what_cannot_pass_is_believed_in_mid_stream_too(kind, error, words):
    result, server, _ = await draft(kind, [with_error(kind, error)])
    assert isinstance(result, ProviderError)
    assert words in str(result)
    assert "told in mid-stream" in str(result)
    assert len(server.requests) == 1


async def test_no_credit_is_no_rate_limit():
    body = json.dumps({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}})
    result, server, clock = await draft("openai", [Response(429, body=body)])
    assert "has no credit left" in str(result)
    assert (len(server.requests), clock.waits) == (1, [])


async def test_unknown_events_are_ignored(kind):
    first, *rest = events(kind)
    novel = [("ping", {"type": "ping"}), ("novel", {"type": "novel", "x": 1})]
    result, _, _ = await draft(kind, [Response(events=[first, *novel, *rest])])
    assert isinstance(result, Candidate)


@pytest.mark.parametrize(
    ("content_type", "body"), [("text/html", "<html>Sign in</html>"), ("application/json", '{"a": 1}')]
)
async def test_what_does_not_speak_the_api(kind, content_type, body):
    result, server, _ = await draft(kind, [raw(body, content_type)])
    assert f"does not speak its API (it sent {content_type}): check the base URL" in str(result)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [502, 401])
async def test_an_error_page_that_is_no_json(kind, status):
    page = Response(status, headers={"content-type": "text/html"}, body="<html>Bad gateway</html>")
    result, _, _ = await draft(kind, [page] * 5)
    assert isinstance(result, ProviderError)
    assert f"({status})" in str(result)


async def refused_draft(kind, url, clock, **changes):
    """What a draft at this address raises."""
    with pytest.raises(ProviderError) as raised:
        await KINDS[kind][0]("model-1", KEY, url, sleep=clock, **changes).draft(TASK, (), lambda event: None)
    return str(raised.value)


async def test_nobody_listens(kind):
    clock = Clock()
    async with Loopback([]) as server:
        url = server.url
    words = await refused_draft(kind, url + KINDS[kind][1], clock)
    assert "check the network, proxy and base URL" in words
    assert len(clock.waits) == 1


async def test_no_such_host(kind):
    words = await refused_draft(kind, "http://nowhere.invalid/v1", Clock())
    assert f"cannot reach {kind}" in words


async def test_a_server_without_tls(kind):
    clock = Clock()
    async with Loopback([]) as server:
        words = await refused_draft(kind, server.url.replace("http:", "https:"), clock)
    assert f"no secure connection to {kind}" in words
    assert "SSL_CERT_FILE" in words
    assert clock.waits == []


@pytest.mark.parametrize("url", ["localhost:8080", "http://[::1", "ftp://host/x", "http://", "https://host:port"])
async def test_an_address_that_is_none(kind, url):
    words = await refused_draft(kind, url, Clock())
    assert f"the base URL of {kind} is not an address" in words


@pytest.mark.parametrize("then", ["hang", "drip"])
async def test_silence_and_a_slow_drip_end_at_the_deadline(kind, then):
    make, path = KINDS[kind]
    partial = events(kind)[:3] if kind == "anthropic" else events(kind)[:1]
    async with Loopback([Response(events=partial, then=then)]) as server:
        provider = make("model-1", KEY, server.url + path, limit_s=1.5)
        with pytest.raises(ProviderError, match=r"did not finish within 0\.025 min.*budget\.minutes"):
            await provider.draft(TASK, (), lambda event: None)
        await asyncio.wait_for(server.left.wait(), 1)


async def test_a_fault_of_ours_is_not_taken_for_the_stream_s(kind):
    def report(event):
        raise ValueError("ours")

    make, path = KINDS[kind]
    async with Loopback([Response(events=events(kind))]) as server:
        with pytest.raises(ValueError, match="ours"):
            await make("model-1", KEY, server.url + path).draft(TASK, (), report)
        assert len(server.requests) == 1


def test_an_sdk_that_is_not_installed():
    with pytest.raises(ProviderError, match=r"-m pip install no_such_sdk$"):
        load_sdk("no_such_sdk")


@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_sdks_are_not_imported_with_the_providers(name):
    code = f"import sys, kernelwright.providers.{name}, kernelwright.providers.table; print('{name}' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "server")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "False"


async def test_an_answer_without_code_is_asked_for_once_more(kind):
    responses = [Response(events=events(kind, "I would rather talk.")), Response(events=events(kind))]
    result, server, _ = await draft(kind, responses)
    assert isinstance(result, Candidate)
    assert result.usage == Usage(22, 14, 6)
    assert "no complete python fence" in str(server.requests[1])


async def test_a_truncated_answer_is_asked_for_shorter(kind):
    cut = {"stop": "max_tokens"} if kind == "anthropic" else {"status": "incomplete", "reason": "max_output_tokens"}
    truncated = Response(events=events(kind, "```python\ndef scale(x", **cut))
    result, server, _ = await draft(kind, [truncated, Response(events=events(kind))])
    assert isinstance(result, Candidate)
    assert "cut off at the token limit" in str(server.requests[1])
    result, _, _ = await draft(kind, [truncated, truncated])
    assert isinstance(result, ProviderError)
    assert "was cut off at its token limit, twice" in str(result)


async def test_an_empty_answer_twice(kind):
    result, server, _ = await draft(kind, [Response(events=events(kind, ""))] * 2)
    assert "held no code, twice" in str(result)
    assert len(server.requests) == 2


async def test_a_refusal_declines(kind):
    refused = {"stop": "refusal"} if kind == "anthropic" else {"status": "incomplete", "reason": "content_filter"}
    result, _, _ = await draft(kind, [Response(events=events(kind, "No.", **refused))])
    assert isinstance(result, Refusal)


async def test_cancelling_closes_the_connection(kind):
    make, path = KINDS[kind]
    partial = events(kind)[:3] if kind == "anthropic" else events(kind)[:1]
    async with Loopback([Response(events=partial, then="hang")]) as server:
        provider = make("model-1", KEY, server.url + path)
        running = asyncio.create_task(provider.draft(TASK, (), lambda event: None))
        await asyncio.wait_for(server.streaming.wait(), 30)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(server.left.wait(), 1)


LEAKS = {
    "401": Response(401, body=error_body(f"Incorrect key: {KEY}, or {KEY[:9]}****")),
    "400": Response(400, body=error_body(KEY)),
    "503": Response(503, body=error_body(KEY)),
    "a page": Response(500, headers={"content-type": "text/html"}, body=f"<pre>{KEY}</pre>"),
    "a broken event": raw(f"event: message_start\ndata: {KEY}\n\n"),
}


@pytest.mark.parametrize("name", sorted(LEAKS))
async def test_no_key_in_messages_reports_reprs_or_logs(kind, name, caplog):
    caplog.set_level(logging.DEBUG)
    reported = []
    result, _, _ = await draft(kind, [LEAKS[name]] * 5, report=reported.append)
    assert isinstance(result, ProviderError)
    provider = KINDS[kind][0]("model-1", KEY)
    # A server that repeats the key may have it logged by the HTTP library as part of its answer; ours may not add to that.
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("kernelwright")]
    shown = "".join(traceback.format_exception(result)) + repr(
        (result, reported, provider, vars(provider)["model"], ours)
    )
    assert KEY[:9] not in shown


async def test_no_key_in_the_libraries_logs(kind, caplog):
    caplog.set_level(logging.DEBUG)
    await draft(kind, [Response(503), Response(events=events(kind))])
    assert caplog.records
    assert KEY not in caplog.text


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY} x", f"{KEY}…"])
async def test_a_key_that_no_header_can_hold_goes_nowhere(kind, key, caplog):
    caplog.set_level(logging.DEBUG)
    async with Loopback([]) as server:
        provider = KINDS[kind][0]("model-1", key, server.url)
        with pytest.raises(ProviderError, match=f"set {kind.upper()}_API_KEY") as raised:
            await provider.draft(TASK, (), lambda event: None)
        assert server.requests == []
    assert KEY not in str(raised.value) + caplog.text


async def test_the_instruction_is_passed_on(kind):
    make, path = KINDS[kind]
    async with Loopback([Response(events=events(kind))]) as server:
        task = replace(TASK, instruction="use two warps")
        await make("model-1", KEY, server.url + path).draft(task, (), lambda event: None)
        assert "use two warps" in str(server.requests[0])
