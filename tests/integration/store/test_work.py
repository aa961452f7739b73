"""A worker claims, writes, finishes, gives back, and proves each time that it holds the run."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime

import pytest

from rowlock.errors import RowRejected, StoreUnavailable
from rowlock.states import EventKind, FenceReason, FinalStatus
from rowlock.store import intake, work, workers
from rowlock.store.types import Flushed, RunId, Verdict, WorkerId
from tests.integration.store.world import World, end, failure, step

LOST_RUN = RunId(1)


# -------------------------------------------------------------------- claim


async def test_claim_takes_the_most_urgent_first_then_the_oldest(world: World) -> None:
    ordinary = await world.enqueue(2)
    [urgent] = await world.enqueue(priority=10)
    [idle] = await world.enqueue(priority=-10)
    worker = await world.worker()
    order = [(await world.claim(worker, 1))[0].run_id for _ in range(4)]
    assert order == [urgent, *ordinary, idle]


async def test_claim_brings_all_that_the_run_loop_needs(world: World) -> None:
    [run] = await world.enqueue(key="k", max_takeovers=3, linked=True, input=b"[1]", options=b"{}")
    worker = await world.worker()
    [claimed] = await world.claim(worker)
    assert (claimed.run_id, claimed.epoch, claimed.attempt) == (run, 1, 1)
    assert (claimed.agent_id, claimed.revision_id, claimed.key) == (
        world.agent,
        world.revision,
        "k",
    )
    assert (claimed.takeovers, claimed.max_takeovers, claimed.active_ms) == (0, 3, 0)
    assert (claimed.linked, claimed.carry, claimed.cancelled) == (True, (), False)
    assert abs((claimed.claimed_at - datetime.now(UTC)).total_seconds()) < 60
    body = (await work.bodies(world.store, [run, LOST_RUN]))[run]
    assert (body.input, body.options) == (b"[1]", b"{}")
    assert await work.revision(world.store, claimed.revision_id) == ("m:a", b"{}", "support", "d1")
    assert await world.changes(run) == [1, 2]
    await world.sound()


async def test_claim_gives_no_more_than_asked_and_only_of_its_pool(world: World) -> None:
    other = await intake.ensure_pool(world.store, namespace="team", name="gpu")
    await world.enqueue(3)
    await world.enqueue(2, pool_id=other)
    worker = await world.worker()
    assert len(await world.claim(worker, 2)) == 2
    assert len(await world.claim(worker)) == 1
    assert await world.claim(worker) == []


async def test_fenced_worker_claims_nothing_and_is_told(world: World) -> None:
    await world.enqueue()
    worker = await world.worker()
    await workers.fence(world.store, [worker], reason=FenceReason.WORKER_DIED)
    for who in (worker, WorkerId(10**12)):
        answer = await work.claim(world.store, worker=who, pool=world.pool, token=1, limit=1)
        assert answer is None
        assert await work.adopt(world.store, worker=who, token=1, known=[]) is None
    assert await world.count("run_ready") == 1


async def test_unknown_revision_is_none(world: World) -> None:
    assert await work.revision(world.store, 99) is None  # type: ignore[arg-type]


# -------------------------------------------------------------------- adopt


async def test_adopt_returns_only_leases_that_the_worker_does_not_know(world: World) -> None:
    worker, claimed = await world.running(3, linked=True)
    await world.running(1)
    known = [claimed[0].run_id]
    adopted = await work.adopt(world.store, worker=worker, token=50, known=known)
    assert adopted is not None
    assert {a.run_id: a for a in adopted} == {c.run_id: c for c in claimed[1:]}


async def test_claim_that_arrives_after_adopt_takes_nothing(world: World) -> None:
    await world.enqueue(2)
    worker = await world.worker()
    assert await work.adopt(world.store, worker=worker, token=50, known=[]) == []
    for token in (49, 50):
        late = await work.claim(world.store, worker=worker, pool=world.pool, token=token, limit=1)
        assert late == []
    fresh = await work.claim(world.store, worker=worker, pool=world.pool, token=51, limit=5)
    assert fresh is not None
    assert len(fresh) == 2


async def test_claim_that_waits_on_its_way_sees_the_floor_that_adopt_raised_meanwhile(
    world: World,
) -> None:
    await world.enqueue()
    worker = await world.worker()
    slow, other = await world.connect(), await world.connect()
    # Something holds the worker's row, so that both statements queue up behind it: adopt first.
    lock = "SELECT 1 FROM rowlock.worker WHERE worker_id = $1 FOR UPDATE"
    async with world.holding(lock, worker):
        adopting = asyncio.create_task(work.adopt(other, worker=worker, token=7, known=[]))
        await world.blocked(other)
        claiming = asyncio.create_task(
            work.claim(slow, worker=worker, pool=world.pool, token=7, limit=1)
        )
        await world.blocked(slow)
    adopted, claimed = await adopting, await claiming
    assert adopted is not None
    assert claimed is not None
    # Whichever came first: the lease is known, or there is none.
    assert [run.run_id for run in adopted] == [run.run_id for run in claimed]
    await world.sound()


# -------------------------------------------------------------------- append


async def test_events_come_back_in_order_as_they_were_written(world: World) -> None:
    worker, [run] = await world.running()
    events = [step(run, 2, body=b"two"), step(run, 1, body=b"one")]
    events.append(step(run, 3)._replace(key=None, dur_ms=None, body=None, attempt_try=4))
    assert await work.append(world.store, worker=worker, events=events) == Flushed(fenced=False)
    assert await work.history(world.store, run.run_id) == [events[1], events[0], events[2]]
    assert await work.history(world.store, LOST_RUN) == []


async def test_append_of_nothing_only_asks_whether_the_worker_is_fenced(world: World) -> None:
    worker = await world.worker()
    assert not (await work.append(world.store, worker=worker, events=[])).fenced
    await workers.leave(world.store, worker)
    assert (await work.append(world.store, worker=worker, events=[])).fenced


async def test_append_again_writes_nothing_twice(world: World) -> None:
    worker, runs = await world.running(5, linked=True)
    events = [step(run, seq) for run in runs for seq in (1, 2)]
    events += [step(run, 3, kind=EventKind.TAKEN_OVER) for run in runs]
    for _ in range(3):
        answer = await work.append(world.store, worker=worker, events=events)
        assert answer == Flushed(fenced=False)
    assert await world.count("run_event") == 15
    assert await world.changes(runs[0].run_id) == [1, 2, 4]


async def test_append_names_lost_runs_and_writes_the_others(world: World) -> None:
    worker, [mine, stale] = await world.running(2)
    _, [foreign] = await world.running(1)
    old = dataclasses.replace(stale, epoch=stale.epoch - 1)
    unknown = dataclasses.replace(mine, run_id=LOST_RUN)
    events = [step(run, 1) for run in (mine, old, foreign, unknown)]
    answer = await work.append(world.store, worker=worker, events=events)
    assert answer == Flushed(False, frozenset({stale.run_id, foreign.run_id, LOST_RUN}))
    assert [row["run_id"] for row in await world.sql("SELECT run_id FROM rowlock.run_event")] == [
        mine.run_id
    ]


async def test_fenced_worker_writes_nothing(world: World) -> None:
    worker, [run] = await world.running()
    await workers.fence(world.store, [worker], reason=FenceReason.NODE_LOST)
    appended = await work.append(world.store, worker=worker, events=[step(run, 1)])
    finished = await work.finish(
        world.store, worker=worker, events=[step(run, 1)], finals=[end(run)]
    )
    released = await work.release(world.store, worker=worker, runs=[(run.run_id, run.epoch, 0)])
    assert appended.fenced
    assert finished.fenced
    assert finished.finals == {}
    assert released == {run.run_id: Verdict.LOST}
    assert await world.count("run_event") == await world.count("run_final") == 0
    assert await world.place(run.run_id) == "ready"


@pytest.mark.parametrize(
    ("kind", "change"),
    [(EventKind.TAKEN_OVER, 4), (EventKind.HANDED_OVER, 6), (EventKind.ATTEMPT_FAILED, 7)],
)
async def test_event_about_the_whole_run_is_a_visible_change(
    world: World, kind: EventKind, change: int
) -> None:
    worker, [run] = await world.running(linked=True)
    await work.append(world.store, worker=worker, events=[step(run, 1), step(run, 2, kind=kind)])
    assert await world.changes(run.run_id) == [1, 2, change]
    newest = await world.value("SELECT max(seq) FROM rowlock.run_change")
    assert await world.value("SELECT revision FROM rowlock.run_lease") == newest


async def test_row_that_can_never_be_stored_is_told_from_a_database_that_is_away(
    world: World,
) -> None:
    worker, [run] = await world.running()
    bad = step(run, 1)._replace(key="nul \0 inside")
    with pytest.raises(RowRejected) as caught:
        await work.append(world.store, worker=worker, events=[step(run, 2), bad])
    assert caught.value.sqlstate == "22021"
    too_big = step(run, 1)._replace(dur_ms=2**40)
    with pytest.raises(RowRejected):
        await work.append(world.store, worker=worker, events=[too_big])
    assert await world.count("run_event") == 0
    await work.append(world.store, worker=worker, events=[step(run, 1)])


async def test_late_append_cannot_write_into_a_run_that_was_given_back(world: World) -> None:
    worker, [run] = await world.running()
    late = await world.connect()
    async with world.store.transaction():
        released = await work.release(world.store, worker=worker, runs=[(run.run_id, run.epoch, 0)])
        writing = asyncio.create_task(work.append(late, worker=worker, events=[step(run, 1)]))
        await world.blocked(late)
    assert released == {run.run_id: Verdict.DONE}
    assert (await writing).lost == {run.run_id}
    assert await world.count("run_event") == 0


# -------------------------------------------------------------------- finish


async def test_finish_writes_last_events_and_end_together(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    final = end(
        run, outcome="degraded", message="partly", step=7, active_ms=1500, tokens_in=10,
        tokens_out=20, cost_micro=30, result=b'{"ok":1}',
    )  # fmt: skip
    answer = await work.finish(
        world.store, worker=worker, events=[step(run, 1), step(run, 2)], finals=[final]
    )
    assert answer == Flushed(False, frozenset(), {run.run_id: Verdict.DONE})
    row = await world.final(run.run_id)
    assert (row["status"], row["outcome"], row["message"], row["step"]) == (
        1,
        "degraded",
        "partly",
        7,
    )
    assert (row["active_ms"], row["tokens_in"], row["tokens_out"]) == (1500, 10, 20)
    assert (row["cost_micro"], row["result"], row["epoch"]) == (30, b'{"ok":1}', 1)
    assert (row["worker_id"], row["claimed_at"]) == (worker, run.claimed_at)
    assert row["started_at"] == run.claimed_at
    assert len(await work.history(world.store, run.run_id)) == 2
    assert await world.changes(run.run_id) == [1, 2, 9]
    assert row["revision"] == await world.value("SELECT max(seq) FROM rowlock.run_change")
    await world.sound()


async def test_finish_again_says_that_it_was_done(world: World) -> None:
    worker, runs = await world.running(3)
    events, finals = [step(run, 1) for run in runs], [end(run) for run in runs]
    await work.finish(world.store, worker=worker, events=events[:2], finals=finals[:2])
    answer = await work.finish(world.store, worker=worker, events=events, finals=finals)
    assert answer.finals == {
        runs[0].run_id: Verdict.ALREADY_DONE,
        runs[1].run_id: Verdict.ALREADY_DONE,
        runs[2].run_id: Verdict.DONE,
    }
    assert answer.lost == frozenset()
    await world.sound()


async def test_finish_of_a_run_that_another_holds_is_lost_and_writes_nothing(world: World) -> None:
    worker, [run, mine] = await world.running(2)
    await work.release(world.store, worker=worker, runs=[(run.run_id, run.epoch, 0)])
    other = await world.worker()
    await world.claim(other)
    answer = await work.finish(
        world.store,
        worker=worker,
        events=[step(run, 1), step(mine, 1)],
        finals=[end(run), end(mine)],
    )
    assert answer.finals == {run.run_id: Verdict.LOST, mine.run_id: Verdict.DONE}
    assert answer.lost == {run.run_id}
    assert await work.history(world.store, run.run_id) == []
    await world.sound()


async def test_finish_without_events_and_events_without_an_end(world: World) -> None:
    worker, [one, two] = await world.running(2, linked=True)
    answer = await work.finish(
        world.store,
        worker=worker,
        events=[step(two, 1, kind=EventKind.HANDED_OVER)],
        finals=[end(one)],
    )
    assert answer.finals == {one.run_id: Verdict.DONE}
    assert await world.place(two.run_id) == "lease"
    assert await world.changes(two.run_id) == [1, 2, 6]
    newest = await world.value(
        "SELECT max(seq) FROM rowlock.run_change WHERE run_id = $1", two.run_id
    )
    assert await world.value("SELECT revision FROM rowlock.run_lease") == newest
    assert (await work.finish(world.store, worker=worker, events=[], finals=[])).finals == {}
    await world.sound()


async def test_failed_attempt_with_a_retry_waits_for_its_timer(world: World) -> None:
    worker, [run] = await world.running(linked=True, key="k", priority=3)
    final = dataclasses.replace(failure(run, retry_in=10), active_ms=700)
    answer = await work.finish(world.store, worker=worker, events=[step(run, 1)], finals=[final])
    assert answer.finals == {run.run_id: Verdict.DONE}
    again = await work.finish(world.store, worker=worker, events=[step(run, 1)], finals=[final])
    assert again.finals == {run.run_id: Verdict.ALREADY_DONE}
    assert again.lost == frozenset()
    assert await world.place(run.run_id) == "timer"
    assert await world.changes(run.run_id) == [1, 2, 7]
    await world.sound()

    assert await intake.wake_due(world.store) == 0
    await world.later(11)
    assert await intake.wake_due(world.store) == 1
    [second] = await world.claim(worker)
    assert (second.attempt, second.epoch, second.active_ms, second.key) == (2, 2, 700, "k")
    [entry] = second.carry
    assert (entry.event, entry.epoch, entry.attempt) == (EventKind.ATTEMPT_FAILED, 1, 1)
    assert (entry.reason, entry.message) == ("AgentError", "it broke")
    assert entry.claimed_at == run.claimed_at
    assert await world.changes(run.run_id) == [1, 2, 7, 8, 2]
    await work.finish(world.store, worker=worker, events=[], finals=[end(second)])
    await world.sound()


async def test_started_at_is_the_first_claim_over_retries_and_takeovers(world: World) -> None:
    worker, [run] = await world.running()
    await work.finish(world.store, worker=worker, events=[], finals=[failure(run, retry_in=0)])
    await intake.wake_due(world.store)
    await world.claim(worker)
    await workers.fence(world.store, [worker], reason=FenceReason.WORKER_DIED)
    other = await world.worker()
    [third] = await world.claim(other)
    await work.finish(world.store, worker=other, events=[], finals=[end(third)])
    row = await world.final(run.run_id)
    assert row["started_at"] == run.claimed_at < third.claimed_at == row["claimed_at"]


# -------------------------------------------------------------------- release


async def test_release_is_a_hand_over_and_no_takeover(world: World) -> None:
    worker, [run] = await world.running(linked=True)
    runs = [(run.run_id, run.epoch, 1234)]
    assert await work.release(world.store, worker=worker, runs=runs) == {run.run_id: Verdict.DONE}
    assert await world.changes(run.run_id) == [1, 2, 5]
    await world.sound()
    [again] = await world.claim(await world.worker())
    assert (again.epoch, again.takeovers, again.active_ms) == (2, 0, 1234)
    [entry] = again.carry
    assert (entry.event, entry.epoch, entry.reason) == (EventKind.HANDED_OVER, 1, "Drained")


@pytest.mark.parametrize("progress", ["queued", "claimed", "written", "cancelled"])
async def test_release_again_says_that_it_was_done_however_far_the_run_got(
    world: World, progress: str
) -> None:
    worker, [run] = await world.running()
    runs = [(run.run_id, run.epoch, 0)]
    if progress == "cancelled":
        await intake.request_cancel(world.store, [run.run_id], by="ada")
    await work.release(world.store, worker=worker, runs=runs)
    if progress in ("claimed", "written"):
        other = await world.worker()
        [again] = await world.claim(other)
        if progress == "written":
            handed = step(again, 1, kind=EventKind.HANDED_OVER)
            await work.finish(world.store, worker=other, events=[handed], finals=[end(again)])
    assert await work.release(world.store, worker=worker, runs=runs) == {
        run.run_id: Verdict.ALREADY_DONE
    }
    await world.sound()


async def test_release_of_what_is_not_held_is_lost(world: World) -> None:
    worker, [run] = await world.running()
    runs = [(run.run_id, run.epoch + 1, 0), (LOST_RUN, 1, 0)]
    assert await work.release(world.store, worker=worker, runs=runs) == {
        run.run_id: Verdict.LOST,
        LOST_RUN: Verdict.LOST,
    }
    assert await work.release(world.store, worker=worker, runs=[]) == {}
    assert await world.place(run.run_id) == "lease"


async def test_carry_grows_until_an_owner_has_written_it(world: World) -> None:
    _, [run] = await world.running()
    worker = WorkerId(await world.value("SELECT worker_id FROM rowlock.run_lease"))
    for expected in (1, 2):
        await work.release(world.store, worker=worker, runs=[(run.run_id, run.epoch, 0)])
        [run] = await world.claim(worker)
        assert len(run.carry) == expected
    written = [step(run, seq, kind=EventKind.HANDED_OVER) for seq in (1, 2)]
    await work.append(world.store, worker=worker, events=written)
    await work.release(world.store, worker=worker, runs=[(run.run_id, run.epoch, 0)])
    [run] = await world.claim(worker)
    assert [entry.epoch for entry in run.carry] == [3]
    # Written in the very statement that ends the attempt: dropped as well.
    await work.finish(
        world.store,
        worker=worker,
        events=[step(run, 3, kind=EventKind.HANDED_OVER)],
        finals=[failure(run, retry_in=0)],
    )
    await intake.wake_due(world.store)
    [run] = await world.claim(worker)
    assert [entry.event for entry in run.carry] == [EventKind.ATTEMPT_FAILED]


# -------------------------------------------------------------------- a lost answer


async def test_lost_connection_is_one_clear_error_and_the_next_call_works(world: World) -> None:
    worker, [run] = await world.running()
    connection = await world.connect()
    lock = "SELECT 1 FROM rowlock.worker WHERE worker_id = $1 FOR UPDATE"
    async with world.holding(lock, worker) as raw:
        writing = asyncio.create_task(work.append(connection, worker=worker, events=[step(run, 1)]))
        await world.blocked(connection)
        from tests.integration.store.world import pid

        await raw.fetchval("SELECT pg_terminate_backend($1)", pid(connection))
        with pytest.raises(StoreUnavailable):
            await writing
    answer = await work.append(connection, worker=worker, events=[step(run, 1)])
    assert answer == Flushed(fenced=False)
    assert await world.count("run_event") == 1


async def test_status_words_are_those_of_the_code(world: World) -> None:
    worker, runs = await world.running(3)
    finals = [end(run, status) for run, status in zip(runs, FinalStatus, strict=True)]
    await work.finish(world.store, worker=worker, events=[], finals=finals)
    shown = [
        await world.value("SELECT ended FROM rowlock.run_status WHERE run_id = $1", run.run_id)
        for run in runs
    ]
    assert shown == ["Succeeded", "Failed", "Cancelled"]
