"""One run's history, as its agent sees it: answers from memory, writes through the writer.

The journal also knows how many effects of the run are under way, because a drain needs to:
a run of several branches stops when none of them is in the middle of something,
and a branch that reaches its next step meanwhile waits there.
By the same knowledge a run parks, when all its branches wait for long, or somebody suspends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from rowlock.agents.protocol import Entry, Question, Reply, Seat
from rowlock.agents.retry import LONG_WAIT_SECONDS
from rowlock.engine.answers import Answers
from rowlock.engine.lane import Lane
from rowlock.engine.trust import Trust
from rowlock.engine.waits import Wait, Waits
from rowlock.engine.writer import Writer
from rowlock.errors import TooLarge
from rowlock.options import RunOptions
from rowlock.states import EventKind, ParkReason
from rowlock.store.bodies import pack, unpack
from rowlock.store.types import Answer, Event

_MAX_DUR_MS = 2**31 - 1
_MAX_TRIES = 2**15 - 1
#: After so long without a move no branch is on its way to anything.
_QUIET_SECONDS = 0.02


class Yielding(Protocol):
    """The run, told that it may leave this worker now."""

    def yield_now(self) -> None:
        """End the run's task; it goes on elsewhere."""
        ...

    def park(self, waits: Sequence[Wait]) -> None:
        """End the run's task; it goes on when one of `waits` is over, or it is continued."""
        ...


@dataclass(slots=True)
class _Known:
    """The newest entry of one key.

    Parameters
    ----------
    body
        As stored, mostly compressed: a long run's history is in memory as long as the run is.
    stored
        Monotonic seconds, where it matters.
    """

    kind: EventKind
    tries: int
    body: bytes
    seq: int
    stored: float = 0.0

    def entry(self, key: str) -> Entry:
        """Return it as agents see it."""
        return Entry(self.kind, key, self.tries, unpack(self.body), self.seq)


