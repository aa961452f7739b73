"""A wire to PostgreSQL that a test can cut: a TCP proxy that knows which statement passes.

What is held back is delivered when the wire is mended, as TCP does after a partition.
A stop holds one statement: before the server has seen it, or after its commit, without its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from tests.workers import WITHIN

_SSL_REQUEST = 80877103
When = Literal["before", "after"]


class Stop:
    """One statement that is held on its way."""

    def __init__(self, statement: str, when: When) -> None:
        self.statement = statement
        self.when = when
        self._reached = asyncio.Event()
        self._over = asyncio.Event()
        self._dropped = False

    async def reached(self) -> None:
        """Wait until the statement, or its answer, is held."""
        async with asyncio.timeout(WITHIN):
            await self._reached.wait()

    def go_on(self) -> None:
        """Deliver what is held."""
        self._over.set()

    def drop(self) -> None:
        """Break the connection instead: nobody will ever hear of what is held."""
        self._dropped = True
        self._over.set()

    async def hold(self) -> bool:
        """Wait for the test; return whether to deliver."""
        self._reached.set()
        await self._over.wait()
        return not self._dropped


class _Session:
    """One client and its connection to the server."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.name = ""
        self.flows = asyncio.Event()
        self.flows.set()
        self._texts: dict[bytes, str] = {}
        self._last = ""
        self._answer: Stop | None = None

    def statement(self, kind: bytes, payload: bytes) -> str | None:
        """Return the name of the statement that a message starts, None if it starts none."""
        if kind == b"P":
            name, text, _ = payload.split(b"\0", 2)
            self._texts[name] = text.split(b"\n", 1)[0].removeprefix(b"-- ").decode()
            return None
        if kind == b"Q":
            said = payload.rstrip(b"\0").decode()
            return f"commit of {self._last}" if said == "COMMIT" else said
        if kind != b"B":
            return None
        self._last = self._texts.get(payload.split(b"\0", 2)[1], "")
        return self._last

    async def forth(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry what the client says."""
        while True:
            head = await reader.readexactly(5)
            payload = await reader.readexactly(_length(head) - 4)
            name = self.statement(head[:1], payload)
            stop = self.wire.take_stop(name) if name else None
            if stop is not None and stop.when == "before":
                if not await stop.hold():
                    return
            elif stop is not None:
                self._answer = stop
            await self.flows.wait()
            writer.write(head + payload)
            await writer.drain()

    async def back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry what the server says."""
        while True:
            head = await reader.readexactly(5)
            payload = await reader.readexactly(_length(head) - 4)
            # "Ready for query" follows the commit, and the client waits for it.
            if head[:1] == b"Z" and self._answer is not None:
                stop, self._answer = self._answer, None
                if not await stop.hold():
                    return
            await self.flows.wait()
            writer.write(head + payload)
            await writer.drain()


def _length(head: bytes) -> int:
    return int(struct.unpack("!I", head[1:5])[0])


class Wire:
    """A proxy before the server of `dsn`; see `wire_to`.

    Attributes
    ----------
    url
        What a worker is given instead of `dsn`.
    """

    def __init__(self, dsn: str) -> None:
        self._split = urlsplit(dsn)
        self._server: asyncio.Server
        self._sessions: set[_Session] = set()
        self._stops: list[Stop] = []
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def open(self) -> None:
        """Listen; after `close` at the same address again."""
        port = urlsplit(self.url).port or 0
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        port = self._server.sockets[0].getsockname()[1]
        place = f"{self._split.username}:{self._split.password}@127.0.0.1:{port}"
        self.url = urlunsplit(self._split._replace(netloc=place))

    async def close(self) -> None:
        """Break all connections."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def reopen(self) -> None:
        """Listen again after `close`, at the same address."""
        port = urlsplit(self.url).port
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    def cut(self, only: str = "") -> None:
        """Let nothing pass any more, silently.

        Parameters
        ----------
        only
            Of those connections only whose application's name holds this; new ones pass.
        """
        if not only:
            self._whole.clear()
        for session in self._sessions:
            if only in session.name:
                session.flows.clear()

    def mend(self) -> None:
        """Deliver what was held, and all that follows."""
        self._whole.set()
        for session in self._sessions:
            session.flows.set()

    def stop_at(self, statement: str, when: When) -> Stop:
        """Hold the next statement of this name, or its answer."""
        self._stops.append(Stop(statement, when))
        return self._stops[-1]

    def take_stop(self, statement: str) -> Stop | None:
        """Return the stop for a statement that passes, once."""
        for stop in self._stops:
            if stop.statement == statement:
                self._stops.remove(stop)
                return stop
        return None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        session = _Session(self)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(session, reader, writer)
        except asyncio.CancelledError:
            pass  # the test is over; a handler that ends as cancelled is reported as an error
        finally:
            self._tasks.discard(task)
            self._sessions.discard(session)
            writer.close()

    async def _serve(
        self, session: _Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._whole.wait()
        startup = await self._startup(reader, writer)
        words = startup[8:].split(b"\0")
        if b"application_name" in words:
            session.name = words[words.index(b"application_name") + 1].decode()
        theirs, ours = await asyncio.open_connection(self._split.hostname, self._split.port)
        self._sessions.add(session)
        ours.write(startup)
        pumps = [
            asyncio.ensure_future(session.forth(reader, ours)),
            asyncio.ensure_future(session.back(theirs, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            ours.close()

    async def _startup(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Return the first message, having declined to speak TLS."""
        while True:
            head = await reader.readexactly(8)
            length, code = struct.unpack("!II", head)
            message = head + await reader.readexactly(length - 8)
            if code != _SSL_REQUEST:
                return message  # of a session, or of a request to cancel one, which has no more
            writer.write(b"N")


@contextlib.asynccontextmanager
async def wire_to(dsn: str) -> AsyncIterator[Wire]:
    """Yield a wire to the server of `dsn`, broken after the block."""
    wire = Wire(dsn)
    await wire.open()
    try:
        yield wire
    finally:
        await wire.close()
