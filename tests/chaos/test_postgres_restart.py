"""PostgreSQL crashes or restarts under load: nothing is lost, and nothing happens twice."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from rowlock.embedded import EmbeddedPostgres
from rowlock.states import FinalStatus
from rowlock.store.migrate import migrate
from tests.workers import Bench, bench_on, eventually

RUNS = 300
STEPS = 12


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A server of this test's own, for it will be killed."""
    with EmbeddedPostgres() as server:
        yield server


@pytest.fixture(name="loaded")
async def loaded_bench(server: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Bench]:
    """Two workers in the middle of some hundred runs."""
    await migrate(server.url())
    async with bench_on(server.url(), tmp_path) as bench:
        for _ in range(2):
            bench.worker("--lease-seconds", "6", "--renew-seconds", "1", "--slots", "64")
        await bench.enqueue("ambler", count=RUNS, steps=STEPS)
        await eventually(
            lambda: bench.sql.fetchval("SELECT count(*) > 30 FROM rowlock.run_final"), "some ends"
        )
        yield bench


async def everything_ended_once(bench: Bench, dsn: str) -> None:
    """Assert it from the database, and from the effects that the runs left outside."""
    bench.sql = await asyncpg.connect(dsn)

    await eventually(
        lambda: bench.sql.fetchval("SELECT count(*) = $1 FROM rowlock.run_final", RUNS),
        "the end of all runs",
        within=120,
    )
    ends = await bench.sql.fetch("SELECT status, count(*) FROM rowlock.run_final GROUP BY status")
    assert [(row["status"], row["count"]) for row in ends] == [(FinalStatus.SUCCEEDED, RUNS)]
    steps = await bench.sql.fetch(
        "SELECT run_id, key, count(*) FROM rowlock.run_event WHERE kind = 2 GROUP BY run_id, key"
    )
    assert len(steps) == RUNS * STEPS
    assert {row["count"] for row in steps} == {1}
    done = Counter((run, step) for run, step, *_ in bench.effects())
    assert len(done) == RUNS * STEPS
    assert await bench.sql.fetchval("SELECT count(*) FROM rowlock.run_lease") == 0
    await bench.healthy()


@pytest.mark.public_bug("PrefectHQ/prefect#18893")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["crash", "fast"])
async def test_postgres_restarts_under_load_and_every_run_ends_once(
    server: EmbeddedPostgres, loaded: Bench, how: signal.Signals
) -> None:
    for _ in range(2):
        before = await loaded.sql.fetchval("SELECT count(*) FROM rowlock.run_event")
        await loaded.sql.close()
        server.restart(how)
        loaded.sql = await asyncpg.connect(server.url())
        await eventually(
            lambda before=before: loaded.sql.fetchval(  # type: ignore[misc]
                "SELECT count(*) > $1 FROM rowlock.run_event", before
            ),
            "work after the restart",
        )
    await loaded.sql.close()
    await everything_ended_once(loaded, server.url())
    assert all(worker.process.poll() is None for worker in loaded.workers)
    taken_over = await loaded.sql.fetchval("SELECT sum(takeovers) FROM rowlock.run_final")
    assert taken_over == 0  # the outage was shorter than the lease: nobody was lost
