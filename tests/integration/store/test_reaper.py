"""Silence is judged by the database's clock, and never after the reaper's own absence."""

from __future__ import annotations

import asyncio

import pytest

from rowlock.states import FenceReason
from rowlock.store import intake, work, workers
from rowlock.store.types import Beat, Fenced, PoolId, Reaped, WorkerId
from tests.integration.store.world import World, raw_of, step

GAP = 5.0


async def reap(world: World) -> Reaped:
    return await workers.reap(world.store, gap_seconds=GAP)


async def silence(world: World, seconds: int, *beating: WorkerId) -> None:
    """Let time pass for a reaper that makes its rounds, while only `beating` beat."""
    for _ in range(seconds):
        await world.later(1)
        await workers.beat(world.store, [Beat(w, 1, 0, 0, False) for w in beating])
        assert (await reap(world)).fenced == Fenced()


@pytest.mark.public_bug("riverqueue/river#1258")
async def test_worker_silent_for_its_own_lease_is_fenced_and_others_are_not(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    patient = await world.worker(lease=60)
    beating = await world.worker()
    await silence(world, 14, beating)
    await world.later(2)
    assert await reap(world) == Reaped(
        False, Fenced((worker,), requeued=(run.run_id,), blamed=(run.run_id,))
    )
    assert await workers.beat(
        world.store, [Beat(w, 1, 0, 0, False) for w in (worker, patient, beating)]
    ) == {patient, beating}
    assert (await world.claim(beating))[0].carry[0].reason == "LeaseExpired"
    await world.sound()


async def test_own_gap_skips_the_round_and_grants_a_full_lease(world: World) -> None:
    worker, _ = await world.running()
    await world.later(3600)
    assert await reap(world) == Reaped(skipped=True)
    await silence(world, 14)
    await world.later(2)
    assert (await reap(world)).fenced.workers == (worker,)


async def test_beat_after_the_gap_keeps_the_worker(world: World) -> None:
    worker, _ = await world.running()
    await world.later(3600)
    await reap(world)
    await silence(world, 10)
    await silence(world, 20, worker)


async def test_two_reapers_take_turns(world: World) -> None:
    other = await world.connect()
    async with world.store.transaction():
        await world.store.fetchrow("reaper_turn")
        async with asyncio.timeout(5):
            assert await workers.reap(other, gap_seconds=GAP) == Reaped(skipped=True)
    assert await workers.reap(other, gap_seconds=GAP) == Reaped(skipped=False)


async def test_worker_that_is_writing_is_left_for_the_next_round(world: World) -> None:
    worker, [run] = await world.running()
    writer = await world.connect()
    await silence(world, 14)
    await world.later(2)
    async with writer.transaction():
        await work.append(writer, worker=worker, events=[step(run, 1)])
        async with asyncio.timeout(5):
            assert (await reap(world)).fenced == Fenced()
    assert (await reap(world)).fenced.workers == (worker,)


@pytest.mark.public_bug("dbos-inc/dbos-transact-py#742")
async def test_beat_between_the_search_and_the_lock_saves_the_worker(world: World) -> None:
    worker = await world.worker()
    await silence(world, 14)
    await world.later(2)
    other = await world.connect()
    await world.later(0)
    async with world.store.transaction():
        found = await world.store.fetchone("overdue")
        assert found["workers"] == [worker]
        assert await workers.beat(other, [Beat(worker, 1, 0, 0, False)]) == {worker}
        assert [r[0] for r in await world.store.fetch("lock_silent", [worker])] == [worker]
        assert await world.store.fetch("fence_silent", [worker]) == []
    assert (await reap(world)).fenced == Fenced()


async def test_beat_that_waits_for_the_reaper_is_told_the_truth(world: World) -> None:
    worker = await world.worker()
    await silence(world, 14)
    await world.later(2)
    other = await world.connect()
    await world.later(0)
    async with world.store.transaction():
        await world.store.fetch("lock_silent", [worker])
        beating = asyncio.create_task(workers.beat(other, [Beat(worker, 1, 0, 0, False)]))
        await world.blocked(other)
        assert len(await world.store.fetch("fence_silent", [worker])) == 1
    assert await beating == set()


async def test_when_most_of_five_pods_are_silent_it_waits_one_more_lease(world: World) -> None:
    pods = [await world.worker(pod=f"pod-{n}") for n in range(5)]
    await silence(world, 14, *pods[:2])
    await world.later(2)
    await workers.beat(world.store, [Beat(w, 1, 0, 0, False) for w in pods[:2]])
    assert await reap(world) == Reaped(skipped=True)
    await silence(world, 14, *pods[:2])
    await world.later(2)
    await workers.beat(world.store, [Beat(w, 1, 0, 0, False) for w in pods[:2]])
    assert sorted((await reap(world)).fenced.workers) == pods[2:]


async def test_mass_silence_that_ends_is_forgotten(world: World) -> None:
    pods = [await world.worker(pod=f"pod-{n}") for n in range(5)]
    await silence(world, 14)
    await world.later(2)
    assert await reap(world) == Reaped(skipped=True)
    await workers.beat(world.store, [Beat(w, 1, 0, 0, False) for w in pods[:4]])
    assert (await reap(world)).fenced.workers == (pods[4],)
    assert await world.value("SELECT mass_since FROM rowlock.reaper") is None


async def test_few_pods_or_one_pod_with_many_workers_are_believed_at_once(world: World) -> None:
    one_pod = [await world.worker(pod="pod-1") for _ in range(8)]
    two_more = [await world.worker(instance=f"host-{n}/0") for n in "ab"]
    await silence(world, 14)
    await world.later(2)
    assert sorted((await reap(world)).fenced.workers) == [*one_pod, *two_more]


@pytest.mark.public_bug("procrastinate-org/procrastinate#1518")
async def test_leases_of_fenced_or_unknown_workers_are_moved_whoever_left_them(
    world: World,
) -> None:
    worker, [first] = await world.running()
    other, [second] = await world.running()
    alive, [third] = await world.running()
    await world.sql(
        "UPDATE rowlock.worker SET fenced_at = now(), fence_reason = 'Stalled' "
        "WHERE worker_id = $1",
        worker,
    )
    await world.sql("DELETE FROM rowlock.worker WHERE worker_id = $1", other)
    problems = {run for _, run in await _violations(world)}
    assert problems == {first.run_id, second.run_id}
    reaped = await reap(world)
    assert set(reaped.fenced.requeued) == problems
    assert reaped.fenced.workers == ()
    assert await world.place(third.run_id) == "lease"
    carried = {c.run_id: c.carry[0] for c in await world.claim(alive)}
    assert carried[first.run_id].reason == "Stalled"
    assert (carried[second.run_id].worker, carried[second.run_id].reason) == (
        "unknown",
        "WorkerDied",
    )
    await world.sound()


async def test_reaper_that_dies_in_the_middle_has_done_nothing(world: World) -> None:
    worker, [run] = await world.running()
    await silence(world, 14)
    await world.later(2)
    other = await world.connect()
    raw = raw_of(other)
    await raw.execute("BEGIN")
    await raw.execute("SET rowlock.clock_offset = '17 seconds'")
    await other.fetchrow("reaper_turn")
    await other.fetch("lock_silent", [worker])
    await other.fetch("fence_silent", [worker])
    raw.terminate()
    # The server notices the end of the session by and by.
    while not (reaped := await reap(world)).fenced.workers:
        continue
    assert reaped.fenced.requeued == (run.run_id,)
    await world.sound()


async def test_worker_of_another_pool_is_judged_alike(world: World) -> None:
    other: PoolId = await intake.ensure_pool(world.store, namespace="team", name="gpu")
    worker = await world.worker(pool=other)
    await silence(world, 14)
    await world.later(2)
    assert (await reap(world)).fenced.workers == (worker,)
    again = await workers.fence(world.store, [worker], reason=FenceReason.NODE_LOST)
    assert again == Fenced()


async def _violations(world: World) -> list[tuple[str, int]]:
    from rowlock.store import invariants

    return list(await invariants.violations(world.store))
