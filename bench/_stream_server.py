"""A chat-completions server that streams tokens to many clients at an even pace.

    python -m bench._stream_server --rate 70 --tokens 700 [--tls FOLDER]

It prints its port. Each token says when it was sent, by the clock that all processes here share.
Each token goes out in a chunk of its own, as from a hosted model, and alone unless `--burst` says
how many share a packet;
the streams are spread over the time between two tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import time
from collections import deque
from pathlib import Path
from typing import Protocol, cast

import uvloop

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_EVENT = (
    'data: {"id":"chatcmpl-BQ7xkM2nZ1y0r4sV8wq3uT5pL6e9d","object":"chat.completion.chunk",'
    '"created":1760000000,"model":"gpt-5-mini-2025-08-07","service_tier":"default",'
    '"system_fingerprint":"fp_0123456789","choices":[{"index":0,"delta":{"content":" %.6f"},'
    '"logprobs":null,"finish_reason":null}]}\n\n'
)
_ENDING = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":%d}}\n\n'
    b"data: [DONE]\n\n"
)


class Paced(Protocol):
    """Something that is sent token by token."""

    def token(self) -> bool:
        """Send what is due; return whether more follow."""
        ...


class Pacer:
    """Sends a token to each stream when it is due.

    Parameters
    ----------
    gap
        Seconds between two tokens of a stream.

    Attributes
    ----------
    sent
        Tokens of all streams so far.
    latest
        Seconds by which a token was late at most; whoever reads it starts again from 0.
    """

    def __init__(self, gap: float) -> None:
        self.gap = gap
        self.sent = 0
        self.latest = 0.0
        self._due: deque[tuple[float, Paced]] = deque()

    @property
    def streams(self) -> int:
        """How many are under way."""
        return len(self._due)

    def add(self, stream: Paced) -> None:
        """Begin a stream."""
        self._due.append((time.monotonic() + self.gap, stream))

    async def run(self) -> None:
        """Send for ever; a server that is late by more than a token does not catch up at once."""
        while True:
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                due, stream = self._due.popleft()
                self.sent += 1
                self.latest = max(self.latest, now - due)
                if stream.token():
                    self._due.append((max(due, now - self.gap) + self.gap, stream))
            await asyncio.sleep(0.001)


class Stream(asyncio.Protocol):
    """One connection."""

    def __init__(self, pacer: Pacer, tokens: int, burst: int) -> None:
        self._pacer = pacer
        self._tokens = tokens
        self._burst = burst
        self._left = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take a request, which is small enough to come in one piece with its end."""
        if data.endswith(b"}"):
            self._left = self._tokens
            self._write(_HEAD)
            self._pacer.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """Stop."""
        self._left = 0
        self._transport = None

    def token(self) -> bool:
        """Send what is due; return whether more follow."""
        if not self._left:
            return False
        said = min(self._burst, self._left)
        self._left -= said
        data = (_EVENT % time.monotonic()).encode()
        self._write(b"%x\r\n%b\r\n" % (len(data), data) * said)
        if not self._left:
            data = _ENDING % self._tokens
            self._write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
        return self._left > 0

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until killed."""
    tls = None
    if arguments.tls:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(arguments.tls / "cert.pem", arguments.tls / "key.pem")
    pacer = Pacer(arguments.burst / arguments.rate)
    server = await asyncio.get_running_loop().create_server(
        lambda: Stream(pacer, arguments.tokens, arguments.burst),
        "127.0.0.1",
        0,
        ssl=tls,
        backlog=4096,
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await pacer.run()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--burst", type=int, default=1)
    parser.add_argument("--tls", type=Path)
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
