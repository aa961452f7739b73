"""Workers: they register, beat, learn what was asked of their runs, and lose them when they die.

A worker is one boot of one process. Once fenced it can never write again; its runs go to others.
Fencing is one transaction of two statements (see docs/explanation/fencing.md): one statement alone
would miss a lease whose claim commits while it runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import asyncpg

from rowlock.states import FenceReason, WishKind
from rowlock.store.connection import Connection
from rowlock.store.types import Beat, Fenced, NewWorker, Reaped, RunId, Wish, WorkerId

_NEW: Final = attrgetter(
    *("pool_id", "instance", "name", "pod_uid", "node", "pid", "build", "lease_seconds"),
    *("quarantine", "cluster", "reserved"),
)
_BEAT: Final = attrgetter(
    "worker_id",
    "slots",
    "running",
    "lag_ms",
    "draining",
    "tries",
    "refused",
    "commit_ms",
    "cpu_percent",
)
#: Fewer pods than this may all be dead at once without a doubt about the database or the network.
_FEWEST_FOR_MASS: Final = 5


async def register(conn: Connection, workers: Sequence[NewWorker]) -> list[WorkerId]:
    """Register processes and return their ids in the same order."""
    if not workers:
        return []
    rows = await conn.fetch("register", *zip(*map(_NEW, workers), strict=True))
    return [WorkerId(row[0]) for row in rows]


async def beat(conn: Connection, beats: Sequence[Beat]) -> set[WorkerId]:
    """Renew leases; a worker missing in the answer is fenced or unknown and must leave."""
    if not beats:
        return set()
    rows = await conn.fetch("beat", *zip(*map(_BEAT, beats), strict=True))
    return {WorkerId(row[0]) for row in rows}


async def wishes(conn: Connection, workers: Collection[WorkerId]) -> list[Wish]:
    """Return what was asked of the runs that these workers hold; the same until it is done."""
    rows = await conn.fetch("wishes", list(workers))
    return [Wish(RunId(r[0]), WorkerId(r[1]), WishKind(r[2]), r[3]) for r in rows]


async def fence(
    conn: Connection,
    workers: Collection[WorkerId],
    *,
    reason: FenceReason,
    on_loop: Mapping[WorkerId, RunId] | None = None,
) -> Fenced:
    """Fence workers that are known to be dead, and move their runs.

    It waits for whatever they are writing at this moment.

    Parameters
    ----------
    on_loop
        Whose code each one's event loop executed when it ended, where that is known.
    """
    if not workers:
        return Fenced()
    seen = on_loop or {}
    runs = [seen.get(worker) for worker in workers]
    async with conn.transaction():
        rows = await conn.fetch("fence", list(workers), reason, runs)
        moved = await conn.fetch("move_leases", list(workers))
    return _fenced([row[0] for row in rows], moved)


async def fence_instance(
    conn: Connection, *, instance: str, except_ids: Collection[WorkerId] = ()
) -> Fenced:
    """Fence the earlier boots of a container or laptop worker, reason WorkerDied.

    Parameters
    ----------
    instance
        What the instances of its processes begin with, before the slash.
    """
    rows = await conn.fetch("workers_of_instance", instance, list(except_ids))
    return await fence(conn, [row[0] for row in rows], reason=FenceReason.WORKER_DIED)


async def fence_pods(conn: Connection, pod_uids: Collection[str], *, reason: FenceReason) -> Fenced:
    """Fence all workers of these pods."""
    rows = await conn.fetch("workers_of_pods", list(pod_uids))
    return await fence(conn, [row[0] for row in rows], reason=reason)


async def leave(conn: Connection, worker: WorkerId) -> Fenced:
    """End a worker gracefully: what it still holds is handed over, which counts as no takeover."""
    return await fence(conn, [worker], reason=FenceReason.LEFT)


async def reap(conn: Connection, *, gap_seconds: float) -> Reaped:
    """Fence the workers that were silent for longer than their lease; call it about once a second.

    Parameters
    ----------
    gap_seconds
        When the last round of any reaper is longer ago, nobody could tell silence from an outage:
        this round judges nobody, and all leases count as renewed now.
    """
    async with conn.transaction():
        turn = await conn.fetchrow("reaper_turn")
        if turn is None:
            return Reaped(skipped=True)
        if turn["since"] > gap_seconds:
            await conn.execute("grant_leases")
            return Reaped(skipped=True)
        return await _judge(conn)


async def _judge(conn: Connection) -> Reaped:
    silence = await _listen(conn)
    if silence.mass != (silence.mass_for is not None):
        await conn.execute("mass_silence", silence.mass)
    fenced = await _fence_silent(conn, silence.to_fence) if silence.to_fence else []
    lost = fenced + [row[0] for row in await conn.fetch("stranded")]
    moved = await conn.fetch("move_leases", lost) if lost else []
    return Reaped(skipped=silence.in_doubt, fenced=_fenced(fenced, moved))


async def _fence_silent(conn: Connection, workers: Sequence[WorkerId]) -> list[WorkerId]:
    """Fence those that are still silent once their rows are locked.

    A worker whose row is locked already is writing at this moment: the next round looks again.
    """
    locked = [row[0] for row in await conn.fetch("lock_silent", list(workers))]
    return [row[0] for row in await conn.fetch("fence_silent", locked)]


@dataclass(frozen=True, slots=True)
class Silence:
    """Who is overdue, among how many; the decision about it has no I/O.

    Parameters
    ----------
    mass_for
        Seconds since most pods were first found silent; None when that is new or not so.
    lease_seconds
        The longest lease among the silent.
    explained
        The silent whose node is known to be lost; they are in `workers` too, and in no other count.
    """

    workers: tuple[WorkerId, ...]
    pods: int
    silent_pods: int
    lease_seconds: float
    mass_for: float | None
    explained: tuple[WorkerId, ...] = ()

    @property
    def mass(self) -> bool:
        """Whether more than half of at least five pods are silent: rather the network than they."""
        return self.pods >= _FEWEST_FOR_MASS and self.silent_pods * 2 > self.pods

    @property
    def in_doubt(self) -> bool:
        """Whether to wait one more lease before believing it."""
        return self.mass and (self.mass_for is None or self.mass_for < self.lease_seconds)

    @property
    def to_fence(self) -> list[WorkerId]:
        """Who is to be fenced now."""
        return list(self.explained if self.in_doubt else self.workers)


async def _listen(conn: Connection) -> Silence:
    row = await conn.fetchone("overdue")
    return Silence(tuple(row[0]), row[1], row[2], row[3], row[4], tuple(row[5]))


def _fenced(workers: Sequence[int], moved: Sequence[asyncpg.Record]) -> Fenced:
    found: defaultdict[str, list[RunId]] = defaultdict(list)
    for row in moved:
        said = (row["fate"], row["blame"], "quarantined" if row["quarantined"] else None)
        for what in filter(None, said):
            found[what].append(RunId(row["run_id"]))
    return Fenced(
        tuple(WorkerId(worker) for worker in workers),
        **{what: tuple(runs) for what, runs in found.items()},
    )
