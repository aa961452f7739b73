"""A dead worker's runs go to others, each with its story; a fenced worker never writes again."""

from __future__ import annotations

import asyncio

import pytest

from rowlock.states import EventKind, FenceReason
from rowlock.store import changes, intake, work, workers
from rowlock.store.types import Beat, Fenced, NewWorker, WorkerId
from tests.integration.store.world import World, end, step

LOSSES = [reason for reason in FenceReason if reason is not FenceReason.LEFT]


async def test_workers_are_registered_in_order_with_ids_never_used_before(world: World) -> None:
    new = [NewWorker(world.pool, f"pod/{n}", "pod", n, "b", 15, "uid", "node") for n in range(20)]
    first = await workers.register(world.store, new)
    second = await workers.register(world.store, new)
    rows = await world.sql("SELECT worker_id, pid FROM rowlock.worker ORDER BY worker_id")
    assert [(row[0], row[1]) for row in rows] == [
        *zip(first, range(20), strict=True),
        *zip(second, range(20), strict=True),
    ]
    assert await workers.register(world.store, []) == []


async def test_beat_answers_with_those_that_may_go_on(world: World) -> None:
    alive, dead = await world.worker(), await world.worker()
    await workers.fence(world.store, [dead], reason=FenceReason.STALLED)
    beats = [Beat(worker, 8, 3, 2, False) for worker in (alive, dead, WorkerId(10**12))]
    assert await workers.beat(world.store, beats) == {alive}
    assert await workers.beat(world.store, []) == set()
    [row] = await world.sql("SELECT * FROM rowlock.worker_live WHERE worker_id = $1", alive)
    assert (row["slots"], row["running"], row["lag_ms"], row["draining"]) == (8, 3, 2, False)


@pytest.mark.parametrize("reason", LOSSES)
async def test_first_loss_puts_the_run_back_at_once_with_its_story(
    world: World, reason: FenceReason
) -> None:
    worker, [run] = await world.running(linked=True, key="k", priority=4)
    fenced = await workers.fence(world.store, [worker], reason=reason)
    assert fenced == Fenced((worker,), requeued=(run.run_id,), blamed=(run.run_id,))
    assert await world.changes(run.run_id) == [1, 2, 3]
    await world.sound()
    [again] = await world.claim(await world.worker())
    assert (again.epoch, again.attempt, again.takeovers, again.key) == (2, 1, 1, "k")
    [entry] = again.carry
    assert (entry.event, entry.epoch, entry.attempt) == (EventKind.TAKEN_OVER, 1, 1)
    assert (entry.reason, entry.claimed_at) == (reason, run.claimed_at)
    assert entry.worker == await world.value(
        "SELECT name FROM rowlock.worker WHERE worker_id = $1", worker
    )


