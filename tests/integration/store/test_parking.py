"""A run that waits holds no worker; wishes, answers and time reach it wherever it is just then."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from rowlock.states import Decision, FenceReason, FinalStatus, WishKind
from rowlock.store import approvals, intake, parking, work, workers
from rowlock.store.types import Claimed, NewQuestion, Parked, RunId, Verdict, Wish, WorkerId
from tests.integration.store.test_races import account, race
from tests.integration.store.world import World, end, failure, step

QUESTION = NewQuestion("refund:1.0", "digest", "refund", b'{"tool":"refund"}')


def parked(
    run: Claimed,
    *,
    seq: int = 1,
    reasons: tuple[str, ...] = ("sleep",),
    wake_in: float | None = 60.0,
    questions: tuple[NewQuestion, ...] = (),
    active_ms: int = 7,
) -> Parked:
    return Parked(run.run_id, run.epoch, seq, active_ms, reasons, wake_in, b"{}", questions)


def asking(run: Claimed, *, seq: int = 1, question: NewQuestion = QUESTION) -> Parked:
    return parked(run, seq=seq, reasons=("approval",), wake_in=None, questions=(question,))


async def park(world: World, worker: WorkerId, row: Parked, **more: Any) -> Verdict:
    conn = more.get("conn") or world.store
    return (await parking.park(conn, worker=worker, runs=[row]))[row.run_id]


async def decide(world: World, run: RunId, *, conn: Any = None, attempt: int = 1) -> Any:
    return await approvals.decide(
        conn or world.store,
        run,
        step_key=QUESTION.step_key,
        digest=QUESTION.digest,
        attempt=attempt,
        decision=Decision.APPROVED,
        by="ada",
    )


async def row_of(world: World, run: RunId) -> Any:
    [row] = await world.sql("SELECT * FROM rowlock.run_parked WHERE run_id = $1", run)
    return row


# -------------------------------------------------------------------- park and wake


async def test_parked_run_keeps_what_it_is_and_when_it_wakes(world: World) -> None:
    worker, [run] = await world.running(linked=True, key="k", priority=3)
    before = await world.value("SELECT rowlock.now()")
    assert await park(world, worker, parked(run)) is Verdict.DONE
    row = await row_of(world, run.run_id)
    assert (row["key"], row["priority"], row["epoch"], row["attempt"]) == ("k", 3, 1, 1)
    assert (row["active_ms"], list(row["reasons"])) == (7, ["sleep"])
    assert 59 < (row["wake_at"] - before).total_seconds() < 65
    assert await world.changes(run.run_id) == [1, 2, 10]
    [event] = await work.history(world.store, run.run_id)
    assert (event.seq, event.kind, event.key, event.epoch) == (1, 67, "67:1", 1)
    await world.sound()


async def test_parked_run_wakes_when_its_time_has_come_and_not_before(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    await park(world, worker, parked(run))
    assert await parking.wake_parked(world.store) == 0
    await world.later(61)
    assert await parking.wake_parked(world.store) == 1
    assert await world.changes(run.run_id) == [1, 2, 10, 8]
    [again] = await world.claim(worker)
    assert (again.run_id, again.epoch, again.active_ms, again.takeovers) == (run.run_id, 2, 7, 0)
    await world.sound()


async def test_repeated_park_says_that_it_was_done_wherever_the_run_is_now(world: World) -> None:
    worker, runs = await world.running(3)
    rows = [parked(run, wake_in=0.0) for run in runs]
    first = await parking.park(world.store, worker=worker, runs=rows)
    assert set(first.values()) == {Verdict.DONE}
    await parking.wake_parked(world.store)
    heir = await world.worker()
    [claimed] = await world.claim(heir, 1)
    await intake.request_cancel(world.store, [runs[2].run_id], by="ada")
    assert {await world.place(run.run_id) for run in runs} == {"lease", "ready", "final"}
    again = await parking.park(world.store, worker=worker, runs=rows)
    assert set(again.values()) == {Verdict.ALREADY_DONE}
    assert await world.place(claimed.run_id) == "lease"
    await world.sound()


async def test_lost_run_is_not_parked(world: World) -> None:
    worker, [run] = await world.running()
    await workers.fence(world.store, [worker], reason=FenceReason.WORKER_DIED)
    assert await park(world, worker, asking(run)) is Verdict.LOST
    heir = await world.worker()
    [again] = await world.claim(heir)
    assert await park(world, worker, asking(run)) is Verdict.LOST
    assert await world.place(run.run_id) == "lease"
    assert await world.count("approval") == 0
    assert (await work.history(world.store, again.run_id)) == []
    await world.sound()


async def test_carried_entry_is_kept_unless_it_was_written(world: World) -> None:
    worker, _ = await world.running()
    await workers.fence(world.store, [worker], reason=FenceReason.WORKER_DIED)
    heir = await world.worker()
    [second] = await world.claim(heir)
    await park(world, heir, parked(second, wake_in=0.0))
    await parking.wake_parked(world.store)
    [third] = await world.claim(heir)
    assert [carry.epoch for carry in third.carry] == [1]
    event = step(third, 2, kind=64)  # type: ignore[arg-type]
    await work.append(world.store, worker=heir, events=[event])
    await park(world, heir, parked(third, seq=3, wake_in=0.0))
    await parking.wake_parked(world.store)
    [fourth] = await world.claim(heir)
    assert fourth.carry == ()
    await world.sound()


async def test_wish_to_cancel_ends_a_run_that_parks(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    await intake.request_cancel(world.store, [run.run_id], by="ada", reason="no")
    row = asking(run)
    assert await park(world, worker, row) is Verdict.DONE
    final = await world.final(run.run_id)
    assert (final["status"], final["message"]) == (3, "cancelled by ada: no")
    assert await park(world, worker, row) is Verdict.ALREADY_DONE
    assert await world.changes(run.run_id) == [1, 2, 9]
    assert await world.count("approval") == await world.count("wish") == 0
    await world.sound()


async def test_cancel_ends_a_parked_run_at_once(world: World) -> None:
    worker, [run] = await world.running()
    await park(world, worker, asking(run))
    assert await intake.request_cancel(world.store, [run.run_id], by="ada") == [run.run_id]
    assert await approvals.pending_approvals(world.store) == []
    await world.sound()


# -------------------------------------------------------------------- suspend and continue


@pytest.mark.parametrize("place", ["ready", "backlog", "timer", "parked"])
async def test_waiting_run_is_suspended_at_once_and_continues(world: World, place: str) -> None:
    worker, [run] = await world.running(linked=True)
    if place == "timer":
        await work.finish(world.store, worker=worker, events=[], finals=[failure(run, retry_in=60)])
    elif place == "parked":
        await park(world, worker, parked(run, wake_in=0.0))
    else:
        await work.release(world.store, worker=worker, runs=[(run.run_id, 1, 0)])
    if place == "backlog":
        await world.sql("INSERT INTO rowlock.run_backlog SELECT * FROM rowlock.run_ready")
        await world.sql("DELETE FROM rowlock.run_ready")
    assert await world.place(run.run_id) == place

    asked = await parking.request_suspend(world.store, [run.run_id], by="ada")
    assert asked == [run.run_id]
    reasons = list((await row_of(world, run.run_id))["reasons"])
    assert reasons == (["sleep", "suspended"] if place == "parked" else ["suspended"])
    await world.later(120)
    assert await parking.wake_parked(world.store) == 0
    assert await parking.suspend_waiting(world.store) == []
    assert await parking.request_suspend(world.store, [run.run_id], by="bob") == [run.run_id]

    assert await parking.request_continue(world.store, [run.run_id]) == [run.run_id]
    assert await parking.request_continue(world.store, [run.run_id]) == []
    assert await world.place(run.run_id) == "ready"
    assert (await world.changes(run.run_id))[-2:] == [11, 12]
    assert await world.count("wish") == 0
    await world.sound()


async def test_running_run_is_wished_to_be_suspended_and_its_park_does_it(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    assert await parking.request_suspend(world.store, [run.run_id], by="ada", reason="wait") == []
    assert await workers.wishes(world.store, [worker]) == [
        Wish(run.run_id, worker, WishKind.SUSPEND, "wait")
    ]
    assert await park(world, worker, parked(run, reasons=(), wake_in=None)) is Verdict.DONE
    assert list((await row_of(world, run.run_id))["reasons"]) == ["suspended"]
    assert await world.changes(run.run_id) == [1, 2, 11]
    assert await parking.request_suspend(world.store, [run.run_id], by="ada") == [run.run_id]
    await world.sound()


async def test_run_that_leaves_for_a_suspension_taken_back_meanwhile_goes_on(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    await parking.request_suspend(world.store, [run.run_id], by="ada")
    assert await parking.request_continue(world.store, [run.run_id]) == [run.run_id]
    row = parked(run, reasons=(), wake_in=None)
    assert await park(world, worker, row) is Verdict.DONE
    assert await world.place(run.run_id) == "ready"
    assert await park(world, worker, row) is Verdict.ALREADY_DONE
    await world.sound()


async def test_answer_does_not_wake_a_suspended_run_but_is_there_when_it_continues(
    world: World,
) -> None:
    worker, [run] = await world.running()
    await park(world, worker, asking(run))
    await parking.request_suspend(world.store, [run.run_id], by="ada")
    await decide(world, run.run_id)
    assert await world.place(run.run_id) == "parked"
    await parking.request_continue(world.store, [run.run_id])
    assert await world.place(run.run_id) == "ready"
    assert len(await approvals.answers(world.store, run.run_id)) == 1
    await world.sound()


async def test_suspended_run_of_a_dead_worker_is_suspended_by_the_sweep(world: World) -> None:
    worker, [run] = await world.running()
    await parking.request_suspend(world.store, [run.run_id], by="ada")
    assert await parking.suspend_waiting(world.store) == []
    await workers.fence(world.store, [worker], reason=FenceReason.WORKER_DIED)
    assert await parking.suspend_waiting(world.store) == [run.run_id]
    assert await world.place(run.run_id) == "parked"
    await world.sound()


async def test_deadline_of_the_queue_stands_still_while_a_run_is_suspended(world: World) -> None:
    [run] = await world.enqueue(queue_deadline_seconds=100.0)
    await parking.request_suspend(world.store, [run], by="ada")
    await world.later(1000)
    assert await intake.expire_queued(world.store) == []
    await parking.request_continue(world.store, [run])
    assert await intake.expire_queued(world.store) == []
    await world.later(101)
    assert await intake.expire_queued(world.store) == [run]
    await world.sound()


async def test_wish_that_comes_too_late_is_cleared(world: World) -> None:
    worker, [run] = await world.running()
    await parking.request_suspend(world.store, [run.run_id], by="ada")
    await work.finish(world.store, worker=worker, events=[], finals=[end(run)])
    assert await world.count("wish") == 0
    assert await parking.request_suspend(world.store, [run.run_id, RunId(1)], by="ada") == []
    await world.sql(
        "INSERT INTO rowlock.wish (run_id, kind, asked_by) VALUES ($1, 2, 'ada')", run.run_id
    )
    assert await parking.suspend_waiting(world.store) == []
    assert await world.count("wish") == 0


async def test_cancel_ends_a_suspended_run(world: World) -> None:
    [run] = await world.enqueue()
    await parking.request_suspend(world.store, [run], by="ada")
    assert await intake.request_cancel(world.store, [run], by="ada") == [run]
    assert await world.count("wish") == 0
    await world.sound()


async def test_sweep_of_suspensions_passes_by_a_row_that_somebody_holds(world: World) -> None:
    first, second = await world.enqueue(2)
    lock = "SELECT 1 FROM rowlock.run_ready WHERE run_id = $1 FOR UPDATE"
    async with world.holding(lock, first), asyncio.timeout(5):
        asked = await parking.request_suspend(world.store, [first, second], by="ada")
        assert asked == [second]
    assert await parking.suspend_waiting(world.store) == [first]


# -------------------------------------------------------------------- races


async def test_park_against_cancel_loses_no_wish(world: World) -> None:
    one, two = await world.connect(), await world.connect()
    for _ in range(150):
        worker, [run] = await world.running()
        verdict, _ = await race(
            (one, park(world, worker, parked(run), conn=one)),
            (two, intake.request_cancel(two, [run.run_id], by="ada")),
        )
        assert verdict is Verdict.DONE
        await intake.cancel_waiting(world.store)
        assert (await world.final(run.run_id))["status"] == FinalStatus.CANCELLED
    assert await account(world, 150) == {"final": 150}


async def test_park_against_fence_parks_or_moves_each_run_once(world: World) -> None:
    one, two = await world.connect(), await world.connect()
    seen: Counter[str] = Counter()
    for _ in range(200):
        worker, [run] = await world.running()
        verdict, fenced = await race(
            (one, park(world, worker, parked(run), conn=one)),
            (two, workers.fence(two, [worker], reason=FenceReason.WORKER_DIED)),
        )
        moved = fenced.requeued == (run.run_id,)
        assert moved == (verdict is Verdict.LOST)
        seen[await world.place(run.run_id)] += 1
        await intake.request_cancel(world.store, [run.run_id], by="test")
    assert set(seen) == {"parked", "ready"}, seen
    assert await account(world, 200) == {"final": 200}


async def test_park_against_suspend_leaves_the_run_suspended(world: World) -> None:
    one, two = await world.connect(), await world.connect()
    for _ in range(150):
        worker, [run] = await world.running()
        await race(
            (one, park(world, worker, parked(run, wake_in=0.0), conn=one)),
            (two, parking.request_suspend(two, [run.run_id], by="ada")),
        )
        await parking.suspend_waiting(world.store)
        assert await parking.wake_parked(world.store) == 0
        assert "suspended" in (await row_of(world, run.run_id))["reasons"]
        await intake.request_cancel(world.store, [run.run_id], by="test")
    assert await account(world, 150) == {"final": 150}


async def test_park_against_continue_never_leaves_the_run_suspended(world: World) -> None:
    one, two = await world.connect(), await world.connect()
    for _ in range(150):
        worker, [run] = await world.running()
        await parking.request_suspend(world.store, [run.run_id], by="ada")
        await race(
            (one, park(world, worker, parked(run, reasons=(), wake_in=None), conn=one)),
            (two, parking.request_continue(two, [run.run_id])),
        )
        assert await world.place(run.run_id) == "ready"
        await intake.request_cancel(world.store, [run.run_id], by="test")
    assert await account(world, 150) == {"final": 150}


async def test_sweep_against_continue_never_leaves_the_run_suspended(world: World) -> None:
    one, two = await world.connect(), await world.connect()
    for _ in range(100):
        [run] = await world.enqueue()
        await world.sql(
            "INSERT INTO rowlock.wish (run_id, kind, asked_by) VALUES ($1, 2, 'ada')", run
        )
        await race((one, parking.suspend_waiting(one)), (two, parking.request_continue(two, [run])))
        assert await world.place(run) == "ready"
        await intake.request_cancel(world.store, [run], by="test")
    assert await account(world, 100) == {"final": 100}


async def test_park_against_decide_never_strands_an_answered_run(world: World) -> None:
    """The question stood already; the run parks for it again while somebody answers it."""
    one, two = await world.connect(), await world.connect()
    for _ in range(200):
        worker, [run] = await world.running()
        await park(world, worker, asking(run))
        await world.sql("UPDATE rowlock.run_parked SET wake_at = rowlock.now()")
        await parking.wake_parked(world.store)
        [again] = await world.claim(worker)
        _, decided = await race(
            (one, park(world, worker, asking(again, seq=2), conn=one)),
            (two, decide(world, run.run_id, conn=two)),
        )
        assert decided.outcome.value == "decided"
        assert await world.place(run.run_id) == "ready"
        await intake.request_cancel(world.store, [run.run_id], by="test")
    assert await account(world, 200) == {"final": 200}


async def test_wake_against_cancel_ends_each_run_once(world: World) -> None:
    one, two = await world.connect(), await world.connect()
    for _ in range(150):
        worker, [run] = await world.running()
        await park(world, worker, parked(run, wake_in=0.0))
        await race(
            (one, parking.wake_parked(one)),
            (two, intake.request_cancel(two, [run.run_id], by="ada")),
        )
        await intake.cancel_waiting(world.store)
        assert await world.place(run.run_id) == "final"
    assert await account(world, 150) == {"final": 150}


async def test_park_waits_for_an_answer_that_is_being_written(world: World) -> None:
    worker, [run] = await world.running()
    await park(world, worker, asking(run))
    await world.sql("UPDATE rowlock.run_parked SET wake_at = rowlock.now()")
    await parking.wake_parked(world.store)
    [again] = await world.claim(worker)
    parker = await world.connect()
    answer = "UPDATE rowlock.approval SET decided_at = rowlock.now(), decision = 1 RETURNING 1"
    async with world.holding(answer):
        parks = asyncio.create_task(park(world, worker, asking(again, seq=2), conn=parker))
        await world.blocked(parker)
    assert await parks is Verdict.DONE
    assert await world.place(run.run_id) == "ready"
    await world.sound()
