"""The mirror sees every visible transition, and all of a run as of one instant."""

from __future__ import annotations

from datetime import timedelta

from rowlock.states import ChangeKind, EventKind, FenceReason, FinalStatus, Place
from rowlock.store import changes, intake, work, workers
from rowlock.store.types import PoolDemand, RunId, RunSnapshot
from tests.integration.store.world import CLUSTER, World, end, failure, step


async def shot(world: World, run: RunId) -> RunSnapshot:
    return (await changes.snapshots(world.store, [run]))[run]


async def test_changes_are_read_in_order_and_exactly_the_shown_ones_are_forgotten(
    world: World,
) -> None:
    runs = await world.enqueue(5, linked=True)
    found = await changes.unshown(world.store, limit=100)
    assert [change.run_id for change in found] == runs
    assert {change.kind for change in found} == {ChangeKind.QUEUED}
    assert [c.seq for c in found] == sorted(c.seq for c in found)
    assert await changes.unshown(world.store, limit=2, after=found[1].seq) == found[2:4]
    await changes.shown(world.store, [found[0].seq, found[3].seq])
    assert await changes.unshown(world.store, limit=100) == [found[1], found[2], found[4]]
    await changes.shown(world.store, [])


async def test_change_that_commits_late_under_a_smaller_number_is_not_lost(world: World) -> None:
    other = await world.connect()
    async with other.transaction():
        [late] = await intake.enqueue(other, world.new(1, linked=True))
        [early] = await world.enqueue(linked=True)
        [seen] = await changes.unshown(world.store, limit=10)
        await changes.shown(world.store, [seen.seq])
    [rest] = await changes.unshown(world.store, limit=10)
    assert (seen.run_id, rest.run_id) == (early, late.run_id)
    assert rest.seq < seen.seq


async def test_snapshot_of_a_queued_run(world: World) -> None:
    [run] = await world.enqueue(linked=True, max_takeovers=7)
    seen = await shot(world, run)
    assert (seen.place, seen.epoch, seen.attempt, seen.takeovers) == (Place.READY, 0, 1, 0)
    assert (seen.cluster, seen.namespace, seen.generation) == (CLUSTER, "team", 1)
    assert (seen.max_takeovers, seen.agent_revision) == (7, "d1")
    assert seen.revision == (await changes.unshown(world.store, limit=1))[0].seq
    assert (seen.started_at, seen.claimed_at, seen.worker, seen.status) == (None, None, None, None)
    assert seen.ready_at is not None
    assert not seen.cancel_asked


