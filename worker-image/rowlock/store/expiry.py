"""The end of custom resources: their time to live, and whether their runs have ended.

The clock starts when the end stands in the status: no object goes before it said how it ended.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rowlock.store.connection import Connection
from rowlock.store.types import RunId


class TimeToLive(NamedTuple):
    """For how many seconds the object of a run stays after its end.

    Parameters
    ----------
    own
        What the object says; None for nothing.
    otherwise
        What counts then; None to leave that as it was.
    """

    run_id: RunId
    own: int | None
    otherwise: int | None = None


class ExpiredObject(NamedTuple):
    """A custom resource whose time is over."""

    namespace: str
    name: str
    uid: str


async def set_ttl(conn: Connection, ttls: Sequence[TimeToLive]) -> None:
    """Note times to live, and apply them to runs that have ended; it may be repeated."""
    if ttls:
        await conn.execute("set_ttl", *(list(column) for column in zip(*ttls, strict=True)))
        await time_ends(conn, [ttl.run_id for ttl in ttls])


async def time_ends(conn: Connection, run_ids: Collection[RunId]) -> None:
    """Start the clock of runs that have ended, and stop that of runs which go on."""
    if run_ids:
        await conn.execute("time_ends", list(run_ids))


async def expired(
    conn: Connection,
    *,
    cluster: str,
    namespaces: Sequence[str] = (),
    limit: int,
    but: Collection[str] = (),
) -> list[ExpiredObject]:
    """Return objects of a cluster, and of its namespaces (none for all), whose time is over.

    Parameters
    ----------
    but
        Uids of objects to leave out.
    """
    rows = await conn.fetch("expired_objects", cluster, list(namespaces) or None, limit, list(but))
    return [ExpiredObject(*row) for row in rows]


async def collect(conn: Connection) -> None:
    """Forget the times to live of objects that are gone: `unlink` misses what comes beside it."""
    await conn.execute("collect_ttl")


async def live(conn: Connection, *, cluster: str, uids: Collection[str]) -> set[str]:
    """Return the uids of those objects whose run has not ended."""
    rows = await conn.fetch("live_objects", cluster, list(uids))
    return {row[0] for row in rows}
