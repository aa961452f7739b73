"""A loop process's parts inside the test's own process, so that a test can count what they do."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rowlock.engine.board import Board
from rowlock.engine.host import Host
from rowlock.engine.messages import EXIT_LEFT, Boot
from rowlock.metrics import RUNS_FINISHED
from rowlock.store import intake, workers
from rowlock.store.connection import Connection
from rowlock.store.types import NewRun, NewWorker, PoolId

WITHIN_SECONDS = 120.0
#: No beat comes here, so the lease outlives every test.
_LEASE_SECONDS = 3600.0


@asynccontextmanager
async def host_on(dsn: str, store: Connection, *, slots: int) -> AsyncIterator[Host]:
    """Yield a host that claims and runs; it has left, its connections closed, after the block."""
    pool = await default_pool(store)
    new = NewWorker(pool, "here/0", "here/0", os.getpid(), "test", _LEASE_SECONDS)
    [worker] = await workers.register(store, [new])
    board = Board.create()
    board.accepted(time.monotonic_ns())
    boot = Boot(
        database_url=dsn,
        worker_id=worker,
        pool_id=pool,
        index=0,
        name="here/0",
        slots=slots,
        lease_seconds=_LEASE_SECONDS,
        max_result_bytes=2**24,
        log_format="json",
        log_level="WARNING",
    )
    host = Host(boot, board)
    running = asyncio.create_task(host.run())
    try:
        yield host
    finally:
        host.drain()
        assert await running == EXIT_LEFT


async def default_pool(store: Connection) -> PoolId:
    """Return the pool that workers serve by default."""
    return await intake.ensure_pool(store, namespace="", name="default")


async def enqueue_at_once(store: Connection, entrypoint: str, inputs: list[bytes]) -> None:
    """Enqueue one run for each input, all visible at one instant."""
    pool = await default_pool(store)
    agent, revision = await intake.ensure_agent(
        store, namespace="", name="counted", entrypoint=entrypoint, spec=b"{}", digest="1"
    )
    async with store.transaction():
        await intake.enqueue(store, [NewRun(agent, revision, pool, body) for body in inputs])


async def finish(host: Host, runs: int) -> None:
    """Wait until the host has finished so many runs; asks seldom, for this is counted, too."""
    deadline, finished = time.monotonic() + WITHIN_SECONDS, 0.0
    while finished < runs:
        assert time.monotonic() < deadline, f"{finished:g} of {runs} runs ended"
        await asyncio.sleep(0.1)
        finished += sum(by for key, by in host.report().counters if key[0] == RUNS_FINISHED.name)
