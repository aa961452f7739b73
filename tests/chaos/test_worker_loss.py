"""What becomes of runs whose worker is lost, frozen, stuck or told to leave; by real signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import msgspec
import pytest

from rowlock.states import EventKind, FenceReason, FinalStatus
from rowlock.store.types import RunId
from tests.conftest import on_database
from tests.workers import AT_ONCE, LONG, Bench, bench_fixture, eventually  # noqa: F401


def is_running(pid: int) -> bool:
    """Does the process exist, and not as a zombie?"""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and ") Z " not in status.read_text()


async def taken_over(bench: Bench, run: RunId) -> dict[str, object]:
    """Return the body of the run's only takeover."""
    bodies = [
        row["body"] for row in await bench.history(run) if row["kind"] == EventKind.TAKEN_OVER
    ]
    [body] = bodies
    return msgspec.json.decode(body, type=dict[str, object])


async def lost_at(bench: Bench, reason: FenceReason) -> object:
    """Wait until a worker is fenced for `reason`; return when."""
    return await eventually(
        lambda: bench.sql.fetchval(
            "SELECT fenced_at FROM rowlock.worker WHERE fence_reason = $1", reason.value
        ),
        f"a worker fenced for {reason}",
    )


@contextlib.asynccontextmanager
async def database_away(bench: Bench) -> AsyncIterator[None]:
    """Cut the workers off from their database, and nobody else."""
    name = await bench.sql.fetchval("SELECT current_database()")
    admin = await asyncpg.connect(on_database(bench.dsn, "postgres"))
    await admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = $1 AND application_name LIKE 'rowlock%/0%'"
        "   OR datname = $1 AND application_name ~ 'beats|control|upkeep'",
        name,
    )
    yield
    await admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    await admin.close()


