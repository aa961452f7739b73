"""What the autoscaler reads of pools, and how it has workers rest before it takes them away.

A resting worker claims nothing: the claim itself looks, so that none slips through.
The rest lapses by itself; it has to be renewed for as long as it is meant.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from rowlock.store.connection import Connection
from rowlock.store.types import PoolDemand, PoolId

_DEMAND_COLUMNS: Final = 10


@dataclass(frozen=True, slots=True)
class PoolSignals:
    """What one pool has to do, and how well its workers do it.

    Parameters
    ----------
    oldest_wait
        Seconds for which the oldest run that needs a slot could be claimed; None for none.
    free
        Free slots of workers that can use them.
    saturated
        Free slots of workers whose event loop is late or whose CPU is full: as good as used.
    tries, refused
        Tries of steps in the last half minute, and those that were told to come again later.
    commit_ms
        How long PostgreSQL takes for a batch of history, on the average of all workers.
    """

    demand: PoolDemand
    oldest_wait: float | None = None
    free: int = 0
    saturated: int = 0
    tries: int = 0
    refused: int = 0
    commit_ms: float = 0.0


async def pool_signals(conn: Connection, *, late_ms: int, full_percent: int) -> list[PoolSignals]:
    """Return the signals of every pool, read by one statement.

    Parameters
    ----------
    late_ms
        A loop that wakes up later than this has no use for its free slots.
    full_percent
        Nor has a worker whose CPU is fuller than this.
    """
    rows = await conn.fetch("pool_signals", late_ms, full_percent)
    return [
        PoolSignals(PoolDemand(PoolId(row[0]), *row[1:_DEMAND_COLUMNS]), *row[_DEMAND_COLUMNS:])
        for row in rows
    ]


async def rest_pods(
    conn: Connection, pool: PoolId, pod_uids: Collection[str], *, seconds: float
) -> None:
    """Have the workers of these pods claim nothing for so long, and all others claim again.

    When it returns, no claim of theirs is under way that could still take anything.
    """
    await conn.execute("rest_pods", pool, list(pod_uids), seconds)


async def pod_loads(conn: Connection, pool: PoolId) -> dict[str, int]:
    """Return how many runs each pod of a pool holds, by its uid."""
    return {row[0]: row[1] for row in await conn.fetch("pod_loads", pool)}
