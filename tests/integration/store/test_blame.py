"""What is put down to each run of a lost worker, and what follows: a limit, a wait, quarantine."""

from __future__ import annotations

import asyncio

import pytest

from rowlock.states import Blame, EventKind, FenceReason, Place
from rowlock.store import changes, intake, queue, work, workers
from rowlock.store.types import Claimed, Fenced, RunId, WorkerId
from tests.integration.store.world import World, failure

DEATHS = [FenceReason.WORKER_DIED, FenceReason.STALLED]
SILENT = [FenceReason.LEASE_EXPIRED, FenceReason.WORKER_DELETED, FenceReason.NODE_LOST]


async def died(
    world: World,
    worker: WorkerId,
    on_loop: RunId | None = None,
    *,
    reason: FenceReason = FenceReason.WORKER_DIED,
) -> Fenced:
    """Let a worker's process end with the code of `on_loop` on its event loop."""
    seen = {} if on_loop is None else {worker: on_loop}
    return await workers.fence(world.store, [worker], reason=reason, on_loop=seen)


async def alone(world: World, worker: WorkerId | None = None) -> list[Claimed]:
    """Claim as a process of quarantine does."""
    worker = worker or await world.worker(quarantine=True)
    token = await world.value("SELECT nextval('rowlock.revision_seq')")
    claimed = await work.claim_alone(world.store, worker=worker, pool=world.pool, token=token)
    assert claimed is not None
    return claimed


async def suspect(world: World, runs: int = 3) -> list[RunId]:
    """Return runs that two processes died with, and nobody knows why."""
    ids = await world.enqueue(runs, max_takeovers=1)
    for _ in range(2):
        worker = await world.worker()
        assert len(await world.claim(worker)) == runs
        assert len((await died(world, worker)).suspected) == runs
    return ids


async def counts(world: World, run: RunId) -> tuple[int, int, int, bool]:
    """Return takeovers, blamed, suspected, quarantined of a live run."""
    [row] = await world.sql("SELECT * FROM rowlock.run_live WHERE run_id = $1", run)
    return row["takeovers"], row["blamed"], row["suspected"], row["quarantined"]


# -------------------------------------------------------------------- whose fault


@pytest.mark.parametrize("reason", DEATHS)
async def test_the_run_on_the_loop_is_to_blame_and_the_others_are_displaced(
    world: World, reason: FenceReason
) -> None:
    worker, runs = await world.running(4, linked=True)
    bad, *others = [run.run_id for run in runs]
    fenced = await died(world, worker, bad, reason=reason)
    assert fenced.blamed == (bad,)
    assert set(fenced.displaced) == set(others)
    assert (fenced.suspected, fenced.quarantined) == ((), ())
    assert await counts(world, bad) == (1, 1, 1, False)
    for other in others:
        assert await counts(world, other) == (1, 0, 0, False)
        assert await world.changes(other) == [1, 2, 3]
    await world.sound()
    by_id = {run.run_id: run for run in await world.claim(await world.worker())}
    assert by_id[bad].carry[-1].blame == Blame.BLAMED
    for other in others:
        again = by_id[other]
        assert (again.epoch, again.takeovers, again.blamed, again.suspected) == (2, 1, 0, 0)
        [entry] = again.carry
        assert (entry.event, entry.reason) == (EventKind.TAKEN_OVER, reason)
        assert entry.blame == Blame.DISPLACED


@pytest.mark.parametrize("reason", DEATHS)
@pytest.mark.parametrize("seen", [None, 12345])
async def test_where_nobody_saw_the_run_all_are_suspects(
    world: World, reason: FenceReason, seen: int | None
) -> None:
    """Nor is a run believed that the worker does not hold: the board may be torn."""
    worker, runs = await world.running(3)
    on_loop = None if seen is None else RunId(seen)
    fenced = await died(world, worker, on_loop, reason=reason)
    assert set(fenced.suspected) == {run.run_id for run in runs}
    assert (fenced.blamed, fenced.displaced, fenced.quarantined) == ((), (), ())
    for run in runs:
        assert await counts(world, run.run_id) == (1, 0, 1, False)


