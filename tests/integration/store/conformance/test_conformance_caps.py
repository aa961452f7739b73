"""Runs over a cap wait, and start when there is room."""

from __future__ import annotations

from rowlock.states import ChangeKind, FenceReason, Place
from tests.integration.store.conformance.subjects import Subject, retry

READY, BACKLOG, LEASE = Place.READY, Place.BACKLOG, Place.LEASE


async def test_no_more_runs_start_than_the_cap_allows(subject: Subject) -> None:
    await subject.cap(max_running=2)
    runs = await subject.enqueue(4)
    assert await subject.places(runs) == [READY, READY, BACKLOG, BACKLOG]
    worker = await subject.worker()
    [first, _] = await subject.claim(worker)
    assert await subject.store.promote(subject.agent) == 0
    await subject.end(worker, first)

    assert await subject.store.promote(subject.agent) == 1
    assert (await subject.places(runs)).count(READY) == 1
    assert await subject.store.promote(subject.agent) == 0


async def test_each_key_has_its_own_cap(subject: Subject) -> None:
    await subject.cap(max_running_per_key=1)
    a = await subject.enqueue(2, key="a")
    b = await subject.enqueue(2, key="b")
    free = await subject.enqueue(2)

    assert await subject.places(a) == await subject.places(b) == [READY, BACKLOG]
    assert await subject.places(free) == [READY, READY]


async def test_both_caps_hold_at_once(subject: Subject) -> None:
    await subject.cap(max_running=3, max_running_per_key=2)
    a = await subject.enqueue(3, key="a")
    b = await subject.enqueue(3, key="b")

    assert await subject.places([*a, *b]) == [READY, READY, BACKLOG, READY, BACKLOG, BACKLOG]


async def test_keys_take_turns_in_the_backlog(subject: Subject) -> None:
    await subject.cap(max_running=1)
    many = await subject.enqueue(4, key="many")
    few = await subject.enqueue(2, key="few")
    worker = await subject.worker()
    order = []
    for _ in range(6):
        [run] = await subject.claim(worker)
        order.append(run.run_id)
        await subject.end(worker, run)
        await subject.store.promote(subject.agent)

    assert order == [*many[:2], few[0], many[2], few[1], many[3]]


async def test_no_more_starts_a_minute_than_the_rate_allows(subject: Subject) -> None:
    await subject.cap(starts_per_minute_per_key=2)
    runs = await subject.enqueue(5, key="a")
    worker = await subject.worker()
    started = 0
    for run in await subject.claim(worker):
        started += 1
        await subject.end(worker, run)
    assert started == 2
    await subject.later(58)
    assert await subject.store.promote(subject.agent) == 0
    await subject.later(4)

    assert await subject.store.promote(subject.agent) == 2
    assert (await subject.places(runs)).count(BACKLOG) == 1


async def test_a_run_that_ran_before_is_no_new_start(subject: Subject) -> None:
    await subject.cap(starts_per_minute_per_key=1)
    await subject.enqueue(2, key="a")
    worker = await subject.worker()
    [run] = await subject.claim(worker)
    await subject.store.release(worker=worker, runs=[(run.run_id, run.epoch, 0)])

    assert await subject.store.promote(subject.agent) == 1
    assert (await subject.claim_one(worker)).run_id == run.run_id
    assert await subject.store.promote(subject.agent) == 0


async def test_a_capped_run_that_comes_back_is_the_first_of_the_backlog(subject: Subject) -> None:
    await subject.cap(max_running=1)
    await subject.enqueue(2)
    worker = await subject.worker()
    [run] = await subject.claim(worker)
    await subject.store.fence([worker], reason=FenceReason.WORKER_DIED)
    assert await subject.place(run.run_id) is BACKLOG
    await subject.store.promote(subject.agent)

    assert await subject.order() == [run.run_id]


async def test_a_retry_comes_back_to_the_backlog(subject: Subject) -> None:
    await subject.cap(max_running=1)
    worker, [run] = await subject.running()
    await subject.store.finish(worker=worker, events=[], finals=[retry(run, 5)])
    [other] = await subject.enqueue()
    assert await subject.place(other) is READY
    await subject.later(6)
    await subject.store.wake_due()

    assert await subject.place(run.run_id) is BACKLOG
    assert await subject.store.promote(subject.agent) == 0


async def test_a_lower_cap_takes_runs_back_that_nobody_has_taken(subject: Subject) -> None:
    runs = await subject.enqueue(4, linked=True)
    worker = await subject.worker()
    [running] = await subject.claim(worker, 1)
    await subject.cap(max_running=2)

    assert running.run_id == runs[0]
    assert await subject.places(runs) == [LEASE, READY, BACKLOG, BACKLOG]
    assert await subject.kinds(runs[3]) == [ChangeKind.QUEUED, ChangeKind.HELD_BACK]
    assert await subject.kinds(runs[1]) == [
        ChangeKind.QUEUED,
        ChangeKind.HELD_BACK,
        ChangeKind.PROMOTED,
    ]


async def test_without_a_cap_the_backlog_is_empty(subject: Subject) -> None:
    await subject.cap(max_running=1)
    runs = await subject.enqueue(3)
    await subject.cap()

    assert await subject.places(runs) == [READY] * 3
    assert await subject.order() == runs


async def test_what_waits_keeps_its_order_when_a_cap_comes_and_goes(subject: Subject) -> None:
    runs = [*await subject.enqueue(2, priority=1), *await subject.enqueue(3)]
    for limit in (3, 1, 2):
        await subject.cap(max_running=limit)
    await subject.cap()

    assert await subject.order() == runs


async def test_a_round_promotes_for_every_agent(subject: Subject) -> None:
    await subject.cap(max_running=1)
    await subject.enqueue(2)
    worker = await subject.worker()
    [run] = await subject.claim(worker)
    await subject.end(worker, run)

    assert await subject.store.promote_waiting() == 1
    assert await subject.store.promote_waiting() == 0


async def test_a_run_in_the_backlog_can_be_cancelled_and_expire(subject: Subject) -> None:
    await subject.cap(max_running=1)
    first, second, third = [
        run for _ in range(3) for run in await subject.enqueue(queue_deadline_seconds=60.0)
    ]
    assert await subject.store.request_cancel([second], by="ada") == [second]
    await subject.later(61)

    assert set(await subject.store.expire_queued()) == {first, third}
