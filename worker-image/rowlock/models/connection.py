"""One HTTP/1.1 connection to a model's server: one exchange at a time, read at most once a tick."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import httptools

from rowlock.errors import ModelUnavailable
from rowlock.models.endpoint import Origin
from rowlock.models.faults import Cut
from rowlock.models.message import Message
from rowlock.models.tick import Tick

#: What nobody watches is decoded in blocks of this size, so that it takes little memory.
_BLOCK_BYTES = 65_536
#: A chunked message cannot end in any other way.
_END = b"\r\n\r\n"
_DONE = b"[DONE]"
#: How long a stream that said [DONE] may take to end its message before the connection is given up.
_TRAILING_SECONDS = 1.0


#: Makes the bytes of a request. They are nearly all of a long conversation, and an answer takes
#: seconds: whoever kept them until it is there would have each conversation twice in memory.
Request = Callable[[], bytes]


class Sink(Protocol):
    """Where an answer goes."""

    @property
    def begun(self) -> bool:
        """The model has said something: from now on the stream is read on the tick."""
        ...

    def head(self, status: int, headers: dict[bytes, bytes]) -> bool:
        """Take status and headers (names in lower case); return whether a stream follows."""
        ...

    def body(self, data: bytes) -> bool:
        """Take a piece of the body; return whether nothing more is needed."""
        ...

    def watched(self) -> bool:
        """Does somebody wait for each piece?"""
        ...


class Owner(Protocol):
    """Who keeps connections."""

    def keep(self, connection: Connection) -> None:
        """Have it for another exchange."""
        ...

    def forget(self, connection: Connection) -> None:
        """Let go of it."""
        ...


class Silence(ModelUnavailable):
    """The server said nothing for longer than it may."""


class Unanswered(Cut):
    """The connection ended before the first byte of an answer."""


class Connection(asyncio.Protocol):
    """A connection, plain or in TLS.

    Parameters
    ----------
    owner
        Told when it may carry another exchange, and when it has ended.
    origin
        Where it leads.
    """

    def __init__(self, tick: Tick, owner: Owner, origin: Origin) -> None:
        self.origin = origin
        self._loop = asyncio.get_running_loop()
        self._tick = tick
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._socket: asyncio.Transport | None = None
        self._message = Message(self._begun)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sink: Sink | None = None
        self._ended: asyncio.Future[None] | None = None
        self._first_byte = self._between = self._heard = 0.0
        self._answered = self._bodied = False
        self._streaming = self._on_tick = self._paused = self._queued = False

    # What the owner calls.

    def use(self, transport: asyncio.Transport, socket: asyncio.Transport) -> None:
        """Talk over `transport`; `socket` is below it, or the same without TLS."""
        self._transport, self._socket = transport, socket

    @property
    def open(self) -> bool:
        """It may still be there."""
        return self._socket is not None and not self._socket.is_closing()

    def close(self) -> None:
        """End it at once; what was not sent is dropped."""
        if self._transport is not None:
            self._transport.abort()
        if self._socket is not None and self._socket is not self._transport:
            self._socket.abort()

    async def exchange(
        self, request: Request, sink: Sink, *, first_byte: float, between: float
    ) -> None:
        """Send a request and hand all of the answer to `sink`.

        Parameters
        ----------
        request
            Called for the bytes when they are sent.
        first_byte, between
            Seconds until the first byte of the body, and from then on between two reads.

        Raises
        ------
        Unanswered
            The connection ended before a byte of the answer.
        ModelUnavailable
            It ended in the middle, kept silent for too long, or what came is no HTTP.
        """
        if self._transport is None or not self.open:
            raise Unanswered("the connection to the model's server has ended")
        self._begin(sink, first_byte, between)
        ended = self._ended = self._loop.create_future()
        self._watch()
        self._transport.write(request())
        try:
            await ended
        except BaseException:
            self.close()
            raise
        finally:
            self._forget()

    def _begin(self, sink: Sink, first_byte: float, between: float) -> None:
        self._sink = sink
        self._first_byte, self._between = first_byte, between
        self._heard = self._loop.time()
        self._answered = self._bodied = self._streaming = self._on_tick = False
        self._message.begin()

    def _forget(self) -> None:
        """Let go of the exchange; the message's end may still be on its way."""
        self._sink = self._ended = None
        self._off_tick()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.open:
            return
        self._resume()
        if not self._message.complete:
            self._timer = self._loop.call_later(_TRAILING_SECONDS, self.close)
        elif self._message.keep_alive:
            self._owner.keep(self)
        else:
            self.close()

    # What the transport calls.

    def data_received(self, data: bytes) -> None:
        """Keep what came, and decode it if that cannot wait."""
        if self._ended is None and (self._message.complete or not self._answered):
            self.close()  # nobody has asked anything
            return
        self._answered = True
        self._heard = self._loop.time()
        self._pending.append(data)
        self._pending_bytes += len(data)
        if not self._can_wait(data):
            self._parse()
        if self._on_tick:
            self._pause()

    def eof_received(self) -> None:
        """Let the transport close."""

    def connection_lost(self, error: Exception | None) -> None:
        """End the exchange, which may be complete by that."""
        self._owner.forget(self)
        self._off_tick()
        if self._pending:
            self._parse()
        if self._timer is not None:
            self._timer.cancel()
        if self._message.ends_with_connection and error is None:
            self._end()
        else:
            self._fail(self._cut(error))

    def _cut(self, error: Exception | None) -> Cut:
        cause = f": {type(error).__name__}: {error}" if error else ""
        if not self._answered:
            return Unanswered(f"the model's server closed the connection without an answer{cause}")
        return Cut(f"the model's server closed the connection in the middle of its answer{cause}")

    def _can_wait(self, data: bytes) -> bool:
        """Tell whether nothing in `data` matters before the next block: see `read_on`, too."""
        return (
            self._on_tick
            and self._pending_bytes < _BLOCK_BYTES
            and len(data) >= len(_END)
            and not data.endswith(_END)
            and _DONE not in data
            and self._sink is not None
            and not self._sink.watched()
        )

    # What the tick calls.

    def read_on(self) -> bool:
        """Read again; a stream that has nothing new is decoded as far as it came."""
        if self._paused:
            self._resume()
            return True
        self._queued = False
        if self._pending:
            self._parse()
        return False

    def _pause(self) -> None:
        if not self._paused and self._socket is not None and not self._socket.is_closing():
            self._paused = True
            self._socket.pause_reading()
        if not self._queued:
            self._queued = True
            self._tick.wait(self)

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            if self._socket is not None and not self._socket.is_closing():
                self._socket.resume_reading()

    def _on(self) -> None:
        self._on_tick = True
        self._tick.streams += 1

    def _off_tick(self) -> None:
        if self._on_tick:
            self._on_tick = False
            self._tick.streams -= 1

    def _begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        if self._sink is not None:
            self._streaming = self._sink.head(status, headers)

    # Inside.

    def _parse(self) -> None:
        data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        try:
            body = self._message.feed(data)
        except httptools.HttpParserError as error:
            self._fail(ModelUnavailable(f"the model's server does not speak HTTP/1.1: {error}"))
            self.close()
            return
        self._hand_over(body)

    def _hand_over(self, body: bytes) -> None:
        enough = False
        if self._sink is None:
            if self._message.complete and self._ended is None:
                self._forget()
            return
        if body:
            if not self._bodied:
                self._bodied = True
                self._watch()
            try:
                enough = self._sink.body(body)
            except Exception as error:  # raised in the turn that it belongs to
                self._fail(error)
                return
            if self._streaming and not self._on_tick and self._sink.begun:
                self._on()
        if enough or self._message.complete:
            self._end()

    def _end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    def _watch(self) -> None:
        """Set the timer for the moment when silence would be too long."""
        if self._timer is not None:
            self._timer.cancel()
        allowed = self._between if self._bodied else self._first_byte
        due = self._heard + allowed
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._watch)
            return
        what = "more" if self._bodied else "of its answer"
        self._fail(Silence(f"the model's server sent nothing {what} for {allowed:g} s"))
