"""A further attempt of a run that has ended: its finished steps are read back."""

from __future__ import annotations

from rowlock.states import ChangeKind, Place, WishKind
from rowlock.store.types import Redriving, RunId
from rowlock.testing.store import lines
from rowlock.testing.store.tables import Ended, Live, Tables


def redrive(tables: Tables, run_id: RunId, by: str, attempt: int | None) -> Redriving:
    """Queue the attempt after a run's last one."""
    if run_id not in tables.runs:
        return Redriving.UNKNOWN
    live, final = tables.live.get(run_id), tables.newest_final(run_id)
    newest = live.attempt if live else final.attempt if final else 0
    wanted = attempt or newest + 1
    if wanted <= newest:
        return Redriving.ALREADY_ASKED
    if live is not None or final is None or wanted > newest + 1:
        return Redriving.NOT_FINISHED
    tables.attempts[run_id, wanted] = by
    _queue(tables, run_id, final)
    return Redriving.QUEUED


def redrive_once(tables: Tables, run_id: RunId, by: str) -> Redriving:
    """Do what `redrive` does, unless `by` has asked for an attempt of this run before."""
    if any(run == run_id and who == by for (run, _), who in tables.attempts.items()):
        return Redriving.ALREADY_ASKED
    if run_id in tables.live:
        return Redriving.NOT_FINISHED
    return redrive(tables, run_id, by, None)


def _queue(tables: Tables, run_id: RunId, final: Ended) -> None:
    new = tables.runs[run_id].new
    for kind in WishKind:
        tables.wishes.pop((run_id, kind), None)
    run = Live(
        run_id=run_id,
        pool_id=new.pool_id,
        agent_id=new.agent_id,
        revision_id=new.revision_id,
        key=new.key or None,
        priority=new.priority,
        max_takeovers=new.max_takeovers,
        linked=new.uid is not None,
        place=Place.READY,
        vft=0.0,
        ready_at=tables.now(),
        epoch=final.epoch,
        attempt=final.attempt + 1,
        carry=final.carry,
        started_at=final.started_at,
        pinned=new.pinned,
    )
    lines.begin_again(tables, run)
    tables.live[run_id] = run
    tables.change(run, ChangeKind.QUEUED)
