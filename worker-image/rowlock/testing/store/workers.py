"""Workers: they register, beat, learn what was asked of their runs, and lose them when they die."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from rowlock.states import (
    Blame,
    ChangeKind,
    EventKind,
    FailureReason,
    FenceReason,
    FinalStatus,
    Place,
    TimerReason,
)
from rowlock.store.types import Beat, Fenced, NewWorker, Reaped, RunId, Wish, WorkerId
from rowlock.store.workers import Silence
from rowlock.testing.store import lines
from rowlock.testing.store.blame import blame, put_down
from rowlock.testing.store.tables import Live, Tables, Worker
from rowlock.testing.store.work import cancelled

#: Seconds before a run starts again to which a second loss is put down, and the most.
_BACKOFF, _MOST_BACKOFF = 5.0, 300.0


def register(tables: Tables, workers: Sequence[NewWorker]) -> list[WorkerId]:
    """Register processes and return their ids in the same order."""
    made = [Worker(WorkerId(tables.number("worker")), new, tables.now()) for new in workers]
    tables.workers |= {worker.worker_id: worker for worker in made}
    return [worker.worker_id for worker in made]


def beat(tables: Tables, beats: Sequence[Beat]) -> set[WorkerId]:
    """Renew leases; return the workers that are not fenced."""
    heard = set()
    for one in beats:
        worker = tables.writer(one.worker_id)
        if worker is not None:
            worker.hear(one, tables.now())
            heard.add(worker.worker_id)
    return heard


def wishes(tables: Tables, workers: Collection[WorkerId]) -> list[Wish]:
    """Return what was asked of the runs that these workers hold."""
    return [
        Wish(run_id, worker, kind, wish.reason)
        for (run_id, kind), wish in tables.wishes.items()
        if (worker := _holder(tables, run_id)) is not None and worker in workers
    ]


def fence(
    tables: Tables,
    workers: Collection[WorkerId],
    reason: FenceReason,
    on_loop: Mapping[WorkerId, RunId] | None = None,
) -> Fenced:
    """Fence workers that are known to be dead, and move their runs.

    `on_loop` tells whose code each one's event loop executed, where that is known.
    """
    doomed = [worker for one in workers if (worker := tables.writer(one)) is not None]
    for worker in doomed:
        worker.fenced_at, worker.fence_reason = tables.now(), reason
        worker.run_on_loop = (on_loop or {}).get(worker.worker_id)
    return _fenced(tables, [worker.worker_id for worker in doomed], workers)


def fence_instance(tables: Tables, instance: str, except_ids: Collection[WorkerId]) -> Fenced:
    """Fence the earlier boots of a container or laptop worker."""
    found = [
        worker.worker_id for worker in _unfenced(tables)
        if worker.new.instance.startswith(f"{instance}/") and worker.worker_id not in except_ids
    ]  # fmt: skip
    return fence(tables, found, FenceReason.WORKER_DIED)


def fence_pods(tables: Tables, pod_uids: Collection[str], reason: FenceReason) -> Fenced:
    """Fence all workers of these pods."""
    found = [w.worker_id for w in _unfenced(tables) if w.new.pod_uid in pod_uids]
    return fence(tables, found, reason)


def reap(tables: Tables, gap_seconds: float) -> Reaped:
    """Fence the workers that were silent for longer than their lease, unless there is a doubt."""
    reaper, now = tables.reaper, tables.now()
    since, reaper.tick_at = (now - reaper.tick_at).total_seconds(), now
    if since > gap_seconds:
        reaper.granted_at, reaper.mass_since = now, None
        return Reaped(skipped=True)
    silence = _listen(tables)
    if not silence.mass:
        reaper.mass_since = None
    elif reaper.mass_since is None:
        reaper.mass_since = now
    for one in silence.to_fence:
        worker = tables.workers[one]
        worker.fenced_at, worker.fence_reason = now, FenceReason.LEASE_EXPIRED
    fenced = _fenced(tables, silence.to_fence, [*silence.to_fence, *_stranded(tables)])
    return Reaped(skipped=silence.in_doubt, fenced=fenced)


def _listen(tables: Tables) -> Silence:
    alive = _unfenced(tables)
    silent = [w for w in alive if lease_until(tables, w) < tables.now()]
    since = tables.reaper.mass_since
    return Silence(
        workers=tuple(worker.worker_id for worker in silent),
        pods=len({worker.pod for worker in alive}),
        silent_pods=len({worker.pod for worker in silent}),
        lease_seconds=max((worker.new.lease_seconds for worker in silent), default=0.0),
        mass_for=None if since is None else (tables.now() - since).total_seconds(),
    )


def lease_until(tables: Tables, worker: Worker) -> datetime:
    """Return the end of a worker's lease."""
    renewed = max(worker.beat_at, tables.reaper.granted_at)
    return renewed + timedelta(seconds=worker.new.lease_seconds)


