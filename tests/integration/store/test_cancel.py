"""A wish to cancel is never lost, and a result that was committed beats it."""

from __future__ import annotations

import asyncio

import pytest

from rowlock.states import FenceReason, WishKind
from rowlock.store import intake, work, workers
from rowlock.store.types import RunId, Verdict, Wish
from tests.integration.store.world import World, end, failure


async def test_queued_run_ends_at_once(world: World) -> None:
    [run] = await world.enqueue(linked=True)
    assert await intake.request_cancel(world.store, [run], by="ada", reason="typo") == [run]
    final = await world.final(run)
    assert (final["status"], final["reason"]) == (3, "Cancelled")
    assert final["message"] == "cancelled by ada: typo"
    assert await world.changes(run) == [1, 9]
    assert await world.count("wish") == 0
    await world.sound()


@pytest.mark.parametrize(
    "moving",
    [
        "INSERT INTO rowlock.run_backlog SELECT * FROM rowlock.run_ready",
        "INSERT INTO rowlock.run_parked SELECT q.*, '{approval}', NULL FROM rowlock.run_ready q",
    ],
)
async def test_waiting_run_ends_at_once_wherever_it_waits(world: World, moving: str) -> None:
    [run] = await world.enqueue()
    await world.sql(moving)
    await world.sql("DELETE FROM rowlock.run_ready")
    assert await intake.request_cancel(world.store, [run], by="ada") == [run]
    await world.sound()


async def test_run_between_attempts_ends_at_once(world: World) -> None:
    worker, [run] = await world.running()
    await work.finish(world.store, worker=worker, events=[], finals=[failure(run, retry_in=60)])
    assert await intake.request_cancel(world.store, [run.run_id], by="ada") == [run.run_id]
    final = await world.final(run.run_id)
    assert (final["attempt"], final["epoch"], final["status"]) == (2, 1, 3)
    await world.sound()


async def test_running_run_is_wished_to_end_until_it_does(world: World) -> None:
    worker, [run, _] = await world.running(2)
    assert await intake.request_cancel(world.store, [run.run_id], by="ada", reason="x") == []
    wish = Wish(run.run_id, worker, WishKind.CANCEL, "x")
    assert await workers.wishes(world.store, [worker]) == [wish]
    assert await workers.wishes(world.store, [worker]) == [wish]
    assert await intake.cancel_waiting(world.store) == []
    await work.finish(world.store, worker=worker, events=[], finals=[end(run)])
    assert await workers.wishes(world.store, [worker]) == []
    assert await world.count("wish") == 0
    assert await intake.request_cancel(world.store, [run.run_id], by="ada") == [run.run_id]


async def test_result_beats_a_wish_that_it_did_not_see(world: World) -> None:
    worker, [run] = await world.running()
    await intake.request_cancel(world.store, [run.run_id], by="ada")
    await work.finish(world.store, worker=worker, events=[], finals=[end(run)])
    assert (await world.final(run.run_id))["status"] == 1


async def test_asking_again_or_for_what_never_was_changes_nothing(world: World) -> None:
    [run] = await world.enqueue()
    assert await intake.request_cancel(world.store, [RunId(1)], by="ada") == []
    assert await intake.request_cancel(world.store, [run], by="ada", reason="first") == [run]
    assert await intake.request_cancel(world.store, [run], by="bob", reason="second") == [run]
    assert (await world.final(run))["message"] == "cancelled by ada: first"
    assert await world.count("wish") == 0
    assert await intake.request_cancel(world.store, [], by="ada") == []


async def test_first_asker_is_the_one_who_is_named(world: World) -> None:
    worker, [run] = await world.running()
    await intake.request_cancel(world.store, [run.run_id], by="ada")
    await intake.request_cancel(world.store, [run.run_id], by="bob")
    await work.release(world.store, worker=worker, runs=[(run.run_id, run.epoch, 0)])
    assert (await world.final(run.run_id))["message"] == "cancelled by ada"


