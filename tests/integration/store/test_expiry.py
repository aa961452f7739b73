"""Times to live: no object goes before its last end is shown, and no row outlives its object."""

from __future__ import annotations

from rowlock.store import changes, expiry, redrive, work
from rowlock.store.types import Redriving, RunId
from tests.integration.store.world import CLUSTER, World, end


async def due(world: World, *but: str) -> int:
    return len(await expiry.expired(world.store, cluster=CLUSTER, limit=10, but=but))


async def show_all(world: World, run: RunId) -> None:
    """Do what the mirror does once the status stands."""
    found = await changes.unshown(world.store, limit=100)
    await expiry.time_ends(world.store, [run])
    await changes.shown(world.store, [change.seq for change in found])


async def test_an_object_goes_only_when_its_last_end_is_shown(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    await expiry.set_ttl(world.store, [expiry.TimeToLive(run.run_id, 0)])
    await work.finish(world.store, worker=worker, events=[], finals=[end(run)])
    assert await due(world) == 0
    await show_all(world, run.run_id)
    [shown] = await expiry.expired(world.store, cluster=CLUSTER, limit=10)
    assert await due(world, shown.uid) == 0
    asked = await redrive.redrive(world.store, run.run_id, by="ada")
    assert asked is Redriving.QUEUED
    assert await due(world) == 0
    found = await changes.unshown(world.store, limit=100)
    await changes.shown(world.store, [change.seq for change in found])
    assert await due(world) == 0, "it goes on, whatever is shown of it"
    [again] = await world.claim(worker)
    await work.finish(world.store, worker=worker, events=[], finals=[end(again)])
    assert await due(world) == 0
    await show_all(world, run.run_id)
    assert await due(world) == 1


async def test_no_time_to_live_outlives_its_object(world: World) -> None:
    [run, other] = await world.enqueue(2, linked=True)
    ttls = [expiry.TimeToLive(run, 5), expiry.TimeToLive(other, 5)]
    await expiry.set_ttl(world.store, ttls)
    await changes.unlink(world.store, [run])
    await expiry.set_ttl(world.store, ttls)
    assert [row["run_id"] for row in await world.sql("SELECT run_id FROM rowlock.run_ttl")] == [
        other
    ]
    await world.sql("DELETE FROM rowlock.run_object")
    await expiry.collect(world.store)
    assert await world.sql("SELECT run_id FROM rowlock.run_ttl") == []


async def test_what_is_shown_again_is_told_from_what_happened(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    await changes.recreate_changes(world.store, [run.run_id])
    await work.finish(world.store, worker=worker, events=[], finals=[end(run)])
    found = await changes.unshown(world.store, limit=10)
    assert [change.again for change in found] == [False, False, True, False]