def _unfenced(tables: Tables) -> list[Worker]:
    return [worker for worker in tables.workers.values() if worker.fenced_at is None]


def _stranded(tables: Tables) -> list[WorkerId]:
    held = {run.worker_id for run in tables.at(Place.LEASE)}
    return [one for one in held if one is not None and tables.writer(one) is None]


def _holder(tables: Tables, run_id: RunId) -> WorkerId | None:
    run = tables.live.get(run_id)
    return None if run is None else run.worker_id


def _fenced(tables: Tables, fenced: Sequence[WorkerId], losing: Collection[WorkerId]) -> Fenced:
    """Take every lease from the workers of `losing`, all of them fenced or unknown."""
    lost = tables.held_by(set(losing))
    # Before any of them moves: who is to blame depends on who else was there.
    judged = [(run, _judge(tables, run, lost)) for run in lost]
    found: defaultdict[str, list[RunId]] = defaultdict(list)
    for run, verdict in judged:
        fate = _take(tables, run, verdict)
        alone = "quarantined" if run.quarantined and run.run_id in tables.live else None
        for what in filter(None, (fate, verdict, alone)):
            found[what].append(run.run_id)
    return Fenced(tuple(fenced), **{what: tuple(runs) for what, runs in found.items()})


def _judge(tables: Tables, run: Live, lost: Sequence[Live]) -> Blame | None:
    """Say what is put down to `run`, which was lost together with all of `lost`."""
    worker = _dead(tables, run)
    seen = worker.run_on_loop if worker else None
    there = {other.run_id for other in lost if other.worker_id == run.worker_id}
    return blame(
        _reason(worker),
        alone=len(lost) == 1 or (worker is not None and worker.new.quarantine),
        on_loop=run.run_id == seen,
        known=seen in there,
    )


def _dead(tables: Tables, run: Live) -> Worker | None:
    return None if run.worker_id is None else tables.workers.get(run.worker_id)


def _reason(worker: Worker | None) -> str:
    return (worker.fence_reason if worker else None) or FenceReason.WORKER_DIED


def _take(tables: Tables, run: Live, verdict: Blame | None) -> str:
    """Take a run from its dead worker, and say what becomes of it."""
    worker = _dead(tables, run)
    reason = _reason(worker)
    handed = reason == FenceReason.LEFT
    _note(tables, run, worker, verdict)
    run.active_ms += _active_ms(tables, run, worker)
    put_down(run, reason, verdict)
    wish = tables.wished(run.run_id)
    if wish is not None:
        tables.end(run, cancelled(tables, run, f"cancelled by {wish}", worker=worker))
        return "cancelled"
    if not handed and run.blamed > run.max_takeovers:
        _give_up(tables, run, worker)
        return "failed"
    delayed = verdict is Blame.BLAMED and run.blamed > 1
    if delayed:
        _delay(tables, run)
    else:
        lines.requeue(tables, run)
    tables.change(run, ChangeKind.RELEASED if handed else ChangeKind.WORKER_LOST)
    return "delayed" if delayed else "requeued"


def _note(tables: Tables, run: Live, worker: Worker | None, verdict: Blame | None) -> None:
    """Have the next owner write down what happened."""
    reason = _reason(worker)
    event = EventKind.HANDED_OVER if reason == FenceReason.LEFT else EventKind.TAKEN_OVER
    name = worker.new.name if worker else "unknown"
    build = worker.new.build if worker else ""
    entry = tables.entry(run, event, worker=name, build=build, reason=reason, blame=verdict or "")
    run.carry = tables.carry_on(run, entry)


def _active_ms(tables: Tables, run: Live, worker: Worker | None) -> int:
    lost_at = (worker.fenced_at if worker else None) or tables.now()
    held = lost_at - (run.claimed_at or lost_at)
    return max(0, round(held / timedelta(milliseconds=1)))


def _give_up(tables: Tables, run: Live, worker: Worker | None) -> None:
    others = f" (of {run.takeovers} in all)" if run.takeovers > run.blamed else ""
    message = (
        f"{run.blamed} losses of its worker are put down to it{others},"
        f" maxTakeovers is {run.max_takeovers}"
    )
    final = cancelled(tables, run, message, worker=worker)
    final.status, final.reason = FinalStatus.FAILED, FailureReason.TAKEOVER_LIMIT_REACHED
    tables.end(run, final)


def _delay(tables: Tables, run: Live) -> None:
    """Let it wait for 5, 10, 20 … 300 seconds, in the middle of what PostgreSQL draws from."""
    seconds = min(_MOST_BACKOFF, _BACKOFF * 2 ** min(run.blamed - 2, 10))
    now = tables.now()
    run.stand(Place.TIMER, now)
    run.due_at, run.timer_reason = now + timedelta(seconds=seconds), TimerReason.TAKEOVER_BACKOFF
