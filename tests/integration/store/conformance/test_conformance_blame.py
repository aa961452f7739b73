"""What is put down to each run of a lost worker, and what follows: a limit, a wait, quarantine."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from rowlock.states import Blame, EventKind, FailureReason, FenceReason, FinalStatus, Place
from rowlock.store.types import Beat, Parked, Redriving, RunId, WorkerId
from rowlock.testing.store.blame import blame, probation, suspicion
from tests.integration.store.conformance.subjects import Subject, end, retry
from tests.integration.store.world import World

DEATHS = [FenceReason.WORKER_DIED, FenceReason.STALLED]
SILENT = [FenceReason.LEASE_EXPIRED, FenceReason.WORKER_DELETED, FenceReason.NODE_LOST]


async def counts(subject: Subject, *runs: RunId) -> list[tuple[int, int, int, bool]]:
    """Return takeovers, blamed, suspected, quarantined of live runs."""
    stands = await subject.stands()
    return [(x.takeovers, x.blamed, x.suspected, x.quarantined) for x in map(stands.get, runs) if x]


async def die_known(subject: Subject, bad: RunId) -> tuple[RunId, ...]:
    """Let a worker with all runs that are ready die of `bad`; return those that are displaced."""
    worker = await subject.worker()
    await subject.claim(worker)
    fenced = await subject.die(worker, bad)
    await subject.later(1000)
    await subject.store.wake_due()
    return fenced.displaced


def parked(run: Any, *reasons: str) -> Parked:
    return Parked(run.run_id, run.epoch, 1, 0, reasons, 60.0 if reasons else None, b"{}")


# -------------------------------------------------------------------- whose fault


async def test_the_rules_in_python_are_those_of_the_database(world: World) -> None:
    """Each case that there is, asked of both statements of the rules."""
    flags = (False, True)
    asked = list(itertools.product(FenceReason, flags, flags, flags))
    rows = await world.sql(
        "SELECT b.blame, rowlock.suspicion(a.reason, b.blame) AS suspicion"
        " FROM unnest($1::text[], $2::boolean[], $3::boolean[], $4::boolean[])"
        " WITH ORDINALITY AS a(reason, alone, on_loop, known, nth)"
        " CROSS JOIN LATERAL (SELECT rowlock.blame(reason, alone, on_loop, known) AS blame) b"
        " ORDER BY nth",
        *zip(*asked, strict=True),
    )
    ours = []
    for reason, alone, on_loop, known in asked:
        verdict = blame(reason, alone=alone, on_loop=on_loop, known=known)
        ours.append((verdict, suspicion(reason, verdict)))

    assert [tuple(row) for row in rows] == ours
    waits = await world.sql(
        "SELECT rowlock.probation(n::smallint) FROM generate_series(0, 40) n ORDER BY n"
    )
    assert [row[0] for row in waits] == [probation(n) for n in range(41)]
    assert probation(2) == timedelta(seconds=30)


@pytest.mark.parametrize("reason", DEATHS)
async def test_the_run_on_the_loop_is_to_blame_and_the_others_are_displaced(
    subject: Subject, reason: FenceReason
) -> None:
    worker, runs = await subject.running(3)
    bad, *others = [run.run_id for run in runs]
    fenced = await subject.die(worker, bad, reason=reason)

    assert (fenced.blamed, set(fenced.displaced)) == ((bad,), set(others))
    assert (fenced.suspected, fenced.quarantined) == ((), ())
    assert await counts(subject, bad, *others) == [
        (1, 1, 1, False),
        (1, 0, 0, False),
        (1, 0, 0, False),
    ]
    again = {run.run_id: run for run in await subject.claim(await subject.worker())}
    assert [entry.blame for entry in again[bad].carry] == [Blame.BLAMED]
    assert [entry.blame for entry in again[others[0]].carry] == [Blame.DISPLACED]
    assert (again[bad].takeovers, again[bad].blamed, again[bad].suspected) == (1, 1, 1)


@pytest.mark.parametrize("reason", DEATHS)
@pytest.mark.parametrize("torn", [False, True])
async def test_where_nobody_saw_the_run_all_are_suspects(
    subject: Subject, reason: FenceReason, torn: bool
) -> None:
    """Nor is a run believed that the worker does not hold."""
    [elsewhere] = await subject.enqueue(pool_id=await subject.another_pool())
    worker, runs = await subject.running(2)
    fenced = await subject.die(worker, elsewhere if torn else None, reason=reason)

    ids = [run.run_id for run in runs]
    assert set(fenced.suspected) == set(ids)
    assert (fenced.blamed, fenced.displaced, fenced.quarantined) == ((), (), ())
    assert await counts(subject, elsewhere, *ids) == [
        (0, 0, 0, False),
        (1, 0, 1, False),
        (1, 0, 1, False),
    ]


@pytest.mark.parametrize("reason", [*DEATHS, *SILENT])
async def test_a_run_that_was_alone_is_to_blame(subject: Subject, reason: FenceReason) -> None:
    worker, [run] = await subject.running()

    assert (await subject.die(worker, reason=reason)).blamed == (run.run_id,)
    assert await counts(subject, run.run_id) == [(1, 1, int(reason in DEATHS), False)]


@pytest.mark.parametrize("reason", SILENT)
@pytest.mark.parametrize("seen", [False, True])
async def test_a_silent_loss_counts_once_for_all_and_makes_nobody_a_suspect(
    subject: Subject, reason: FenceReason, seen: bool
) -> None:
    worker, runs = await subject.running(3)
    ids = [run.run_id for run in runs]
    fenced = await subject.die(worker, ids[0] if seen else None, reason=reason)

    assert set(fenced.blamed) == set(ids)
    assert (fenced.displaced, fenced.suspected) == ((), ())
    assert await counts(subject, *ids) == [(1, 1, 0, False)] * 3


async def test_a_silent_worker_that_is_reaped_counts_for_all_its_runs(subject: Subject) -> None:
    await subject.store.reap(gap_seconds=60)
    _, runs = await subject.running(2)
    await subject.later(20)
    fenced = (await subject.store.reap(gap_seconds=60)).fenced

    ids = [run.run_id for run in runs]
    assert set(fenced.blamed) == set(ids)
    assert await counts(subject, *ids) == [(1, 1, 0, False)] * 2


async def test_a_pod_that_is_gone_counts_for_all_its_runs(subject: Subject) -> None:
    runs = await subject.enqueue(2)
    for _ in runs:
        await subject.claim(await subject.worker(pod="a"), 1)
    fenced = await subject.store.fence_pods(["a"], reason=FenceReason.WORKER_DELETED)

    assert set(fenced.blamed) == set(runs)


async def test_a_whole_worker_that_died_has_suspects_in_each_of_its_processes(
    subject: Subject,
) -> None:
    runs = await subject.enqueue(2)
    for process in range(2):
        await subject.claim(await subject.worker(instance=f"pod/main/{process}"), 1)
    fenced = await subject.store.fence_instance(instance="pod/main")

    assert set(fenced.suspected) == set(runs)
    assert fenced.blamed == ()


async def test_what_was_seen_in_one_process_says_nothing_of_another(subject: Subject) -> None:
    seen, unseen = await subject.worker(), await subject.worker()
    await subject.enqueue(4)
    first = [run.run_id for run in await subject.claim(seen, 2)]
    second = [run.run_id for run in await subject.claim(unseen, 2)]
    fenced = await subject.store.fence(
        [seen, unseen], reason=FenceReason.WORKER_DIED, on_loop={seen: first[0]}
    )

    assert (fenced.blamed, fenced.displaced) == ((first[0],), (first[1],))
    assert set(fenced.suspected) == set(second)


async def test_a_hand_over_puts_nothing_down_to_anybody(subject: Subject) -> None:
    worker, runs = await subject.running(2)
    fenced = await subject.die(worker, runs[0].run_id, reason=FenceReason.LEFT)

    assert (fenced.blamed, fenced.displaced, fenced.suspected) == ((), (), ())
    assert await counts(subject, *(run.run_id for run in runs)) == [(0, 0, 0, False)] * 2
    for again in await subject.claim(await subject.worker()):
        assert [entry.blame for entry in again.carry] == [""]


async def test_a_fence_that_is_repeated_judges_once(subject: Subject) -> None:
    worker, runs = await subject.running(3)
    for moved in (2, 0):
        assert len((await subject.die(worker, runs[0].run_id)).displaced) == moved

    assert await counts(subject, runs[0].run_id) == [(1, 1, 1, False)]


# -------------------------------------------------------------------- the limit and the wait


async def test_displaced_runs_never_reach_the_limit_nor_wait(subject: Subject) -> None:
    [bad, good] = await subject.enqueue(2, max_takeovers=1)
    for _ in range(2):
        assert await die_known(subject, bad) == (good,)

    assert await counts(subject, good) == [(2, 0, 0, False)]
    [ended] = await subject.ends(bad)
    assert (ended.status, ended.reason) == (
        FinalStatus.FAILED,
        FailureReason.TAKEOVER_LIMIT_REACHED,
    )
    assert ended.message == "2 losses of its worker are put down to it, maxTakeovers is 1"


async def test_the_limit_counts_what_is_put_down_to_the_run_alone(subject: Subject) -> None:
    [run] = await subject.suspects(1, max_takeovers=3)
    for losses in (3, 4):
        await subject.later(1000)
        await subject.store.wake_due()
        worker = await subject.worker(quarantine=True)
        [held] = await subject.claim_alone(worker)
        assert (held.takeovers, held.blamed) == (losses - 1, losses - 1)
        await subject.die(worker)

    [ended] = await subject.ends(run)
    assert (ended.takeovers, ended.message) == (
        4,
        "4 losses of its worker are put down to it, maxTakeovers is 3",
    )


async def test_the_second_loss_that_counts_waits_and_those_before_do_not(subject: Subject) -> None:
    [bad, good] = await subject.enqueue(2)
    for fate in ("requeued", "delayed"):
        worker = await subject.worker()
        await subject.claim(worker)
        fenced = await subject.die(worker, bad)
        assert bad in getattr(fenced, fate)
        assert good in fenced.requeued

    assert 2 <= await subject.due_in(bad) <= 7.6
    assert await counts(subject, bad) == [(2, 2, 2, True)]


async def test_the_wait_grows_with_the_losses_that_count_and_not_with_the_others(
    subject: Subject,
) -> None:
    [bad, good] = await subject.enqueue(2, max_takeovers=9)
    assert [await die_known(subject, bad) for _ in range(2)] == [(good,), (good,)]
    for _ in range(2):
        worker = await subject.worker()
        await subject.claim(worker)
        await subject.die(worker)

    assert await counts(subject, good) == [(4, 2, 2, True)]
    assert 2 <= await subject.due_in(good) <= 7.6


async def test_a_suspicion_delays_nothing(subject: Subject) -> None:
    runs = await subject.suspects()

    assert await subject.places(runs) == [Place.READY, Place.READY]


# -------------------------------------------------------------------- alone


async def test_after_two_unknown_deaths_no_loop_claims_the_run_but_quarantine_does(
    subject: Subject,
) -> None:
    runs = await subject.suspects(3)
    assert await counts(subject, *runs) == [(2, 0, 2, True)] * 3
    assert await subject.claim(await subject.worker()) == []
    assert await subject.store.alone_waiting(subject.pool) == (3, 0)

    worker = await subject.worker(quarantine=True)
    assert await subject.store.alone_waiting(subject.pool) == (3, 1)
    [run] = await subject.claim_alone(worker)
    assert (run.epoch, run.takeovers, run.blamed, run.suspected) == (3, 2, 0, 2)
    assert run.probation_seconds == 30
    assert await subject.claim_alone(worker) == [], "one at a time"
    assert await subject.store.alone_waiting(subject.pool) == (2, 0)

    await subject.end(worker, run)
    assert len(await subject.claim_alone(worker)) == 1


async def test_quarantine_takes_the_most_urgent_suspect_of_its_pool_and_nothing_else(
    subject: Subject,
) -> None:
    late, soon = [(await subject.enqueue(1, priority=n))[0] for n in (0, 1)]
    for _ in range(2):
        worker = await subject.worker()
        await subject.claim(worker)
        await subject.die(worker)
    await subject.enqueue(1, priority=2)
    store, other = subject.store, await subject.another_pool()
    worker = await subject.worker(quarantine=True)

    elsewhere = await store.claim_alone(worker=worker, pool=other, token=subject.token())
    assert elsewhere == []
    order = []
    for _ in range(3):
        for run in await subject.claim_alone(worker):
            order.append(run.run_id)
            await subject.end(worker, run)
    assert order == [soon, late]
    assert await store.alone_waiting(subject.pool) == (0, 0), "free ones count if somebody waits"


async def test_an_ordinary_worker_cannot_claim_alone(subject: Subject) -> None:
    await subject.suspects()

    assert await subject.claim_alone(await subject.worker()) == []


async def test_a_fenced_process_of_quarantine_takes_nothing(subject: Subject) -> None:
    await subject.suspects()
    worker = await subject.worker(quarantine=True)
    await subject.store.leave(worker)
    for one in (worker, WorkerId(987_654_321)):
        token = subject.token()
        assert await subject.store.claim_alone(worker=one, pool=subject.pool, token=token) is None


async def test_a_lost_answer_of_a_claim_is_adopted_and_nothing_beside_it(subject: Subject) -> None:
    await subject.suspects()
    worker = await subject.worker(quarantine=True)
    [lost] = await subject.claim_alone(worker)
    token = subject.token()
    assert await subject.store.adopt(worker=worker, token=token, known=[]) == [lost]
    await subject.end(worker, lost)

    late = await subject.store.claim_alone(worker=worker, pool=subject.pool, token=token)
    assert late == [], "a claim that arrives after its adoption must take nothing"
    assert len(await subject.claim_alone(worker)) == 1


@pytest.mark.parametrize("reason", [*DEATHS, *SILENT])
async def test_only_losses_in_quarantine_count_from_then_on(
    subject: Subject, reason: FenceReason
) -> None:
    [first, other] = await subject.suspects(2, max_takeovers=0)
    worker = await subject.worker(quarantine=True)
    [run] = await subject.claim_alone(worker)
    fenced = await subject.die(worker, reason=reason)

    assert fenced.blamed == fenced.failed == (run.run_id,)
    assert fenced.quarantined == ()
    [ended] = await subject.ends(run.run_id)
    assert (ended.takeovers, ended.message) == (
        3,
        "1 losses of its worker are put down to it (of 3 in all), maxTakeovers is 0",
    )
    assert {run.run_id} < {first, other}
    assert await counts(subject, first, other) == [(2, 0, 2, True)]


async def test_a_run_that_is_lost_alone_stays_alone(subject: Subject) -> None:
    await subject.suspects(2)
    worker = await subject.worker(quarantine=True)
    [run] = await subject.claim_alone(worker)
    fenced = await subject.die(worker, reason=FenceReason.NODE_LOST)

    assert fenced.blamed == fenced.quarantined == fenced.requeued == (run.run_id,)
    assert await counts(subject, run.run_id) == [(3, 1, 2, True)]


async def test_a_run_stays_alone_through_retries_caps_hand_overs_and_suspension(
    subject: Subject,
) -> None:
    runs = await subject.suspects()
    worker = await subject.worker(quarantine=True)
    [run] = await subject.claim_alone(worker)
    await subject.store.release(worker=worker, runs=[(run.run_id, run.epoch, 0)])
    [run] = await subject.claim_alone(worker)
    await subject.store.finish(worker=worker, events=[], finals=[retry(run, 0)])
    await subject.store.wake_due()
    await subject.store.request_suspend(runs, by="ada")
    await subject.store.request_continue(runs)
    await subject.cap(max_running=1)
    await subject.store.promote_waiting()

    assert await counts(subject, *runs) == [(2, 0, 2, True)] * 2
    assert await subject.claim(await subject.worker()) == []
    [again] = await subject.claim_alone(worker)
    await subject.end(worker, again)
    await subject.store.promote_waiting()
    [other] = await subject.claim_alone(worker)
    assert {again.run_id, other.run_id} == set(runs)


async def test_a_worker_that_leaves_quarantine_hands_over_a_run_that_is_still_alone(
    subject: Subject,
) -> None:
    await subject.suspects()
    worker = await subject.worker(quarantine=True)
    [run] = await subject.claim_alone(worker)
    fenced = await subject.store.leave(worker)

    assert fenced.quarantined == fenced.requeued == (run.run_id,)
    assert await counts(subject, run.run_id) == [(2, 0, 2, True)]


async def test_a_cancel_meets_a_run_that_waits_to_be_alone(subject: Subject) -> None:
    [run, _] = await subject.suspects()

    assert await subject.store.request_cancel([run], by="ada") == [run]
    assert await subject.store.alone_waiting(subject.pool) == (1, 0)


async def test_displacement_alone_never_leads_into_quarantine(subject: Subject) -> None:
    [bad, good] = await subject.enqueue(2, max_takeovers=9)
    displaced = [await die_known(subject, bad) for _ in range(2)]

    assert displaced == [(good,), (good,)]
    assert await counts(subject, bad, good) == [(2, 2, 2, True), (2, 0, 0, False)]
    assert [run.run_id for run in await subject.claim(await subject.worker())] == [good]


async def test_a_further_attempt_that_somebody_asks_for_starts_afresh(subject: Subject) -> None:
    await subject.suspects()
    worker = await subject.worker(quarantine=True)
    [run] = await subject.claim_alone(worker)
    await subject.end(worker, run)

    assert await subject.store.redrive(run.run_id, by="ada") is Redriving.QUEUED
    assert await counts(subject, run.run_id) == [(0, 0, 0, False)]
    assert [x.run_id for x in await subject.claim(await subject.worker())] == [run.run_id]


# -------------------------------------------------------------------- back among the others


async def test_who_lived_long_enough_alone_goes_back_among_the_others(subject: Subject) -> None:
    [run] = await subject.suspects(1, max_takeovers=9)
    await subject.later(1000)
    await subject.store.wake_due()
    worker = await subject.worker(quarantine=True)
    for lived, alone in ((25, True), (35, False)):
        [held] = await subject.claim_alone(worker)
        assert held.probation_seconds == 30
        await subject.later(lived)
        await subject.store.release(worker=worker, runs=[(run, held.epoch, 0)])
        assert await counts(subject, run) == [(2, 2, 2, alone)]

    [back] = await subject.claim(await subject.worker())
    assert (back.run_id, back.probation_seconds) == (run, None)


@pytest.mark.parametrize("reasons", [(), ("sleep",)])
async def test_who_waits_after_long_enough_alone_wakes_among_the_others(
    subject: Subject, reasons: tuple[str, ...]
) -> None:
    runs = await subject.suspects()
    worker = await subject.worker(quarantine=True)
    for lived, alone in ((25, True), (35, False)):
        [held] = await subject.claim_alone(worker)
        await subject.later(lived)
        await subject.store.park(worker=worker, runs=[parked(held, *reasons)])
        assert await counts(subject, held.run_id) == [(2, 0, 2, alone)]
        await subject.later(61)
        await subject.store.wake_parked()
        if alone:
            # The other one, which has not lived anywhere yet.
            await subject.store.request_cancel([x for x in runs if x != held.run_id], by="ada")

    assert [x.run_id for x in await subject.claim(await subject.worker())] == [held.run_id]


async def test_each_further_death_doubles_the_time_alone(subject: Subject) -> None:
    [run] = await subject.suspects(1, max_takeovers=9)
    waits = []
    for _ in range(3):
        await subject.later(1000)
        await subject.store.wake_due()
        worker = await subject.worker(quarantine=True)
        [held] = await subject.claim_alone(worker)
        waits.append(held.probation_seconds)
        await subject.die(worker)

    assert waits == [30, 60, 120]
    assert await counts(subject, run) == [(5, 5, 5, True)]


async def cleared(subject: Subject) -> tuple[WorkerId, RunId, RunId]:
    """Return a worker with a run that was alone for its time, and with another one."""
    [run] = await subject.suspects(1, max_takeovers=9)
    await subject.later(1000)
    await subject.store.wake_due()
    worker = await subject.worker(quarantine=True)
    [held] = await subject.claim_alone(worker)
    await subject.later(31)
    await subject.store.release(worker=worker, runs=[(run, held.epoch, 0)])
    [other] = await subject.enqueue()
    among = await subject.worker()
    assert len(await subject.claim(among)) == 2
    return among, run, other


async def test_a_cleared_run_is_alone_again_after_one_more_unknown_death(subject: Subject) -> None:
    worker, run, _ = await cleared(subject)

    assert (await subject.die(worker)).quarantined == (run,)
    assert await counts(subject, run) == [(3, 2, 3, True)]


async def test_a_cleared_run_stays_among_the_others_when_another_one_did_it(
    subject: Subject,
) -> None:
    worker, run, other = await cleared(subject)
    fenced = await subject.die(worker, other)

    assert (fenced.displaced, fenced.quarantined) == ((run,), ())
    assert run in fenced.requeued, "what others did delays nothing"
    assert await counts(subject, run) == [(3, 2, 2, False)]


async def test_a_cleared_run_stays_among_the_others_after_a_silent_loss(subject: Subject) -> None:
    worker, run, _ = await cleared(subject)
    fenced = await subject.die(worker, reason=FenceReason.NODE_LOST)

    assert (fenced.delayed, fenced.quarantined) == ((run,), ())
    assert await counts(subject, run) == [(3, 3, 2, False)]


# -------------------------------------------------------------------- what people see


async def test_a_snapshot_says_that_a_run_is_alone_and_what_counts(subject: Subject) -> None:
    [bad, good] = await subject.enqueue(2, linked=True)
    for _ in range(2):
        await die_known(subject, bad)
    seen = await subject.store.snapshots([bad, good])

    assert (seen[bad].takeovers, seen[bad].blamed, seen[bad].quarantined) == (2, 2, True)
    assert (seen[good].takeovers, seen[good].blamed, seen[good].quarantined) == (2, 0, False)
    worker = await subject.worker(quarantine=True)
    [run] = await subject.claim_alone(worker)
    await subject.store.finish(worker=worker, events=[], finals=[end(run)])
    [ended] = (await subject.store.snapshots([bad])).values()
    assert (ended.place, ended.blamed, ended.quarantined) == (Place.FINAL, 0, False)
    assert [(x.event, x.blame) for x in seen[good].carry] == [
        (EventKind.TAKEN_OVER, Blame.DISPLACED)
    ] * 2


async def test_quarantine_is_demand_and_no_capacity(subject: Subject) -> None:
    await subject.suspects(3)
    await subject.enqueue(2)
    worker = await subject.worker(quarantine=True)
    await subject.store.beat([Beat(worker, 1, 0, 0, draining=False)])

    async def demand() -> Any:
        pools = await subject.store.pool_demand()
        [pool] = [pool for pool in pools if pool.pool_id == subject.pool]
        return pool.claimable, pool.quarantined, pool.workers, pool.slots

    assert await demand() == (5, 3, 0, 0), "nobody is there for the others"
    await subject.beat(await subject.worker())
    assert await demand() == (5, 3, 1, 16)
