"""The real SDKs against loopback servers: one contract, both providers, every failure."""

import asyncio
from dataclasses import replace

import pytest
from loopback import REPLY, Loopback, Response, anthropic_events, error_body, openai_events
from samples import CALL, TASK

from kernelwright.errors import ProviderError
from kernelwright.model import Candidate, Case, Counterexample, Finding, Generating, Refusal, Refuted, Usage
from kernelwright.providers.anthropic import AnthropicProvider
from kernelwright.providers.openai import OpenAIProvider

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
        provider = make("model-1", KEY, server.url + path, clock)
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
    last = Refuted(Candidate("SECOND", kind), Finding("K201", "second fault", 12), shown)
    _, server, _ = await draft(kind, [Response(events=events(kind))], (first, last))
    sent = str(server.requests[0])
    for text in ("SECOND", "K201", "second fault", "line 12", "got nan, expected 0.5", "float32[512, 4096]"):
        assert text in sent
    assert "first fault" not in sent
    assert "FIRST" not in sent


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "rejected the request (400)"),
        (401, "refused the API key"),
        (403, "refused the API key"),
        (404, "knows no model 'model-1'"),
        (413, "rejected the request (413)"),
    ],
)
async def test_what_cannot_pass_is_said_at_once(kind, status, words):
    body = error_body(f"about {KEY}")
    result, server, clock = await draft(kind, [Response(status, body=body)])
    assert isinstance(result, ProviderError)
    assert words in str(result)
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


async def test_retry_after_is_honoured(kind):
    busy = Response(429, headers={"retry-after": "17"}, body=error_body("slow down"))
    result, _, clock = await draft(kind, [busy, Response(events=events(kind))])
    assert isinstance(result, Candidate)
    assert clock.waits == [17.0]


async def test_a_wait_beyond_the_limit_ends_it(kind):
    busy = Response(429, headers={"retry-after": "3600"}, body=error_body("quota"))
    result, server, clock = await draft(kind, [busy])
    assert isinstance(result, ProviderError)
    assert result.retry_after_s == 3600
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


async def test_malformed_events_are_tried_again(kind):
    nonsense = Response(headers={"content-type": "text/event-stream"}, body="event: message_start\ndata: {not json\n\n")
    result, server, _ = await draft(kind, [nonsense, Response(events=events(kind))])
    assert isinstance(result, Candidate)
    assert len(server.requests) == 2


async def test_nobody_listens(kind):
    make, path = KINDS[kind]
    async with Loopback([]) as server:
        url = server.url
    provider = make("model-1", KEY, url + path, Clock())
    with pytest.raises(ProviderError, match="check the network, proxy and base URL"):
        await provider.draft(TASK, (), lambda event: None)


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
    assert "token limit, twice" in str(result)


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


def test_no_key_in_a_repr(kind):
    make, path = KINDS[kind]
    assert KEY not in repr(make("model-1", KEY, path))


async def test_the_instruction_is_passed_on(kind):
    make, path = KINDS[kind]
    async with Loopback([Response(events=events(kind))]) as server:
        task = replace(TASK, instruction="use two warps")
        await make("model-1", KEY, server.url + path).draft(task, (), lambda event: None)
        assert "use two warps" in str(server.requests[0])
