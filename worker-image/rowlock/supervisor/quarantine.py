"""A process for runs that may be what kills processes: started when one waits, let go when idle.

It holds one run at a time, so what it dies of is beyond doubt.
It is extra, and so are its memory and its connections. Where it cannot be started (three times it
ended before it held a run, as under a memory limit), or is not allowed, a loop process lends its
place: that drains, and the process of quarantine stands there until nothing waits any more.
So runs in quarantine wait for each other, and for a drain at most, but never for memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, unique

import structlog

from rowlock import metrics
from rowlock.engine.board import RUNNING
from rowlock.metrics import Tally
from rowlock.store import queue
from rowlock.store.connection import Connection
from rowlock.store.types import PoolId, WorkerId
from rowlock.supervisor.burial import How, Life
from rowlock.supervisor.child import Child
from rowlock.supervisor.crew import Crew, Plan

log = structlog.get_logger(__name__)

PERIOD = 0.5
#: A process that had nothing to do for so long is let go; a place that is lent, sooner.
_IDLE_SECONDS = 5.0
_LENT_IDLE_SECONDS = 1.0
_MOST_FAILURES = 3


@unique
class Step(Enum):
    """What to do in a round."""

    NOTHING = "nothing"
    START = "start"
    LEND = "lend"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a decision rests on.

    Parameters
    ----------
    waiting, free
        Quarantined runs that wait, and processes of quarantine that hold none, in the whole pool.
    extra
        Extra processes of this worker, those included that have yet to register.
    lent
        Whether a place is lent.
    failures
        How many extra processes in a row ended before they held a run.
    """

    waiting: int
    free: int
    extra: int = 0
    lent: bool = False
    failures: int = 0


def decide(outlook: Outlook, *, most: int) -> Step:
    """Decide about one more process of quarantine, of which `most` may be extra."""
    if outlook.waiting <= outlook.free:
        return Step.NOTHING
    if most == 0 or outlook.failures >= _MOST_FAILURES:
        return Step.NOTHING if outlook.lent else Step.LEND
    return Step.START if outlook.extra < most else Step.NOTHING


class Quarantine:
    """Does the rounds of one worker.

    Parameters
    ----------
    plans
        One for each extra process; the first one also for a place that is lent.
    most
        How many may be extra.
    drain_seconds
        How long a loop process that lends its place may take to drain.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        crew: Crew,
        connection: Connection,
        *,
        pool: PoolId,
        most: int,
        drain_seconds: float,
        tally: Tally,
    ) -> None:
        self._plans = plans
        self._crew = crew
        self._connection = connection
        self._pool = pool
        self._most = most
        self._drain_seconds = drain_seconds
        self._tally = tally
        self._extra: dict[int, asyncio.Task[Life | None]] = {}
        self._failures = 0
        self._not_before = 0.0
        self._busy_at: dict[WorkerId, float] = {}

    @property
    def processes(self) -> list[Child]:
        """The processes of quarantine that live here."""
        return [child for child in self._crew.living if child.boot.quarantine]

    async def run_once(self) -> Step:
        """Look what waits, and start, lend or let go."""
        waiting, free = await queue.alone_waiting(self._connection, self._pool)
        now = time.monotonic()
        self._let_go(now, wanted=waiting > 0)
        lent = bool(self._crew.lent)
        outlook = Outlook(waiting, free, len(self._extra), lent, self._failures)
        step = decide(outlook, most=self._most)
        if step is Step.START and now >= self._not_before:
            self._start()
        elif step is Step.LEND:
            self._lend()
        return step

    def _start(self) -> None:
        number = next(n for n in range(self._most) if n not in self._extra)
        log.info("A run goes on alone: a process of quarantine is started", process=f"q{number}")
        self._tally.add(metrics.QUARANTINE_STARTS, "extra")
        life = self._extra[number] = self._crew.hire(self._plans[number])
        life.add_done_callback(lambda ended: self._ended(number, ended))

    def _ended(self, number: int, ended: asyncio.Task[Life | None]) -> None:
        del self._extra[number]
        life = None if ended.cancelled() or ended.exception() else ended.result()
        if life is not None and (life.how is not How.DIED or life.runs):
            self._failures = 0
            return
        self._failures += 1
        self._not_before = time.monotonic() + self._failures
        self._tally.add(metrics.QUARANTINE_STARTS, "failed")
        log.warning(
            "A process of quarantine ended before it held a run",
            process=f"q{number}",
            failures=self._failures,
        )

    def _lend(self) -> None:
        index = self._crew.last_place
        log.warning(
            "A run goes on alone: a loop process drains and lends its place",
            process=index,
            failures=self._failures,
        )
        self._tally.add(metrics.QUARANTINE_STARTS, "lent")
        self._crew.lend(index, self._plans[0], within=self._drain_seconds)

    def _let_go(self, now: float, *, wanted: bool) -> None:
        lent = {child.worker_id: place for place, child in self._crew.lent.items() if child}
        self._busy_at = {
            child.worker_id: now if wanted else self._last_busy(child, now)
            for child in self.processes
        }
        for child in self.processes:
            idle = now - self._busy_at[child.worker_id]
            if child.worker_id in lent and idle > _LENT_IDLE_SECONDS:
                self._failures = 0
                self._crew.take_back(lent[child.worker_id])
            elif idle > _IDLE_SECONDS:
                self._crew.drain(child)

    def _last_busy(self, child: Child, now: float) -> float:
        if child.board.cells[RUNNING]:
            return now
        return self._busy_at.get(child.worker_id, now)
