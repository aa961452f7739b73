"""What stands between a worker and its store, and between an agent and its history.

Both sides pass the points here, so that the worker can die at any of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from rowlock.agents.performing import ThreadSeat
from rowlock.agents.protocol import Agent, Entry, Journal, Result, Seat
from rowlock.agents.retry import LONG_WAIT_SECONDS
from rowlock.engine.lane import Leave, Release
from rowlock.engine.prepared import Revision
from rowlock.states import EventKind
from rowlock.store.contract import Store
from rowlock.store.types import (
    AgentId,
    Answer,
    Claimed,
    Event,
    Final,
    Flushed,
    PoolId,
    RevisionId,
    RunBody,
    RunId,
    Verdict,
    WorkerId,
)
from rowlock.testing.clock import StillClock
from rowlock.testing.points import CrashAt, Point
from rowlock.testing.process import Process

#: A longer wait is spent without a worker.
PARK_SECONDS = 5.0
_RESULTS = (EventKind.STEP_DONE, EventKind.STEP_FAILED)


class Watch:
    """Lets a process die at its point.

    Attributes
    ----------
    begun
        Keys of the steps that the agent began to do here, in their order.
    """

    def __init__(self, process: Process, crash_at: CrashAt | None) -> None:
        self.begun: list[str] = []
        self._process = process
        self._crash_at = crash_at

    def begin(self, key: str) -> None:
        """A step is about to be done; once more for each try."""
        if key not in self.begun:
            self.begun.append(key)

    async def reach(self, point: Point, key: str = "") -> None:
        """Go on, or die here."""
        nth = self.begun.index(key) + 1 if key in self.begun else 0
        if self._crash_at is not None and self._crash_at.meets(point, nth=nth, key=key):
            await self._process.die()


@dataclass(frozen=True, slots=True)
class WatchedDesk:
    """`rowlock.engine.desk.Desk` on any store."""

    store: Store
    worker: WorkerId
    pool: PoolId
    watch: Watch
    quarantine: bool = False

    async def claim(self, *, token: int, limit: int) -> list[Claimed] | None:
        """Lease up to `limit` runs, or one in quarantine."""
        await self.watch.reach(Point.BEFORE_CLAIM)
        claimed = await self._claim(token, limit)
        await self.watch.reach(Point.AFTER_CLAIM)
        return claimed

    async def _claim(self, token: int, limit: int) -> list[Claimed] | None:
        store, worker, pool = self.store, self.worker, self.pool
        if self.quarantine:
            return await store.claim_alone(worker=worker, pool=pool, token=token)
        return await store.claim(worker=worker, pool=pool, token=token, limit=limit)

    async def adopt(self, *, token: int, known: Collection[RunId]) -> list[Claimed] | None:
        """Return what is leased to this worker and not in `known`."""
        return await self.store.adopt(worker=self.worker, token=token, known=known)

    async def bodies(self, run_ids: Sequence[RunId]) -> dict[RunId, RunBody]:
        """Read inputs and options."""
        return await self.store.bodies(run_ids)

    async def history(self, run_id: RunId) -> list[Event]:
        """Read all rows of a run."""
        return await self.store.history(run_id)

    async def answers(self, run_id: RunId) -> list[Answer]:
        """Read what people answered to a run's questions."""
        return await self.store.answers(run_id)

    async def revision(self, revision_id: RevisionId) -> Revision:
        """Read an agent's revision."""
        found = await self.store.revision(revision_id)
        return Revision(found[0], found[2]) if found else Revision("", "unknown")

    async def build_lives(self, build: str) -> bool:  # noqa: ARG002
        """Tell that no other build is there: a trial has one."""
        return False

    async def promote(self, agent: AgentId) -> int:
        """Move the runs of a capped agent that may start now into the queue."""
        return await self.store.promote(agent)