@pytest.mark.parametrize("reason", [*DEATHS, *SILENT])
async def test_a_run_that_was_alone_is_to_blame(world: World, reason: FenceReason) -> None:
    worker, [run] = await world.running()
    assert (await died(world, worker, reason=reason)).blamed == (run.run_id,)


@pytest.mark.parametrize("reason", SILENT)
async def test_a_silent_loss_counts_once_for_all_and_makes_nobody_a_suspect(
    world: World, reason: FenceReason
) -> None:
    worker, runs = await world.running(3)
    fenced = await died(world, worker, reason=reason)
    assert set(fenced.blamed) == {run.run_id for run in runs}
    for run in runs:
        assert await counts(world, run.run_id) == (1, 1, 0, False)


async def test_a_whole_worker_that_died_has_suspects_in_each_of_its_processes(world: World) -> None:
    first = await world.worker(instance="pod/main/0")
    second = await world.worker(instance="pod/main/1")
    [one, two] = await world.enqueue(2)
    assert len(await world.claim(first, 1)) == len(await world.claim(second, 1)) == 1
    fenced = await workers.fence_instance(world.store, instance="pod/main")
    assert set(fenced.suspected) == {one, two}


async def test_a_hand_over_puts_nothing_down_to_anybody(world: World) -> None:
    worker, runs = await world.running(2)
    fenced = await workers.leave(world.store, worker)
    assert (fenced.blamed, fenced.displaced, fenced.suspected) == ((), (), ())
    assert await counts(world, runs[0].run_id) == (0, 0, 0, False)


# -------------------------------------------------------------------- the limit and the wait


async def test_displaced_runs_never_reach_the_limit_nor_wait(world: World) -> None:
    [bad, good] = await world.enqueue(2, max_takeovers=1)
    for _ in range(2):
        worker = await world.worker()
        await world.claim(worker)
        assert good in (await died(world, worker, bad)).requeued
        await world.sql("UPDATE rowlock.run_timer SET due_at = rowlock.now()")
        await intake.wake_due(world.store)
    assert await world.place(bad) == Place.FINAL
    final = await world.final(bad)
    assert (final["reason"], final["takeovers"]) == ("TakeoverLimitReached", 2)
    assert final["message"] == "2 losses of its worker are put down to it, maxTakeovers is 1"
    assert await counts(world, good) == (2, 0, 0, False)


async def test_the_second_loss_that_counts_waits_and_those_before_do_not(world: World) -> None:
    [bad, good] = await world.enqueue(2)
    for fate in ("requeued", "delayed"):
        worker = await world.worker()
        await world.claim(worker)
        fenced = await died(world, worker, bad)
        assert bad in getattr(fenced, fate)
        assert good in fenced.requeued
    [row] = await world.sql("SELECT due_at - ready_at AS wait, quarantined FROM rowlock.run_timer")
    assert 2.4 <= row["wait"].total_seconds() <= 7.6
    assert row["quarantined"] is True


# -------------------------------------------------------------------- alone


async def test_after_two_unknown_deaths_no_loop_claims_the_run_but_quarantine_does(
    world: World,
) -> None:
    runs = await suspect(world)
    for run in runs:
        assert await counts(world, run) == (2, 0, 2, True)
    assert await world.claim(await world.worker()) == []
    assert await queue.alone_waiting(world.store, world.pool) == (3, 0)
    worker = await world.worker(quarantine=True)
    assert await queue.alone_waiting(world.store, world.pool) == (3, 1)
    [run] = await alone(world, worker)
    assert (run.epoch, run.takeovers, run.blamed, run.suspected) == (3, 2, 0, 2)
    assert await alone(world, worker) == [], "one at a time"
    assert await queue.alone_waiting(world.store, world.pool) == (2, 0)
    await world.finish(worker, [run])
    assert len(await alone(world, worker)) == 1
    await world.sound()


async def test_an_ordinary_worker_cannot_claim_alone(world: World) -> None:
    await suspect(world)
    assert await alone(world, await world.worker()) == []


