"""A supervisor is killed: its loops follow it, and their runs go on elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta

import pytest

from rowlock.states import FinalStatus
from tests.proofs import ended_once
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

STEPS = 4
LEASE = timedelta(seconds=1.5)


async def test_the_runs_of_a_killed_supervisor_are_taken_over_after_its_lease(
    bench: Bench,
) -> None:
    beheaded = bench.worker()
    runs = await bench.enqueue("walker", count=20, steps=STEPS, gates=[2])
    for run in runs:
        await bench.lease(run)
    await bench.waiting("2")
    peer = bench.worker()
    await peer.says("Worker started")
    killed = await bench.sql.fetchval("SELECT rowlock.now()")
    os.kill(beheaded.pid, signal.SIGKILL)
    for run in runs:
        lease = await bench.lease(run, epoch=2)
        assert lease["claimed_at"] - killed < LEASE + timedelta(seconds=8)
    bench.open_gate("2")
    await ended_once(bench, runs, steps=STEPS, takeovers=len(runs))


@pytest.mark.public_bug("oban-bg/oban#862")
async def test_a_supervisor_that_comes_back_under_its_name_takes_over_at_once(
    bench: Bench,
) -> None:
    """Long before the lease of ten minutes ends; the name does not keep the dead one alive."""
    long = ("--lease-seconds", "600", "--renew-seconds", "5", "--instance", "host-1")
    first = bench.worker(*long)
    runs = await bench.enqueue("walker", count=20, steps=STEPS, gates=[2])
    for run in runs:
        await bench.lease(run)
    await bench.waiting("2")
    os.kill(first.pid, signal.SIGKILL)
    await first.ends()
    bench.worker(*long)
    for run in runs:
        await bench.lease(run, epoch=2)
    bench.open_gate("2")
    await ended_once(bench, runs, steps=STEPS, takeovers=len(runs))


@pytest.mark.public_bug("rails/solid_queue#546")
async def test_a_killed_worker_gives_its_slots_back_with_its_lease(bench: Bench) -> None:
    """Slots are the leases themselves: there is no counter that could drift from them."""
    dying = bench.worker("--processes", "1")
    runs = await bench.enqueue("walker", count=6, steps=STEPS, gates=[1], limits={"max_running": 2})
    await bench.waiting("1")
    peer = bench.worker()
    await peer.says("Worker started")
    held = "SELECT count(*) FROM rowlock.run_lease WHERE worker_id = $1"
    owner = await bench.sql.fetchval("SELECT min(worker_id) FROM rowlock.run_lease")
    assert await bench.sql.fetchval(held, owner) == 2
    killed = await bench.sql.fetchval("SELECT rowlock.now()")
    dying.signal_group(signal.SIGKILL)
    taken = await eventually(
        lambda: bench.sql.fetchval(
            "SELECT max(claimed_at) FROM rowlock.run_lease WHERE worker_id <> $1 "
            "HAVING count(*) = 2",
            owner,
        ),
        "both slots in use again",
    )
    assert taken - killed < LEASE + timedelta(seconds=8)
    bench.open_gate("1")
    await ended_once(bench, runs, steps=STEPS, takeovers=2)
    ends = await bench.sql.fetch("SELECT status FROM rowlock.run_final")
    assert [row["status"] for row in ends] == [FinalStatus.SUCCEEDED] * 6
    await eventually(lambda: asyncio.sleep(0, peer.process.poll() is None), "the peer")
