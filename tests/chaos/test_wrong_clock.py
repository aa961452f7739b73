"""Workers whose wall clocks are an hour off: leases are judged by the database's clock alone."""

from __future__ import annotations

import signal
import time
from datetime import timedelta

import msgspec
import pytest

from rowlock.store.bodies import unpack
from tests.clocks import off_by
from tests.proofs import ended_once
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

HOUR = 3600
STEPS = 3
LEASE = timedelta(seconds=1.5)


@pytest.mark.parametrize("wrong", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_a_worker_with_a_wrong_clock_is_neither_early_nor_late(
    bench: Bench, wrong: int
) -> None:
    off = bench.worker(environment=off_by(wrong, bench.folder))
    runs = await bench.enqueue("tests.chaos_agents:clocked", count=10, steps=STEPS, gates=[1])
    for run in runs:
        await bench.lease(run)
    await bench.waiting("1")
    seen = {float(effect[-1]) for effect in bench.effects()}
    assert all(abs(at - time.time() - wrong) < 60 for at in seen)  # the shift is there
    peer = bench.worker(environment=off_by(-wrong, bench.folder))
    await peer.says("Worker started")
    begun = await bench.sql.fetchval("SELECT rowlock.now()")
    await eventually(
        lambda: bench.sql.fetchval("SELECT rowlock.now() > $1", begun + 4 * LEASE), "four leases"
    )
    assert {(await bench.lease(run))["epoch"] for run in runs} == {1}  # not taken early
    killed = await bench.sql.fetchval("SELECT rowlock.now()")
    off.signal_group(signal.SIGKILL)
    for run in runs:
        lease = await bench.lease(run, epoch=2)
        assert lease["claimed_at"] - killed < LEASE + timedelta(seconds=2)  # nor late
    bench.open_gate("1")
    await ended_once(bench, runs, steps=STEPS, takeovers=len(runs))
    finals = await bench.sql.fetch("SELECT * FROM rowlock.run_final")
    now = await bench.sql.fetchval("SELECT rowlock.now()")
    for final in finals:
        assert timedelta(0) <= now - final["finished_at"] < timedelta(minutes=1)
        told = msgspec.json.decode(unpack(final["result"]), type=float)
        assert abs(told - time.time() + wrong) < 60  # its last owner was as wrong the other way
        assert final["active_ms"] < 60_000
