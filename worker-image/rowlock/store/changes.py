"""What the operator's mirror and sweep read: which runs to show again, and what to show of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import asyncpg

from rowlock.states import ChangeKind, EventKind, FinalStatus, Place
from rowlock.store.connection import Connection
from rowlock.store.types import (
    Asked,
    Change,
    LifecycleEvent,
    LinkedRun,
    PoolDemand,
    PoolId,
    RunId,
    RunSnapshot,
)
from rowlock.store.work import carries

#: Stored bytes of a result that a snapshot brings along: far more than a status may show.
_LARGEST_RESULT: Final = 64 * 1024


async def unshown(conn: Connection, *, limit: int, after: int = 0) -> list[Change]:
    """Return up to `limit` changes that nobody has forgotten, by their number, from `after` on.

    Transactions commit in another order than they take numbers:
    a smaller number may still appear, so begin at 0 again soon.
    """
    rows = await conn.fetch("unshown", after, limit)
    return [Change(r[0], RunId(r[1]), ChangeKind(r[2]), r[3], r[4], r[5]) for r in rows]


async def snapshots(conn: Connection, run_ids: Collection[RunId]) -> dict[RunId, RunSnapshot]:
    """Return all that a status shows of each of these runs that belongs to a custom resource."""
    rows = await conn.fetch("snapshots", list(run_ids), _LARGEST_RESULT)
    return {row["run_id"]: _snapshot(row) for row in rows}


async def shown(conn: Connection, seqs: Sequence[int]) -> None:
    """Forget exactly these changes."""
    await conn.execute("shown", list(seqs))


async def objects(
    conn: Connection,
    *,
    cluster: str,
    namespaces: Sequence[str] | None,
    after_uid: str = "",
    limit: int = 1000,
) -> list[LinkedRun]:
    """Return up to `limit` linked runs of a cluster by their uid, from `after_uid` on.

    Parameters
    ----------
    namespaces
        Only these; None for all.
    """
    wanted = None if namespaces is None else list(namespaces)
    rows = await conn.fetch("objects", cluster, wanted, after_uid, limit)
    return [LinkedRun(*row) for row in rows]


async def recreate_changes(conn: Connection, run_ids: Collection[RunId]) -> int:
    """Have runs shown again as they stand; return how many of them belong to a custom resource."""
    return int((await conn.fetchone("recreate_changes", list(run_ids)))["made"])


async def unlink(conn: Connection, run_ids: Collection[RunId]) -> None:
    """Forget the custom resources of runs, which are gone; the runs themselves stay.

    A change that such a run makes later finds no snapshot: the mirror just calls `shown` for it.
    """
    await conn.execute("unlink", list(run_ids))


async def pool_demand(conn: Connection) -> list[PoolDemand]:
    """Return what every pool has to do and who does it."""
    rows = await conn.fetch("pool_demand")
    return [PoolDemand(PoolId(row[0]), *row[1:]) for row in rows]


def _snapshot(row: asyncpg.Record) -> RunSnapshot:
    fields = dict(row)
    columns = [
        fields.pop(name) for name in ("seqs", "epochs", "attempts", "kinds", "ats", "bodies")
    ]
    fields["place"] = Place(fields["place"])
    fields["parked_for"] = tuple(fields["parked_for"] or ())
    fields["questions"] = tuple(Asked(*asked) for asked in fields["questions"] or ())
    fields["carry"] = carries(fields["carry"])
    fields["status"] = None if fields["status"] is None else FinalStatus(fields["status"])
    return RunSnapshot(**fields, lifecycle=_lifecycle(columns))


def _lifecycle(columns: Sequence[Sequence[object] | None]) -> tuple[LifecycleEvent, ...]:
    if columns[0] is None:
        return ()
    rows = zip(*(column or () for column in columns), strict=True)
    return tuple(
        LifecycleEvent(seq, epoch, attempt, EventKind(kind), at, body)
        for seq, epoch, attempt, kind, at, body in rows
    )
