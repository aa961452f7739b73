"""Connections of one event loop, kept open between the turns of all its runs.

A pool lives as long as its loop:
it is an asynchronous generator, which a loop finishes when it ends.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncGenerator
from weakref import WeakKeyDictionary

from rowlock.errors import ModelRefused, ModelUnavailable
from rowlock.models.connection import Connection, Request, Sink, Unanswered
from rowlock.models.endpoint import Origin
from rowlock.models.tick import Tick

#: Many servers close a quiet connection after a minute; some after 5 s, which is noticed.
_IDLE_SECONDS = 20.0
_MAX_IDLE = 1024

_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, Pool] = WeakKeyDictionary()


async def pool_of_loop() -> Pool:
    """Return the pool of the running loop; the first who asks opens it."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        pool = _pools[loop] = Pool(loop)
        await anext(pool.lifetime)
    return pool


class Pool:
    """All connections to models' servers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tick = Tick(loop)
        self._idle: dict[Origin, deque[tuple[float, Connection]]] = {}
        self._all: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        #: Finished by the loop, at its end.
        self.lifetime = self._live()

    async def exchange(
        self,
        origin: Origin,
        request: Request,
        sink: Sink,
        *,
        connect: float,
        first_byte: float,
        between: float,
    ) -> None:
        """Send a request over a connection that is free, else over a new one.

        A server may close a free connection at the moment when it is used again.
        A request that got no byte of an answer there is sent once more over a new one.

        Raises
        ------
        ModelRefused
            The server's certificate is not to be trusted.
        ModelUnavailable
            There is no connection, or no whole answer.
        """
        free = self._free(origin)
        if free is not None:
            try:
                await free.exchange(request, sink, first_byte=first_byte, between=between)
            except Unanswered:
                pass
            else:
                return
        fresh = await self._connected(origin, connect)
        await fresh.exchange(request, sink, first_byte=first_byte, between=between)

    def _free(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin)
        while idle:
            since, connection = idle.pop()
            if connection.open and self._loop.time() - since < _IDLE_SECONDS:
                return connection
            self._drop(connection)
        return None

    async def _connected(self, origin: Origin, seconds: float) -> Connection:
        connection = Connection(self._tick, self, origin)
        self._all.add(connection)
        stands = False
        try:
            async with asyncio.timeout(seconds):
                await self._open(origin, connection)
            stands = True
        except (OSError, UnicodeError) as error:
            raise _failure(error, origin, seconds) from error
        finally:
            if not stands:
                self._drop(connection)
        return connection

    async def _open(self, origin: Origin, connection: Connection) -> None:
        socket, _ = await self._loop.create_connection(lambda: connection, origin.host, origin.port)
        connection.use(socket, socket)
        if origin.tls is None:
            return
        transport = await self._loop.start_tls(
            socket, connection, origin.tls, server_hostname=origin.host
        )
        if transport is None:
            raise ConnectionResetError("the server closed the connection")
        connection.use(transport, socket)

    def keep(self, connection: Connection) -> None:
        """Have a connection that may carry another exchange."""
        idle = self._idle.setdefault(connection.origin, deque())
        idle.append((self._loop.time(), connection))
        if len(idle) > _MAX_IDLE:
            self._drop(idle.popleft()[1])
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_IDLE_SECONDS, self._sweep)

    def forget(self, connection: Connection) -> None:
        """Let go of a connection that has ended."""
        self._all.discard(connection)

    def _sweep(self) -> None:
        """Close what nobody used for long."""
        self._sweeper = None
        oldest = self._loop.time() - _IDLE_SECONDS
        for idle in self._idle.values():
            while idle and (idle[0][0] <= oldest or not idle[0][1].open):
                self._drop(idle.popleft()[1])
        if any(self._idle.values()):
            self._sweeper = self._loop.call_later(_IDLE_SECONDS, self._sweep)

    def _drop(self, connection: Connection) -> None:
        self._all.discard(connection)
        connection.close()

    async def _live(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _pools.pop(self._loop, None)
            if self._sweeper is not None:
                self._sweeper.cancel()
            for connection in list(self._all):
                connection.close()
            await asyncio.sleep(0)  # transports say goodbye in the loop's next round


def _failure(error: Exception, origin: Origin, seconds: float) -> ModelRefused | ModelUnavailable:
    """Return what the failure to connect means for the turn."""
    where = f"{origin.host}:{origin.port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return ModelRefused(f"the certificate of {where} is not trusted: {error.verify_message}")
    if isinstance(error, TimeoutError) and not error.args:
        return ModelUnavailable(f"{where} was not connected to within {seconds:g} s")
    return ModelUnavailable(f"no connection to {where}: {type(error).__name__}: {error}")
