"""What happens to runs that no worker holds: sweeps, which anybody may run, two at once too."""

from __future__ import annotations

from typing import Final

from rowlock.store.connection import Connection
from rowlock.store.types import PoolId, RunId

_BATCH: Final = 1000


async def cancel_waiting(conn: Connection) -> list[RunId]:
    """Carry out every wish to cancel a run that no worker holds; return the runs that this ended.

    Wishes are rows of their own and stay until the run is final,
    so whatever moves while this looks is met by the next sweep or by the run's worker.
    """
    ended: list[RunId] = []
    while True:
        waiting = [row["run_id"] for row in await conn.fetch("waiting_wishes", _BATCH)]
        if not waiting:
            return ended
        now = [RunId(row["run_id"]) for row in await conn.fetch("cancel_waiting", waiting)]
        ended += now
        dropped = await conn.execute("drop_done_wishes", waiting)
        if not now and dropped == "DELETE 0":
            return ended


async def expire_queued(conn: Connection) -> list[RunId]:
    """Fail the runs that no worker took before their queue deadline; return them."""
    ended: list[RunId] = []
    while rows := await conn.fetch("expire_queued", _BATCH):
        ended += [RunId(row["run_id"]) for row in rows]
    return ended


async def wake_due(conn: Connection, limit: int = 500) -> int:
    """Put up to `limit` runs whose timer is due back into the queue; return how many."""
    return int((await conn.fetchone("wake_due", limit))["woken"])


async def alone_waiting(conn: Connection, pool: PoolId) -> tuple[int, int]:
    """Return how many quarantined runs wait (64 at most), and how many processes are free for them.

    The second is 0 while nothing waits.
    """
    row = await conn.fetchone("alone_waiting", pool)
    return row["waiting"], row["free"]


async def ensure_partitions(conn: Connection, ahead: int = 7) -> int:
    """Make the partitions of today and the next `ahead` days; return how many were missing."""
    return int((await conn.fetchone("ensure_partitions", ahead))["made"])


async def partitions_ahead(conn: Connection) -> int:
    """Return for how many days after today the partitions are made."""
    return int((await conn.fetchone("partitions_ahead"))["days"])