@pytest.mark.parametrize("reason", [*DEATHS, *SILENT])
async def test_only_losses_in_quarantine_count_from_then_on(
    world: World, reason: FenceReason
) -> None:
    runs = await suspect(world)
    for losses in (1, 2):
        worker = await world.worker(quarantine=True)
        [run] = await alone(world, worker)
        fenced = await died(world, worker, reason=reason)
        assert fenced.blamed == (run.run_id,)
        if losses == 1:
            assert fenced.quarantined == (run.run_id,)
            assert (await counts(world, run.run_id))[:2] == (3, 1)
            await world.sql("UPDATE rowlock.run_ready SET vft = vft + 1000 WHERE blamed = 0")
    assert fenced.failed == (run.run_id,)
    final = await world.final(run.run_id)
    assert (final["reason"], final["takeovers"]) == ("TakeoverLimitReached", 4)
    assert final["message"] == (
        "2 losses of its worker are put down to it (of 4 in all), maxTakeovers is 1"
    )
    left = set(runs) - {run.run_id}
    assert {await counts(world, other) for other in left} == {(2, 0, 2, True)}
    await world.sound()


async def test_a_run_stays_alone_through_retries_waits_caps_and_hand_overs(world: World) -> None:
    runs = await suspect(world, 2)
    worker = await world.worker(quarantine=True)
    [run] = await alone(world, worker)
    await work.release(world.store, worker=worker, runs=[(run.run_id, run.epoch, 0)])
    [run] = await alone(world, worker)
    finals = [failure(run, retry_in=0)]
    await work.finish(world.store, worker=worker, events=[], finals=finals)
    await intake.wake_due(world.store)
    await world.cap(max_running=1)
    await world.promote()
    assert await world.claim(await world.worker()) == []
    for one in runs:
        assert (await counts(world, one))[1:] == (0, 2, True)
    [again] = await alone(world, worker)
    await world.finish(worker, [again])
    await world.promote()
    [other] = await alone(world, worker)
    assert {again.run_id, other.run_id} == set(runs)


async def test_a_cancel_meets_a_run_that_waits_to_be_alone(world: World) -> None:
    [run, *_] = await suspect(world)
    assert await intake.request_cancel(world.store, [run], by="ada") == [run]
    assert await queue.alone_waiting(world.store, world.pool) == (2, 0)


@pytest.mark.parametrize(("suspected", "seconds"), [(2, 30), (3, 60), (5, 240), (300, 30720)])
async def test_who_lived_long_enough_alone_goes_back_among_the_others(
    world: World, suspected: int, seconds: int
) -> None:
    [run] = (await suspect(world))[:1]
    await world.sql("UPDATE rowlock.run_ready SET suspected = $1", suspected)
    await world.sql("UPDATE rowlock.run_ready SET vft = vft + 1000 WHERE run_id <> $1", run)
    worker = await world.worker(quarantine=True)
    for lived, cleared in ((seconds - 5, False), (seconds + 5, True)):
        [held] = await alone(world, worker)
        assert held.run_id == run
        await world.later(lived)
        await work.release(world.store, worker=worker, runs=[(run, held.epoch, 0)])
        assert await counts(world, run) == (2, 0, suspected, not cleared)
    [back] = await world.claim(await world.worker())
    assert back.run_id == run
    await world.sound()


async def test_a_cleared_run_is_alone_again_after_one_more_unknown_death(world: World) -> None:
    [run, other] = await suspect(world, 2)
    await world.sql("UPDATE rowlock.run_ready SET quarantined = false")
    worker = await world.worker()
    await world.claim(worker)
    fenced = await died(world, worker)
    assert set(fenced.quarantined) == {run, other}
    assert await counts(world, run) == (3, 0, 3, True)


async def test_displacement_alone_never_leads_into_quarantine(world: World) -> None:
    [run, other] = await suspect(world, 2)
    await world.sql("UPDATE rowlock.run_ready SET quarantined = false")
    worker = await world.worker()
    await world.claim(worker)
    fenced = await died(world, worker, other)
    assert fenced.quarantined == (other,)
    assert await counts(world, run) == (3, 0, 2, False)


