"""A lost worker leaks no slot of a cap: what is next starts as soon as the loss is known."""

from __future__ import annotations

import os
import signal

import pytest

from rowlock.states import FinalStatus
from tests.workers import AT_ONCE, LONG, Bench, LocalWorker, bench_fixture, eventually  # noqa: F401


async def a_loop(worker: LocalWorker) -> int:
    """Wait for a loop process of the worker, which may just be replacing it."""

    async def look() -> list[int]:
        return worker.loops()

    return (await eventually(look, "a loop process"))[0]


@pytest.mark.public_bug("rails/solid_queue#546")
@pytest.mark.parametrize("limits", [{"max_running": 1}, {"max_running_per_key": 1}])
async def test_killed_process_of_a_capped_run_frees_its_slot(
    bench: Bench, limits: dict[str, int]
) -> None:
    worker = bench.worker(*LONG)
    [run, waiting] = await bench.enqueue(
        "walker", count=2, steps=3, gates=[1], key="k", limits=limits
    )
    await bench.waiting("1")
    bench.worker(*LONG)
    await bench.claiming(2)
    killed = await bench.sql.fetchval("SELECT rowlock.now()")
    os.kill(worker.loops()[0], signal.SIGKILL)
    lease = await bench.lease(run, epoch=2)
    assert lease["claimed_at"] - killed < AT_ONCE
    assert await bench.sql.fetchval("SELECT count(*) FROM rowlock.run_lease") == 1
    bench.open_gate("1")
    first, second = await bench.final(run), await bench.final(waiting)
    assert (first["status"], second["status"]) == (FinalStatus.SUCCEEDED, FinalStatus.SUCCEEDED)
    assert second["claimed_at"] > first["finished_at"]
    await bench.healthy()


async def test_run_that_may_not_come_back_frees_its_slot_for_the_next(bench: Bench) -> None:
    """The second loss in a row delays the run for seconds; the slot does not wait for it."""
    bench.worker(*LONG)
    [run, waiting] = await bench.enqueue(
        "walker", count=2, steps=1, gates=[0], key="k", limits={"max_running_per_key": 1}
    )
    for epoch in (1, 2):
        await bench.lease(run, epoch=epoch)
        loop = await a_loop(bench.workers[0])
        killed = await bench.sql.fetchval("SELECT rowlock.now()")
        os.kill(loop, signal.SIGKILL)
    lease = await bench.lease(waiting)
    assert "place='timer'" in (await bench.where(run))[0]
    assert lease["claimed_at"] - killed < AT_ONCE
    bench.open_gate("0")
    for each in (run, waiting):
        assert (await bench.final(each))["status"] == FinalStatus.SUCCEEDED
    await bench.healthy()


async def test_many_kills_leave_caps_kept_and_every_run_done(bench: Bench) -> None:
    for _ in range(2):
        bench.worker("--slots", "8")
    runs = await bench.enqueue("ambler", count=30, steps=4, limits={"max_running": 3})
    for kill in range(4):
        await eventually(
            lambda kill=kill: bench.sql.fetchval(
                "SELECT count(*) > $1 FROM rowlock.run_final", 6 * kill
            ),
            "some ends",
        )
        os.kill(await a_loop(bench.workers[kill % 2]), signal.SIGKILL)
        held = await bench.sql.fetchval(
            "SELECT (SELECT count(*) FROM rowlock.run_lease) "
            "+ (SELECT count(*) FROM rowlock.run_ready)"
        )
        assert held <= 3
        await bench.healthy()
    for run in runs:
        assert (await bench.final(run, 60))["status"] == FinalStatus.SUCCEEDED
    await bench.healthy()
