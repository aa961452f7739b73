"""Steps far longer than a lease: not the time that passes decides, but whether the worker lives."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import asyncpg
import pytest

from tests.proofs import ended_once
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

LINGERER = "tests.chaos_agents:lingerer"
LEASE = 1.5


async def leases_later(bench: Bench, count: float) -> None:
    """Wait for so many leases of the clock that judges them."""
    begun = await bench.sql.fetchval("SELECT rowlock.now()")
    await eventually(
        lambda: bench.sql.fetchval(
            "SELECT rowlock.now() > $1::timestamptz + $2 * interval '1 second'",
            begun,
            count * LEASE,
        ),
        f"{count:g} leases",
    )


@pytest.mark.public_bug("riverqueue/river#1258")
@pytest.mark.public_bug("langchain-ai/langgraph#7417")
async def test_a_step_of_ten_leases_happens_once_and_a_dead_workers_is_taken_over(
    bench: Bench,
) -> None:
    """One step is on the loop and one in an executor; a peer looks for the silent all the time."""
    worker = bench.worker()
    [run] = await bench.enqueue(LINGERER)
    await eventually(lambda: asyncio.sleep(0, len(bench.effects()) == 2), "both long steps")
    peer = bench.worker()
    await peer.says("Worker started")
    await leases_later(bench, 10)
    assert (await bench.lease(run))["epoch"] == 1
    assert len(bench.effects()) == 2
    worker.signal_group(signal.SIGKILL)
    await bench.lease(run, epoch=2)  # however long it has run
    for number in range(2):
        bench.open_gate(f"long-{number}")
    await ended_once(bench, [run], steps=2, takeovers=1, repeats=2)
    assert Counter(effect[1] for effect in bench.effects()) == {"long-0": 2, "long-1": 2}


@pytest.mark.public_bug("janbjorge/pgqueuer#430")
async def test_a_writer_that_stands_still_delays_no_beat(bench: Bench) -> None:
    """History is locked for more than three leases, so no batch can be written."""
    bench.worker()
    runs = await bench.enqueue("walker", count=30, steps=3, gates=[1])
    for run in runs:
        await bench.lease(run)
    await bench.waiting("1")
    peer = bench.worker()
    await peer.says("Worker started")
    waits = (
        "SELECT count(*) > 0 FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND query ~ '^-- (append|finish)'"
    )
    holder = await asyncpg.connect(bench.dsn)
    async with holder.transaction():
        await holder.execute("LOCK TABLE rowlock.run_event IN ACCESS EXCLUSIVE MODE")
        bench.open_gate("1")
        await eventually(lambda: bench.sql.fetchval(waits), "a writer that waits")
        await holder.execute("SELECT pg_sleep(5)")
    await holder.close()
    await ended_once(bench, runs, steps=3, takeovers=0, repeats=0)
