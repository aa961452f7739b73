"""A worker that dies loses its runs: they go on, wait, or end, and it can never write again."""

from __future__ import annotations

import pytest

from rowlock.states import ChangeKind, EventKind, FailureReason, FenceReason, FinalStatus, Place
from rowlock.store.types import Claimed, Fenced, WorkerId
from tests.integration.store.conformance.subjects import Stand, Subject, step

DIED = FenceReason.WORKER_DIED
GAP = 10.0


async def lose(subject: Subject, times: int) -> Claimed:
    """Let so many workers die with the only run there is, which is alone from the third on."""
    for _ in range(times):
        await subject.later(1000)
        await subject.store.wake_due()
        alone, _ = await subject.store.alone_waiting(subject.pool)
        worker = await subject.worker(quarantine=alone > 0)
        [run] = await (subject.claim_alone(worker) if alone else subject.claim(worker))
        await subject.store.fence([worker], reason=DIED)
    return run


async def test_a_takeover_raises_the_count_and_tells_the_next_owner(subject: Subject) -> None:
    dead, [run] = await subject.running(linked=True)
    fenced = await subject.store.fence([dead], reason=FenceReason.NODE_LOST)
    assert (fenced.workers, fenced.requeued) == ((dead,), (run.run_id,))

    heir = await subject.worker()
    again = await subject.claim_one(heir)

    assert (again.run_id, again.epoch, again.attempt, again.takeovers) == (run.run_id, 2, 1, 1)
    [carry] = again.carry
    assert (carry.event, carry.epoch, carry.reason) == (EventKind.TAKEN_OVER, 1, "NodeLost")
    assert carry.worker.startswith("worker-")
    await subject.store.append(
        worker=heir, events=[step(again, 1, kind=EventKind.TAKEN_OVER, body=b"{}")]
    )
    assert await subject.kinds(run.run_id) == [
        ChangeKind.QUEUED,
        ChangeKind.CLAIMED,
        ChangeKind.WORKER_LOST,
        ChangeKind.CLAIMED,
        ChangeKind.TAKEN_OVER,
    ]


async def test_a_run_is_taken_over_at_its_last_checkpoint(subject: Subject) -> None:
    dead, [run] = await subject.running()
    await subject.store.append(worker=dead, events=[step(run, 1), step(run, 2)])
    await subject.store.fence([dead], reason=DIED)

    again = await subject.claim_one()

    assert [event.epoch for event in await subject.store.history(again.run_id)] == [1, 1]


async def test_fencing_twice_does_it_once(subject: Subject) -> None:
    dead, [run] = await subject.running()
    await subject.store.fence([dead], reason=DIED)
    again = await subject.store.fence([dead], reason=DIED)

    assert again == Fenced()
    assert await subject.stand(run.run_id) == Stand(
        Place.READY, 1, 1, 1, None, blamed=1, suspected=1
    )
    assert (await subject.store.fence([], reason=DIED)).workers == ()


async def test_from_the_second_loss_on_a_run_waits_longer_and_longer_and_goes_on_alone(
    subject: Subject,
) -> None:
    [run] = await subject.enqueue(max_takeovers=9)
    waits, alone = [], []
    for _ in range(4):
        await lose(subject, 1)
        stand = await subject.stand(run)
        assert stand is not None
        waits.append(await subject.due_in(run) if stand.place is Place.TIMER else 0)
        alone.append(stand.quarantined)

    assert alone == [False, True, True, True]
    assert waits[0] == 0
    for wait, middle in zip(waits[1:], (5, 10, 20), strict=True):
        assert middle * 0.4 <= wait <= middle * 1.5


async def test_a_run_that_loses_its_worker_too_often_fails(subject: Subject) -> None:
    [run] = await subject.enqueue(max_takeovers=2)
    await lose(subject, 2)
    assert await subject.stand(run) == Stand(
        Place.TIMER, 2, 1, 2, None, blamed=2, suspected=2, quarantined=True
    )
    await subject.later(1000)
    await subject.store.wake_due()
    assert await subject.claim(await subject.worker()) == [], "others are there"
    await lose(subject, 1)

    [ended] = await subject.ends(run)
    assert (ended.status, ended.reason) == (
        FinalStatus.FAILED,
        FailureReason.TAKEOVER_LIMIT_REACHED,
    )
    assert ended.message == "3 losses of its worker are put down to it, maxTakeovers is 2"
    assert (ended.epoch, ended.takeovers) == (3, 3)


async def test_a_run_that_may_never_be_taken_over_fails_at_once(subject: Subject) -> None:
    dead, [run] = await subject.running(max_takeovers=0)
    fenced = await subject.store.fence([dead], reason=DIED)

    assert fenced.failed == (run.run_id,)
    assert await subject.place(run.run_id) is Place.FINAL


async def test_a_worker_that_leaves_hands_its_runs_over(subject: Subject) -> None:
    worker, [run] = await subject.running(max_takeovers=0, linked=True)
    fenced = await subject.store.leave(worker)

    assert (fenced.workers, fenced.requeued) == ((worker,), (run.run_id,))
    again = await subject.claim_one()
    assert (again.epoch, again.takeovers) == (2, 0)
    assert [carry.event for carry in again.carry] == [EventKind.HANDED_OVER]
    assert ChangeKind.RELEASED in await subject.kinds(run.run_id)


