"""A small world around one test database: connections, workers, runs, what must hold at the end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from typing import Any

import asyncpg

from rowlock.states import EventKind, FenceReason, FinalStatus
from rowlock.store import caps, intake, invariants, work, workers
from rowlock.store.connection import Connection
from rowlock.store.types import (
    AgentId,
    Claimed,
    Event,
    Final,
    NewRun,
    NewWorker,
    PoolId,
    RevisionId,
    RunId,
    WorkerId,
)
from tests.conftest import on_database

CLUSTER = "cluster"


class World:
    """Opened with `World.create`; everything it opened ends with `close`."""

    store: Connection
    pool: PoolId
    agent: AgentId
    revision: RevisionId

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._opened: list[Connection] = []
        self._raw: list[asyncpg.Connection] = []
        self._numbers = itertools.count(1)
        self._offset = "0"

    @classmethod
    async def create(cls, dsn: str) -> World:
        world = cls(dsn)
        world.store = await world.connect()
        world.pool = await intake.ensure_pool(world.store, namespace="team", name="default")
        world.agent, world.revision = await intake.ensure_agent(
            world.store, namespace="team", name="support", entrypoint="m:a", spec=b"{}", digest="d1"
        )
        return world

    async def close(self) -> None:
        for connection in self._opened:
            await connection.close()
        for raw in self._raw:
            await raw.close(timeout=5)

    # ---------------------------------------------------------------- connections

    async def connect(self) -> Connection:
        self._opened.append(await Connection.open(self.dsn, name="test"))
        return self._opened[-1]

    async def raw(self) -> asyncpg.Connection:
        self._raw.append(await asyncpg.connect(self.dsn))
        return self._raw[-1]

    async def sql(self, text: str, *args: Any) -> list[asyncpg.Record]:
        return await raw_of(self.store).fetch(text, *args)

    async def value(self, text: str, *args: Any) -> Any:
        return await raw_of(self.store).fetchval(text, *args)

    async def later(self, seconds: float) -> None:
        """Move the clock of all open connections on."""
        self._offset = str(float(self._offset) + seconds)
        for raw in [*map(raw_of, self._opened), *self._raw]:
            await raw.execute(f"SET rowlock.clock_offset = '{self._offset} seconds'")

    @contextlib.asynccontextmanager
    async def holding(self, text: str, *args: Any) -> AsyncIterator[asyncpg.Connection]:
        """Hold what `text` locks, in a transaction that commits at the end of the block."""
        raw = await self.raw()
        async with raw.transaction():
            await raw.fetch(text, *args)
            yield raw

    async def blocked(self, *connections: Connection) -> None:
        """Return once each of these connections waits for a lock."""
        watcher = await self.raw()
        for connection in connections:
            await until(_waits(watcher, pid(connection)), f"{connection} never waited for a lock")

    # ---------------------------------------------------------------- runs and workers

    def new(self, count: int = 1, *, linked: bool = False, **fields: Any) -> list[NewRun]:
        return [self._one(linked=linked, **fields) for _ in range(count)]

    def _one(self, *, linked: bool, **fields: Any) -> NewRun:
        number = next(self._numbers)
        given: dict[str, Any] = {"pool_id": self.pool, "input": b'"hello"'}
        if linked:
            given |= {"cluster": CLUSTER, "uid": f"uid-{number:06}", "generation": 1}
            given |= {"namespace": "team", "name": f"run-{number}"}
        given |= {"agent_id": self.agent, "revision_id": self.revision}
        return NewRun(**(given | fields))

    async def enqueue(self, count: int = 1, *, linked: bool = False, **fields: Any) -> list[RunId]:
        new = self.new(count, linked=linked, **fields)
        return [answer.run_id for answer in await intake.enqueue(self.store, new)]

    async def worker(
        self,
        *,
        instance: str | None = None,
        pod: str | None = None,
        lease: float = 15.0,
        pool: PoolId | None = None,
        quarantine: bool = False,
    ) -> WorkerId:
        number = next(self._numbers)
        new = NewWorker(
            pool or self.pool,
            instance or f"host-{number}/0",
            f"worker-{number}",
            number,
            "b1",
            lease,
            pod,
            quarantine=quarantine,
        )
        return (await workers.register(self.store, [new]))[0]

    async def claim(
        self, worker: WorkerId, limit: int = 1000, *, conn: Connection | None = None
    ) -> list[Claimed]:
        found = await work.claim(
            conn or self.store,
            worker=worker,
            pool=self.pool,
            token=next(self._numbers),
            limit=limit,
        )
        assert found is not None, "the worker is fenced"
        return found

    async def running(
        self, count: int = 1, *, worker: WorkerId | None = None, **fields: Any
    ) -> tuple[WorkerId, list[Claimed]]:
        """Enqueue and claim `count` runs."""
        worker = worker or await self.worker()
        await self.enqueue(count, **fields)
        return worker, await self.claim(worker)

    async def cap(self, **limits: int) -> None:
        """Give the agent these caps and no others."""
        await caps.set_caps(self.store, self.agent, caps.Caps(**limits))

    async def promote(self) -> int:
        return await caps.promote(self.store, self.agent)

    async def finish(self, worker: WorkerId, runs: Iterable[Claimed]) -> None:
        finals = [end(run) for run in runs]
        await work.finish(self.store, worker=worker, events=[], finals=finals)

    async def lose(
        self, run: RunId, times: int, *, reason: FenceReason = FenceReason.LEASE_EXPIRED
    ) -> None:
        """Let `times` workers be lost with this run, which nobody else competes for."""
        for _ in range(times):
            worker = await self.worker()
            claimed = await self.claim(worker)
            assert run in {c.run_id for c in claimed}
            await workers.fence(self.store, [worker], reason=reason)
            await self.sql("UPDATE rowlock.run_timer SET due_at = rowlock.now()")
            await intake.wake_due(self.store)

    # ---------------------------------------------------------------- what is where

    async def place(self, run: RunId) -> str:
        """Name the live table that a run stands in, or `final`, or `nowhere`."""
        found = await self.value(
            "SELECT string_agg(place, '+') FROM rowlock.run_live WHERE run_id = $1", run
        )
        ended = await self.value("SELECT count(*) FROM rowlock.run_final WHERE run_id = $1", run)
        return found or ("final" if ended else "nowhere")

    async def places(self, runs: Iterable[RunId]) -> set[str]:
        return {await self.place(run) for run in runs}

    async def final(self, run: RunId) -> asyncpg.Record:
        rows = await self.sql(
            "SELECT * FROM rowlock.run_final WHERE run_id = $1 ORDER BY attempt DESC LIMIT 1", run
        )
        assert rows, "the run is not final"
        return rows[0]

    async def changes(self, run: RunId) -> list[int]:
        """Return the kinds of a run's changes that nobody has shown, in order."""
        rows = await self.sql(
            "SELECT kind FROM rowlock.run_change WHERE run_id = $1 ORDER BY seq", run
        )
        return [row["kind"] for row in rows]

    async def count(self, table: str) -> int:
        return int(await self.value(f"SELECT count(*) FROM rowlock.{table}"))  # noqa: S608  our own

    async def sound(self) -> None:
        """Assert that no invariant is broken."""
        assert await invariants.violations(self.store) == []


