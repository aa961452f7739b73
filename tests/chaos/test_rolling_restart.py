"""All workers are replaced one after the other under load: hand-overs, no loss, every run once."""

from __future__ import annotations

import signal

import pytest

from rowlock.states import EventKind
from tests.proofs import ended_once
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

RUNS = 200
STEPS = 30
LEASE = ("--lease-seconds", "9", "--renew-seconds", "1", "--drain-seconds", "60")
#: Few, so that every worker finds something to claim at any time.
FEW = ("--slots", "8")


async def in_the_middle(bench: Bench, *, ended: int) -> None:
    """Wait until work has begun, and so many runs more have ended."""
    await eventually(
        lambda: bench.sql.fetchval("SELECT count(*) >= $1 FROM rowlock.run_final", ended),
        f"{ended} ends",
        within=60,
    )


async def test_a_rolling_restart_of_all_workers_hands_over_and_loses_nothing(
    bench: Bench,
) -> None:
    runs = await bench.enqueue("ambler", count=60, steps=STEPS)
    old = [bench.worker(*LEASE, *FEW, "--instance", f"old-{number}") for number in range(3)]
    for number, leaving in enumerate(old):
        started = bench.worker(*LEASE, *FEW)
        await started.says("Worker started")
        runs += await bench.enqueue("ambler", count=80, steps=STEPS)
        await eventually(
            lambda number=number: bench.sql.fetchval(  # type: ignore[misc]
                "SELECT EXISTS (SELECT FROM rowlock.run_lease l JOIN rowlock.worker w "
                "USING (worker_id) WHERE w.instance LIKE $1)",
                f"old-{number}/%",
            ),
            "a run of the leaving worker",
        )
        leaving.process.send_signal(signal.SIGTERM)
        assert await leaving.ends() == 0
    await ended_once(bench, runs, steps=STEPS, takeovers=0, repeats=0, within=90)
    handed = await bench.sql.fetchval(
        "SELECT count(*) FROM rowlock.run_event WHERE kind = $1", EventKind.HANDED_OVER
    )
    assert handed > 0
    left = "SELECT count(*) FROM rowlock.worker WHERE fence_reason = 'Left'"
    assert await bench.sql.fetchval(left) == 3


@pytest.mark.public_bug("dbos-inc/dbos-transact-py#804")
async def test_two_workers_of_one_name_share_the_work_and_strand_none(bench: Bench) -> None:
    """A successor starts under the same name while its predecessor still runs.

    It takes the first one for an earlier boot of its own and fences it,
    so nobody can be mistaken for the other; the first goes on under new ids.
    """
    runs = await bench.enqueue("ambler", count=RUNS, steps=STEPS)
    first = bench.worker(*LEASE, "--instance", "web-0")
    await in_the_middle(bench, ended=1)
    second = bench.worker(*LEASE, "--instance", "web-0")
    await first.says("A loop process is fenced|This worker is fenced")
    await in_the_middle(bench, ended=20)
    first.process.send_signal(signal.SIGTERM)
    assert await first.ends() == 0
    await ended_once(bench, runs, steps=STEPS, within=90)
    assert second.process.poll() is None
    ids = await bench.sql.fetch("SELECT worker_id FROM rowlock.worker WHERE fenced_at IS NULL")
    assert len(ids) == 1