async def test_a_wished_run_ends_with_its_worker(subject: Subject) -> None:
    worker, [run] = await subject.running()
    await subject.store.request_cancel([run.run_id], by="ada")
    fenced = await subject.store.fence([worker], reason=DIED)

    assert fenced.cancelled == (run.run_id,)
    [ended] = await subject.ends(run.run_id)
    assert (ended.status, ended.takeovers) == (FinalStatus.CANCELLED, 1)


async def test_time_with_a_worker_that_died_counts_as_active(subject: Subject) -> None:
    worker, _ = await subject.running()
    await subject.later(20)
    await subject.store.fence([worker], reason=DIED)

    again = await subject.claim_one()

    assert again.active_ms == pytest.approx(20_000, abs=2_000)


async def test_an_earlier_boot_of_a_container_is_fenced(subject: Subject) -> None:
    old = [await subject.worker(instance=f"pod-1/worker/{n}") for n in range(2)]
    new = await subject.worker(instance="pod-1/worker/0")
    other = await subject.worker(instance="pod-1/workers/0")
    fenced = await subject.store.fence_instance(instance="pod-1/worker", except_ids=[new])

    assert set(fenced.workers) == set(old)
    assert await subject.beat(*old, new, other) == {new, other}


async def test_a_pod_is_fenced_with_all_its_workers(subject: Subject) -> None:
    gone = [await subject.worker(pod="a") for _ in range(2)]
    others = [await subject.worker(pod="b"), await subject.worker()]
    fenced = await subject.store.fence_pods(["a"], reason=FenceReason.WORKER_DELETED)

    assert set(fenced.workers) == set(gone)
    assert await subject.beat(*gone, *others) == set(others)


# -------------------------------------------------------------------- the reaper


async def rounds(subject: Subject, seconds: float, *beating: WorkerId) -> list[WorkerId]:
    """Let time pass with a beat and a round every four seconds; return who was fenced."""
    fenced: list[WorkerId] = []
    for _ in range(int(seconds // 4)):
        await subject.later(4)
        if beating:
            await subject.beat(*beating)
        fenced += (await subject.store.reap(gap_seconds=GAP)).fenced.workers
    return fenced


async def test_a_silent_worker_is_fenced_after_its_lease_and_not_before(
    subject: Subject,
) -> None:
    await subject.store.reap(gap_seconds=GAP)
    silent, [run] = await subject.running()
    alive = await subject.worker()

    assert await rounds(subject, 12, alive) == []
    assert await rounds(subject, 4, alive) == [silent]
    assert await subject.stand(run.run_id) == Stand(Place.READY, 1, 1, 1, None, blamed=1)
    [carry] = (await subject.claim_one(alive)).carry
    assert carry.reason == FenceReason.LEASE_EXPIRED


async def test_each_worker_has_its_own_lease(subject: Subject) -> None:
    await subject.store.reap(gap_seconds=GAP)
    short, long = await subject.worker(lease=6), await subject.worker(lease=60)

    assert await rounds(subject, 28) == [short]
    assert await rounds(subject, 36) == [long]


async def test_a_reaper_that_was_away_judges_nobody(subject: Subject) -> None:
    await subject.store.reap(gap_seconds=GAP)
    worker, [run] = await subject.running()
    await subject.later(600)

    assert (await subject.store.reap(gap_seconds=GAP)).skipped
    assert await subject.place(run.run_id) is Place.LEASE
    assert await rounds(subject, 12) == [], "everybody has a full lease after an outage"
    assert await rounds(subject, 4) == [worker]


async def test_when_most_pods_look_dead_at_once_they_get_one_more_lease(
    subject: Subject,
) -> None:
    await subject.store.reap(gap_seconds=GAP)
    pods = [await subject.worker(pod=f"pod-{n}") for n in range(6)]

    assert await rounds(subject, 28, *pods[:2]) == []
    assert set(await rounds(subject, 8, *pods[:2])) == set(pods[2:])


async def test_most_of_few_pods_may_die_at_once(subject: Subject) -> None:
    await subject.store.reap(gap_seconds=GAP)
    pods = [await subject.worker(pod=f"pod-{n}") for n in range(4)]

    assert set(await rounds(subject, 16)) == set(pods)


async def test_pods_that_come_back_keep_their_runs(subject: Subject) -> None:
    await subject.store.reap(gap_seconds=GAP)
    pods = [await subject.worker(pod=f"pod-{n}") for n in range(6)]
    assert await rounds(subject, 24) == []

    assert await rounds(subject, 60, *pods) == []


async def test_demand_counts_what_a_pool_has_to_do(subject: Subject) -> None:
    worker, runs = await subject.running(3)
    await subject.store.fence([await subject.worker()], reason=DIED)
    await subject.end(worker, runs[0])
    await subject.enqueue(2)
    await subject.beat(worker)
    [demand] = [x for x in await subject.store.pool_demand() if x.pool_id == subject.pool]

    assert (demand.running, demand.claimable, demand.waiting) == (2, 2, 0)
    assert (demand.workers, demand.slots) == (1, 16)
    assert demand.oldest_ready_at is not None