# -------------------------------------------------------------------- what people see


async def test_a_snapshot_says_that_a_run_waits_to_be_alone_and_what_counts(world: World) -> None:
    worker, runs = await world.running(2, linked=True)
    await died(world, worker, runs[0].run_id)
    snapshots = await changes.snapshots(world.store, [run.run_id for run in runs])
    seen = [(snapshots[run.run_id].takeovers, snapshots[run.run_id].blamed) for run in runs]
    assert seen == [(1, 1), (1, 0)]
    await world.sql("UPDATE rowlock.run_ready SET quarantined = true")
    [one] = (await changes.snapshots(world.store, [runs[0].run_id])).values()
    assert (one.place, one.quarantined) == (Place.READY, True)


async def test_quarantine_is_demand_and_no_capacity(world: World) -> None:
    await suspect(world)
    await world.enqueue(2)
    await world.worker(quarantine=True)
    [pool] = await changes.pool_demand(world.store)
    assert (pool.claimable, pool.quarantined) == (5, 3)
    assert pool.workers == 0, "nobody is there for the others"
    await world.worker()
    [pool] = await changes.pool_demand(world.store)
    assert pool.workers == 1


async def test_the_view_names_those_to_look_at_and_no_bystander(world: World) -> None:
    [bad, good] = await world.enqueue(2)
    for _ in range(2):
        worker = await world.worker()
        await world.claim(worker)
        await died(world, worker, bad)
    [row] = await world.sql("SELECT * FROM rowlock.repeat_takeovers")
    assert (row["run_id"], row["blamed"], row["suspected"]) == (bad, 2, 2)
    assert (row["quarantined"], row["place"]) == (True, "timer")
    assert (await counts(world, good))[0] == 2


# -------------------------------------------------------------------- unknown commits


async def test_a_fence_that_is_repeated_judges_once(world: World) -> None:
    worker, runs = await world.running(3)
    bad = runs[0].run_id
    first = await died(world, worker, bad)
    assert len(first.displaced) == 2
    assert await died(world, worker, bad) == Fenced()
    assert await counts(world, bad) == (1, 1, 1, False)


async def test_a_stranded_lease_is_judged_by_what_the_fence_had_seen(world: World) -> None:
    worker, runs = await world.running(3)
    bad = runs[0].run_id
    await world.store.fetch("fence", [worker], "WorkerDied", [bad])
    reaped = await workers.reap(world.store, gap_seconds=60)
    assert reaped.fenced.blamed == (bad,)
    assert len(reaped.fenced.displaced) == 2


async def test_a_lost_answer_of_a_claim_is_adopted_and_nothing_beside_it(world: World) -> None:
    await suspect(world)
    worker = await world.worker(quarantine=True)
    [lost] = await alone(world, worker)
    adopted = await work.adopt(world.store, worker=worker, token=10**9, known=[])
    assert adopted == [lost]
    late = await work.claim_alone(world.store, worker=worker, pool=world.pool, token=10**9)
    assert late == []


async def test_the_fence_waits_for_a_claim_and_judges_what_it_leased(world: World) -> None:
    [run] = (await suspect(world))[:1]
    worker = await world.worker(quarantine=True)
    fencer = await world.connect()
    async with world.holding(
        "SELECT FROM rowlock.worker WHERE worker_id = $1 FOR SHARE", worker
    ) as claimer:
        fencing = asyncio.ensure_future(
            workers.fence(fencer, [worker], reason=FenceReason.WORKER_DIED)
        )
        await world.blocked(fencer)
        await claimer.execute(
            "INSERT INTO rowlock.run_lease SELECT q.*, $1, 1, now() FROM rowlock.run_ready q "
            "WHERE run_id = $2",
            worker,
            run,
        )
        await claimer.execute("DELETE FROM rowlock.run_ready WHERE run_id = $1", run)
    fenced = await fencing
    assert (fenced.blamed, fenced.quarantined) == ((run,), (run,))
    await world.sound()
