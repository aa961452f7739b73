"""What the autoscaler reads, and that a resting worker claims nothing."""

from __future__ import annotations

import asyncio

from rowlock.store import scaling, work, workers
from rowlock.store.types import Beat, NewWorker
from tests.integration.store.world import World


async def read(world: World, *, late_ms: int = 100) -> scaling.PoolSignals:
    [found] = await scaling.pool_signals(world.store, late_ms=late_ms, full_percent=90)
    return found


async def test_an_idle_pool_has_no_signals(world: World) -> None:
    found = await read(world)
    assert (found.demand.claimable, found.demand.running, found.demand.workers) == (0, 0, 0)
    assert (found.oldest_wait, found.free, found.saturated) == (None, 0, 0)
    assert (found.tries, found.refused, found.commit_ms) == (0, 0, 0.0)


async def test_free_slots_are_those_that_can_be_used(world: World) -> None:
    pods = [await world.worker(pod=f"pod-{n}") for n in range(5)]
    quick, late, full, leaving, resting = pods
    beats = [
        Beat(quick, 10, 3, 20, draining=False, tries=7, refused=2, commit_ms=40),
        Beat(late, 10, 4, 101, draining=False, tries=3, refused=1, commit_ms=20),
        Beat(full, 10, 9, 0, draining=False, cpu_percent=91),
        Beat(leaving, 10, 0, 0, draining=True),
        Beat(resting, 10, 0, 0, draining=False),
    ]
    await workers.beat(world.store, beats)
    await scaling.rest_pods(world.store, world.pool, ["pod-4"], seconds=60)
    found = await read(world)
    assert (found.free, found.saturated) == (7, 7)
    assert (found.tries, found.refused, found.commit_ms) == (10, 3, 12.0)
    assert (await read(world, late_ms=10)).saturated == 14


async def test_the_oldest_wait_is_that_of_a_run_that_needs_a_slot(world: World) -> None:
    first, second = await world.enqueue(1), await world.enqueue(1)
    await world.sql(
        "UPDATE rowlock.run_ready SET quarantined = true, ready_at = ready_at - interval '1 hour' "
        "WHERE run_id = $1",
        first[0],
    )
    await world.later(50)
    found = await read(world)
    assert found.oldest_wait is not None
    assert 50 <= found.oldest_wait < 3000
    assert found.demand.claimable == 2
    await world.sql("DELETE FROM rowlock.run_ready WHERE run_id = $1", second[0])
    assert (await read(world)).oldest_wait is None


async def test_a_resting_worker_claims_nothing_until_it_may_again(world: World) -> None:
    busy, other = await world.worker(pod="pod-a"), await world.worker(pod="pod-b")
    await world.enqueue(1)
    [held] = await world.claim(busy)
    await world.enqueue(2)
    await scaling.rest_pods(world.store, world.pool, ["pod-a"], seconds=60)
    assert await world.claim(busy) == []
    assert await scaling.pod_loads(world.store, world.pool) == {"pod-a": 1, "pod-b": 0}
    assert len(await world.claim(other, 1)) == 1
    await world.finish(busy, [held])
    await scaling.rest_pods(world.store, world.pool, ["pod-b"], seconds=60)
    assert await world.claim(other) == []
    assert len(await world.claim(busy, 1)) == 1
    await world.sound()


async def test_a_rest_lapses_by_itself(world: World) -> None:
    worker = await world.worker(pod="pod-a", lease=3600)
    await world.enqueue(1)
    await scaling.rest_pods(world.store, world.pool, ["pod-a"], seconds=60)
    await world.later(59)
    assert await world.claim(worker) == []
    await world.later(2)
    assert len(await world.claim(worker)) == 1


async def test_who_starts_in_a_pod_that_rests_rests_too(world: World) -> None:
    await world.worker(pod="pod-a")
    alone = await world.worker(pod="pod-a", quarantine=True)
    await world.enqueue(1)
    await world.sql("UPDATE rowlock.run_ready SET quarantined = true")
    await world.enqueue(1)
    await scaling.rest_pods(world.store, world.pool, ["pod-a"], seconds=60)
    reborn, new = await workers.register(
        world.store,
        [
            NewWorker(world.pool, "pod-a/1", "reborn", 1, "b1", 15.0, "pod-a"),
            NewWorker(world.pool, "pod-b/1", "new", 1, "b1", 15.0, "pod-b"),
        ],
    )
    claimed = await work.claim_alone(world.store, worker=alone, pool=world.pool, token=10**9)
    assert claimed == []
    assert await world.claim(reborn) == []
    assert len(await world.claim(new)) == 1


async def test_a_rest_waits_for_the_claim_under_way(world: World) -> None:
    worker = await world.worker(pod="pod-a")
    await world.enqueue(1)
    resting = await world.connect()
    lock = "SELECT FROM rowlock.worker WHERE worker_id = $1 FOR SHARE"
    async with world.holding(lock, worker):
        asked = asyncio.create_task(scaling.rest_pods(resting, world.pool, ["pod-a"], seconds=60))
        await world.blocked(resting)
        assert not asked.done()
    await asked
    assert await world.claim(worker) == []
