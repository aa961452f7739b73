"""A store that holds one run, leased to one worker: what a history without an engine is kept in."""

from __future__ import annotations

from rowlock.agents.protocol import Entry
from rowlock.clock import Clock
from rowlock.states import Place
from rowlock.store.types import (
    AgentId,
    Event,
    NewRun,
    NewWorker,
    PoolId,
    RevisionId,
    RunId,
    WorkerId,
)
from rowlock.testing.store import work
from rowlock.testing.store.tables import Live, Run, Tables, Worker

_WORKER = WorkerId(1)
_POOL, _AGENT, _REVISION = PoolId(1), AgentId(1), RevisionId(1)


class SingleRun:
    """The one run and its events."""

    def __init__(self, clock: Clock, run_id: int, *, attempt: int, epoch: int) -> None:
        self._tables = tables = Tables(clock)
        self._run_id = RunId(run_id)
        now = tables.now()
        new = NewWorker(_POOL, "here/0", "here", 1, "test", 15.0)
        tables.workers[_WORKER] = Worker(_WORKER, new, now)
        tables.runs[self._run_id] = Run(NewRun(_AGENT, _REVISION, _POOL, b"null"), now, None)
        tables.live[self._run_id] = self._live = Live(
            run_id=self._run_id,
            pool_id=_POOL,
            agent_id=_AGENT,
            revision_id=_REVISION,
            key=None,
            priority=0,
            max_takeovers=5,
            linked=False,
            place=Place.LEASE,
            vft=0.0,
            ready_at=now,
            epoch=epoch,
            attempt=attempt,
            worker_id=_WORKER,
            claimed_at=now,
            started_at=now,
        )

    def append(self, *entries: Entry) -> None:
        """Store entries, each under its number."""
        live = self._live
        events = [
            Event(
                self._run_id, x.seq, live.epoch, live.attempt, x.kind, x.key, x.tries, None, x.body
            )
            for x in entries
        ]
        work.append(self._tables, _WORKER, events)

    def entries(self) -> list[Entry]:
        """Return all stored entries, by their number."""
        events = work.history(self._tables, self._run_id)
        return [Entry(e.kind, e.key or "", e.attempt_try, e.body or b"", e.seq) for e in events]