async def test_graceful_leave_hands_over_and_counts_nothing(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    assert await workers.leave(world.store, worker) == Fenced((worker,), requeued=(run.run_id,))
    assert await world.changes(run.run_id) == [1, 2, 5]
    [again] = await world.claim(await world.worker())
    assert (again.takeovers, again.epoch) == (0, 2)
    assert [(e.event, e.reason) for e in again.carry] == [(EventKind.HANDED_OVER, "Left")]


async def test_second_loss_waits_five_seconds_give_or_take_half_and_doubles_up_to_five_minutes(
    world: World,
) -> None:
    waits: dict[int, list[float]] = {}
    runs = await world.enqueue(20, max_takeovers=100)
    for losses in range(1, 10):
        worker = await world.worker()
        assert len(await world.claim(worker)) == len(runs)
        fenced = await workers.fence(world.store, [worker], reason=FenceReason.LEASE_EXPIRED)
        assert len(fenced.delayed if losses > 1 else fenced.requeued) == len(runs)
        rows = await world.sql("SELECT due_at - ready_at AS wait, reason FROM rowlock.run_timer")
        waits[losses] = [row["wait"].total_seconds() for row in rows]
        assert {row["reason"] for row in rows} <= {1}
        await world.sql("UPDATE rowlock.run_timer SET due_at = rowlock.now()")
        await intake.wake_due(world.store)
    assert waits.pop(1) == []
    for losses, seen in waits.items():
        middle = min(300, 5 * 2 ** (losses - 2))
        assert all(middle * 0.5 <= wait <= middle * 1.5 for wait in seen)
        assert max(seen) - min(seen) > middle * 0.1, "no jitter"
    await world.sound()


@pytest.mark.parametrize("limit", [0, 1, 3])
async def test_one_loss_too_many_ends_the_run(world: World, limit: int) -> None:
    [run] = await world.enqueue(linked=True, max_takeovers=limit)
    await world.lose(run, limit)
    worker = await world.worker()
    await world.claim(worker)
    fenced = await workers.fence(world.store, [worker], reason=FenceReason.WORKER_DIED)
    assert fenced.failed == (run,)
    final = await world.final(run)
    assert (final["status"], final["reason"]) == (2, "TakeoverLimitReached")
    assert (final["takeovers"], final["epoch"]) == (limit + 1, limit + 1)
    assert final["worker_id"] == worker
    assert (await world.changes(run))[-1] == 9
    snapshot = (await changes.snapshots(world.store, [run]))[run]
    assert snapshot.carry[-1].reason == FenceReason.WORKER_DIED
    await world.sound()


async def test_active_time_adds_up_over_takeovers_and_stands_still_in_between(world: World) -> None:
    worker, _ = await world.running()
    await world.later(100)
    await workers.fence(world.store, [worker], reason=FenceReason.NODE_LOST)
    await world.later(1000)
    other = await world.worker()
    [second] = await world.claim(other)
    assert 100_000 <= second.active_ms < 110_000
    await world.later(7)
    await workers.fence(world.store, [other], reason=FenceReason.NODE_LOST)
    await world.later(60)
    await intake.wake_due(world.store)
    [third] = await world.claim(await world.worker())
    assert 107_000 <= third.active_ms < 125_000


async def test_booting_supervisor_fences_only_earlier_boots_of_its_own(world: World) -> None:
    old = [await world.worker(instance=f"pod-1/main/{n}") for n in range(2)]
    new = [await world.worker(instance=f"pod-1/main/{n}") for n in range(2)]
    others = [
        await world.worker(instance=name)
        for name in ("pod-1/main2/0", "pod-1/mainX", "pod-1/main", "pod-2/main/0", "pod-1/main.x/0")
    ]
    fenced = await workers.fence_instance(world.store, instance="pod-1/main", except_ids=new)
    assert set(fenced.workers) == set(old)
    assert await workers.beat(
        world.store, [Beat(w, 0, 0, 0, False) for w in (*old, *new, *others)]
    ) == {*new, *others}
    assert (
        await workers.fence_instance(world.store, instance="pod-1/main", except_ids=new)
    ) == Fenced()


async def test_pods_that_are_gone_are_fenced_with_all_their_workers(world: World) -> None:
    gone = [await world.worker(pod="uid-1") for _ in range(2)]
    await world.worker(pod="uid-2")
    await world.worker()
    fenced = await workers.fence_pods(
        world.store, ["uid-1", "unknown"], reason=FenceReason.WORKER_DELETED
    )
    assert sorted(fenced.workers) == gone
    assert await workers.fence_pods(world.store, [], reason=FenceReason.NODE_LOST) == Fenced()


async def test_fencing_twice_is_fencing_once(world: World) -> None:
    worker, [run] = await world.running()
    await workers.fence(world.store, [worker], reason=FenceReason.NODE_LOST)
    assert await workers.fence(world.store, [worker], reason=FenceReason.STALLED) == Fenced()
    assert await workers.fence(world.store, [], reason=FenceReason.STALLED) == Fenced()
    reason = "SELECT fence_reason FROM rowlock.worker WHERE worker_id = $1"
    assert await world.value(reason, worker) == "NodeLost"
    assert await world.place(run.run_id) == "ready"


async def test_known_death_waits_for_what_the_worker_is_writing(world: World) -> None:
    worker, [run] = await world.running()
    fencer = await world.connect()
    async with world.store.transaction():
        await work.append(world.store, worker=worker, events=[step(run, 1)])
        fencing = asyncio.create_task(
            workers.fence(fencer, [worker], reason=FenceReason.WORKER_DIED)
        )
        await world.blocked(fencer)
    assert (await fencing).requeued == (run.run_id,)
    assert len(await work.history(world.store, run.run_id)) == 1
    await world.sound()


async def test_write_that_meets_a_fence_under_way_is_refused(world: World) -> None:
    worker, [run] = await world.running()
    [waiting] = await world.enqueue()
    writer, claimer, finisher, beater = [await world.connect() for _ in range(4)]
    async with world.store.transaction():
        await workers_fence_inside(world, worker)
        appending = asyncio.create_task(work.append(writer, worker=worker, events=[step(run, 1)]))
        claiming = asyncio.create_task(
            work.claim(claimer, worker=worker, pool=world.pool, token=99, limit=1)
        )
        finishing = asyncio.create_task(
            work.finish(finisher, worker=worker, events=[], finals=[end(run)])
        )
        beating = asyncio.create_task(workers.beat(beater, [Beat(worker, 1, 1, 1, False)]))
        await world.blocked(writer, claimer, finisher, beater)
    assert (await appending).fenced
    assert await claiming is None
    assert (await finishing).fenced
    assert await beating == set()
    assert await world.places([run.run_id, waiting]) == {"ready"}
    assert await world.count("run_event") == 0
    await world.sound()


async def test_claim_that_commits_while_the_fence_waits_strands_nothing(world: World) -> None:
    [run] = await world.enqueue()
    worker = await world.worker()
    fencer = await world.connect()
    async with world.store.transaction():
        [claimed] = await world.claim(worker)
        fencing = asyncio.create_task(
            workers.fence(fencer, [worker], reason=FenceReason.WORKER_DIED)
        )
        await world.blocked(fencer)
    assert claimed.run_id == run
    assert (await fencing).requeued == (run,)
    await world.sound()


async def test_two_fencers_of_the_same_workers_take_turns(world: World) -> None:
    dead = [await world.worker() for _ in range(20)]
    for worker in dead:
        await world.running(2, worker=worker)
    one, two = await world.connect(), await world.connect()
    fenced = await asyncio.gather(
        workers.fence(one, dead, reason=FenceReason.NODE_LOST),
        workers.fence(two, dead[::-1], reason=FenceReason.WORKER_DELETED),
    )
    assert sorted([*fenced[0].workers, *fenced[1].workers]) == dead
    assert len({*fenced[0].requeued, *fenced[1].requeued}) == 40
    await world.sound()


async def workers_fence_inside(world: World, worker: WorkerId) -> None:
    """Run the two statements of a fence in the caller's open transaction."""
    await world.store.fetch("fence", [worker], "WorkerDied", [None])
    await world.store.fetch("move_leases", [worker])
