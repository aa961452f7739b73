"""What happens to runs that no worker holds: wishes, deadlines, timers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rowlock.states import ChangeKind, FailureReason, FinalStatus, Place, WishKind
from rowlock.store.types import PoolId, RunId
from rowlock.testing.store import lines
from rowlock.testing.store.tables import Tables, Wished
from rowlock.testing.store.work import cancelled

_QUEUES = (Place.READY, Place.BACKLOG, Place.TIMER)
#: Nobody needs to know more exactly how many wait.
_MOST_COUNTED = 64


def request_cancel(
    tables: Tables, run_ids: Sequence[RunId], by: str, reason: str | None
) -> list[RunId]:
    """Wish that runs end, end those that no worker holds, return those that are final now."""
    for run_id in run_ids:
        if run_id in tables.live:
            tables.wishes.setdefault((run_id, WishKind.CANCEL), Wished(by, reason))
    _cancel(tables, run_ids)
    return [run for run in run_ids if run in tables.finals and run not in tables.live]


def cancel_waiting(tables: Tables) -> list[RunId]:
    """Carry out every wish to cancel a run that no worker holds; return the runs that ended."""
    return _cancel(tables, [run_id for run_id, _ in tables.wishes])


def expire_queued(tables: Tables) -> list[RunId]:
    """Fail the runs that no worker took before their queue deadline; return them."""
    late = [run for run in tables.at(*_QUEUES) if _over(run.queue_deadline, tables.now())]
    for run in late:
        final = cancelled(tables, run, "no worker took the run before queueDeadlineSeconds")
        final.status, final.reason = FinalStatus.FAILED, FailureReason.QUEUE_DEADLINE_EXCEEDED
        tables.end(run, final)
    return [run.run_id for run in late]


def wake_due(tables: Tables, limit: int) -> int:
    """Put up to `limit` runs whose timer is due back into the queue; return how many."""
    now = tables.now()
    due = [x for x in tables.at(Place.TIMER) if x.due_at is not None and x.due_at <= now]
    woken = sorted(due, key=lambda run: run.due_at or now)[:limit]
    for run in woken:
        lines.requeue(tables, run)
        tables.change(run, ChangeKind.WOKEN)
    return len(woken)


def alone_waiting(tables: Tables, pool: PoolId) -> tuple[int, int]:
    """Return how many quarantined runs wait, and how many processes are free for them."""
    ready = [run for run in tables.at(Place.READY) if run.quarantined and run.pool_id == pool]
    free = [
        worker for worker in tables.workers.values()
        if worker.new.pool_id == pool and worker.new.quarantine and worker.fenced_at is None
        and not tables.held_by([worker.worker_id])
    ]  # fmt: skip
    return min(_MOST_COUNTED, len(ready)), len(free) if ready else 0


def _cancel(tables: Tables, run_ids: Iterable[RunId]) -> list[RunId]:
    ended: list[RunId] = []
    for run_id in run_ids:
        run, wish = tables.live.get(run_id), tables.wished(run_id)
        if run is not None and wish is not None and run.place is not Place.LEASE:
            tables.end(run, cancelled(tables, run, f"cancelled by {wish}"))
            ended.append(run_id)
    return ended


def _over(deadline: datetime | None, now: datetime) -> bool:
    return deadline is not None and deadline < now
