"""A worker claims, writes and ends runs; whatever it repeats, it is told what the first try did."""

from __future__ import annotations

import pytest

from rowlock.errors import RowRejected
from rowlock.states import (
    ChangeKind,
    EventKind,
    FailureReason,
    FenceReason,
    FinalStatus,
    Place,
    WishKind,
)
from rowlock.store.types import RunId, Verdict, WorkerId
from tests.integration.store.conformance.subjects import Stand, Subject, end, retry, step


async def test_a_claim_leases_no_more_than_it_asks_for(subject: Subject) -> None:
    await subject.enqueue(3)
    worker = await subject.worker()

    assert len(await subject.claim(worker, 2)) == 2
    assert len(await subject.claim(worker, 2)) == 1
    assert await subject.claim(worker, 2) == []


async def test_a_claim_takes_only_runs_of_its_pool(subject: Subject) -> None:
    other = await subject.store.ensure_pool(namespace="team", name="gpu")
    await subject.enqueue(pool_id=other)
    [mine] = await subject.enqueue()

    assert await subject.order() == [mine]


async def test_each_lease_raises_the_epoch(subject: Subject) -> None:
    worker, [run] = await subject.running()
    epochs = [run.epoch]
    for _ in range(3):
        await subject.store.release(worker=worker, runs=[(run.run_id, run.epoch, 0)])
        run = await subject.claim_one(worker)
        epochs.append(run.epoch)

    assert epochs == [1, 2, 3, 4]
    assert await subject.stand(run.run_id) == Stand(Place.LEASE, 4, 1, 0, worker)


async def test_a_claim_without_an_answer_is_adopted(subject: Subject) -> None:
    worker, runs = await subject.running(3)
    [lost] = runs[:1]
    known = [run.run_id for run in runs[1:]]
    token = subject.token()
    adopted = await subject.store.adopt(worker=worker, token=token, known=known)

    assert adopted == [lost]
    await subject.enqueue()
    late = await subject.store.claim(worker=worker, pool=subject.pool, token=token, limit=5)
    assert late == [], "a claim that arrives after its adoption must take nothing"
    assert len(await subject.claim(worker)) == 1


async def test_a_fenced_worker_can_do_nothing(subject: Subject) -> None:
    worker, [run] = await subject.running()
    await subject.enqueue()
    await subject.store.fence([worker], reason=FenceReason.WORKER_DIED)

    token = subject.token()
    assert await subject.store.claim(worker=worker, pool=subject.pool, token=token, limit=1) is None
    assert await subject.store.adopt(worker=worker, token=token, known=[]) is None
    appended = await subject.store.append(worker=worker, events=[step(run, 1)])
    finished = await subject.store.finish(worker=worker, events=[step(run, 1)], finals=[end(run)])
    assert appended.fenced
    assert finished.fenced
    released = await subject.store.release(worker=worker, runs=[(run.run_id, run.epoch, 0)])
    assert released == {run.run_id: Verdict.LOST}
    assert await subject.beat(worker) == set()
    assert await subject.store.history(run.run_id) == []
    assert await subject.ends(run.run_id) == []


async def test_an_unknown_worker_is_as_good_as_fenced(subject: Subject) -> None:
    [run] = await subject.enqueue()
    nobody = WorkerId(987_654_321)

    assert await subject.store.claim(worker=nobody, pool=subject.pool, token=1, limit=1) is None
    assert await subject.beat(nobody) == set()
    assert await subject.place(run) is Place.READY


async def test_history_is_read_in_the_order_of_its_numbers(subject: Subject) -> None:
    worker, [run] = await subject.running()
    second, first = step(run, 2, kind=EventKind.STEP_INTENT), step(run, 1, body=b'"x"')
    await subject.store.append(worker=worker, events=[second, first])

    assert [tuple(event)[:9] for event in await subject.store.history(run.run_id)] == [
        tuple(first)[:9],
        tuple(second)[:9],
    ]