class RunJournal:
    """`rowlock.agents.protocol.Journal` of a run held by this process.

    Parameters
    ----------
    history
        All rows of the run, by number.
    answers
        Of people, to this run's questions.
    max_body_bytes
        Cap of one entry.
    seat
        Waits for a place to make a blocking call.
    park_seconds
        A shorter wait is spent here.
    """

    __slots__ = (
        "_answers",
        "_entries",
        "_lane",
        "_leaving",
        "_loop",
        "_max_body",
        "_owner",
        "_park_seconds",
        "_parked",
        "_quiet",
        "_seat",
        "_trust",
        "_waits",
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

    def __init__(  # noqa: PLR0913  the parts of a process
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
        answers: Sequence[Answer] = (),
        park_seconds: float = 5.0,
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
        self._park_seconds = park_seconds
        self._loop = asyncio.get_running_loop()
        self._waits = Waits()
        self._quiet: asyncio.TimerHandle | None = None
        #: Somebody suspends the run: no effect begins any more. Then: the run is on its way out.
        self._leaving = self._parked = False
        self._entries: dict[str, _Known] = {}
        self._answers = Answers(
            answers,
            history,
            attempt=lane.attempt,
            silence_approves=options.silence_approves,
        )
        if history:
            self._replay(history)

    def _replay(self, history: Sequence[Event]) -> None:
        entries, now = self._entries, time.monotonic()
        for event in history:
            if event.kind > EventKind.SLEEP or event.key is None:
                continue
            body = b"" if event.kind is EventKind.PROGRESS else event.body or b"null"
            unpack(body)  # what cannot be read must fail here and not in the agent's code
            stored = now - (event.age or 0.0)
            entries[event.key] = _Known(event.kind, event.attempt_try, body, event.seq, stored)
        self.steps = sum(1 for known in entries.values() if known.kind is EventKind.STEP_DONE)
        self.replayed = self.steps

    def recall(self, key: str) -> Entry | None:
        """Return the newest entry of the step `key`."""
        found = self._entries.get(key)
        return found.entry(key) if found else None

    def recorded(self) -> Iterator[Entry]:
        """Return the newest entry of each step."""
        for key, found in self._entries.items():
            yield found.entry(key)

    def age(self, key: str) -> float:
        """Return the seconds since the newest entry of `key`, if no success, was stored."""
        found = self._entries.get(key)
        return time.monotonic() - found.stored if found else 0.0

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
        packed = pack(body)
        seq = self._give(kind, key, packed, tries=tries, dur_ms=dur_ms, waiter=waiter)
        await waiter
        self._entries[key] = _Known(kind, tries, packed, seq, time.monotonic())
        if kind is EventKind.STEP_DONE:
            self.steps += 1
        if kind is not EventKind.STEP_INTENT:
            self._landed()

    def note(self, kind: EventKind, key: str, body: bytes, *, tries: int = 1) -> None:
        """Store an entry before the next `write`; over the cap its body is lost."""
        packed = pack(body) if len(body) <= self._max_body else b"null"
        seq = self._give(kind, key, packed, tries=tries)
        kept = b"" if kind is EventKind.PROGRESS else packed
        self._entries[key] = _Known(kind, tries, kept, seq, time.monotonic())

    def _give(
        self,
        kind: EventKind,
        key: str,
        packed: bytes,
        *,
        tries: int = 1,
        dur_ms: int | None = None,
        waiter: asyncio.Future[None] | None = None,
    ) -> int:
        lane = self._lane
        if lane.closed:
            raise asyncio.CancelledError
        if dur_ms is not None:
            dur_ms = min(dur_ms, _MAX_DUR_MS)
        event = lane.event(kind, key, packed, tries=min(tries, _MAX_TRIES), dur_ms=dur_ms)
        self._writer.give(lane, event, len(packed), waiter)
        return event.seq

    async def executor(self) -> Seat:
        """Wait for a place to make a blocking call; a drain need not wait for that."""
        if self._leaving or self._trust.draining:
            await self._hold()
        async with _Held(self, None):
            return await self._seat()

    async def boundary(self) -> None:
        """Return when an effect may begin."""
        if self._leaving or self._trust.draining or not self._trust.sure() or self._lane.closed:
            await self._hold()
        self._waits.flying += 1
        self._waits.moves += 1

    async def pause(self, seconds: float) -> None:
        """Wait between two tries: an effect has ended, the next has not begun."""
        self._landed()
        long = seconds > LONG_WAIT_SECONDS and seconds >= self._park_seconds
        await self._wait(seconds, ParkReason.RETRY if long else None)

    async def sleep(self, seconds: float) -> None:
        """Wait, here or without a worker."""
        await self._wait(seconds, ParkReason.SLEEP if seconds >= self._park_seconds else None)

    async def ask(self, question: Question) -> Reply:
        """Return the answer, or wait for it without a worker."""
        found = self._answers.find(question)
        if found is not None:
            self._note_answer(found)
            return self._answers.reply(found, question)
        async with _Held(self, Wait(ParkReason.APPROVAL, question=question)):
            await self._loop.create_future()  # ends with the task
        raise asyncio.CancelledError

    def _note_answer(self, answer: Answer) -> None:
        """Write what a person decided into history, once."""
        key = self._answers.fresh(answer)
        if key is not None:
            self._give(EventKind.DECIDED, key, pack(msgspec.json.encode(answer)))

    async def _wait(self, seconds: float, reason: ParkReason | None) -> None:
        wait = Wait(reason, time.monotonic() + seconds) if reason else None
        async with _Held(self, wait):
            await asyncio.sleep(seconds)

    def begin_wait(self, wait: Wait | None) -> None:
        """A branch waits where the run may be cut."""
        if self._parked or self._lane.closed:
            raise asyncio.CancelledError
        self._waits.begin(wait)
        if self._leaving or self._trust.draining:
            self.drain()
        self._consider()

    def end_wait(self, wait: Wait | None) -> None:
        """The branch goes on."""
        self._waits.end(wait)
        self._consider()

    async def _hold(self) -> None:
        async with _Held(self, None):
            while self._leaving or self._trust.draining or not self._trust.sure():
                if self._lane.closed:
                    raise asyncio.CancelledError
                if self._leaving or self._trust.draining:
                    await self._loop.create_future()  # ends with the task
                await self._trust.changed()
        if self._lane.closed or self._parked:
            raise asyncio.CancelledError

    def _landed(self) -> None:
        waits = self._waits
        if waits.flying:
            waits.flying -= 1
        waits.moves += 1
        if self._leaving or self._trust.draining:
            self.drain()
        elif waits.held:
            self._consider()

    def drain(self) -> None:
        """End the run's task if a branch waits at a boundary and no other is in an effect."""
        if not self._waits.cuttable or self._parked:
            return
        if self._leaving or self._waits.blocked:
            self._park()
        else:
            self._owner.yield_now()

    def suspend(self) -> None:
        """Begin no effect any more, and park the run at the next moment when none is under way."""
        self._leaving = True
        self.drain()

    def _consider(self) -> None:
        """Look in a moment whether the run may be parked, if it looks so now."""
        if self._quiet is None and not self._parked and self._waits.blocked:
            moves = self._waits.moves
            self._quiet = self._loop.call_later(_QUIET_SECONDS, self._is_quiet, moves)

    def _is_quiet(self, moves: int) -> None:
        self._quiet = None
        if self._parked or self._lane.closed or not self._waits.blocked:
            return
        if moves != self._waits.moves:
            self._consider()
            return
        due = self._waits.due()
        if due is None or due - time.monotonic() >= self._park_seconds / 2:
            self._park()

    def _park(self) -> None:
        self._parked = self._leaving = True
        self._owner.park(self._waits.long())

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


class _Held:
    """A branch that waits, for as long as the block lasts."""

    __slots__ = ("_journal", "_wait")

    def __init__(self, journal: RunJournal, wait: Wait | None) -> None:
        self._journal = journal
        self._wait = wait

    async def __aenter__(self) -> None:
        self._journal.begin_wait(self._wait)

    async def __aexit__(self, *_: object) -> None:
        self._journal.end_wait(self._wait)
