"""The clockwork of the database, run by the operator too: pools at zero have no worker to do it.

Workers run the same store functions; any number of them at once does no harm.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import structlog

from rowlock.store import approvals, builds, caps, expiry, workers
from rowlock.store import intake as store
from rowlock.store.connection import Connection
from rowlock.store.types import Fenced
from rowlock_operator import metrics as m

log = structlog.get_logger(__name__)

#: When the last round of any reaper is longer ago, nobody could tell silence from an outage.
_GAP_SECONDS = 10.0
_HOUSE_SECONDS = 3600.0
_WOKEN_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """What one round moved."""

    fenced: int = 0
    woken: int = 0
    cancelled: int = 0
    expired: int = 0
    promoted: int = 0
    lapsed: int = 0


class Upkeep:
    """Fences silent workers, wakes and promotes runs, carries out wishes, ends what is overdue."""

    def __init__(self, connection: Connection, metrics: m.Metrics) -> None:
        self._connection = connection
        self._metrics = metrics
        self._kept_house_at = float("-inf")

    async def run_once(self) -> UpkeepReport:
        """Do all of it once."""
        reaped = await workers.reap(self._connection, gap_seconds=_GAP_SECONDS)
        woken = await store.wake_due(self._connection, _WOKEN_AT_ONCE)
        cancelled = await store.cancel_waiting(self._connection)
        expired = await store.expire_queued(self._connection)
        await builds.unbind(self._connection)
        lapsed = await approvals.expire_approvals(self._connection)
        promoted = await caps.promote_waiting(self._connection)
        await self._keep_house()
        report = UpkeepReport(
            len(reaped.fenced.workers), woken, len(cancelled), len(expired), promoted, len(lapsed)
        )
        self._count(reaped.fenced, report)
        return report

    async def _keep_house(self) -> None:
        if time.monotonic() - self._kept_house_at < _HOUSE_SECONDS:
            return
        await store.ensure_partitions(self._connection)
        await expiry.collect(self._connection)
        self._kept_house_at = time.monotonic()

    def _count(self, fenced: Fenced, report: UpkeepReport) -> None:
        if fenced.workers:
            log.warning(
                "Workers stopped beating and were fenced",
                workers=len(fenced.workers),
                requeued=len(fenced.requeued),
                delayed=len(fenced.delayed),
                failed=len(fenced.failed),
            )
        self._metrics.add(m.FENCED, by=len(fenced.workers))
        moved = {
            "requeued": len(fenced.requeued),
            "delayed": len(fenced.delayed),
            "failed": len(fenced.failed),
            "cancelled": len(fenced.cancelled) + report.cancelled,
            "expired": report.expired,
            "woken": report.woken,
            "promoted": report.promoted,
            "lapsed": report.lapsed,
        }
        for kind, count in moved.items():
            self._metrics.add(m.UPKEEP, kind, by=count)