@contextlib.contextmanager
def copied_database(postgres_url: str, template: str, *seed: str) -> Iterator[str]:
    """Yield the URL of a copy of `template` in which the statements of `seed` were run."""
    name = f"store_{uuid.uuid4().hex[:12]}"
    url = on_database(postgres_url, name)

    async def run(where: str, *statements: str) -> None:
        raw = await asyncpg.connect(where)
        for statement in statements:
            await raw.execute(statement)
        await raw.close()

    asyncio.run(run(postgres_url, f'CREATE DATABASE "{name}" TEMPLATE "{template}"'))
    try:
        asyncio.run(run(url, *seed))
        yield url
    finally:
        asyncio.run(run(postgres_url, f'DROP DATABASE "{name}" WITH (FORCE)'))


def step(
    run: Claimed, seq: int, *, kind: EventKind = EventKind.STEP_DONE, body: bytes = b"1"
) -> Event:
    return Event(run.run_id, seq, run.epoch, run.attempt, kind, "step", 1, 5, body)


def end(run: Claimed, status: FinalStatus = FinalStatus.SUCCEEDED, **fields: Any) -> Final:
    return Final(run.run_id, run.epoch, status, **fields)


def failure(run: Claimed, *, retry_in: float | None = None) -> Final:
    return end(
        run, FinalStatus.FAILED, reason="AgentError", message="it broke", retry_in_seconds=retry_in
    )


def raw_of(connection: Connection) -> asyncpg.Connection:
    raw = connection._raw
    assert raw is not None
    return raw


def pid(connection: Connection) -> int:
    return int(raw_of(connection).get_server_pid())


async def together(*calls: Awaitable[Any]) -> list[Any]:
    """Run calls at the same time and return their answers, errors as values."""
    return await asyncio.gather(*calls, return_exceptions=True)


async def until(condition: Awaitable[bool], complaint: str) -> None:
    try:
        async with asyncio.timeout(10):
            await condition
    except TimeoutError:
        raise AssertionError(complaint) from None


async def _waits(watcher: asyncpg.Connection, server_pid: int) -> bool:
    # The server tells nobody when a session begins to wait, so ask again and again.
    while not await watcher.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", server_pid):
        continue
    return True