async def test_a_number_that_is_taken_stays_as_it_is(subject: Subject) -> None:
    worker, [run] = await subject.running()
    for body in (b"1", b"2"):
        flushed = await subject.store.append(worker=worker, events=[step(run, 1, body=body)])
        assert (flushed.fenced, flushed.lost) == (False, frozenset())

    assert [event.body for event in await subject.store.history(run.run_id)] == [b"1"]


async def test_a_batch_names_the_runs_that_are_lost_and_writes_the_others(
    subject: Subject,
) -> None:
    worker, [kept, lost] = await subject.running(2)
    await subject.store.release(worker=worker, runs=[(lost.run_id, lost.epoch, 0)])
    flushed = await subject.store.append(worker=worker, events=[step(kept, 1), step(lost, 1)])

    assert flushed.lost == {lost.run_id}
    assert len(await subject.store.history(kept.run_id)) == 1
    assert await subject.store.history(lost.run_id) == []


async def test_an_older_epoch_of_the_same_worker_is_lost(subject: Subject) -> None:
    worker, [old] = await subject.running()
    await subject.store.release(worker=worker, runs=[(old.run_id, old.epoch, 0)])
    new = await subject.claim_one(worker)

    assert (await subject.store.append(worker=worker, events=[step(old, 1)])).lost == {old.run_id}
    verdicts = (await subject.end(worker, old)).finals
    assert verdicts == {old.run_id: Verdict.LOST}
    assert await subject.place(new.run_id) is Place.LEASE


async def test_an_event_that_can_never_be_stored_is_refused_with_its_batch(
    subject: Subject,
) -> None:
    worker, [run] = await subject.running()
    bad = step(run, 2)._replace(key="a\0b")
    with pytest.raises(RowRejected):
        await subject.store.append(worker=worker, events=[step(run, 1), bad])
    with pytest.raises(RowRejected):
        await subject.store.finish(
            worker=worker, events=[], finals=[end(run, FinalStatus.FAILED, message="\0")]
        )

    assert await subject.store.history(run.run_id) == []
    assert await subject.place(run.run_id) is Place.LEASE


async def test_a_result_ends_the_run(subject: Subject) -> None:
    worker, [run] = await subject.running(linked=True)
    final = end(run, outcome="ok", step=2, tokens_in=7, result=b'"done"')
    flushed = await subject.store.finish(
        worker=worker, events=[step(run, 1), step(run, 2)], finals=[final]
    )

    assert flushed.finals == {run.run_id: Verdict.DONE}
    [ended] = await subject.ends(run.run_id)
    assert (ended.attempt, ended.epoch, ended.status) == (1, 1, FinalStatus.SUCCEEDED)
    assert (ended.outcome, ended.step) == ("ok", 2)
    assert len(await subject.store.history(run.run_id)) == 2
    assert (await subject.kinds(run.run_id))[-1] is ChangeKind.ENDED


async def test_an_end_that_is_repeated_was_done_already(subject: Subject) -> None:
    worker, [run] = await subject.running()
    events, finals = [step(run, 1)], [end(run)]
    verdicts = []
    for _ in range(3):
        flushed = await subject.store.finish(worker=worker, events=events, finals=finals)
        assert flushed.lost == frozenset()
        verdicts.append(flushed.finals[run.run_id])

    assert verdicts == [Verdict.DONE, Verdict.ALREADY_DONE, Verdict.ALREADY_DONE]
    assert len(await subject.ends(run.run_id)) == 1
    assert len(await subject.store.history(run.run_id)) == 1


async def test_the_end_of_another_worker_is_no_earlier_try(subject: Subject) -> None:
    worker, [run] = await subject.running()
    await subject.end(worker, run)
    other = await subject.worker()

    flushed = await subject.end(other, run)

    assert flushed.finals == {run.run_id: Verdict.LOST}
    assert flushed.lost == {run.run_id}


