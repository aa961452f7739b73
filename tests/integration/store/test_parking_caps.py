"""Runs that come back from a wait, or for another attempt, need a slot like any other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rowlock.states import Decision
from rowlock.store import approvals, intake, parking, redrive, work
from rowlock.store.connection import Connection
from rowlock.store.types import Claimed, NewQuestion, Parked, Redriving, RunId, WorkerId
from tests.integration.store.world import World, failure

QUESTION = NewQuestion("refund:1.0", "digest", "refund", b"{}")

#: Take a run from its worker, and return what brings it back.
Back = Callable[[Connection], Awaitable[Any]]
Way = Callable[[World, WorkerId, Claimed], Awaitable[Back]]


def _parked(run: Claimed, reasons: tuple[str, ...], wake_in: float | None = None) -> Parked:
    questions = (QUESTION,) if "approval" in reasons else ()
    return Parked(run.run_id, run.epoch, 1, 7, reasons, wake_in, b"{}", questions)


async def _park(world: World, worker: WorkerId, row: Parked) -> None:
    await parking.park(world.store, worker=worker, runs=[row])


async def wake_parked(world: World, worker: WorkerId, run: Claimed) -> Back:
    await _park(world, worker, _parked(run, ("sleep",), 0.0))
    return parking.wake_parked


async def wake_decided(world: World, worker: WorkerId, run: Claimed) -> Back:
    await _park(world, worker, _parked(run, ("approval",)))
    return lambda conn: _decide(conn, run.run_id)


async def continue_suspended(world: World, worker: WorkerId, run: Claimed) -> Back:
    await parking.request_suspend(world.store, [run.run_id], by="ada")
    await _park(world, worker, _parked(run, ()))
    return lambda conn: parking.request_continue(conn, [run.run_id])


async def redriven(world: World, worker: WorkerId, run: Claimed) -> Back:
    await work.finish(world.store, worker=worker, events=[], finals=[failure(run)])
    return lambda conn: redrive.redrive(conn, run.run_id, by="ada")


async def _decide(conn: Connection, run: RunId, **fields: Any) -> Any:
    given = {"step_key": QUESTION.step_key, "digest": QUESTION.digest, "attempt": 1, "by": "ada"}
    return await approvals.decide(conn, run, decision=Decision.APPROVED, **(given | fields))


WAYS = [
    pytest.param(way, id=way.__name__)
    for way in (wake_parked, wake_decided, continue_suspended, redriven)
]
LIMITS = [
    pytest.param({"max_running": 1}, id="agent"),
    pytest.param({"max_running_per_key": 1}, id="key"),
]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("way", WAYS)
async def test_run_that_comes_back_waits_for_a_slot_and_is_the_next(
    world: World, way: Way, limits: dict[str, int]
) -> None:
    await world.cap(**limits)
    worker, [run] = await world.running(key="k")
    await world.enqueue(2, key="k")
    back = await way(world, worker, run)
    assert await world.promote() == 1, "a run that waits holds no slot"
    [second] = await world.claim(worker)
    await back(world.store)
    await world.sound()
    assert await world.place(run.run_id) == "backlog"
    assert await world.promote() == 0
    assert await world.claim(worker) == []
    await world.finish(worker, [second])
    assert await world.promote() == 1
    [again] = await world.claim(worker)
    assert again.run_id == run.run_id, "what ran before is the first of its key"
    await world.sound()


@pytest.mark.parametrize("way", WAYS)
async def test_run_that_comes_back_to_a_free_slot_is_promoted_at_once(
    world: World, way: Way
) -> None:
    await world.cap(max_running=1)
    worker, [run] = await world.running()
    await (await way(world, worker, run))(world.store)
    assert await world.promote() == 1
    assert [again.run_id for again in await world.claim(worker)] == [run.run_id]
    await world.sound()


@pytest.mark.parametrize("way", WAYS)
async def test_run_without_a_cap_goes_to_the_queue(world: World, way: Way) -> None:
    worker, [run] = await world.running()
    await (await way(world, worker, run))(world.store)
    assert await world.place(run.run_id) == "ready"
    await world.sound()


@pytest.mark.parametrize("way", WAYS)
async def test_run_that_comes_back_while_a_cap_is_set_obeys_it(world: World, way: Way) -> None:
    worker, [run] = await world.running()
    back = await way(world, worker, run)
    late = await world.connect()
    async with world.holding("SELECT rowlock.hold_still($1)", world.agent) as setter:
        coming = asyncio.ensure_future(back(late))
        await world.blocked(late)
        await setter.execute("UPDATE rowlock.agent SET max_running = 1")
    await coming
    assert await world.place(run.run_id) == "backlog"


@pytest.mark.parametrize("why", ["answered", "continued"])
async def test_run_that_parks_when_its_wait_is_over_waits_for_a_slot(
    world: World, why: str
) -> None:
    """The statement that parks sends it back itself."""
    worker, [run] = await world.running()
    if why == "answered":
        await _park(world, worker, _parked(run, ("approval",)))
        await _decide(world.store, run.run_id)
        [run] = await world.claim(worker)
    row = _parked(run, ("approval",) if why == "answered" else ())
    late = await world.connect()
    async with world.holding("SELECT rowlock.hold_still($1)", world.agent) as setter:
        row = Parked(row.run_id, row.epoch, 2, 7, row.reasons, None, b"{}", row.questions)
        coming = asyncio.create_task(parking.park(late, worker=worker, runs=[row]))
        await world.blocked(late)
        await setter.execute("UPDATE rowlock.agent SET max_running = 1")
    await coming
    assert await world.place(run.run_id) == "backlog"
    assert await world.promote() == 1
    assert await world.place(run.run_id) == "ready"


# -------------------------------------------------------------------- runs that never started


@pytest.mark.parametrize("cap", [None, 1])
async def test_continued_run_that_never_started_goes_to_the_end_of_the_line(
    world: World, cap: int | None
) -> None:
    """Its old place may be of the other queue, whose numbers mean something else."""
    if cap is None:
        await world.cap(max_running=1)
    first = (await world.enqueue())[0]
    held, other = await world.enqueue(2)
    await parking.request_suspend(world.store, [held], by="ada")
    await world.cap(**({} if cap is None else {"max_running": cap}))
    await parking.request_continue(world.store, [held])
    last = (await world.enqueue())[0]
    worker, order = await world.worker(), []
    while claimed := await world.claim(worker, 1):
        order += [run.run_id for run in claimed]
        await world.finish(worker, claimed)
        await world.promote()
    assert order == [first, other, held, last]
    await world.sound()


async def test_redriven_run_that_never_started_is_a_start(world: World) -> None:
    await world.cap(starts_per_minute_per_key=1)
    never = (await world.enqueue(key="k"))[0]
    await intake.request_cancel(world.store, [never], by="ada")
    worker, [run] = await world.running(key="k")
    await world.finish(worker, [run])
    assert await redrive.redrive(world.store, never, by="ada") is Redriving.QUEUED
    assert await world.promote() == 0
    await world.later(61)
    assert await world.promote() == 1
    await world.sound()


async def test_redriven_run_stands_behind_what_waits_already(world: World) -> None:
    worker, [run] = await world.running()
    await work.finish(world.store, worker=worker, events=[], finals=[failure(run)])
    waiting = (await world.enqueue())[0]
    await redrive.redrive(world.store, run.run_id, by="ada")
    later = (await world.enqueue())[0]
    order = [(await world.claim(worker, 1))[0].run_id for _ in range(3)]
    assert order == [waiting, run.run_id, later]
    await world.sound()