async def test_release_ends_a_run_that_is_wished_to_end(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    await intake.request_cancel(world.store, [run.run_id], by="ada")
    answer = await work.release(world.store, worker=worker, runs=[(run.run_id, run.epoch, 5)])
    assert answer == {run.run_id: Verdict.DONE}
    final = await world.final(run.run_id)
    assert (final["status"], final["active_ms"], final["epoch"]) == (3, 5, 1)
    assert await world.changes(run.run_id) == [1, 2, 9]
    await world.sound()


async def test_retry_of_a_run_that_is_wished_to_end_is_its_end(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    await intake.request_cancel(world.store, [run.run_id], by="ada")
    answer = await work.finish(
        world.store, worker=worker, events=[], finals=[failure(run, retry_in=5)]
    )
    assert answer.finals == {run.run_id: Verdict.DONE}
    final = await world.final(run.run_id)
    assert (final["status"], final["reason"], final["attempt"]) == (3, "Cancelled", 1)
    assert final["message"] == "cancelled by ada"
    assert await world.changes(run.run_id) == [1, 2, 9]
    assert await world.count("wish") == 0
    await world.sound()


async def test_run_of_a_dead_worker_ends_if_it_is_wished_to(world: World) -> None:
    worker, [run, other] = await world.running(2, linked=True)
    await intake.request_cancel(world.store, [run.run_id], by="ada")
    fenced = await workers.fence(world.store, [worker], reason=FenceReason.WORKER_DIED)
    assert (fenced.cancelled, fenced.requeued) == ((run.run_id,), (other.run_id,))
    assert (await world.final(run.run_id))["status"] == 3
    assert await world.count("wish") == 0
    await world.sound()


async def test_claim_tells_of_a_wish_that_came_while_it_was_under_way(world: World) -> None:
    [run] = await world.enqueue()
    asker = await world.connect()
    # The claim holds the ready row when the asker looks for it.
    async with world.store.transaction():
        worker = await world.worker()
        [claimed] = await world.claim(worker)
        asked = await intake.request_cancel(asker, [run], by="ada")
    assert not claimed.cancelled
    assert asked == []
    assert [w.run_id for w in await workers.wishes(world.store, [worker])] == [run]

    await work.release(world.store, worker=worker, runs=[])
    adopted = await work.adopt(world.store, worker=worker, token=10**9, known=[])
    assert adopted is not None
    assert [a.cancelled for a in adopted] == [True]


async def test_claim_of_a_run_with_a_wish_says_so(world: World) -> None:
    [run] = await world.enqueue()
    await world.sql("INSERT INTO rowlock.wish (run_id, kind, asked_by) VALUES ($1, 1, 'ada')", run)
    [claimed] = await world.claim(await world.worker())
    assert claimed.cancelled


async def test_sweep_carries_out_what_slipped_through_and_clears_what_is_done(world: World) -> None:
    waiting = await world.enqueue(1200)
    worker = await world.worker()
    [running] = await world.claim(worker, 1)
    rest = waiting[1:]
    await world.sql(
        "INSERT INTO rowlock.wish (run_id, kind, asked_by) "
        "SELECT r, 1, 'ada' FROM unnest($1::bigint[]) r",
        [*waiting, 1, 2, 3],
    )
    assert sorted(await intake.cancel_waiting(world.store)) == sorted(rest)
    assert [row["run_id"] for row in await world.sql("SELECT run_id FROM rowlock.wish")] == [
        running.run_id
    ]
    assert await intake.cancel_waiting(world.store) == []
    await world.sound()


async def test_sweep_passes_by_a_row_that_another_statement_holds(world: World) -> None:
    first, second = await world.enqueue(2)
    lock = "SELECT 1 FROM rowlock.run_ready WHERE run_id = $1 FOR UPDATE"
    async with world.holding(lock, first), asyncio.timeout(5):
        asked = await intake.request_cancel(world.store, [first, second], by="ada")
        assert asked == [second]
    assert await intake.cancel_waiting(world.store) == [first]


async def test_run_that_is_woken_while_somebody_cancels_it_ends_with_the_next_sweep(
    world: World,
) -> None:
    worker, [run] = await world.running()
    await work.finish(world.store, worker=worker, events=[], finals=[failure(run, retry_in=0)])
    asker = await world.connect()
    async with world.store.transaction():
        assert await intake.wake_due(world.store) == 1
        assert await intake.request_cancel(asker, [run.run_id], by="ada") == []
    assert await intake.cancel_waiting(asker) == [run.run_id]
    await world.sound()


async def test_sweepers_share_the_work_and_never_wait_for_each_other(world: World) -> None:
    late = await world.enqueue(3, queue_deadline_seconds=-1.0)
    worker = await world.worker()
    await world.enqueue(3, priority=1)
    for run in await world.claim(worker, 3):
        final = failure(run, retry_in=0)
        await work.finish(world.store, worker=worker, events=[], finals=[final])
    other = await world.connect()
    async with world.store.transaction(), asyncio.timeout(10):
        assert await intake.wake_due(world.store, limit=2) == 2
        assert await intake.wake_due(other) == 1
        assert len(await world.store.fetch("expire_queued", 2)) == 2
        assert len(await intake.expire_queued(other)) == 1
    assert await world.places(late) == {"final"}
    await world.sound()