async def test_a_lost_run_keeps_its_batch_from_nothing(subject: Subject) -> None:
    worker, [kept, lost] = await subject.running(2)
    await subject.store.release(worker=worker, runs=[(lost.run_id, lost.epoch, 0)])
    flushed = await subject.store.finish(
        worker=worker, events=[step(kept, 1), step(lost, 1)], finals=[end(kept), end(lost)]
    )

    assert flushed.finals == {kept.run_id: Verdict.DONE, lost.run_id: Verdict.LOST}
    assert await subject.place(lost.run_id) is Place.READY
    assert await subject.store.history(lost.run_id) == []


async def test_a_failed_attempt_is_followed_by_another_after_its_wait(subject: Subject) -> None:
    worker, [run] = await subject.running(linked=True)
    verdicts = [
        (await subject.store.finish(worker=worker, events=[], finals=[retry(run, 30)])).finals
        for _ in range(2)
    ]
    assert [v[run.run_id] for v in verdicts] == [Verdict.DONE, Verdict.ALREADY_DONE]
    assert await subject.stand(run.run_id) == Stand(Place.TIMER, 1, 2, 0, None)
    assert await subject.due_in(run.run_id) == pytest.approx(30, abs=2)
    assert await subject.store.wake_due() == 0
    await subject.later(31)
    assert await subject.store.wake_due() == 1

    again = await subject.claim_one()
    assert (again.run_id, again.epoch, again.attempt, again.takeovers) == (run.run_id, 2, 2, 0)
    [carry] = again.carry
    assert (carry.event, carry.reason, carry.message) == (
        EventKind.ATTEMPT_FAILED,
        FailureReason.AGENT_ERROR,
        "it broke",
    )
    [first] = await subject.ends(run.run_id)
    assert (first.attempt, first.status) == (1, FinalStatus.FAILED)
    assert await subject.kinds(run.run_id) == [
        ChangeKind.QUEUED,
        ChangeKind.CLAIMED,
        ChangeKind.RETRYING,
        ChangeKind.WOKEN,
        ChangeKind.CLAIMED,
    ]


async def test_no_more_timers_are_woken_than_asked_for(subject: Subject) -> None:
    worker, runs = await subject.running(3)
    await subject.store.finish(
        worker=worker, events=[], finals=[retry(run, 10 * n) for n, run in enumerate(runs)]
    )
    await subject.later(60)

    assert await subject.store.wake_due(2) == 2
    assert await subject.places([run.run_id for run in runs]) == [
        Place.READY,
        Place.READY,
        Place.TIMER,
    ]


async def test_a_release_is_a_hand_over_and_no_takeover(subject: Subject) -> None:
    worker, [run] = await subject.running(linked=True)
    verdicts = [
        await subject.store.release(worker=worker, runs=[(run.run_id, run.epoch, 1234)])
        for _ in range(2)
    ]

    assert [v[run.run_id] for v in verdicts] == [Verdict.DONE, Verdict.ALREADY_DONE]
    again = await subject.claim_one()
    assert (again.epoch, again.takeovers, again.active_ms) == (2, 0, 1234)
    [carry] = again.carry
    assert (carry.event, carry.reason, carry.epoch) == (EventKind.HANDED_OVER, "Drained", 1)
    late = await subject.store.release(worker=worker, runs=[(run.run_id, run.epoch, 1234)])
    assert late == {run.run_id: Verdict.ALREADY_DONE}
    assert ChangeKind.RELEASED in await subject.kinds(run.run_id)


async def test_a_hand_over_is_known_even_after_the_next_owner_wrote_it_down(
    subject: Subject,
) -> None:
    worker, [run] = await subject.running()
    released = [(run.run_id, run.epoch, 0)]
    await subject.store.release(worker=worker, runs=released)
    owner = await subject.worker()
    again = await subject.claim_one(owner)
    await subject.store.append(
        worker=owner, events=[step(again, 1, kind=EventKind.HANDED_OVER, body=b"{}")]
    )
    await subject.store.fence([owner], reason=FenceReason.WORKER_DIED)

    verdict = await subject.store.release(worker=worker, runs=released)

    assert verdict == {run.run_id: Verdict.ALREADY_DONE}


