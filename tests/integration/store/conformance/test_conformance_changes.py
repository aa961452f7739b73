"""A run that belongs to a custom resource leaves a change at each visible transition."""

from __future__ import annotations

from rowlock.states import ChangeKind, EventKind, FenceReason, FinalStatus, Place
from rowlock.store.types import RunId, RunSnapshot
from tests.integration.store.conformance.subjects import Subject, end, retry, step


async def snapshot(subject: Subject, run: RunId) -> RunSnapshot:
    return (await subject.store.snapshots([run]))[run]


async def test_a_run_without_an_object_changes_for_nobody(subject: Subject) -> None:
    worker, [run] = await subject.running()
    await subject.end(worker, run)

    assert await subject.store.unshown(limit=10) == []
    assert await subject.store.snapshots([run.run_id]) == {}


async def test_changes_are_read_by_their_number_and_forgotten_one_by_one(
    subject: Subject,
) -> None:
    runs = await subject.enqueue(3, linked=True)
    changes = await subject.store.unshown(limit=10)
    assert [change.run_id for change in changes] == runs
    assert [c.seq for c in changes] == sorted(c.seq for c in changes)
    assert await subject.store.unshown(limit=1, after=changes[0].seq) == changes[1:2]
    await subject.store.shown([changes[1].seq])

    assert await subject.store.unshown(limit=10) == [changes[0], changes[2]]


async def test_steps_are_no_visible_change(subject: Subject) -> None:
    worker, [run] = await subject.running(linked=True)
    await subject.store.append(worker=worker, events=[step(run, 1), step(run, 2)])

    assert await subject.kinds(run.run_id) == [ChangeKind.QUEUED, ChangeKind.CLAIMED]


async def test_a_snapshot_shows_the_run_as_it_stands(subject: Subject) -> None:
    [new] = subject.new(linked=True)
    [answer] = await subject.store.enqueue([new])
    queued = await snapshot(subject, answer.run_id)
    assert (queued.place, queued.epoch, queued.attempt) == (Place.READY, 0, 1)
    assert (queued.namespace, queued.name, queued.uid) == ("team", new.name, new.uid)
    assert (queued.agent_revision, queued.worker, queued.started_at) == ("d1", None, None)

    worker = await subject.worker()
    run = await subject.claim_one(worker)
    running = await snapshot(subject, run.run_id)
    assert (running.place, running.epoch) == (Place.LEASE, 1)
    assert running.worker is not None
    assert running.started_at == running.claimed_at == run.claimed_at
    await subject.store.request_cancel([run.run_id], by="ada")
    assert (await snapshot(subject, run.run_id)).cancel_asked

    final = end(run, FinalStatus.SUCCEEDED, outcome="ok", step=1, tokens_out=5, result=b'"x"')
    await subject.store.finish(worker=worker, events=[], finals=[final])
    ended = await snapshot(subject, run.run_id)
    assert (ended.place, ended.status, ended.outcome) == (
        Place.FINAL,
        FinalStatus.SUCCEEDED,
        "ok",
    )
    assert (ended.step, ended.tokens_out, ended.result, ended.result_size) == (1, 5, b'"x"', 3)
    assert (ended.worker, ended.started_at) == (running.worker, running.started_at)
    assert not ended.cancel_asked


async def test_the_newest_change_is_the_revision_of_the_snapshot(subject: Subject) -> None:
    worker, [run] = await subject.running(linked=True)

    async def newest() -> int:
        changes = await subject.store.unshown(limit=100)
        return max(change.seq for change in changes if change.run_id == run.run_id)

    assert (await snapshot(subject, run.run_id)).revision == await newest()
    await subject.store.finish(worker=worker, events=[], finals=[retry(run, 5)])
    assert (await snapshot(subject, run.run_id)).revision == await newest()
    await subject.store.request_cancel([run.run_id], by="ada")
    assert (await snapshot(subject, run.run_id)).revision == await newest()


async def test_a_snapshot_of_a_lost_run_tells_from_whom_and_why(subject: Subject) -> None:
    dead, [run] = await subject.running(linked=True)
    name = (await snapshot(subject, run.run_id)).worker
    await subject.store.fence([dead], reason=FenceReason.NODE_LOST)
    lost = await snapshot(subject, run.run_id)

    assert (lost.place, lost.takeovers, lost.max_takeovers) == (Place.READY, 1, 5)
    assert [(c.worker, c.reason) for c in lost.carry] == [(name, "NodeLost")]


async def test_a_snapshot_has_the_events_that_concern_the_whole_run(subject: Subject) -> None:
    dead, [run] = await subject.running(linked=True)
    await subject.store.append(worker=dead, events=[step(run, 1)])
    await subject.store.fence([dead], reason=FenceReason.WORKER_DIED)
    heir = await subject.worker()
    again = await subject.claim_one(heir)
    taken = step(again, 2, kind=EventKind.TAKEN_OVER, body=b'{"from":"x"}')
    await subject.store.append(worker=heir, events=[taken, step(again, 3)])

    [event] = (await snapshot(subject, run.run_id)).lifecycle

    assert (event.seq, event.epoch, event.kind) == (2, 2, EventKind.TAKEN_OVER)
    assert event.body == b'{"from":"x"}'


async def test_a_snapshot_of_a_timer_says_what_for_and_until_when(subject: Subject) -> None:
    worker, [run] = await subject.running(linked=True)
    await subject.store.finish(worker=worker, events=[], finals=[retry(run, 30)])
    waiting = await snapshot(subject, run.run_id)

    assert (waiting.place, waiting.timer_reason, waiting.attempt) == (Place.TIMER, 2, 2)
    assert waiting.due_at is not None
    assert waiting.ready_at is not None
    assert 28 < (waiting.due_at - waiting.ready_at).total_seconds() <= 30


async def test_a_large_result_stays_behind_and_its_size_is_told(subject: Subject) -> None:
    worker, [run] = await subject.running(linked=True)
    await subject.end(worker, run, result=b"x" * 70_000)
    ended = await snapshot(subject, run.run_id)

    assert (ended.result, ended.result_size) == (None, 70_000)