async def test_a_killed_loop_process_loses_nothing_and_its_runs_go_on_at_once(bench: Bench) -> None:
    worker = bench.worker(*LONG)
    [run] = await bench.enqueue("walker", steps=4, gates=[2])
    await bench.waiting("2")
    peer = bench.worker(*LONG)
    await peer.says("Worker started")
    [loop] = worker.loops()
    killed = await bench.sql.fetchval("SELECT rowlock.now()")
    os.kill(loop, signal.SIGKILL)
    lease = await bench.lease(run, epoch=2)
    assert lease["claimed_at"] - killed < AT_ONCE
    bench.open_gate("2")
    final = await bench.final(run)
    assert (final["status"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 1)
    assert (await taken_over(bench, run))["reason"] == FenceReason.WORKER_DIED
    done = [effect[1] for effect in bench.effects()]
    assert done == ["step-0", "step-1", "step-2", "step-2", "step-3"]  # step-2 was not recorded
    await bench.healthy()
    await worker.says("A loop process ended")
    replacement = await eventually(lambda: asyncio.sleep(0, worker.loops()), "its replacement")
    assert replacement != [loop]


async def test_an_effect_done_before_the_crash_is_repeated_under_the_same_call_id(
    bench: Bench,
) -> None:
    worker = bench.worker()
    [run] = await bench.enqueue("payer", gates=[0])
    await bench.waiting("0")  # it has paid, and has not recorded that
    os.kill(worker.loops()[0], signal.SIGKILL)
    await bench.lease(run, epoch=2)
    bench.open_gate("0")
    assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED
    asked = {effect[2] for effect in bench.effects()}
    assert len(bench.effects()) == 2
    assert len(asked) == 1
    assert len(list(bench.folder.glob("payment-*"))) == 1
    await bench.healthy()


async def test_a_killed_worker_is_taken_over_after_its_lease(bench: Bench) -> None:
    worker = bench.worker()
    [run] = await bench.enqueue("walker", steps=3, gates=[1])
    await bench.waiting("1")
    peer = bench.worker()
    await peer.says("Worker started")
    killed = await bench.sql.fetchval("SELECT rowlock.now()")
    worker.signal_group(signal.SIGKILL)
    lease = await bench.lease(run, epoch=2)
    assert lease["claimed_at"] - killed < timedelta(seconds=1.5) + AT_ONCE
    bench.open_gate("1")
    assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED
    assert (await taken_over(bench, run))["reason"] == FenceReason.LEASE_EXPIRED
    line = json.loads(await peer.says("Run taken over from a worker that stopped responding"))
    assert (line["run"], line["agent"], line["count"], line["step"]) == (str(run), "walker", 1, 1)
    assert (line["from"], line["to"], line["level"]) == (
        (await taken_over(bench, run))["from"],
        final_worker(await bench.final(run)),
        "warning",
    )
    await bench.healthy()


def final_worker(final: object) -> object:
    """Return the name of the worker that wrote the end."""
    return final["worker"]  # type: ignore[index]


async def test_loops_die_with_their_supervisor(bench: Bench) -> None:
    worker = bench.worker()
    await bench.final((await bench.enqueue("walker"))[0])
    [loop] = worker.loops()
    os.kill(worker.pid, signal.SIGKILL)

    await eventually(lambda: asyncio.sleep(0, not is_running(loop)), "the end of the loop process")


@pytest.mark.public_bug("procrastinate-org/procrastinate#1518")
async def test_a_restarted_worker_takes_over_from_its_own_earlier_boot_at_once(
    bench: Bench,
) -> None:
    first = bench.worker(
        "--instance", "pod-1/worker", "--lease-seconds", "600", "--renew-seconds", "5"
    )
    [run] = await bench.enqueue("walker", steps=3, gates=[1])
    await bench.waiting("1")
    first.signal_group(signal.SIGKILL)
    await first.ends()
    bench.worker("--instance", "pod-1/worker")
    await bench.lease(run, epoch=2)
    bench.open_gate("1")
    assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED
    assert (await taken_over(bench, run))["reason"] == FenceReason.WORKER_DIED
    await bench.healthy()


async def test_a_frozen_worker_that_wakes_up_can_no_longer_write(bench: Bench) -> None:
    frozen = bench.worker()
    runs = await bench.enqueue("walker", count=5, steps=3, gates=[1])
    await bench.waiting("1")
    for run in runs:
        await bench.lease(run)
    frozen.signal_group(signal.SIGSTOP)
    peer = bench.worker()
    for run in runs:
        await bench.lease(run, epoch=2)
    owners = {(await bench.lease(run))["worker_id"] for run in runs}
    bench.open_gate("1")  # both may finish their step now; one of them may write
    frozen.signal_group(signal.SIGCONT)
    for run in runs:
        final = await bench.final(run)
        assert (final["status"], final["worker_id"]) == (FinalStatus.SUCCEEDED, *owners)
        later = [row for row in await bench.history(run) if row["epoch"] >= 2]
        assert [row["seq"] for row in await bench.history(run)] == [1, 2, 3, 4]
        assert [row["kind"] for row in later] == [64, 2, 2]
    await frozen.says("fenced")
    await eventually(
        lambda: bench.sql.fetchval("SELECT count(*) = 2 FROM rowlock.worker_live"),
        "the frozen worker under a new id",
    )
    await bench.healthy()
    assert peer.process.poll() is None


@pytest.mark.public_bug("hatchet-dev/hatchet#322")
async def test_a_loop_that_never_ticks_is_killed_and_fenced_as_stalled(bench: Bench) -> None:
    worker = bench.worker("--stall-ceiling-seconds", "5")  # importing takes the loop, too
    [run] = await bench.enqueue("hog")
    await lost_at(bench, FenceReason.STALLED)
    line = json.loads(await worker.says("does not tick"))
    assert line["run_on_loop"] == str(run)
    bench.open_gate("hog")
    final = await bench.final(run)
    assert (final["status"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 1)
    assert (await taken_over(bench, run))["reason"] == FenceReason.STALLED
    await bench.healthy()


@pytest.mark.public_bug("hatchet-dev/hatchet#322")
async def test_a_loop_blocked_past_its_lease_but_below_the_ceiling_loses_nothing(
    bench: Bench,
) -> None:
    bench.worker("--stall-ceiling-seconds", "60")
    [run] = await bench.enqueue("hog")
    lease = await bench.lease(run)
    await eventually(
        lambda: bench.sql.fetchval(
            "SELECT rowlock.now() > $1::timestamptz + interval '4.5 seconds'", lease["claimed_at"]
        ),
        "three leases",
    )
    bench.open_gate("hog")
    final = await bench.final(run)
    assert (final["status"], final["epoch"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 1, 0)
    assert len(bench.effects()) == 1


async def test_a_stopped_process_group_that_goes_on_in_time_is_not_taken_for_stalled(
    bench: Bench,
) -> None:
    worker = bench.worker(
        "--stall-ceiling-seconds", "1", "--lease-seconds", "600", "--renew-seconds", "1"
    )
    [run] = await bench.enqueue("walker", steps=3, gates=[1])
    await bench.waiting("1")
    stopped = await bench.sql.fetchval("SELECT rowlock.now()")
    worker.signal_group(signal.SIGSTOP)
    await eventually(
        lambda: bench.sql.fetchval(
            "SELECT rowlock.now() > $1::timestamptz + interval '3 seconds'", stopped
        ),
        "three ceilings",
    )
    worker.signal_group(signal.SIGCONT)
    bench.open_gate("1")
    final = await bench.final(run)
    assert (final["status"], final["epoch"]) == (FinalStatus.SUCCEEDED, 1)


async def test_a_drain_hands_over_at_the_next_step_and_counts_no_takeover(bench: Bench) -> None:
    leaving = bench.worker("--drain-seconds", "60")
    [run] = await bench.enqueue("walker", steps=4, gates=[1])
    await bench.waiting("1")
    leaving.process.send_signal(signal.SIGTERM)
    await leaving.says("Draining")
    staying = bench.worker()
    await staying.says("Worker started")
    bench.open_gate("1")
    assert await leaving.ends() == 0
    final = await bench.final(run)
    assert (final["status"], final["epoch"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 2, 0)
    assert [effect[1] for effect in bench.effects()] == ["step-0", "step-1", "step-2", "step-3"]
    pids = [effect[3] for effect in bench.effects()]
    assert pids[0] == pids[1] != pids[2] == pids[3]
    kinds = [row["kind"] for row in await bench.history(run)]
    assert kinds == [2, 2, EventKind.HANDED_OVER, 2, 2]
    assert "stopped responding" not in staying.log
    await bench.healthy()


async def test_a_drain_waits_for_the_effect_of_a_parallel_branch(bench: Bench) -> None:
    leaving = bench.worker("--drain-seconds", "60")
    [run] = await bench.enqueue("branches", gates=[1])
    await bench.waiting("1")
    leaving.process.send_signal(signal.SIGTERM)
    await leaving.says("Draining")
    bench.open_gate("1")
    assert await leaving.ends() == 0
    bench.worker()
    assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED
    assert sorted(effect[1] for effect in bench.effects()) == ["step-0", "step-1", "step-2"]
    await bench.healthy()


async def test_a_drain_does_not_wait_out_a_retry(bench: Bench) -> None:
    leaving = bench.worker("--drain-seconds", "60")
    [run] = await bench.enqueue("flaky")
    await bench.waiting("flaky")
    leaving.process.send_signal(signal.SIGTERM)
    assert await leaving.ends(within=10) == 0
    ready = await bench.sql.fetchrow("SELECT * FROM rowlock.run_ready WHERE run_id = $1", run)
    assert ready is not None
    assert ready["takeovers"] == 0
    await bench.healthy()


async def test_after_the_drain_time_what_is_left_is_handed_over_in_the_middle(bench: Bench) -> None:
    leaving = bench.worker("--drain-seconds", "0.5")
    [run] = await bench.enqueue("walker", steps=3, gates=[1])
    await bench.waiting("1")
    leaving.process.send_signal(signal.SIGTERM)
    assert await leaving.ends() == 0
    bench.open_gate("1")
    bench.worker()
    final = await bench.final(run)
    assert (final["status"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 0)
    await bench.healthy()


async def test_a_second_sigterm_leaves_at_once_and_counts_no_takeover(bench: Bench) -> None:
    leaving = bench.worker("--drain-seconds", "600")
    [run] = await bench.enqueue("hog")  # its loop hears nothing
    await bench.lease(run)
    await eventually(lambda: asyncio.sleep(0, bench.effects()), "the hog on its loop")
    leaving.process.send_signal(signal.SIGTERM)
    await leaving.says("Leaving")
    leaving.process.send_signal(signal.SIGTERM)
    assert await leaving.ends(within=10) == 0
    bench.open_gate("hog")
    bench.worker()
    final = await bench.final(run)
    assert (final["status"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 0)
    await bench.healthy()


async def test_a_stopped_loop_under_a_live_supervisor_is_killed_at_the_ceiling(
    bench: Bench,
) -> None:
    worker = bench.worker("--stall-ceiling-seconds", "5")  # importing takes the loop, too
    [run] = await bench.enqueue("walker", steps=3, gates=[1])
    await bench.waiting("1")
    stopped = await bench.sql.fetchval("SELECT rowlock.now()")
    os.kill(worker.loops()[0], signal.SIGSTOP)
    lease = await bench.lease(run, epoch=2)
    assert lease["claimed_at"] - stopped < timedelta(seconds=5) + AT_ONCE
    bench.open_gate("1")
    final = await bench.final(run)
    assert (final["status"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 1)
    assert (await taken_over(bench, run))["reason"] == FenceReason.STALLED
    await bench.healthy()


async def test_a_worker_whose_database_is_away_holds_its_runs_and_leaves_when_told(
    bench: Bench,
) -> None:
    """A drain without a database ends after its time; the runs are taken over by their lease."""
    leaving = bench.worker("--drain-seconds", "0.5")
    [run] = await bench.enqueue("walker", steps=3, gates=[1])
    await bench.waiting("1")
    async with database_away(bench):
        bench.open_gate("1")
        leaving.process.send_signal(signal.SIGTERM)
        assert await leaving.ends() == 1
    bench.worker()
    final = await bench.final(run)
    assert (final["status"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 1)
    await bench.healthy()
