"""What the writer and the claimer need of the store, each set on one connection."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rowlock.engine.lane import Leave, Release
from rowlock.engine.prepared import Revision
from rowlock.store import approvals, builds, caps, parking, work
from rowlock.store.connection import Connection
from rowlock.store.types import (
    AgentId,
    Answer,
    Claimed,
    Event,
    Final,
    Flushed,
    PoolId,
    RevisionId,
    RunBody,
    RunId,
    Verdict,
    WorkerId,
)


@dataclass(frozen=True, slots=True)
class WriterStatements:
    """`rowlock.engine.batch.Sink` in PostgreSQL."""

    connection: Connection
    worker: WorkerId

    async def append(self, events: Sequence[Event]) -> Flushed:
        """Store history."""
        return await work.append(self.connection, worker=self.worker, events=events)

    async def finish(self, events: Sequence[Event], finals: Sequence[Final]) -> Flushed:
        """Store history and ends."""
        return await work.finish(self.connection, worker=self.worker, events=events, finals=finals)

    async def release(self, releases: Sequence[Release]) -> dict[RunId, Verdict]:
        """Give runs back."""
        runs = [(row.run_id, row.epoch, row.active_ms) for row in releases]
        misfits = {row.run_id: row.misfit for row in releases if row.misfit is not None}
        return await work.release(self.connection, worker=self.worker, runs=runs, misfits=misfits)

    async def park(self, leaves: Sequence[Leave]) -> dict[RunId, Verdict]:
        """Let runs wait; what is left of a wait is taken now, however late this is sent."""
        now = time.monotonic()
        runs = [
            row.parked
            if row.due is None
            else replace(row.parked, wake_in_seconds=max(0.0, row.due - now))
            for row in leaves
        ]
        return await parking.park(self.connection, worker=self.worker, runs=runs)


@dataclass(frozen=True, slots=True)
class ClaimerStatements:
    """`rowlock.engine.desk.Desk` in PostgreSQL."""

    connection: Connection
    worker: WorkerId
    pool: PoolId
    quarantine: bool = False

    async def claim(self, *, token: int, limit: int) -> list[Claimed] | None:
        """Lease up to `limit` runs, or one in quarantine."""
        if self.quarantine:
            return await work.claim_alone(
                self.connection, worker=self.worker, pool=self.pool, token=token
            )
        return await work.claim(
            self.connection, worker=self.worker, pool=self.pool, token=token, limit=limit
        )

    async def adopt(self, *, token: int, known: Collection[RunId]) -> list[Claimed] | None:
        """Return what is leased to this worker and not in `known`; void older tokens."""
        return await work.adopt(self.connection, worker=self.worker, token=token, known=known)

    async def bodies(self, run_ids: Sequence[RunId]) -> dict[RunId, RunBody]:
        """Read inputs and options."""
        return await work.bodies(self.connection, run_ids)

    async def history(self, run_id: RunId) -> list[Event]:
        """Read all rows of a run."""
        return await work.history(self.connection, run_id)

    async def answers(self, run_id: RunId) -> list[Answer]:
        """Read what people answered to a run's questions."""
        return await approvals.answers(self.connection, run_id)

    async def revision(self, revision_id: RevisionId) -> Revision:
        """Read an agent's revision."""
        found = await work.revision(self.connection, revision_id)
        return Revision(found[0], found[2]) if found else Revision("", "unknown")

    async def build_lives(self, build: str) -> bool:
        """Tell whether a worker of that build may take a run."""
        return await builds.build_lives(self.connection, pool=self.pool, build=build)

    async def promote(self, agent: AgentId) -> int:
        """Move the runs of a capped agent that may start now into the queue."""
        return await caps.promote(self.connection, agent)
