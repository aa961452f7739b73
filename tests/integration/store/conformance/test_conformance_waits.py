"""Runs wait without a worker: for a time, for a person, or because somebody suspended them."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.states import ChangeKind, Decision, EventKind, FenceReason, FinalStatus, Place
from rowlock.store.types import (
    Claimed,
    Decided,
    Deciding,
    NewQuestion,
    Parked,
    Redriving,
    RunId,
    Verdict,
    WorkerId,
)
from tests.integration.store.conformance.subjects import Subject, retry, step

READY, PARKED, LEASE = Place.READY, Place.PARKED, Place.LEASE


def question(
    digest: str = "d", *, step: str = "pay:1", expires_in: float | None = None
) -> NewQuestion:
    return NewQuestion(step, digest, "pay", b'{"cents":5}', expires_in)


def parked(
    run: Claimed,
    *reasons: str,
    wake_in: float | None = None,
    asks: tuple[NewQuestion, ...] = (),
    seq: int = 1,
) -> Parked:
    return Parked(run.run_id, run.epoch, seq, 7, reasons, wake_in, b"{}", asks)


async def park(subject: Subject, worker: WorkerId, *runs: Parked) -> list[Verdict]:
    return list((await subject.store.park(worker=worker, runs=runs)).values())


async def asking(subject: Subject, **fields: Any) -> tuple[WorkerId, Claimed]:
    """Return a run that is parked with a question, and who held it."""
    worker, [run] = await subject.running(linked=True)
    await park(subject, worker, parked(run, "approval", asks=(question(**fields),)))
    return worker, run


async def decide(subject: Subject, run: RunId, **given: Any) -> Decided:
    plain: dict[str, Any] = {"step_key": "pay:1", "digest": "d", "attempt": 1, "by": "ada"}
    plain |= {"decision": Decision.APPROVED}
    return await subject.store.decide(run, **(plain | given))


# -------------------------------------------------------------------- for a time


async def test_a_sleeping_run_is_woken_when_its_time_has_come(subject: Subject) -> None:
    worker, [run] = await subject.running(linked=True)
    waits = parked(run, "sleep", wake_in=60.0)
    assert await park(subject, worker, waits) == [Verdict.DONE]
    assert await park(subject, worker, waits) == [Verdict.ALREADY_DONE]
    assert await subject.place(run.run_id) is PARKED
    assert await subject.store.wake_parked() == 0
    await subject.later(61)
    assert await subject.store.wake_parked() == 1

    again = await subject.claim_one()
    assert (again.epoch, again.attempt, again.takeovers, again.active_ms) == (2, 1, 0, 7)
    [note] = await subject.store.history(run.run_id)
    assert (note.kind, note.key, note.epoch) == (EventKind.PARKED, "67:1", 1)
    assert await subject.kinds(run.run_id) == [
        ChangeKind.QUEUED,
        ChangeKind.CLAIMED,
        ChangeKind.PARKED,
        ChangeKind.WOKEN,
        ChangeKind.CLAIMED,
    ]


async def test_the_first_to_be_due_is_woken_first(subject: Subject) -> None:
    worker, [late, soon] = await subject.running(2)
    await park(
        subject,
        worker,
        parked(late, "sleep", wake_in=50.0),
        parked(soon, "sleep", wake_in=10.0),
    )
    await subject.later(60)

    assert await subject.store.wake_parked(1) == 1
    assert await subject.places([late.run_id, soon.run_id]) == [PARKED, READY]


async def test_a_lost_run_is_not_parked(subject: Subject) -> None:
    worker, [run] = await subject.running()
    await subject.store.release(worker=worker, runs=[(run.run_id, run.epoch, 0)])

    assert await park(subject, worker, parked(run, "sleep", wake_in=5.0)) == [Verdict.LOST]
    assert await subject.store.history(run.run_id) == []


async def test_a_fenced_worker_parks_nothing(subject: Subject) -> None:
    worker, [run] = await subject.running()
    await subject.store.fence([worker], reason=FenceReason.WORKER_DIED)

    assert await park(subject, worker, parked(run, "sleep", wake_in=5.0)) == [Verdict.LOST]


async def test_a_wished_run_ends_instead_of_being_parked(subject: Subject) -> None:
    worker, [run] = await subject.running()
    await subject.store.request_cancel([run.run_id], by="ada")
    waits = parked(run, "approval", asks=(question(),))

    assert await park(subject, worker, waits) == [Verdict.DONE]
    assert await park(subject, worker, waits) == [Verdict.ALREADY_DONE]
    [ended] = await subject.ends(run.run_id)
    assert ended.status is FinalStatus.CANCELLED
    assert await subject.store.pending_approvals(run.run_id) == []


async def test_a_parked_run_is_cancelled_at_once_and_never_expires(subject: Subject) -> None:
    worker, [run] = await subject.running(queue_deadline_seconds=10.0)
    await park(subject, worker, parked(run, "sleep", wake_in=600.0))
    await subject.later(60)
    assert await subject.store.expire_queued() == []

    assert await subject.store.request_cancel([run.run_id], by="ada") == [run.run_id]


async def test_what_failed_says_how_long_ago(subject: Subject) -> None:
    worker, [run] = await subject.running()
    events = [step(run, 1, kind=EventKind.STEP_FAILED), step(run, 2)]
    await subject.store.append(worker=worker, events=events)
    await subject.later(90)
    ages = [event.age for event in await subject.store.history(run.run_id)]

    assert ages[0] == pytest.approx(90, abs=5)
    assert ages[1] is None


async def test_a_capped_run_comes_back_to_the_backlog(subject: Subject) -> None:
    await subject.cap(max_running=1)
    worker, [run] = await subject.running()
    await park(subject, worker, parked(run, "sleep", wake_in=5.0))
    await subject.enqueue()
    await subject.later(6)
    await subject.store.wake_parked()

    assert await subject.place(run.run_id) is Place.BACKLOG


# -------------------------------------------------------------------- for a person


async def test_an_answer_wakes_the_run_that_waits_for_it(subject: Subject) -> None:
    _, run = await asking(subject)
    [pending] = await subject.store.pending_approvals(run.run_id)
    assert (pending.step_key, pending.digest, pending.tool) == ("pay:1", "d", "pay")
    assert pending.question == b'{"cents":5}'
    decided = await decide(subject, run.run_id, reason="fine")

    assert decided.outcome is Deciding.DECIDED
    assert await subject.place(run.run_id) is READY
    [answer] = await subject.store.answers(run.run_id)
    assert (answer.decision, answer.by, answer.reason) == (Decision.APPROVED, "ada", "fine")
    assert await subject.store.pending_approvals() == []


async def test_the_first_answer_stands(subject: Subject) -> None:
    _, run = await asking(subject)
    outcomes = [
        (await decide(subject, run.run_id)).outcome,
        (await decide(subject, run.run_id)).outcome,
        (await decide(subject, run.run_id, by="eve")).outcome,
        (await decide(subject, run.run_id, decision=Decision.DENIED)).outcome,
    ]

    assert outcomes == [
        Deciding.DECIDED,
        Deciding.ALREADY_DECIDED,
        Deciding.TAKEN,
        Deciding.TAKEN,
    ]


async def test_an_answer_to_another_question_is_refused(subject: Subject) -> None:
    _, run = await asking(subject)

    assert (await decide(subject, run.run_id, digest="x")).outcome is Deciding.OTHER_DIGEST
    assert (await decide(subject, run.run_id, step_key="x")).outcome is Deciding.UNKNOWN
    assert await subject.place(run.run_id) is PARKED


async def test_an_answer_after_the_end_comes_too_late(subject: Subject) -> None:
    _, run = await asking(subject)
    await subject.store.request_cancel([run.run_id], by="ada")

    assert (await decide(subject, run.run_id)).outcome is Deciding.OVER
    assert await subject.store.pending_approvals() == []


async def test_a_question_that_nobody_answers_expires(subject: Subject) -> None:
    _, run = await asking(subject, expires_in=60.0)
    assert await subject.store.expire_approvals() == []
    await subject.later(61)
    assert (await decide(subject, run.run_id)).outcome is Deciding.EXPIRED
    assert await subject.store.expire_approvals() == [run.run_id]
    assert (await decide(subject, run.run_id)).outcome is Deciding.EXPIRED

    assert await subject.place(run.run_id) is READY
    [answer] = await subject.store.answers(run.run_id)
    assert (answer.decision, answer.by) == (Decision.EXPIRED, "expiry")


async def test_a_question_stands_once_however_often_it_is_asked(subject: Subject) -> None:
    worker, run = await asking(subject)
    await subject.store.request_suspend([run.run_id], by="ada")
    await subject.store.request_continue([run.run_id])
    [again] = await subject.claim(worker)
    await park(subject, worker, parked(again, "approval", asks=(question(),), seq=2))

    assert len(await subject.store.pending_approvals(run.run_id)) == 1


async def test_a_run_that_parks_after_its_answer_goes_to_the_queue(subject: Subject) -> None:
    worker, run = await asking(subject)
    await subject.store.request_suspend([run.run_id], by="ada")
    await subject.store.request_continue([run.run_id])
    [again] = await subject.claim(worker)
    await decide(subject, run.run_id)
    await park(subject, worker, parked(again, "approval", asks=(question(),), seq=2))

    assert await subject.place(run.run_id) is READY


async def test_a_snapshot_brings_the_open_questions(subject: Subject) -> None:
    worker, run = await asking(subject)

    async def shown() -> list[tuple[str, str, str]]:
        snapshot = (await subject.store.snapshots([run.run_id]))[run.run_id]
        return [(one.step_key, one.digest, one.tool) for one in snapshot.questions]

    assert await shown() == [("pay:1", "d", question().tool)]
    await subject.store.request_suspend([run.run_id], by="ada")
    await subject.store.request_continue([run.run_id])
    [again] = await subject.claim(worker)
    both = parked(again, "approval", asks=(question(), question(step="pay:2")), seq=2)
    await park(subject, worker, both)
    assert await shown() == [("pay:1", "d", question().tool), ("pay:2", "d", question().tool)]
    await decide(subject, run.run_id)
    assert [step for step, *_ in await shown()] == ["pay:2"]


async def test_an_answer_that_wakes_nobody_is_shown(subject: Subject) -> None:
    _, run = await asking(subject)
    await subject.store.request_suspend([run.run_id], by="ada")
    await subject.store.shown([change.seq for change in await subject.store.unshown(limit=10)])
    before = (await subject.store.snapshots([run.run_id]))[run.run_id].revision
    await decide(subject, run.run_id)
    [change] = await subject.store.unshown(limit=10)

    assert change.kind is ChangeKind.PARKED
    assert change.seq > before
    assert (await subject.store.snapshots([run.run_id]))[run.run_id].revision == before


# -------------------------------------------------------------------- suspended


async def test_a_suspended_run_waits_until_somebody_continues_it(subject: Subject) -> None:
    [run] = await subject.enqueue(linked=True)
    assert await subject.store.request_suspend([run], by="ada", reason="look") == [run]
    assert await subject.store.request_suspend([run], by="eve") == [run]
    shown = (await subject.store.snapshots([run]))[run]
    assert (shown.place, shown.parked_for, shown.suspend_asked) == (
        PARKED,
        ("suspended",),
        "ada: look",
    )
    assert await subject.order() == []
    assert await subject.store.request_continue([run]) == [run]
    assert await subject.store.request_continue([run]) == []

    assert await subject.kinds(run) == [
        ChangeKind.QUEUED,
        ChangeKind.SUSPENDED,
        ChangeKind.CONTINUED,
    ]
    assert await subject.order() == [run]


async def test_only_who_suspended_it_continues_it_where_that_is_asked_for(
    subject: Subject,
) -> None:
    [run] = await subject.enqueue()
    await subject.store.request_suspend([run], by="ada")

    assert await subject.store.request_continue([run], asked_by="eve") == []
    assert await subject.place(run) is PARKED
    assert await subject.store.request_continue([run], asked_by="ada") == [run]


async def test_a_running_run_is_suspended_when_it_leaves_its_worker(subject: Subject) -> None:
    worker, [run] = await subject.running()
    assert await subject.store.request_suspend([run.run_id], by="ada") == []
    assert len(await subject.store.wishes([worker])) == 1
    await park(subject, worker, parked(run))

    assert await subject.place(run.run_id) is PARKED
    assert await subject.store.request_suspend([run.run_id], by="ada") == [run.run_id]
    await subject.later(1000)
    assert await subject.store.wake_parked() == 0


async def test_a_run_that_leaves_for_a_suspension_that_was_taken_back_goes_on(
    subject: Subject,
) -> None:
    worker, [run] = await subject.running()
    await subject.store.request_suspend([run.run_id], by="ada")
    assert await subject.store.request_continue([run.run_id]) == [run.run_id]
    await park(subject, worker, parked(run))

    assert await subject.place(run.run_id) is READY


async def test_a_sweep_suspends_what_came_back_another_way(subject: Subject) -> None:
    worker, [run] = await subject.running()
    await subject.store.request_suspend([run.run_id], by="ada")
    await subject.store.finish(worker=worker, events=[], finals=[retry(run)])
    assert await subject.place(run.run_id) is Place.TIMER

    assert await subject.store.suspend_waiting() == [run.run_id]
    assert await subject.store.suspend_waiting() == []
    assert await subject.place(run.run_id) is PARKED


async def test_a_suspended_run_is_not_woken_by_its_answer(subject: Subject) -> None:
    _, run = await asking(subject)
    await subject.store.request_suspend([run.run_id], by="ada")
    assert (await decide(subject, run.run_id)).outcome is Deciding.DECIDED

    assert await subject.place(run.run_id) is PARKED
    await subject.store.request_continue([run.run_id])
    assert await subject.place(run.run_id) is READY


async def test_the_queue_deadline_stands_still_while_a_run_is_suspended(
    subject: Subject,
) -> None:
    [run] = await subject.enqueue(queue_deadline_seconds=60.0)
    await subject.store.request_suspend([run], by="ada")
    await subject.later(600)
    assert await subject.store.expire_queued() == []
    await subject.store.request_continue([run])
    await subject.later(30)
    assert await subject.store.expire_queued() == []
    await subject.later(60)

    assert await subject.store.expire_queued() == [run]


async def test_a_suspended_run_can_be_cancelled(subject: Subject) -> None:
    [run] = await subject.enqueue()
    await subject.store.request_suspend([run], by="ada")

    assert await subject.store.request_cancel([run], by="ada") == [run]
    assert await subject.wished() == set()
    assert await subject.store.request_suspend([run], by="ada") == []


# -------------------------------------------------------------------- once more


async def test_a_run_that_has_ended_is_driven_again(subject: Subject) -> None:
    worker, [run] = await subject.running(linked=True, max_takeovers=3)
    await subject.store.finish(worker=worker, events=[step(run, 1)], finals=[])
    await subject.end(worker, run, status=FinalStatus.FAILED, reason="AgentError")
    assert await subject.store.redrive(run.run_id, by="ada") is Redriving.QUEUED
    again = await subject.claim_one(worker)

    assert (again.run_id, again.epoch, again.attempt) == (run.run_id, 2, 2)
    assert (again.takeovers, again.max_takeovers, again.active_ms) == (0, 3, 0)
    assert len(await subject.store.history(run.run_id)) == 1
    assert len(await subject.ends(run.run_id)) == 1
    await subject.end(worker, again)
    assert [end.attempt for end in await subject.ends(run.run_id)] == [1, 2]


async def test_of_several_wishes_for_one_attempt_one_is_granted(subject: Subject) -> None:
    worker, [run] = await subject.running()
    assert await subject.store.redrive(run.run_id, by="ada") is Redriving.NOT_FINISHED
    await subject.end(worker, run)
    outcomes = [
        await subject.store.redrive(run.run_id, by="ada", attempt=attempt)
        for attempt in (3, 2, 2, 1)
    ]

    assert outcomes == [
        Redriving.NOT_FINISHED,
        Redriving.QUEUED,
        Redriving.ALREADY_ASKED,
        Redriving.ALREADY_ASKED,
    ]


async def test_who_asks_once_gets_one_attempt(subject: Subject) -> None:
    worker, [run] = await subject.running(linked=True)
    by = "spec.redrive 4"
    assert await subject.store.redrive_once(run.run_id, by=by) is Redriving.NOT_FINISHED
    await subject.end(worker, run)
    assert await subject.store.redrive_once(run.run_id, by=by) is Redriving.QUEUED
    assert await subject.store.redrive_once(run.run_id, by=by) is Redriving.ALREADY_ASKED
    again = await subject.claim_one(worker)
    await subject.end(worker, again)

    assert await subject.store.redrive_once(run.run_id, by=by) is Redriving.ALREADY_ASKED
    assert (await subject.store.snapshots([run.run_id]))[run.run_id].redrives == 4


async def test_an_unknown_run_is_not_driven_again(subject: Subject) -> None:
    unknown = RunId(4_000_000_000_000_000_000)

    assert await subject.store.redrive(unknown, by="ada") is Redriving.UNKNOWN