async def test_snapshot_follows_a_run_through_its_life(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    seen = await shot(world, run.run_id)
    assert (seen.place, seen.worker) == (Place.LEASE, await _name(world, worker))
    assert seen.claimed_at == seen.started_at == run.claimed_at

    await intake.request_cancel(world.store, [run.run_id], by="ada")
    assert (await shot(world, run.run_id)).cancel_asked
    await world.sql("DELETE FROM rowlock.wish")

    await workers.fence(world.store, [worker], reason=FenceReason.NODE_LOST)
    seen = await shot(world, run.run_id)
    assert (seen.place, seen.takeovers, seen.worker) == (Place.READY, 1, None)
    assert [entry.reason for entry in seen.carry] == ["NodeLost"]

    other = await world.worker()
    [again] = await world.claim(other)
    taken = step(again, 1, kind=EventKind.TAKEN_OVER, body=b"story")
    await work.append(world.store, worker=other, events=[taken, step(again, 2)])
    [lifecycle] = (await shot(world, run.run_id)).lifecycle
    assert (lifecycle.seq, lifecycle.kind, lifecycle.body) == (1, EventKind.TAKEN_OVER, b"story")
    assert (lifecycle.epoch, lifecycle.attempt) == (2, 1)

    await work.finish(world.store, worker=other, events=[], finals=[failure(again, retry_in=9)])
    seen = await shot(world, run.run_id)
    assert (seen.place, seen.attempt, seen.timer_reason) == (Place.TIMER, 2, 2)
    assert seen.due_at is not None
    assert seen.ready_at is not None
    assert seen.due_at - seen.ready_at == timedelta(seconds=9)

    await world.later(10)
    await intake.wake_due(world.store)
    [third] = await world.claim(other)
    final = end(third, outcome="ok", step=2, tokens_in=1, tokens_out=2, cost_micro=3, result=b"{}")
    await work.finish(world.store, worker=other, events=[], finals=[final])
    seen = await shot(world, run.run_id)
    assert (seen.place, seen.status, seen.outcome) == (Place.FINAL, FinalStatus.SUCCEEDED, "ok")
    assert (seen.attempt, seen.epoch, seen.takeovers, seen.step) == (2, 3, 1, 2)
    assert (seen.tokens_in, seen.tokens_out, seen.cost_micro) == (1, 2, 3)
    assert (seen.result, seen.result_size) == (b"{}", 2)
    assert (seen.worker, seen.started_at) == (await _name(world, other), run.claimed_at)
    assert seen.finished_at is not None
    newest = (await changes.unshown(world.store, limit=100))[-1]
    assert seen.revision == newest.seq


async def test_every_change_is_the_revision_of_its_run_at_that_moment(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    revision = (await shot(world, run.run_id)).revision
    for act in (
        lambda: workers.leave(world.store, worker),
        lambda: intake.request_cancel(world.store, [run.run_id], by="ada"),
    ):
        await act()
        newer = (await shot(world, run.run_id)).revision
        assert newer > revision
        revision = newer
    assert revision == (await changes.unshown(world.store, limit=100))[-1].seq


async def test_huge_result_stays_behind_and_its_size_is_told(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    final = end(run, result=bytes(200_000))
    await work.finish(world.store, worker=worker, events=[], finals=[final])
    seen = await shot(world, run.run_id)
    assert (seen.result, seen.result_size) == (None, 200_000)


async def test_only_linked_runs_have_a_snapshot(world: World) -> None:
    [plain] = await world.enqueue()
    assert await changes.snapshots(world.store, [plain, RunId(1)]) == {}


async def test_sweep_pages_through_the_linked_runs_of_a_cluster(world: World) -> None:
    worker, [done] = await world.running(linked=True)
    await work.finish(world.store, worker=worker, events=[], finals=[end(done)])
    waiting = await world.enqueue(4, linked=True)
    await world.enqueue(2)
    await world.enqueue(1, linked=True, cluster="elsewhere")
    [private] = await world.enqueue(1, linked=True, namespace="private")

    everything = await changes.objects(world.store, cluster=CLUSTER, namespaces=None)
    assert [entry.run_id for entry in everything] == [done.run_id, *waiting, private]
    assert [entry.finished for entry in everything] == [True] + [False] * 5
    assert all(entry.revision > 0 for entry in everything)
    pages = []
    after = ""
    while page := await changes.objects(
        world.store, cluster=CLUSTER, namespaces=["team"], after_uid=after, limit=2
    ):
        pages.append(page)
        after = page[-1].uid
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [entry for page in pages for entry in page] == everything[:5]
    uid, run_id, *_ = everything[0]
    assert (uid, run_id) == (everything[0].uid, done.run_id)


async def test_status_that_fell_behind_is_shown_again(world: World) -> None:
    worker, [run, parked] = await world.running(2, linked=True)
    [plain] = await world.enqueue()
    for change in await changes.unshown(world.store, limit=100):
        await changes.shown(world.store, [change.seq])
    before = (await shot(world, run.run_id)).revision
    ids = [run.run_id, plain, RunId(1)]
    assert await changes.recreate_changes(world.store, ids) == 1
    [again] = await changes.unshown(world.store, limit=100)
    assert (again.run_id, again.kind, again.epoch) == (run.run_id, ChangeKind.CLAIMED, 1)
    assert (await shot(world, run.run_id)).revision == before
    # What is asked for now may be younger than what a mirror read for the change before.
    assert await changes.recreate_changes(world.store, ids) == 1
    assert len(await changes.unshown(world.store, limit=100)) == 2
    await world.sound()
    await work.finish(world.store, worker=worker, events=[], finals=[end(parked)])
    await changes.shown(world.store, [c.seq for c in await changes.unshown(world.store, limit=9)])
    await changes.recreate_changes(world.store, [parked.run_id])
    assert [c.kind for c in await changes.unshown(world.store, limit=9)] == [ChangeKind.ENDED]


async def test_run_without_its_custom_resource_goes_on_unseen(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    await changes.unlink(world.store, [run.run_id])
    await changes.unlink(world.store, [run.run_id])
    assert await changes.unshown(world.store, limit=9) == []
    await work.finish(world.store, worker=worker, events=[], finals=[end(run)])
    [left] = await changes.unshown(world.store, limit=9)
    assert await changes.snapshots(world.store, [left.run_id]) == {}
    await world.sound()


async def test_demand_of_an_idle_pool_is_zeros(world: World) -> None:
    assert await changes.pool_demand(world.store) == [
        PoolDemand(world.pool, "team", "default", 0, 0, 0, None, 0, 0)
    ]


async def test_demand_counts_what_runs_what_could_run_and_who_serves(world: World) -> None:
    worker, runs = await world.running(3)
    draining, silent = await world.worker(), await world.worker(lease=1)
    await world.later(5)
    from rowlock.store.types import Beat

    await workers.beat(world.store, [Beat(worker, 10, 3, 0, False), Beat(draining, 10, 0, 0, True)])
    await work.finish(world.store, worker=worker, events=[], finals=[failure(runs[0], retry_in=60)])
    await world.enqueue(5)
    oldest = await world.value("SELECT min(ready_at) FROM rowlock.run_ready")
    assert silent
    assert await changes.pool_demand(world.store) == [
        PoolDemand(world.pool, "team", "default", 2, 5, 1, oldest, 2, 10)
    ]


async def _name(world: World, worker: int) -> str:
    return str(await world.value("SELECT name FROM rowlock.worker WHERE worker_id = $1", worker))
