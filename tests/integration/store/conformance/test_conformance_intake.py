"""Runs come in once, and wait in their order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rowlock.errors import RowRejected
from rowlock.states import ChangeKind, FailureReason, FinalStatus, Place
from rowlock.store.types import Submission
from tests.integration.store.conformance.subjects import Subject


async def test_an_object_is_accepted_once(subject: Subject) -> None:
    [new] = subject.new(linked=True)
    [first] = await subject.store.enqueue([new])
    [again] = await subject.store.enqueue([new])

    assert (first.outcome, again.outcome) == (Submission.CREATED, Submission.EXISTS)
    assert again.run_id == first.run_id
    assert len(await subject.order()) == 1


async def test_an_object_twice_in_one_batch_is_accepted_once(subject: Subject) -> None:
    [new] = subject.new(linked=True)
    first, second = await subject.store.enqueue([new, new])

    assert (first.run_id, second.outcome) == (second.run_id, Submission.EXISTS)


async def test_a_key_is_accepted_once_and_refused_for_another_input(subject: Subject) -> None:
    [new] = subject.new(idempotency_key="order-1")
    [first] = await subject.store.enqueue([new])
    same, other = await subject.store.enqueue([new, replace(new, input=b'"else"')])

    assert (same.outcome, same.run_id) == (Submission.EXISTS, first.run_id)
    assert (other.outcome, other.run_id) == (Submission.DUPLICATE_KEY, first.run_id)
    assert len(await subject.order()) == 1


async def test_a_key_belongs_to_its_agent(subject: Subject) -> None:
    agent, revision = await subject.another_agent("research")
    [new] = subject.new(idempotency_key="order-1")
    answers = await subject.store.enqueue(
        [new, replace(new, agent_id=agent, revision_id=revision, input=b"2")]
    )

    assert [answer.outcome for answer in answers] == [Submission.CREATED] * 2


async def test_a_key_of_another_object_names_its_holder(subject: Subject) -> None:
    first, second = subject.new(2, linked=True, idempotency_key="order-1")
    kept, refused = await subject.store.enqueue([first, second])
    [from_code] = await subject.store.enqueue(subject.new(idempotency_key="order-1"))

    assert (kept.outcome, refused.outcome) == (Submission.CREATED, Submission.DUPLICATE_KEY)
    assert refused.holder == f"team/{first.name}"
    assert (from_code.outcome, from_code.run_id) == (Submission.EXISTS, kept.run_id)


async def test_a_pool_an_agent_and_a_revision_are_made_once(subject: Subject) -> None:
    assert await subject.store.ensure_pool(namespace="team", name="default") == subject.pool
    assert await subject.another_agent("support") == (subject.agent, subject.revision)
    newer = await subject.store.ensure_agent(
        namespace="team", name="support", entrypoint="m:b", spec=b"{}", digest="d2"
    )

    assert newer[0] == subject.agent
    assert await subject.store.revision(newer[1]) == ("m:b", b"{}", "support", "d2")
    assert await subject.store.revision(subject.revision) == ("m:a", b"{}", "support", "d1")


async def test_input_and_options_are_read_back(subject: Subject) -> None:
    [run] = await subject.enqueue(input=b'{"a":1}', options=b'{"max_attempts":3}')
    bodies = await subject.store.bodies([run])

    assert (bodies[run].input, bodies[run].options) == (b'{"a":1}', b'{"max_attempts":3}')


async def test_priority_goes_first_and_then_the_order_of_arrival(subject: Subject) -> None:
    low = await subject.enqueue(2)
    high = await subject.enqueue(2, priority=5)
    later = await subject.enqueue()

    assert await subject.order() == [*high, *low, *later]


async def test_keys_take_turns_however_much_one_of_them_has_queued(subject: Subject) -> None:
    many = await subject.enqueue(5, key="many")
    few = await subject.enqueue(2, key="few")

    assert await subject.order() == [*many[:2], few[0], many[2], few[1], *many[3:]]


async def test_keys_that_come_together_take_turns(subject: Subject) -> None:
    new = [one for key in ("b", None, "a") for one in subject.new(3, key=key)]
    runs = [answer.run_id for answer in await subject.store.enqueue(new)]

    assert await subject.order() == [runs[n] for n in (0, 3, 6, 1, 4, 7, 2, 5, 8)]


async def test_a_key_that_comes_later_is_not_put_behind_all_others(subject: Subject) -> None:
    many = await subject.enqueue(6, key="many")
    worker = await subject.worker()
    started = {run.run_id for run in await subject.claim(worker, 3)}
    [new] = await subject.enqueue(key="new")

    assert started == set(many[:3])
    assert await subject.order(worker) == [many[3], many[4], new, many[5]]


async def test_a_run_that_came_back_is_no_sign_of_how_far_the_queue_has_come(
    subject: Subject,
) -> None:
    worker, [back] = await subject.running()
    await subject.later(10)
    await subject.store.release(worker=worker, runs=[(back.run_id, back.epoch, 0)])
    many = await subject.enqueue(2, key="many")
    [one] = await subject.enqueue(key="one")

    assert await subject.order(worker) == [back.run_id, *many, one]


async def test_a_run_that_nobody_takes_in_time_fails(subject: Subject) -> None:
    [late, patient] = [
        *await subject.enqueue(queue_deadline_seconds=60.0, linked=True),
        *await subject.enqueue(),
    ]
    assert await subject.store.expire_queued() == []
    await subject.later(61)
    assert await subject.store.expire_queued() == [late]
    assert await subject.store.expire_queued() == []

    [end] = await subject.ends(late)
    assert (end.status, end.reason) == (FinalStatus.FAILED, FailureReason.QUEUE_DEADLINE_EXCEEDED)
    assert await subject.kinds(late) == [ChangeKind.QUEUED, ChangeKind.ENDED]
    assert await subject.order() == [patient]


async def test_the_queue_deadline_holds_until_the_first_claim(subject: Subject) -> None:
    worker, [run] = await subject.running(queue_deadline_seconds=60.0)
    await subject.store.release(worker=worker, runs=[(run.run_id, run.epoch, 0)])
    await subject.later(61)

    assert await subject.store.expire_queued() == []
    assert await subject.place(run.run_id) is Place.READY


async def test_a_run_that_can_never_be_stored_is_refused(subject: Subject) -> None:
    with pytest.raises(RowRejected) as caught:
        await subject.store.enqueue(subject.new(key="a\0b"))

    assert caught.value.sqlstate == "22021"
    assert await subject.order() == []


async def test_a_cancelled_run_in_the_queue_ends_at_once(subject: Subject) -> None:
    [run] = await subject.enqueue(linked=True)

    assert await subject.store.request_cancel([run], by="ada", reason="a typo") == [run]
    assert await subject.store.request_cancel([run], by="eve") == [run]
    [end] = await subject.ends(run)
    assert (end.status, end.reason) == (FinalStatus.CANCELLED, FailureReason.CANCELLED)
    assert end.message == "cancelled by ada: a typo"
    assert (await subject.kinds(run))[-1] is ChangeKind.ENDED
    assert await subject.wished() == set()
    assert await subject.order() == []


async def test_cancelling_an_unknown_run_does_nothing(subject: Subject) -> None:
    [run] = await subject.enqueue()
    await subject.store.request_cancel([run], by="ada")

    assert await subject.store.request_cancel([], by="ada") == []
    assert await subject.store.cancel_waiting() == []