@dataclass(frozen=True, slots=True)
class WatchedSink:
    """`rowlock.engine.batch.Sink` on any store."""

    store: Store
    worker: WorkerId
    watch: Watch

    async def append(self, events: Sequence[Event]) -> Flushed:
        """Store history."""
        flushed = await self.store.append(worker=self.worker, events=events)
        await self._committed(events)
        return flushed

    async def finish(self, events: Sequence[Event], finals: Sequence[Final]) -> Flushed:
        """Store history and ends."""
        await self.watch.reach(Point.BEFORE_FINISH)
        flushed = await self.store.finish(worker=self.worker, events=events, finals=finals)
        await self._committed(events)
        await self.watch.reach(Point.AFTER_FINISH)
        return flushed

    async def release(self, releases: Sequence[Release]) -> dict[RunId, Verdict]:
        """Give runs back."""
        runs = [(row.run_id, row.epoch, row.active_ms) for row in releases]
        return await self.store.release(worker=self.worker, runs=runs)

    async def park(self, leaves: Sequence[Leave]) -> dict[RunId, Verdict]:
        """Let runs wait."""
        await self.watch.reach(Point.BEFORE_PARK)
        now = time.monotonic()
        runs = [
            row.parked
            if row.due is None
            else replace(row.parked, wake_in_seconds=max(0.0, row.due - now))
            for row in leaves
        ]
        verdicts = await self.store.park(worker=self.worker, runs=runs)
        await self.watch.reach(Point.AFTER_PARK)
        return verdicts

    async def _committed(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind in _RESULTS and event.key is not None:
                await self.watch.reach(Point.AFTER_COMMIT, event.key)


class Threads:
    """`rowlock.engine.prepared.Seats` without processes: blocking calls are made in threads."""

    async def seat(self, entrypoint: str) -> Seat:  # noqa: ARG002
        """Return a thread."""
        return ThreadSeat()


class WatchedAgent:
    """An agent whose history is watched."""

    def __init__(self, agent: Agent, watch: Watch, clock: StillClock) -> None:
        self.name = agent.name
        self._agent = agent
        self._watch = watch
        self._clock = clock

    def check_input(self, value: Any) -> Any:
        """Return the validated input."""
        return self._agent.check_input(value)

    async def execute(self, journal: Journal, value: Any) -> Result:
        """Run to the end."""
        await self._watch.reach(Point.BEFORE_START)
        watched = cast("Journal", _WatchedJournal(journal, self._watch, self._clock))
        return await self._agent.execute(watched, value)


class _WatchedJournal:
    """A journal that passes the points of each step; what it does not name is the journal's own."""

    def __init__(self, journal: Journal, watch: Watch, clock: StillClock) -> None:
        self._journal = journal
        self._watch = watch
        self._clock = clock
        #: A task asks for a step right before it goes to the boundary with it.
        self._asked: dict[asyncio.Task[Any] | None, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def recall(self, key: str) -> Entry | None:
        """Return the newest entry of `key`."""
        self._asked[asyncio.current_task()] = key
        return self._journal.recall(key)

    async def boundary(self) -> None:
        """Return when an effect may begin."""
        await self._journal.boundary()
        key = self._asked[asyncio.current_task()]
        self._watch.begin(key)
        await self._watch.reach(Point.BEFORE_STEP, key)

    async def write(
        self, kind: EventKind, key: str, body: bytes, *, tries: int = 1, dur_ms: int | None = None
    ) -> None:
        """Store an entry and return after its commit."""
        intent = kind is EventKind.STEP_INTENT
        await self._watch.reach(Point.BEFORE_INTENT if intent else Point.AFTER_EFFECT, key)
        await self._journal.write(kind, key, body, tries=tries, dur_ms=dur_ms)
        await self._watch.reach(Point.AFTER_INTENT if intent else Point.AFTER_STEP, key)

    async def pause(self, seconds: float) -> None:
        """Let the time between two tries pass at once; for a long one the run parks."""
        await self._journal.pause(seconds if seconds > LONG_WAIT_SECONDS else self._pass(seconds))

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once; for a long one the run parks."""
        await self._journal.sleep(seconds if seconds >= PARK_SECONDS else self._pass(seconds))

    def _pass(self, seconds: float) -> float:
        """Let time pass; return what is left of it."""
        self._clock.advance(seconds)
        return 0.0
