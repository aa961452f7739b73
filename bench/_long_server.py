"""A chat-completions server that plays the model of long runs, a token at a time.

    python -m bench._long_server --rate 70 --tokens 250

It prints its port, then once a second a JSON line with what it sent.
What a run wants stands in its conversation: how many commands are to be given, and, in the last
tool's answer, how many were. A conversation in which one is missing or doubled is refused.
Words are those of this repository's documentation; where somebody watches, each says when it was
sent instead, by the clock that all processes here share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from itertools import pairwise
from pathlib import Path
from typing import cast

import uvloop

from bench._stream_server import Pacer

#: The last tokens of a turn are the arguments of its tool call.
_ARGUMENT_TOKENS = 20
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_CHUNK = (
    'data: {"id":"chatcmpl-BQ7xkM2nZ1y0r4sV8wq3uT5pL6e9d","object":"chat.completion.chunk",'
    '"created":1760000000,"model":"gpt-5-mini-2025-08-07","service_tier":"default",'
    '"system_fingerprint":"fp_0123456789","choices":[{"index":0,"delta":%s,'
    '"logprobs":null,"finish_reason":%s}]}\n\n'
)
_USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}\n\ndata: [DONE]\n\n'
)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_TASK = re.compile(
    rb'\{\\"number\\":(\d+),\\"steps\\":(\d+),\\"big\\":(true|false),\\"watched\\":(true|false)\}'
)
_CALL = b'"tool_call_id":"call_'


def framed(event: bytes) -> bytes:
    """Return an event in an HTTP chunk of its own."""
    return b"%x\r\n%b\r\n" % (len(event), event)


def chunk(delta: object, finish: str | None = None) -> bytes:
    """Return a piece of a completion in its HTTP chunk."""
    return framed((_CHUNK % (json.dumps(delta), json.dumps(finish))).encode())


def recorded() -> list[bytes]:
    """Return the words that a model says, ready to be sent."""
    root = Path(__file__).parents[1] / "docs"
    text = " ".join(path.read_text() for path in sorted(root.rglob("*.md")))
    return [chunk({"content": f" {word}"}) for word in text.split()]


class Answers:
    """What the model says in each turn.

    Parameters
    ----------
    tokens
        Length of a turn.

    Attributes
    ----------
    wrong
        Conversations that are not what they should be.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.wrong = 0
        self._words = recorded()

    def to(self, request: bytes) -> list[bytes | None] | None:
        """Return all pieces of an answer, None for one that is made when it is sent."""
        task = _TASK.search(request)
        if task is None:
            return None
        number, steps = int(task[1]), int(task[2])
        done = _commands(request)
        if done != _last_command(request) or done > steps:
            self.wrong += 1
            return None
        said: list[bytes | None] = [chunk({"role": "assistant", "content": ""})]
        if done == steps:
            said += [chunk({"content": f"all {steps} commands done"}), chunk({}, "stop")]
        else:
            said += self._text(number, done, watched=task[4] == b"true")
            said += _call(number, done + 1, big=task[3].decode())
            said.append(chunk({}, "tool_calls"))
        used = _USAGE % (len(request) // 4, len(said))
        return [*said, framed(used) + b"0\r\n\r\n"]

    def _text(self, number: int, turn: int, *, watched: bool) -> list[bytes | None]:
        length = self.tokens - _ARGUMENT_TOKENS
        if watched:
            return [None] * length
        start = (number * 7919 + turn * 104_729) % (len(self._words) - length)
        return [*self._words[start : start + length]]


def _commands(request: bytes) -> int:
    return request.count(_CALL)


def _last_command(request: bytes) -> int:
    place = request.rfind(_CALL)
    if place < 0:
        return 0
    return int(request[place + len(_CALL) : place + 100].split(b'"', 1)[0].split(b"_")[1])


def _call(number: int, turn: int, *, big: str) -> list[bytes]:
    """Return the pieces of a tool call: its name, then its arguments, a token each."""
    opened = {
        "index": 0,
        "id": f"call_{number}_{turn}",
        "type": "function",
        "function": {"name": "run_command", "arguments": ""},
    }
    arguments = (
        f'{{"number":{number},"turn":{turn},"big":{big},'
        f'"command":"cd /workspace && python -m pytest -q tests/unit -k case_{turn} 2>&1 | tail"}}'
    )
    marks = [len(arguments) * place // _ARGUMENT_TOKENS for place in range(_ARGUMENT_TOKENS + 1)]
    pieces = [arguments[start:end] for start, end in pairwise(marks)]
    return [chunk({"tool_calls": [opened]})] + [
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces
    ]


class Stream(asyncio.Protocol):
    """One connection: takes requests and sends their answers, one after the other."""

    def __init__(self, pacer: Pacer, answers: Answers) -> None:
        self._pacer = pacer
        self._answers = answers
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._have = self._need = 0
        self._pieces: list[bytes | None] = []
        self._next = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _error: Exception | None) -> None:
        """Stop."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Gather a request and answer it."""
        self._parts.append(data)
        self._have += len(data)
        if not self._need:
            self._need = self._length()
        if self._need and self._have >= self._need:
            request = b"".join(self._parts)
            self._parts, self._have, self._need = [], 0, 0
            self._answer(request)

    def token(self) -> bool:
        """Send what is due; return whether more follow."""
        if self._transport is None:
            return False
        piece = self._pieces[self._next]
        self._next += 1
        if piece is None:
            piece = chunk({"content": f" {time.monotonic():.6f}"})
        self._transport.write(piece)
        return self._next < len(self._pieces)

    def _length(self) -> int:
        """Return how long the request is; 0 as long as its head does not say."""
        head = b"".join(self._parts)
        end = head.find(b"\r\n\r\n")
        found = _LENGTH.search(head, 0, end) if end >= 0 else None
        return end + 4 + int(found[1]) if found else 0

    def _answer(self, request: bytes) -> None:
        assert self._transport is not None
        pieces = self._answers.to(request)
        if pieces is None:
            self._transport.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return
        self._pieces, self._next = pieces, 0
        self._transport.write(_HEAD)
        self._pacer.add(self)


async def tell(pacer: Pacer, answers: Answers) -> None:
    """Say once a second what was sent."""
    while True:
        late, pacer.latest = pacer.latest, 0.0
        said = {"streams": pacer.streams, "tokens": pacer.sent, "late": late}
        print(json.dumps({**said, "wrong": answers.wrong}), flush=True)
        await asyncio.sleep(1)


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until killed."""
    pacer, answers = Pacer(1 / arguments.rate), Answers(arguments.tokens)
    server = await asyncio.get_running_loop().create_server(
        lambda: Stream(pacer, answers), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    telling = asyncio.create_task(tell(pacer, answers))
    await pacer.run()
    await telling


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, required=True, help="tokens a second and stream")
    parser.add_argument("--tokens", type=int, required=True, help="of a turn")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
