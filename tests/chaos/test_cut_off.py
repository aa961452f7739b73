"""A worker that is cut off from PostgreSQL: it begins nothing, loses its runs, and leaves."""

from __future__ import annotations

import asyncio
import time

import pytest

from rowlock.states import FenceReason
from tests.proofs import ended_once
from tests.wire import wire_to
from tests.workers import Bench, LocalWorker, bench_fixture, eventually  # noqa: F401

RUNS = 12
STEPS = 60
LEASE = 1.5
AGENT = "tests.chaos_agents:stamped"


def began(bench: Bench, *, by: set[str]) -> list[float]:
    """Return when effects began in some processes, in seconds of the monotonic clock."""
    return [float(at) for _, _, _, pid, at in bench.effects() if pid in by]


def loops(worker: LocalWorker) -> set[str]:
    """Return the process ids of its loops as its effects show them."""
    return {str(pid) for pid in worker.loops()}


async def test_a_worker_cut_off_begins_no_effect_and_is_fenced_and_leaves(bench: Bench) -> None:
    async with wire_to(bench.dsn) as wire:
        lonely = bench.worker(environment={"ROWLOCK_DATABASE_URL": wire.url})
        runs = await bench.enqueue(AGENT, count=RUNS, steps=STEPS)
        for run in runs:
            await bench.lease(run)
        peer = bench.worker()
        await peer.says("Worker started")
        first = loops(lonely)
        wire.cut()
        cut = time.monotonic()
        fenced = await eventually(
            lambda: bench.sql.fetchval(
                "SELECT fence_reason FROM rowlock.worker WHERE fenced_at IS NOT NULL"
            ),
            "the fence",
        )
        noticed = time.monotonic()
        assert fenced == FenceReason.LEASE_EXPIRED
        for run in runs:
            await bench.lease(run, epoch=2)
        late = [at for at in began(bench, by=first) if at > cut + LEASE]
        assert late == []  # long before anybody could take its runs
        wire.mend()
        await lonely.says("A loop process is fenced|This worker is fenced")
        await eventually(
            lambda: asyncio.sleep(0, loops(lonely) and not loops(lonely) & first),
            "the end of its loop and a new one",
        )
        await ended_once(bench, runs, steps=STEPS, takeovers=RUNS)
        assert max(began(bench, by=first)) < noticed
        assert lonely.process.poll() is None
        assert peer.process.poll() is None


@pytest.mark.public_bug("PrefectHQ/prefect#18893")
async def test_an_outage_of_half_a_lease_stops_no_run_and_takes_none_over(bench: Bench) -> None:
    """Renewals fail and are tried again; nobody takes one failed renewal for a death."""
    async with wire_to(bench.dsn) as wire:
        environment = {"ROWLOCK_DATABASE_URL": wire.url}
        flags = ("--lease-seconds", "6", "--renew-seconds", "0.5")
        cut_off = bench.worker(*flags, environment=environment)
        bench.worker(*flags)
        runs = await bench.enqueue(AGENT, count=RUNS, steps=STEPS)
        for run in runs:
            await bench.lease(run)
        wire.cut()
        await cut_off.says('"beat".*PostgreSQL did not answer')
        await bench.sql.execute("SELECT pg_sleep(3)")  # by the clock that judges leases
        wire.mend()
        await ended_once(bench, runs, steps=STEPS, takeovers=0)
