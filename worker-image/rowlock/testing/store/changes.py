"""What a mirror and a scaler read."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from rowlock.states import Place, WishKind
from rowlock.store.types import (
    Asked,
    Change,
    LifecycleEvent,
    PoolDemand,
    PoolId,
    RunId,
    RunSnapshot,
)
from rowlock.testing.store.tables import Ended, Live, Tables
from rowlock.testing.store.workers import lease_until

_LARGEST_RESULT = 64 * 1024
_SPEC_REDRIVE = re.compile(r"spec\.redrive ([0-9]{1,9})")


def unshown(tables: Tables, limit: int, after: int) -> list[Change]:
    """Return up to `limit` changes that nobody has shown, by their number."""
    return [change for seq, change in sorted(tables.changes.items()) if seq > after][:limit]


def shown(tables: Tables, seqs: Sequence[int]) -> None:
    """Forget exactly these changes."""
    for seq in seqs:
        tables.changes.pop(seq, None)


def snapshots(tables: Tables, run_ids: Collection[RunId]) -> dict[RunId, RunSnapshot]:
    """Return all that a status shows of each of these runs that is linked."""
    linked = [run for run in run_ids if run in tables.runs and tables.runs[run].new.uid is not None]
    return {run: _snapshot(tables, run) for run in linked}


def pool_demand(tables: Tables) -> list[PoolDemand]:
    """Return what every pool has to do and who does it."""
    pools = sorted(tables.pools.items(), key=lambda pool: pool[1])
    return [_demand(tables, pool_id, *name) for name, pool_id in pools]


def _snapshot(tables: Tables, run_id: RunId) -> RunSnapshot:
    run = tables.runs[run_id]
    new, live = run.new, tables.live.get(run_id)
    now = _live_fields(tables, live) if live else _final_fields(tables.newest_final(run_id))
    return RunSnapshot(
        run_id=run_id,
        cluster=new.cluster or "",
        uid=new.uid or "",
        namespace=new.namespace,
        name=new.name,
        generation=new.generation,
        created_at=run.created_at,
        agent_revision=tables.revisions[new.revision_id].digest,
        cancel_asked=tables.wished(run_id) is not None,
        questions=_asked(tables, run_id) if live else (),
        suspend_asked=_suspend_asked(tables, run_id),
        redrives=_redrives(tables, run_id),
        lifecycle=_lifecycle(tables, run_id),
        **now,
    )


def _live_fields(tables: Tables, live: Live) -> dict[str, Any]:
    same = (
        "place", "revision", "epoch", "attempt", "takeovers", "max_takeovers", "blamed",
        "quarantined", "ready_at", "claimed_at", "started_at", "due_at", "timer_reason",
    )  # fmt: skip
    fields = {name: getattr(live, name) for name in same}
    worker = tables.workers.get(live.worker_id) if live.worker_id is not None else None
    return {
        **fields,
        "parked_for": live.reasons,
        "carry": live.carry or (),
        "worker": worker.new.name if worker else None,
    }


def _asked(tables: Tables, run_id: RunId) -> tuple[Asked, ...]:
    attempt = tables.live[run_id].attempt
    found = [
        (question.asked_at, step, digest, question)
        for (run, step, digest, asked), question in tables.questions.items()
        if (run, asked) == (run_id, attempt) and question.decided_at is None
    ]
    found.sort(key=lambda one: one[:2])
    return tuple(
        Asked(step, digest, question.asked.tool, question.expires_at)
        for _, step, digest, question in found
    )


def _suspend_asked(tables: Tables, run_id: RunId) -> str | None:
    wish = tables.wishes.get((run_id, WishKind.SUSPEND))
    return None if wish is None else str(wish)


def _redrives(tables: Tables, run_id: RunId) -> int:
    """Return the newest number by which the run's custom resource got a further attempt."""
    asked = [by for (run, _), by in tables.attempts.items() if run == run_id]
    numbers = [_SPEC_REDRIVE.fullmatch(by) for by in asked]
    return max((int(match[1]) for match in numbers if match), default=0)


def _final_fields(final: Ended | None) -> dict[str, Any]:
    if final is None:
        raise LookupError("a run stands nowhere and has no final: a bug of the store in memory")
    same = (
        "revision", "epoch", "attempt", "takeovers", "claimed_at", "started_at", "status",
        "reason", "message", "outcome", "step", "finished_at", "tokens_in", "tokens_out",
        "cost_micro",
    )  # fmt: skip
    fields = {name: getattr(final, name) for name in same}
    carry, size = final.carry or (), None if final.result is None else len(final.result)
    return {
        **fields,
        "place": Place.FINAL,
        "max_takeovers": 0,
        "carry": carry,
        "worker": final.worker or (carry[-1].worker if carry else None),
        "result_size": size,
        "result": final.result if size is not None and size <= _LARGEST_RESULT else None,
    }


def _lifecycle(tables: Tables, run_id: RunId) -> tuple[LifecycleEvent, ...]:
    return tuple(
        LifecycleEvent(event.seq, event.epoch, event.attempt, event.kind, at, event.body)
        for event, at in tables.lifecycle(run_id)
    )


def _demand(tables: Tables, pool_id: PoolId, namespace: str, name: str) -> PoolDemand:
    runs = [run for run in tables.live.values() if run.pool_id == pool_id]
    workers = [
        worker for worker in tables.workers.values()
        if worker.new.pool_id == pool_id and worker.fenced_at is None
        and lease_until(tables, worker) >= tables.now() and not worker.new.quarantine
    ]  # fmt: skip
    ready = [run for run in runs if run.place is Place.READY]
    return PoolDemand(
        pool_id=pool_id,
        namespace=namespace,
        name=name,
        running=sum(run.place is Place.LEASE for run in runs),
        claimable=len(ready),
        waiting=sum(run.place in (Place.BACKLOG, Place.TIMER) for run in runs),
        oldest_ready_at=min((run.ready_at for run in ready), default=None),
        workers=len(workers),
        slots=sum(worker.slots for worker in workers if not worker.draining),
        quarantined=sum(run.quarantined for run in ready),
    )
