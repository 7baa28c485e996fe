"""Real HTTP servers on loopback that speak the two streaming wire formats, with every way of failing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

REPLY = "Here it is.\n\n```python\ndef scale(x, factor=2.0):\n    return x\n```\n"


@dataclass(frozen=True)
class Response:
    """What the server answers once. `then` is what follows: "close"; "drop", in mid-stream; "hang", until the client
    leaves; "drip", a comment every few milliseconds until it leaves."""

    status: int = 200
    events: Sequence[tuple[str, dict]] = ()
    headers: dict = field(default_factory=dict)
    body: str = ""
    then: str = "close"


class Loopback:
    """Answers requests with `responses` in order. `left` is set when a client leaves a hanging stream."""

    def __init__(self, responses: Sequence[Response]) -> None:
        self.responses = list(responses)
        self.requests: list[dict] = []
        self.headers: list[str] = []
        self.streaming, self.left = asyncio.Event(), asyncio.Event()

    async def __aenter__(self) -> Loopback:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.readexactly(1)
            if first == b"\x16":  # a TLS handshake
                writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                return
            head = (first + await reader.readuntil(b"\r\n\r\n")).decode()
            lengths = [line for line in head.lower().splitlines() if line.startswith("content-length")]
            length = int(lengths[0].split(":")[1])
            self.headers.append(head)
            self.requests.append(json.loads(await reader.readexactly(length)))
            await self._answer(self.responses.pop(0), reader, writer)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the client left
        finally:
            writer.close()

    async def _answer(self, response: Response, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind = "text/event-stream" if response.events else "application/json"
        headers = {"content-type": kind, "connection": "close", **response.headers}
        if response.then != "close":
            headers["transfer-encoding"] = "chunked"
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {response.status} X\r\n{head}\r\n".encode())
        text = response.body + "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in response.events)
        if response.then == "close":
            writer.write(text.encode())
            await writer.drain()
            return
        data = text.encode()
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await writer.drain()
        self.streaming.set()
        if response.then in ("hang", "drip"):
            await self._linger(reader, writer, response.then == "drip")
            self.left.set()

    async def _linger(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, drip: bool) -> None:
        leaving = asyncio.create_task(reader.read())
        while not (await asyncio.wait({leaving}, timeout=0.02 if drip else None))[0]:
            writer.write(b"3\r\n:\n\n\r\n")
            await writer.drain()


def anthropic_events(text: str = REPLY, stop: str | None = "end_turn", usage: int = 7) -> list[tuple[str, dict]]:
    """A Messages API stream."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 1, "cache_read_input_tokens": 3},
    }
    half = len(text) // 2
    events = [
        ("message_start", {"type": "message_start", "message": message}),
        (
            "content_block_start",
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        ),
    ]
    for piece in (text[:half], text[half:]):
        delta = {"type": "text_delta", "text": piece}
        events.append(("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}))
    events.append(("content_block_stop", {"type": "content_block_stop", "index": 0}))
    if stop is not None:
        delta = {"stop_reason": stop, "stop_sequence": None}
        events.append(("message_delta", {"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage}}))
        events.append(("message_stop", {"type": "message_stop"}))
    return events


def openai_events(text: str = REPLY, status: str = "completed", reason: str | None = None) -> list[tuple[str, dict]]:
    """A Responses API stream."""
    half = len(text) // 2
    events = []
    for number, piece in enumerate((text[:half], text[half:])):
        data = {"item_id": "i", "output_index": 0, "content_index": 0, "delta": piece, "logprobs": []}
        kind = "response.output_text.delta"
        events.append((kind, {"type": kind, "sequence_number": number, **data}))
    details = {
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    response = {
        "id": "r",
        "object": "response",
        "created_at": 0,
        "model": "m",
        "output": [],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "status": status,
        "incomplete_details": {"reason": reason} if reason else None,
        "usage": {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18, **details},
    }
    kind = f"response.{status}"
    events.append((kind, {"type": kind, "sequence_number": 9, "response": response}))
    return events


def error_body(message: str) -> str:
    """The JSON body that both APIs send with an error status."""
    return json.dumps({"type": "error", "error": {"type": "some_error", "message": message, "code": None}})
