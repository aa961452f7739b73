"""Builds of workers, and the runs that only one of them may go on with."""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.store.connection import Connection
from rowlock.store.types import PoolId, RunId


@dataclass(frozen=True, slots=True)
class BoundRuns:
    """The runs of a pool that only one build may go on with.

    Parameters
    ----------
    runs, pinned
        All of them, and those that wait for that build for as long as it takes.
    claimable, running
        Those that a free slot could take now, and those that a worker holds.
    """

    pool_id: PoolId
    build: str
    runs: int
    pinned: int
    claimable: int
    running: int


async def build_lives(conn: Connection, *, pool: PoolId, build: str) -> bool:
    """Tell whether a worker of that build is there, or was in the last minute."""
    return bool((await conn.fetchone("build_lives", pool, build))[0])


async def unbind(conn: Connection, *, limit: int = 500) -> list[RunId]:
    """Let any build go on with runs whose own is gone; pinned ones wait for it."""
    return [RunId(row[0]) for row in await conn.fetch("unbind", limit)]


async def bound_runs(conn: Connection) -> list[BoundRuns]:
    """Return what is bound to a build, of all pools."""
    return [BoundRuns(PoolId(row[0]), *row[1:]) for row in await conn.fetch("bound_runs")]
