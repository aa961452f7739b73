"""A client on a test's database, and a worker that a test plays itself."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import msgspec
import pytest

from rowlock import Client
from rowlock.states import EventKind, FinalStatus
from rowlock.store import intake, work, workers
from rowlock.store.connection import Connection
from rowlock.store.types import Claimed, Event, Final, NewWorker, RunId, WorkerId


@dataclass
class Played:
    """A worker whose every act the test decides."""

    store: Connection
    worker: WorkerId
    pool: Any

    async def claim(self, limit: int = 1) -> list[Claimed]:
        """Take runs."""
        claimed = await work.claim(
            self.store,
            worker=self.worker,
            pool=self.pool,
            token=time.monotonic_ns(),
            limit=limit,
        )
        assert claimed is not None
        return claimed

    async def step(self, run: Claimed, seq: int, key: str = "step", body: bytes = b"{}") -> None:
        """Write a finished step."""
        event = Event(run.run_id, seq, run.epoch, run.attempt, EventKind.STEP_DONE, key, 1, 7, body)
        flushed = await work.append(self.store, worker=self.worker, events=[event])
        assert not flushed.lost

    async def finish(
        self, run: Claimed, result: object = None, *, reason: str | None = None, message: str = ""
    ) -> None:
        """End a run, well or with a reason."""
        status = FinalStatus.FAILED if reason else FinalStatus.SUCCEEDED
        final = Final(
            run.run_id,
            run.epoch,
            status,
            reason=reason,
            message=message or None,
            outcome=None if reason else "ok",
            result=None if reason else msgspec.json.encode(result),
        )
        await work.finish(self.store, worker=self.worker, events=[], finals=[final])


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[Connection]:
    """The test's own connection."""
    connection = await Connection.open(dsn, name="test")
    yield connection
    await connection.close()


@pytest.fixture
async def sql(dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """The test's own look at the database."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Client]:
    """An open client."""
    async with Client(dsn, by="tester") as client:
        yield client


@pytest.fixture
async def played(store: Connection) -> Played:
    """A worker of the default pool."""
    pool = await intake.ensure_pool(store, namespace="", name="default")
    new = NewWorker(pool, "played/0", "played", 1, "test", lease_seconds=3600)
    [worker] = await workers.register(store, [new])
    return Played(store, worker, pool)


async def count_runs(sql: asyncpg.Connection[Any]) -> int:
    """Return how many runs there are."""
    return int(await sql.fetchval("SELECT count(*) FROM rowlock.run"))


__all__ = ["Played", "RunId", "count_runs"]
