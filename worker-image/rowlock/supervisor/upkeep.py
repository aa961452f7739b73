"""Rounds that any worker may do for all: wake what is due, carry out wishes, bury the silent.

Each is one statement that does nothing if another worker has just done it,
so every worker tries all of them, at times that drift apart.
One that fails does not hold up the others.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from rowlock import metrics
from rowlock.clock import Clock
from rowlock.engine.rounds import Guard
from rowlock.metrics import Tally
from rowlock.states import Blame
from rowlock.store import approvals, batch_rounds, builds, parking, queue, workers
from rowlock.store.connection import Connection
from rowlock.store.types import Fenced

log = structlog.get_logger(__name__)

_ROUND_SECONDS = 1.0
_PARTITION_SECONDS = 3600.0
#: So many runs are named in a line of the log.
_NAMED = 8


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """Which of a round's statements failed."""

    failed: tuple[str, ...]


class Upkeep:
    """Does the rounds.

    Parameters
    ----------
    lease_seconds
        Of this worker. After half of it without a round of anybody nobody can tell silence from
        an outage, and every lease counts as renewed; so rounds must follow faster than that.
    """

    def __init__(
        self, connection: Connection, *, lease_seconds: float, clock: Clock, tally: Tally
    ) -> None:
        self._connection = connection
        self._gap_seconds = lease_seconds / 2
        self._period = min(_ROUND_SECONDS, lease_seconds / 6)
        self._clock = clock
        self._tally = tally
        self._partitions_at: float | None = None
        #: Days made ahead at the last look; None before it.
        self.partition_days: int | None = None
        self._guards = {name: Guard(name, tally) for name, _ in self._statements()}

    def pause(self) -> float:
        """Return the seconds until the next round, ± 25 % so that workers drift apart."""
        return self._period * random.uniform(0.75, 1.25)  # noqa: S311  spreads the workers

    async def run_once(self) -> UpkeepReport:
        """Do one round of everything."""
        failed = [
            name for name, once in self._statements() if not await self._guards[name].attempt(once)
        ]
        return UpkeepReport(tuple(failed))

    def _statements(self) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
        connection = self._connection
        return [
            ("reap", self._reap),
            ("wake_due", lambda: queue.wake_due(connection)),
            ("wake_parked", lambda: parking.wake_parked(connection)),
            ("expire_approvals", lambda: approvals.expire_approvals(connection)),
            ("cancel_waiting", lambda: queue.cancel_waiting(connection)),
            ("suspend_waiting", lambda: parking.suspend_waiting(connection)),
            ("expire_queued", lambda: queue.expire_queued(connection)),
            ("unbind", lambda: builds.unbind(connection)),
            (
                "advance_batches",
                lambda: batch_rounds.advance(connection, within=self._period / 4),
            ),
            ("ensure_partitions", self._ensure_partitions),
        ]

    async def _reap(self) -> None:
        reaped = await workers.reap(self._connection, gap_seconds=self._gap_seconds)
        if reaped.skipped:
            return
        note_fenced(reaped.fenced, reason="LeaseExpired", tally=self._tally)

    async def _ensure_partitions(self) -> None:
        now = self._clock.monotonic()
        if self._partitions_at is None or now - self._partitions_at > _PARTITION_SECONDS:
            await queue.ensure_partitions(self._connection)
            self.partition_days = await queue.partitions_ahead(self._connection)
            self._partitions_at = now


def note_fenced(fenced: Fenced, *, reason: str, tally: Tally) -> None:
    """Count and log what fencing did."""
    moved = {
        "requeued": len(fenced.requeued),
        "delayed": len(fenced.delayed),
        "failed": len(fenced.failed),
        "cancelled": len(fenced.cancelled),
    }
    for how, runs in moved.items():
        if runs:
            tally.add(metrics.MOVED_RUNS, how, by=runs)
    for verdict in Blame:
        if runs := getattr(fenced, verdict):
            tally.add(metrics.BLAMED_RUNS, verdict, by=len(runs))
    if fenced.quarantined:
        tally.add(metrics.QUARANTINED_RUNS, by=len(fenced.quarantined))
    if fenced.workers:
        tally.add(metrics.FENCED_WORKERS, reason, by=len(fenced.workers))
    if fenced.workers or any(moved.values()):
        log.warning(
            "Workers are fenced",
            workers=list(fenced.workers),
            reason=reason,
            blamed=[str(run) for run in fenced.blamed[:_NAMED]],
            quarantined=len(fenced.quarantined),
            **moved,
        )
