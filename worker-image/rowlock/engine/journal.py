"""One run's history, as its agent sees it: answers from memory, writes through the writer.

The journal also knows how many effects of the run are under way, because a drain needs to:
a run of several branches stops when none of them is in the middle of something,
and a branch that reaches its next step meanwhile waits there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from rowlock.agents.protocol import Entry, Seat
from rowlock.engine.lane import Lane
from rowlock.engine.trust import Trust
from rowlock.engine.writer import Writer
from rowlock.errors import TooLarge
from rowlock.options import RunOptions
from rowlock.states import EventKind
from rowlock.store.bodies import pack, unpack
from rowlock.store.types import Event

_MAX_DUR_MS = 2**31 - 1
_MAX_TRIES = 2**15 - 1


class Yielding(Protocol):
    """The run, told that a drain may end it now."""

    def yield_now(self) -> None:
        """End the run's task; it goes on elsewhere."""
        ...


class RunJournal:
    """`rowlock.agents.protocol.Journal` of a run held by this process.

    Parameters
    ----------
    history
        All rows of the run, by number.
    max_body_bytes
        Cap of one entry.
    seat
        Waits for a place to make a blocking call.
    """

    __slots__ = (
        "_entries",
        "_flying",
        "_held",
        "_lane",
        "_loop",
        "_max_body",
        "_owner",
        "_seat",
        "_trust",
        "_writer",
        "attempt",
        "cost_micro",
        "epoch",
        "options",
        "replayed",
        "run_id",
        "steps",
        "tokens_in",
        "tokens_out",
    )

    def __init__(
        self,
        lane: Lane,
        options: RunOptions,
        *,
        history: Sequence[Event],
        writer: Writer,
        trust: Trust,
        owner: Yielding,
        max_body_bytes: int,
        seat: Callable[[], Awaitable[Seat]],
    ) -> None:
        self.run_id: int = lane.run_id
        self.attempt = lane.attempt
        self.epoch = lane.epoch
        self.options = options
        #: Finished steps, and how many of them history held from the start.
        self.steps = self.replayed = 0
        self.tokens_in = self.tokens_out = self.cost_micro = 0
        self._lane = lane
        self._writer = writer
        self._trust = trust
        self._owner = owner
        self._seat = seat
        self._max_body = max_body_bytes
        self._loop = asyncio.get_running_loop()
        self._flying = 0
        self._held = 0
        self._entries: dict[str, tuple[EventKind, int, bytes]] = {}
        if history:
            self._replay(history)

    def _replay(self, history: Sequence[Event]) -> None:
        entries = self._entries
        for event in history:
            if event.kind > EventKind.STEP_FAILED or event.key is None:
                continue
            entries[event.key] = (event.kind, event.attempt_try, unpack(event.body or b"null"))
        self.steps = sum(1 for kind, _, _ in entries.values() if kind is EventKind.STEP_DONE)
        self.replayed = self.steps

    def recall(self, key: str) -> Entry | None:
        """Return the newest entry of the step `key`."""
        found = self._entries.get(key)
        return Entry(found[0], key, found[1], found[2]) if found else None

    async def write(
        self, kind: EventKind, key: str, body: bytes, *, tries: int = 1, dur_ms: int | None = None
    ) -> None:
        """Store an entry and return after its commit.

        Raises
        ------
        TooLarge
            `body` is over the cap.
        """
        if len(body) > self._max_body:
            raise TooLarge(f"step {key!r}: {len(body)} bytes, at most {self._max_body} are stored")
        waiter = self._loop.create_future()
        self._give(kind, key, body, tries=tries, dur_ms=dur_ms, waiter=waiter)
        await waiter
        self._entries[key] = (kind, tries, body)
        if kind is EventKind.STEP_DONE:
            self.steps += 1
        if kind is not EventKind.STEP_INTENT:
            self._landed()

    def note(self, kind: EventKind, key: str, body: bytes) -> None:
        """Store an entry before the next `write`; over the cap its body is lost."""
        self._give(kind, key, body if len(body) <= self._max_body else b"null")

    def _give(
        self,
        kind: EventKind,
        key: str,
        body: bytes,
        *,
        tries: int = 1,
        dur_ms: int | None = None,
        waiter: asyncio.Future[None] | None = None,
    ) -> None:
        lane = self._lane
        if lane.closed:
            raise asyncio.CancelledError
        packed = pack(body)
        if dur_ms is not None:
            dur_ms = min(dur_ms, _MAX_DUR_MS)
        event = lane.event(kind, key, packed, tries=min(tries, _MAX_TRIES), dur_ms=dur_ms)
        self._writer.give(lane, event, len(packed), waiter)

    async def executor(self) -> Seat:
        """Wait for a place to make a blocking call; a drain need not wait for that."""
        self._held += 1
        try:
            if self._trust.draining:
                await self._hold()
            return await self._seat()
        finally:
            self._held -= 1

    async def boundary(self) -> None:
        """Return when an effect may begin."""
        if self._trust.draining or not self._trust.sure() or self._lane.closed:
            await self._hold()
        self._flying += 1

    async def pause(self, seconds: float) -> None:
        """Wait between two tries: an effect has ended, the next has not begun."""
        self._landed()
        self._held += 1
        try:
            if self._trust.draining:
                await self._hold()
            await asyncio.sleep(seconds)
        finally:
            self._held -= 1

    async def _hold(self) -> None:
        self._held += 1
        try:
            while not (self._trust.sure() and not self._trust.draining):
                if self._lane.closed:
                    raise asyncio.CancelledError
                if self._trust.draining:
                    self.drain()
                    await self._loop.create_future()  # ends with the task
                await self._trust.changed()
        finally:
            self._held -= 1
        if self._lane.closed:
            raise asyncio.CancelledError

    def _landed(self) -> None:
        if self._flying:
            self._flying -= 1
        if self._trust.draining:
            self.drain()

    def drain(self) -> None:
        """End the run's task if a branch waits at a boundary and no other is in an effect."""
        if self._held and not self._flying:
            self._owner.yield_now()

    def watched(self) -> bool:
        """Tell that nobody does: a model need not decode for it."""
        return False

    def publish(self, text: str) -> None:
        """Live text has no viewer in this process; it is never stored."""

    def count_usage(self, tokens_in: int, tokens_out: int, cost_micro: int) -> None:
        """Add to what the run has used."""
        self.tokens_in += tokens_in
        self.tokens_out += tokens_out
        self.cost_micro += cost_micro
