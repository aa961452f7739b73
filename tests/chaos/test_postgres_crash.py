"""PostgreSQL is killed at a chosen point of a statement: nothing is lost and nothing is doubled."""

from __future__ import annotations

import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from rowlock.embedded import EmbeddedPostgres
from rowlock.store.migrate import migrate
from tests.proofs import ended_once
from tests.wire import When, wire_to
from tests.workers import Bench, bench_on, eventually

STEPS = 4
PATIENT = ("--lease-seconds", "9", "--renew-seconds", "1")


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    """A server of this file's own, for it is killed again and again."""
    # Syncing the whole file system is quicker than opening each file of it.
    with EmbeddedPostgres({"recovery_init_sync_method": "syncfs"}) as server:
        yield server


@pytest.fixture(name="bench")
async def bench_fixture(server: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Bench]:
    """A fresh database on it."""
    name = f"crash_{uuid.uuid4().hex[:8]}"
    admin = await asyncpg.connect(server.url())
    await admin.execute(f"CREATE DATABASE {name}")
    await admin.close()
    await migrate(server.url(name))
    async with bench_on(server.url(name), tmp_path) as bench:
        yield bench


async def crash(server: EmbeddedPostgres, bench: Bench) -> None:
    """Kill all of PostgreSQL at one instant, start it again, and connect the test anew."""
    server.restart(signal.SIGKILL)
    await bench.sql.close()
    bench.sql = await asyncpg.connect(bench.dsn)


@pytest.mark.parametrize(
    ("statement", "when"),
    [
        ("claim", "after"),
        ("append", "before"),
        ("append", "after"),
        ("finish", "before"),
        ("finish", "after"),
    ],
)
async def test_a_crash_while_a_worker_writes(
    server: EmbeddedPostgres, bench: Bench, statement: str, when: When
) -> None:
    """`after` is the worst of cases: it is committed, and nobody will ever be told."""
    runs = await bench.enqueue("walker", count=30, steps=STEPS)
    async with wire_to(bench.dsn) as wire:
        stop = wire.stop_at(statement, when)
        bench.worker(*PATIENT, environment={"ROWLOCK_DATABASE_URL": wire.url})
        await stop.reached()
        await crash(server, bench)
        stop.drop()
        await ended_once(bench, runs, steps=STEPS, takeovers=0)
        assert bench.workers[0].process.poll() is None


@pytest.mark.public_bug("dbos-inc/dbos-transact-py#716")
@pytest.mark.parametrize(
    ("statement", "when"),
    [
        ("fence_silent", "after"),
        ("commit of move_leases", "before"),
        ("commit of move_leases", "after"),
    ],
)
async def test_a_crash_in_the_middle_of_a_takeover(
    server: EmbeddedPostgres, bench: Bench, statement: str, when: When
) -> None:
    """Only the reaper's commit counts; before it the next round does all of it again."""
    dying = bench.worker()
    runs = await bench.enqueue("walker", count=10, steps=STEPS, gates=[1])
    for run in runs:
        await bench.lease(run)
    await bench.waiting("1")
    async with wire_to(bench.dsn) as wire:
        stop = wire.stop_at(statement, when)
        peer = bench.worker(environment={"ROWLOCK_DATABASE_URL": wire.url})
        await peer.says("Worker started")
        dying.signal_group(signal.SIGKILL)
        await stop.reached()
        await crash(server, bench)
        stop.drop()
        for run in runs:
            await bench.lease(run, epoch=2)
        bench.open_gate("1")
        await ended_once(bench, runs, steps=STEPS, takeovers=len(runs))
        assert peer.process.poll() is None
    fenced = "SELECT count(*) FROM rowlock.worker WHERE fenced_at IS NOT NULL"
    await eventually(lambda: bench.sql.fetchval(fenced), "the fence of the dead worker")