async def test_what_was_carried_is_carried_on_until_somebody_writes_it_down(
    subject: Subject,
) -> None:
    worker, [run] = await subject.running()
    await subject.store.release(worker=worker, runs=[(run.run_id, run.epoch, 0)])
    second = await subject.worker()
    unwritten = await subject.claim_one(second)
    await subject.store.release(worker=second, runs=[(run.run_id, unwritten.epoch, 0)])
    third = await subject.worker()
    both = await subject.claim_one(third)
    assert [carry.epoch for carry in both.carry] == [1, 2]
    await subject.store.append(
        worker=third,
        events=[step(both, n, kind=EventKind.HANDED_OVER, body=b"{}") for n in (1, 2)],
    )
    await subject.store.release(worker=third, runs=[(run.run_id, both.epoch, 0)])

    last = await subject.claim_one()

    assert [carry.epoch for carry in last.carry] == [3]


async def test_a_wish_to_cancel_reaches_the_worker_and_is_repeated_until_it_is_done(
    subject: Subject,
) -> None:
    worker, [run] = await subject.running()
    for _ in range(2):
        assert await subject.store.request_cancel([run.run_id], by="ada", reason="no") == []
        [wish] = await subject.store.wishes([worker])
        assert (wish.run_id, wish.worker_id, wish.kind, wish.reason) == (
            run.run_id,
            worker,
            WishKind.CANCEL,
            "no",
        )
    assert await subject.store.cancel_waiting() == []
    cancelled = end(run, FinalStatus.CANCELLED, reason="Cancelled")
    await subject.store.finish(worker=worker, events=[], finals=[cancelled])

    assert await subject.store.wishes([worker]) == []
    assert await subject.wished() == set()
    assert await subject.store.request_cancel([run.run_id], by="ada") == [run.run_id]


async def test_a_result_that_was_written_beats_a_wish(subject: Subject) -> None:
    worker, [run] = await subject.running()
    await subject.store.request_cancel([run.run_id], by="ada")
    await subject.end(worker, run)

    [ended] = await subject.ends(run.run_id)
    assert ended.status is FinalStatus.SUCCEEDED


async def test_a_wished_run_is_not_tried_again(subject: Subject) -> None:
    worker, [run] = await subject.running()
    await subject.store.request_cancel([run.run_id], by="ada", reason="no")
    await subject.store.finish(worker=worker, events=[], finals=[retry(run)])

    [ended] = await subject.ends(run.run_id)
    assert (ended.status, ended.reason) == (FinalStatus.CANCELLED, FailureReason.CANCELLED)
    assert ended.message == "cancelled by ada: no"
    assert await subject.wished() == set()


async def test_a_wished_run_ends_instead_of_being_handed_over(subject: Subject) -> None:
    worker, [run] = await subject.running()
    await subject.store.request_cancel([run.run_id], by="ada")
    released = [(run.run_id, run.epoch, 5)]

    verdicts = [await subject.store.release(worker=worker, runs=released) for _ in range(2)]

    assert [v[run.run_id] for v in verdicts] == [Verdict.DONE, Verdict.ALREADY_DONE]
    [ended] = await subject.ends(run.run_id)
    assert (ended.status, ended.message) == (FinalStatus.CANCELLED, "cancelled by ada")


async def test_a_run_that_waits_for_its_retry_is_cancelled_at_once(subject: Subject) -> None:
    worker, [run] = await subject.running()
    await subject.store.finish(worker=worker, events=[], finals=[retry(run)])

    assert await subject.store.request_cancel([run.run_id], by="ada") == [run.run_id]
    statuses = [ended.status for ended in await subject.ends(run.run_id)]
    assert statuses == [FinalStatus.FAILED, FinalStatus.CANCELLED]


async def test_nothing_is_known_of_a_run_that_never_was(subject: Subject) -> None:
    nothing = RunId(1)

    assert await subject.store.bodies([nothing]) == {}
    assert await subject.store.history(nothing) == []
    assert await subject.store.snapshots([nothing]) == {}
