"""What a worker does with its runs: claim, read, write, finish, give back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from rowlock.states import (
    FIRST_LIFECYCLE_KIND,
    ChangeKind,
    EventKind,
    FailureReason,
    FinalStatus,
    Place,
    TimerReason,
)
from rowlock.store.types import (
    Claimed,
    Event,
    Final,
    Flushed,
    PoolId,
    RunId,
    Verdict,
    WorkerId,
)
from rowlock.testing.store import lines
from rowlock.testing.store.blame import acquit, probation
from rowlock.testing.store.rows import storable_event, storable_final
from rowlock.testing.store.tables import Ended, Live, Tables, Worker

_SHOWN = {
    EventKind.TAKEN_OVER: ChangeKind.TAKEN_OVER,
    EventKind.HANDED_OVER: ChangeKind.HANDED_OVER,
}
_AGED = (EventKind.STEP_INTENT, EventKind.STEP_FAILED, EventKind.SLEEP)
_MOST_MESSAGE = 1000


def claim(
    tables: Tables, worker: WorkerId, pool: PoolId, token: int, limit: int
) -> list[Claimed] | None:
    """Lease up to `limit` runs of `pool`, the most urgent first; None if fenced."""
    me = tables.writer(worker)
    if me is None:
        return None
    if me.claim_floor >= token:
        return []
    return [_lease(tables, run, worker) for run in _ready(tables, me, pool, alone=False)[:limit]]


def claim_alone(tables: Tables, worker: WorkerId, pool: PoolId, token: int) -> list[Claimed] | None:
    """Lease one quarantined run to a process of quarantine that holds none; None if fenced."""
    me = tables.writer(worker)
    if me is None:
        return None
    if me.claim_floor >= token or not me.new.quarantine or tables.held_by([worker]):
        return []
    return [_lease(tables, run, worker) for run in _ready(tables, me, pool, alone=True)[:1]]


def adopt(
    tables: Tables, worker: WorkerId, token: int, known: Collection[RunId]
) -> list[Claimed] | None:
    """Return the leases that are not in `known`, and void tokens up to `token`; None if fenced."""
    me = tables.writer(worker)
    if me is None:
        return None
    me.claim_floor = max(me.claim_floor, token)
    return [_claimed(tables, x) for x in tables.held_by([worker]) if x.run_id not in known]


def history(tables: Tables, run_id: RunId) -> list[Event]:
    """Read all events of a run; of what a wait counts from, how many seconds ago that was."""
    now = tables.now()
    return [
        event._replace(age=(now - at).total_seconds()) if event.kind in _AGED else event
        for _, (event, at) in sorted(tables.events.get(run_id, {}).items())
    ]


def append(tables: Tables, worker: WorkerId, events: Sequence[Event]) -> Flushed:
    """Write events of runs that `worker` holds; name those that it lost."""
    for event in events:
        storable_event(event)
    lost = {e.run_id for e in events if tables.lease(e.run_id, e.epoch, worker) is None}
    for event in events:
        run = tables.lease(event.run_id, event.epoch, worker)
        if run is not None:
            _write(tables, run, event)
    return Flushed(fenced=tables.writer(worker) is None, lost=frozenset(lost))


def finish(
    tables: Tables, worker: WorkerId, events: Sequence[Event], finals: Sequence[Final]
) -> Flushed:
    """Write events and ends of attempts, for each run all of it or nothing."""
    for final in finals:
        storable_final(final)
    flushed = append(tables, worker, events)
    me = tables.writer(worker)
    if me is None:
        return flushed
    verdicts = {final.run_id: _finish(tables, me, final) for final in finals}
    lost = {run for run in flushed.lost if verdicts.get(run) is not Verdict.ALREADY_DONE}
    lost |= {run for run, verdict in verdicts.items() if verdict is Verdict.LOST}
    return Flushed(fenced=False, lost=frozenset(lost), finals=verdicts)


def release(
    tables: Tables, worker: WorkerId, runs: Sequence[tuple[RunId, int, int]]
) -> dict[RunId, Verdict]:
    """Give runs back, each a (run, epoch, milliseconds active in all)."""
    return {run: _release(tables, worker, run, epoch, used) for run, epoch, used in runs}


def _ready(tables: Tables, me: Worker, pool: PoolId, *, alone: bool) -> list[Live]:
    found = [
        x
        for x in tables.at(Place.READY)
        if (x.pool_id, x.quarantined) == (pool, alone) and x.build in (None, me.new.build)
    ]
    return found if alone else sorted(found, key=lambda x: x.build is None)


def _lease(tables: Tables, run: Live, worker: WorkerId) -> Claimed:
    now = tables.now()
    run.place, run.worker_id, run.claimed_at = Place.LEASE, worker, now
    run.epoch += 1
    run.queue_deadline = None
    run.started_at = run.started_at or now
    if run.pinned and run.build is None:
        run.build = tables.workers[worker].new.build
    tables.change(run, ChangeKind.CLAIMED)
    return _claimed(tables, run)


def _claimed(tables: Tables, run: Live) -> Claimed:
    return Claimed(
        run_id=run.run_id,
        epoch=run.epoch,
        attempt=run.attempt,
        agent_id=run.agent_id,
        revision_id=run.revision_id,
        key=run.key,
        takeovers=run.takeovers,
        max_takeovers=run.max_takeovers,
        active_ms=run.active_ms,
        linked=run.linked,
        claimed_at=run.claimed_at or tables.now(),
        carry=run.carry or (),
        cancelled=tables.wished(run.run_id) is not None,
        blamed=run.blamed,
        suspected=run.suspected,
        probation_seconds=probation(run.suspected).total_seconds() if run.quarantined else None,
    )


def _write(tables: Tables, run: Live, event: Event) -> None:
    stored = tables.events.setdefault(run.run_id, {})
    if event.seq in stored:
        return
    stored[event.seq] = (event, tables.now())
    if event.kind >= FIRST_LIFECYCLE_KIND:
        tables.change(run, _SHOWN.get(event.kind, ChangeKind.RETRYING))


def _finish(tables: Tables, me: Worker, final: Final) -> Verdict:
    run = tables.lease(final.run_id, final.epoch, me.worker_id)
    if run is None:
        ended = tables.finals.get(final.run_id, {}).values()
        mine = any((x.epoch, x.worker_id) == (final.epoch, me.worker_id) for x in ended)
        return Verdict.ALREADY_DONE if mine else Verdict.LOST
    wish = tables.wished(run.run_id)
    ended_row = _ended(tables, run, me, final)
    if final.retry_in_seconds is None:
        tables.end(run, ended_row)
        return Verdict.DONE
    run.carry = tables.carry_on(
        run,
        tables.entry(
            run,
            EventKind.ATTEMPT_FAILED,
            worker=me.new.name,
            build=me.new.build,
            reason=final.reason or FailureReason.AGENT_ERROR,
            message=(final.message or "")[:_MOST_MESSAGE],
        ),
    )
    if wish is not None:
        ended_row.status, ended_row.reason = FinalStatus.CANCELLED, FailureReason.CANCELLED
        ended_row.message, ended_row.carry = f"cancelled by {wish}", run.carry
        tables.end(run, ended_row)
    else:
        _retry(tables, run, ended_row, final.retry_in_seconds)
    return Verdict.DONE


def _ended(tables: Tables, run: Live, me: Worker, final: Final) -> Ended:
    return Ended(
        run_id=run.run_id,
        attempt=run.attempt,
        epoch=run.epoch,
        status=final.status,
        takeovers=run.takeovers,
        finished_at=tables.now(),
        reason=final.reason,
        message=final.message,
        outcome=final.outcome,
        step=final.step,
        worker_id=me.worker_id,
        worker=me.new.name,
        started_at=run.started_at,
        claimed_at=run.claimed_at,
        active_ms=final.active_ms,
        tokens_in=final.tokens_in,
        tokens_out=final.tokens_out,
        cost_micro=final.cost_micro,
        result=final.result,
    )


def _retry(tables: Tables, run: Live, ended: Ended, seconds: float) -> None:
    tables.finals.setdefault(run.run_id, {}).setdefault(run.attempt, ended)
    now = tables.now()
    tables.change(run, ChangeKind.RETRYING)
    ended.revision = run.revision
    run.stand(Place.TIMER, now)
    run.attempt += 1
    run.active_ms = ended.active_ms
    run.due_at, run.timer_reason = now + timedelta(seconds=seconds), TimerReason.RETRY_BACKOFF


def _release(tables: Tables, worker: WorkerId, run_id: RunId, epoch: int, used: int) -> Verdict:
    run = tables.lease(run_id, epoch, worker)
    if run is None:
        return _earlier_release(tables, run_id, epoch)
    me = tables.workers[worker]
    run.carry = tables.carry_on(
        run,
        tables.entry(
            run,
            EventKind.HANDED_OVER,
            worker=me.new.name,
            build=me.new.build,
            reason="Drained",
        ),
    )
    run.active_ms = used
    acquit(run, me, tables.now())
    wish = tables.wished(run_id)
    if wish is not None:
        tables.end(run, cancelled(tables, run, f"cancelled by {wish}", worker=me))
    else:
        lines.requeue(tables, run)
        tables.change(run, ChangeKind.RELEASED)
    return Verdict.DONE


def cancelled(tables: Tables, run: Live, message: str, *, worker: Worker | None = None) -> Ended:
    """Return the final row of a run that somebody wished to cancel."""
    return Ended(
        run_id=run.run_id,
        attempt=run.attempt,
        epoch=run.epoch,
        status=FinalStatus.CANCELLED,
        takeovers=run.takeovers,
        finished_at=tables.now(),
        reason=FailureReason.CANCELLED,
        message=message,
        worker_id=worker.worker_id if worker else None,
        worker=worker.new.name if worker else None,
        started_at=run.started_at,
        claimed_at=run.claimed_at,
        active_ms=run.active_ms,
        carry=run.carry,
    )


def _earlier_release(tables: Tables, run_id: RunId, epoch: int) -> Verdict:
    """Tell a run that was handed over at this epoch before from one that is lost."""
    live = tables.live.get(run_id)
    carried = [*((live.carry or ()) if live else ())]
    for final in tables.finals.get(run_id, {}).values():
        carried += final.carry or ()
    handed = {entry.epoch for entry in carried if entry.event == EventKind.HANDED_OVER}
    # The next owner wrote it into history.
    handed |= {e.epoch - 1 for e, _ in tables.lifecycle(run_id) if e.kind is EventKind.HANDED_OVER}
    return Verdict.ALREADY_DONE if epoch in handed else Verdict.LOST
