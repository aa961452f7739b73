"""A further attempt has one asker who wins, keeps history and epoch, and starts fresh otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.states import FenceReason
from rowlock.store import intake, redrive, work, workers
from rowlock.store.types import Claimed, Redriving, RunId, WorkerId
from tests.integration.store.test_races import account, race
from tests.integration.store.world import World, end, failure, step


async def failed(world: World, **fields: Any) -> tuple[WorkerId, Claimed]:
    """Return a run that failed after one step."""
    worker, [run] = await world.running(**fields)
    await work.finish(world.store, worker=worker, events=[step(run, 1)], finals=[failure(run)])
    return worker, run


async def ask(world: World, run: RunId, **fields: Any) -> Redriving:
    conn = fields.pop("conn", world.store)
    return await redrive.redrive(conn, run, by="ada", **fields)


async def test_next_attempt_keeps_history_epoch_and_belongings(world: World) -> None:
    worker, run = await failed(world, linked=True, key="k", priority=2, max_takeovers=9)
    assert await ask(world, run.run_id) is Redriving.QUEUED
    [again] = await world.claim(worker)
    assert (again.run_id, again.attempt, again.epoch) == (run.run_id, 2, 2)
    assert (again.key, again.max_takeovers, again.takeovers, again.active_ms) == ("k", 9, 0, 0)
    assert [event.seq for event in await work.history(world.store, run.run_id)] == [1]
    assert await world.changes(run.run_id) == [1, 2, 9, 1, 2]
    [row] = await world.sql("SELECT * FROM rowlock.run_attempt")
    assert (row["attempt"], row["asked_by"]) == (2, "ada")
    await work.finish(world.store, worker=worker, events=[step(again, 2)], finals=[end(again)])
    finals = await world.sql("SELECT status FROM rowlock.run_final ORDER BY attempt")
    assert [row["status"] for row in finals] == [2, 1]
    await world.sound()


async def test_run_that_is_not_finished_is_not_redriven(world: World) -> None:
    worker, [run] = await world.running()
    assert await ask(world, run.run_id) is Redriving.NOT_FINISHED
    await work.finish(world.store, worker=worker, events=[], finals=[failure(run, retry_in=60)])
    assert await ask(world, run.run_id) is Redriving.NOT_FINISHED
    assert await ask(world, RunId(1 << 50)) is Redriving.UNKNOWN


async def test_asking_for_a_numbered_attempt_may_be_repeated(world: World) -> None:
    worker, run = await failed(world)
    assert await ask(world, run.run_id, attempt=3) is Redriving.NOT_FINISHED
    assert await ask(world, run.run_id, attempt=2) is Redriving.QUEUED
    assert await ask(world, run.run_id, attempt=2) is Redriving.ALREADY_ASKED
    [again] = await world.claim(worker)
    assert await ask(world, run.run_id, attempt=2) is Redriving.ALREADY_ASKED
    await work.finish(world.store, worker=worker, events=[], finals=[failure(again)])
    assert await ask(world, run.run_id, attempt=2) is Redriving.ALREADY_ASKED
    assert await ask(world, run.run_id) is Redriving.QUEUED
    await world.sound()


async def test_run_that_used_up_its_takeovers_gets_new_ones(world: World) -> None:
    worker, [run] = await world.running(max_takeovers=0)
    await workers.fence(world.store, [worker], reason=FenceReason.WORKER_DIED)
    assert (await world.final(run.run_id))["reason"] == "TakeoverLimitReached"
    assert await ask(world, run.run_id) is Redriving.QUEUED
    [again] = await world.claim(await world.worker())
    assert [carry.epoch for carry in again.carry] == [1]  # history still has to hear of the loss
    await world.sound()


async def test_cancelled_run_may_be_redriven_and_its_old_wish_does_not_count(world: World) -> None:
    [run] = await world.enqueue()
    await intake.request_cancel(world.store, [run], by="ada")
    await world.sql("INSERT INTO rowlock.wish (run_id, kind, asked_by) VALUES ($1, 1, 'a')", run)
    assert await ask(world, run) is Redriving.QUEUED
    assert await intake.cancel_waiting(world.store) == []
    assert await world.place(run) == "ready"
    await world.sound()


async def test_run_below_the_floor_of_history_is_refused(world: World) -> None:
    _, run = await failed(world)
    await world.sql("UPDATE rowlock.history_floor SET run_id = $1", run.run_id + 1)
    try:
        assert await ask(world, run.run_id) is Redriving.HISTORY_EXPIRED
        assert await ask(world, RunId(1)) is Redriving.HISTORY_EXPIRED
    finally:
        await world.sql("UPDATE rowlock.history_floor SET run_id = 0")


async def test_floor_that_rises_meanwhile_is_waited_for(world: World) -> None:
    import asyncio

    _, run = await failed(world)
    asker = await world.connect()
    try:
        raising = "UPDATE rowlock.history_floor SET run_id = $1 RETURNING 1"
        async with world.holding(raising, run.run_id + 1):
            asking = asyncio.create_task(ask(world, run.run_id, conn=asker))
            await world.blocked(asker)
        assert await asking is Redriving.HISTORY_EXPIRED
        assert await world.place(run.run_id) == "final"
    finally:
        await world.sql("UPDATE rowlock.history_floor SET run_id = 0")


@pytest.mark.parametrize("numbered", [True, False])
async def test_of_two_askers_one_wins(world: World, numbered: bool) -> None:
    one, two = await world.connect(), await world.connect()
    fields = {"attempt": 2} if numbered else {}
    worker = await world.worker()
    for _ in range(100):
        [run] = await world.enqueue()
        [claimed] = await world.claim(worker)
        await work.finish(world.store, worker=worker, events=[], finals=[failure(claimed)])
        outcomes = await race(
            (one, ask(world, run, conn=one, **fields)), (two, ask(world, run, conn=two, **fields))
        )
        lost = {Redriving.ALREADY_ASKED, Redriving.NOT_FINISHED}
        assert sorted(outcome is Redriving.QUEUED for outcome in outcomes) == [False, True]
        assert set(outcomes) - {Redriving.QUEUED} <= lost
        assert await world.place(run) == "ready"
        await intake.request_cancel(world.store, [run], by="test")
    assert await account(world, 100) == {"final": 100}
