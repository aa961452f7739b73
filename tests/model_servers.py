"""A real HTTP server on loopback that speaks chat completions, well or badly, as it is told."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

#: How a server answers one request; it may keep the connection or close it.
Answer = Callable[["Exchange"], Awaitable[None]]

DONE = b"data: [DONE]\n\n"


@dataclass
class Exchange:
    """One request, and the connection that it came over."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    #: Number of the connection, from 0.
    connection: int

    @property
    def json(self) -> dict[str, Any]:
        """The request's body."""
        return msgspec.json.decode(self.body)  # type: ignore[no-any-return]

    async def send(self, data: bytes) -> None:
        """Send bytes now, in a packet of their own."""
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, *lines: str, status: str = "200 OK") -> None:
        """Send the head of an answer."""
        await self.send("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode())

    async def stream(self) -> None:
        """Begin a stream of events in chunks."""
        await self.head("Content-Type: text/event-stream", "Transfer-Encoding: chunked")

    async def chunk(self, data: bytes) -> None:
        """Send a chunk; an empty one is the end."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def cut(self) -> None:
        """Close the connection."""
        self.writer.close()

    def reset(self) -> None:
        """Close the connection with a reset."""
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass


class ModelServer:
    """A server whose answers are scripted, one for each request; the last one is repeated.

    Attributes
    ----------
    seen
        All requests.
    connections
        How many were opened.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.seen: list[Exchange] = []
        self.connections = 0
        self.failures: list[BaseException] = []
        self.port = 0
        self.secure = False
        self._answers = list(answers)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """What to give to a client."""
        return f"{'https' if self.secure else 'http'}://localhost:{self.port}/v1"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection in a task of its own."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self.connections = self.connections, self.connections + 1
        try:
            while not writer.is_closing():
                exchange = await _read(reader, writer, number)
                answer = self._answers[min(len(self.seen), len(self._answers) - 1)]
                self.seen.append(exchange)
                await answer(exchange)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client left
        except Exception as error:  # shown at the end of the test
            self.failures.append(error)
        finally:
            writer.close()

    async def stop(self) -> None:
        """End all connections and show what went wrong in an answer."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.failures:
            raise self.failures[0]


@asynccontextmanager
async def serving(
    *answers: Answer, tls: ssl.SSLContext | None = None
) -> AsyncIterator[ModelServer]:
    """Run a server for the length of the block."""
    model = ModelServer(answers)
    server = await asyncio.start_server(model.accept, "localhost", 0, ssl=tls, limit=2**24)
    model.port = server.sockets[0].getsockname()[1]
    model.secure = tls is not None
    try:
        yield model
    finally:
        server.close()
        await model.stop()
        await server.wait_closed()


async def _read(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> Exchange:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    body = await reader.readexactly(int(headers["content-length"]))
    return Exchange(method, target, headers, body, reader, writer, number)


# What answers are made of.


def event(**chunk: Any) -> bytes:
    """Return one event with a chunk of a completion, as real servers dress it."""
    dressed = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        **chunk,
    }
    return b"data: " + msgspec.json.encode(dressed) + b"\n\n"


def delta(finish: str | None = None, **said: Any) -> bytes:
    """Return an event in which the model says something."""
    return event(choices=[{"index": 0, "delta": said, "finish_reason": finish}])


def said(text: str, *, finish: str = "stop") -> list[bytes]:
    """Return the events of an answer in text, a word each."""
    words = [delta(content=word) for word in text.split(" ")]
    words[1:] = [delta(content=f" {word}") for word in text.split(" ")[1:]]
    return [delta(role="assistant", content=""), *words, delta(finish=finish)]


def called(*calls: tuple[str, str, str]) -> list[bytes]:
    """Return the events of parallel tool calls: id, name, arguments in pieces by index."""
    opened = [
        delta(
            tool_calls=[
                {
                    "index": place,
                    "id": i,
                    "type": "function",
                    "function": {"name": n, "arguments": ""},
                }
            ]
        )
        for place, (i, n, _) in enumerate(calls)
    ]
    halves: list[bytes] = []
    for half in (0, 1):
        for place, (_, _, arguments) in enumerate(calls):
            middle = len(arguments) // 2
            piece = arguments[middle:] if half else arguments[:middle]
            halves.append(delta(tool_calls=[{"index": place, "function": {"arguments": piece}}]))
    return [delta(role="assistant", content=None), *opened, *halves, delta(finish="tool_calls")]


def usage(prompt: int = 10, completion: int = 5, **more: Any) -> bytes:
    """Return the event that says what was used."""
    counted = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
    return event(choices=[], usage=counted)


def events(*data: bytes) -> Answer:
    """Return an answer that streams events and ends as it should."""

    async def answer(exchange: Exchange) -> None:
        await exchange.stream()
        for piece in data:
            await exchange.chunk(piece)
        await exchange.chunk(b"")

    return answer


def speech(text: str, *, finish: str = "stop") -> Answer:
    """Return a good answer in text."""
    return events(*said(text, finish=finish), usage(), DONE)


def calls(*wanted: tuple[str, str, str]) -> Answer:
    """Return a good answer with tool calls."""
    return events(*called(*wanted), usage(), DONE)


def plain(status: str, body: bytes = b"", *headers: str, kind: str = "application/json") -> Answer:
    """Return an answer that is no stream."""

    async def answer(exchange: Exchange) -> None:
        await exchange.head(
            f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers, status=status
        )
        await exchange.send(body)

    return answer


def raw(*pieces: bytes) -> Answer:
    """Return an answer of these bytes; then the connection ends."""

    async def answer(exchange: Exchange) -> None:
        for piece in pieces:
            await exchange.send(piece)
        exchange.cut()

    return answer


@lru_cache(1)
def certificate() -> tuple[bytes, bytes]:
    """Return a certificate for localhost that signs itself, and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem), secret


def server_tls(folder: Path) -> ssl.SSLContext:
    """Return what a server on localhost needs; its files go into `folder`."""
    made, key = certificate()
    (folder / "cert.pem").write_bytes(made)
    (folder / "key.pem").write_bytes(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def client_tls() -> ssl.SSLContext:
    """Return what a client needs to trust that server."""
    return ssl.create_default_context(cadata=certificate()[0].decode())
