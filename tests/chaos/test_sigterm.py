"""SIGTERM while steps are under way: beats go on to the last commit, and each run ends once."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import pytest

from rowlock.states import FinalStatus
from rowlock.store import intake
from tests.proofs import ended_once
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

LINGERER = "tests.chaos_agents:lingerer"
LEASE = 1.5


@pytest.mark.public_bug("rails/solid_queue#568")
async def test_beats_go_on_while_a_drain_waits_for_long_steps(bench: Bench) -> None:
    """For four leases after SIGTERM, with a peer that would fence whoever is silent."""
    leaving = bench.worker("--drain-seconds", "120")
    [run] = await bench.enqueue(LINGERER)
    await eventually(lambda: asyncio.sleep(0, len(bench.effects()) == 2), "both long steps")
    peer = bench.worker()
    await peer.says("Worker started")
    leaving.process.send_signal(signal.SIGTERM)
    await leaving.says("Draining")
    lease = await bench.lease(run)
    told = await bench.sql.fetchval("SELECT rowlock.now()")
    await eventually(
        lambda: bench.sql.fetchval(
            "SELECT beat_at > $2::timestamptz + $3 * interval '1 second' AND draining "
            "FROM rowlock.worker_beat WHERE worker_id = $1",
            lease["worker_id"],
            told,
            4 * LEASE,
        ),
        "a beat of the draining worker four leases later",
    )
    assert (await bench.lease(run))["epoch"] == 1
    for number in range(2):
        bench.open_gate(f"long-{number}")
    assert await leaving.ends() == 0
    await ended_once(bench, [run], steps=2, takeovers=0, repeats=0)


@pytest.mark.public_bug("janbjorge/pgqueuer#630")
@pytest.mark.parametrize("drain_seconds", ["60", "0.5"])
async def test_a_cancel_during_a_drain_ends_runs_or_gives_them_back_never_neither(
    bench: Bench, drain_seconds: str
) -> None:
    """All are capped: a row that leaked would hold the next ones up for ever."""
    leaving = bench.worker("--drain-seconds", drain_seconds, "--slots", "32")
    runs = await bench.enqueue("walker", count=24, steps=3, gates=[1], limits={"max_running": 12})
    await bench.waiting("1")
    held = [row["run_id"] for row in await bench.sql.fetch("SELECT run_id FROM rowlock.run_lease")]
    leaving.process.send_signal(signal.SIGTERM)
    await leaving.says("Draining")
    await intake.request_cancel(bench.store, held[::2], by="ada")
    bench.open_gate("1")
    assert await leaving.ends() == 0
    assert await bench.sql.fetchval("SELECT count(*) FROM rowlock.run_lease") == 0
    await bench.healthy()
    bench.worker()
    ends = Counter([FinalStatus((await bench.final(run))["status"]) for run in runs])
    assert ends[FinalStatus.FAILED] == 0
    assert sum(ends.values()) == len(runs)
    assert 0 < ends[FinalStatus.CANCELLED] <= len(held[::2])
    assert await bench.sql.fetchval("SELECT count(*) FROM rowlock.run_final") == len(runs)
    await bench.healthy()
