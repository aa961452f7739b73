"""Caps of agents, statement by statement: what waits, what starts, what a change does."""

from __future__ import annotations

from collections import Counter

import pytest

from rowlock.states import ChangeKind, FenceReason, Place
from rowlock.store import caps, changes, intake, work, workers
from rowlock.store.caps import Caps
from rowlock.store.types import AgentId, RevisionId, RunId
from tests.integration.store.world import World, failure


async def standing(world: World) -> Counter[str]:
    """Count the live runs by their place."""
    await world.sound()
    rows = await world.sql("SELECT place, count(*) AS n FROM rowlock.run_live GROUP BY 1")
    return Counter({row["place"]: row["n"] for row in rows})


async def another_agent(world: World) -> tuple[AgentId, RevisionId]:
    return await intake.ensure_agent(
        world.store, namespace="team", name="other", entrypoint="m:a", spec=b"{}", digest="d"
    )


# -------------------------------------------------------------------- what waits


async def test_runs_over_the_cap_wait_where_no_claim_looks(world: World) -> None:
    await world.cap(max_running=2)
    await world.enqueue(5)
    worker = await world.worker()
    assert len(await world.claim(worker)) == 2
    assert await standing(world) == {"lease": 2, "backlog": 3}
    assert await world.claim(worker) == []


async def test_each_end_makes_room_for_one(world: World) -> None:
    await world.cap(max_running=2)
    first = await world.enqueue(5)
    worker = await world.worker()
    running = await world.claim(worker)
    started = [run.run_id for run in running]
    while running:
        await world.finish(worker, running[:1])
        await world.promote()
        running = running[1:] + await world.claim(worker)
        started += [run.run_id for run in running if run.run_id not in started]
        assert len(running) <= 2
    assert started == first
    assert await standing(world) == {}


async def test_cap_for_keys_counts_each_key_alone_and_runs_without_one_not_at_all(
    world: World,
) -> None:
    await world.cap(max_running_per_key=2)
    for key in ("a", "b", None, ""):
        await world.enqueue(4, key=key)
    claimed = await world.claim(await world.worker())
    assert Counter(run.key for run in claimed) == {"a": 2, "b": 2, None: 8}
    assert (await standing(world))["backlog"] == 4


async def test_both_caps_hold_together(world: World) -> None:
    await world.cap(max_running=5, max_running_per_key=2)
    for key in ("a", "b", "c"):
        await world.enqueue(6, key=key)
    worker, ended = await world.worker(), 0
    assert (await standing(world))["ready"] == 5
    while running := await world.claim(worker):
        assert len(running) <= 5
        assert max(Counter(run.key for run in running).values()) <= 2
        await world.finish(worker, running)
        ended += len(running)
        await world.promote()
        await world.sound()
    assert ended == 18


async def test_agents_do_not_share_a_cap(world: World) -> None:
    await world.cap(max_running=1)
    await world.enqueue(3)
    other, revision = await another_agent(world)
    await world.enqueue(3, agent_id=other, revision_id=revision)
    claimed = await world.claim(await world.worker())
    assert Counter(run.agent_id for run in claimed) == {world.agent: 1, other: 3}


# -------------------------------------------------------------------- a run that comes back


async def test_released_run_keeps_no_slot_and_is_the_first_of_its_key(world: World) -> None:
    await world.cap(max_running=1)
    [first, *_] = await world.enqueue(3, linked=True)
    worker = await world.worker()
    [run] = await world.claim(worker)
    await work.release(world.store, worker=worker, runs=[(first, run.epoch, 0)])
    assert await world.place(first) == Place.BACKLOG
    assert await world.promote() == 1
    [again] = await world.claim(worker)
    assert (again.run_id, again.epoch) == (first, 2)


@pytest.mark.parametrize("reason", [FenceReason.WORKER_DIED, FenceReason.LEFT])
async def test_fenced_worker_leaks_no_slot(world: World, reason: FenceReason) -> None:
    await world.cap(max_running=2)
    runs = await world.enqueue(4)
    dead = await world.worker()
    assert len(await world.claim(dead)) == 2
    await workers.fence(world.store, [dead], reason=reason)
    assert await standing(world) == {"backlog": 4}
    assert await world.promote() == 2
    worker = await world.worker()
    assert {run.run_id for run in await world.claim(worker)} == set(runs[:2])


async def test_retry_waits_for_a_slot_like_any_other(world: World) -> None:
    await world.cap(max_running_per_key=1)
    [first, second] = await world.enqueue(2, key="k")
    worker = await world.worker()
    [run] = await world.claim(worker)
    await work.finish(world.store, worker=worker, events=[], finals=[failure(run, retry_in=0)])
    await world.promote()
    [other] = await world.claim(worker)
    assert other.run_id == second
    assert await intake.wake_due(world.store) == 1
    assert await world.place(first) == Place.BACKLOG
    assert await world.promote() == 0
    await world.finish(worker, [other])
    assert await world.promote() == 1
    assert [c.run_id for c in await world.claim(worker)] == [first]


async def test_cancelled_and_expired_runs_give_their_slots_back(world: World) -> None:
    await world.cap(max_running=1)
    [ready, waiting] = await world.enqueue(2)
    await intake.request_cancel(world.store, [ready], by="ada")
    assert await world.promote() == 1
    assert await world.place(waiting) == Place.READY
    await intake.request_cancel(world.store, [waiting], by="ada")
    [hurried, last] = await world.enqueue(2, queue_deadline_seconds=10)
    assert await world.place(last) == Place.BACKLOG
    await world.later(11)
    assert set(await intake.expire_queued(world.store)) == {hurried, last}
    assert await standing(world) == {}


# -------------------------------------------------------------------- changing caps


async def test_cap_that_is_set_takes_ready_runs_back_and_lets_running_ones_go_on(
    world: World,
) -> None:
    worker, running = await world.running(3)
    await world.enqueue(5)
    await world.cap(max_running=4)
    assert await standing(world) == {"lease": 3, "ready": 1, "backlog": 4}
    await world.cap(max_running=2)
    assert await standing(world) == {"lease": 3, "backlog": 5}
    await world.finish(worker, running[:1])
    assert await world.promote() == 0
    await world.finish(worker, running[1:2])
    assert await world.promote() == 1


async def test_cap_for_keys_that_is_set_holds_back_what_is_over_it(world: World) -> None:
    for key in ("a", "b", None):
        await world.enqueue(3, key=key)
    await world.cap(max_running_per_key=1)
    claimed = await world.claim(await world.worker())
    assert Counter(run.key for run in claimed) == {"a": 1, "b": 1, None: 3}


async def test_raised_and_removed_caps_let_runs_start_at_once(world: World) -> None:
    await world.cap(max_running=1)
    await world.enqueue(2500)
    await world.cap(max_running=3)
    assert await standing(world) == {"ready": 3, "backlog": 2497}
    await world.cap()
    assert await standing(world) == {"ready": 2500}
    assert await caps.capped_agents(world.store) == frozenset()


async def test_runs_keep_their_order_when_they_are_taken_back(world: World) -> None:
    runs = await world.enqueue(4, key="a")
    await world.cap(max_running=2)
    assert [await world.place(run) for run in runs] == ["ready"] * 2 + ["backlog"] * 2
    await world.cap(max_running=1)
    late = await world.enqueue(1, key="a")
    worker, started = await world.worker(), []
    while claimed := await world.claim(worker):
        started += [run.run_id for run in claimed]
        await world.finish(worker, claimed)
        await world.promote()
    assert started == runs + late


async def test_ensure_agent_with_other_caps_changes_them(world: World) -> None:
    async def ensure(limit: int | None) -> None:
        await intake.ensure_agent(
            world.store, namespace="team", name="support", entrypoint="m:a", spec=b"{}",
            digest="d1", max_running=limit,
        )  # fmt: skip

    await world.enqueue(3)
    await ensure(1)
    assert await standing(world) == {"ready": 1, "backlog": 2}
    await ensure(2)
    assert await standing(world) == {"ready": 2, "backlog": 1}
    await ensure(None)
    assert await standing(world) == {"ready": 3}


async def test_limit_agent_leaves_an_agent_alone_that_never_had_a_run(world: World) -> None:
    limits = Caps(max_running=1)
    assert await intake.limit_agent(world.store, namespace="team", name="support", limits=limits)
    assert not await intake.limit_agent(world.store, namespace="team", name="new", limits=limits)
    assert await world.value("SELECT count(*) FROM rowlock.agent") == 1


async def test_what_waits_under_a_cap_is_shown_as_such(world: World) -> None:
    await world.cap(max_running=1)
    [_, run] = await world.enqueue(2, linked=True)
    assert (await changes.snapshots(world.store, [run]))[run].place is Place.BACKLOG
    await world.cap(max_running=2)
    await world.cap(max_running=1)
    assert (await changes.snapshots(world.store, [run]))[run].place is Place.BACKLOG
    kinds = [ChangeKind.QUEUED, ChangeKind.PROMOTED, ChangeKind.HELD_BACK]
    assert await world.changes(run) == kinds


# -------------------------------------------------------------------- starts per minute


async def starts(world: World, key: str) -> list[float]:
    """Return when the runs of a key were claimed first, in seconds."""
    rows = await world.sql(
        "SELECT extract(epoch FROM f.started_at)::float8 AS at FROM rowlock.run_final f "
        "JOIN rowlock.run r USING (run_id) WHERE r.key = $1 ORDER BY 1",
        key,
    )
    return [row["at"] for row in rows]


async def test_starts_in_any_minute_never_exceed_the_limit(world: World) -> None:
    """Each run ends at once; the clock moves on by steps that do not divide a minute."""
    await world.cap(starts_per_minute_per_key=3)
    await world.enqueue(12, key="a")
    worker, ended, after = await world.worker(), 0, 0.0
    while ended < 12:
        await world.promote()
        claimed = await world.claim(worker)
        await world.finish(worker, claimed)
        ended += len(claimed)
        await world.later(7)
        after += 7
        assert after < 300, "the window does not move on"
    at = await starts(world, "a")
    assert all(later - earlier >= 60 for earlier, later in zip(at, at[3:], strict=False))
    # No slot of the window stays unused: three starts in each round that finds one free.
    assert at[-1] - at[0] < 3 * 60 + 3 * 7 + 1


async def test_window_begins_with_the_claim_and_not_with_the_promotion(world: World) -> None:
    await world.cap(starts_per_minute_per_key=1)
    await world.enqueue(3, key="a")
    await world.later(100)
    assert await world.promote() == 0, "one that is promoted and not claimed counts, however old"
    worker = await world.worker()
    [first] = await world.claim(worker)
    await world.finish(worker, [first])
    await world.later(59.5)
    assert await world.promote() == 0
    await world.later(1)
    assert await world.promote() == 1
    assert len(await world.claim(worker)) == 1
    assert await world.promote() == 0


async def test_keys_have_a_window_each_and_runs_without_a_key_have_none(world: World) -> None:
    await world.cap(starts_per_minute_per_key=2)
    for key in ("a", "b", None):
        await world.enqueue(5, key=key)
    claimed = await world.claim(await world.worker())
    assert Counter(run.key for run in claimed) == {"a": 2, "b": 2, None: 5}


async def test_run_that_ran_before_is_no_start(world: World) -> None:
    await world.cap(starts_per_minute_per_key=1)
    [first, second] = await world.enqueue(2, key="a")
    worker = await world.worker()
    [run] = await world.claim(worker)
    await work.release(world.store, worker=worker, runs=[(run.run_id, run.epoch, 0)])
    assert await world.promote() == 1
    [again] = await world.claim(worker)
    assert again.run_id == first
    await work.finish(world.store, worker=worker, events=[], finals=[failure(again, retry_in=0)])
    await intake.wake_due(world.store)
    assert await world.promote() == 1
    assert [c.run_id for c in await world.claim(worker)] == [first]
    await world.later(61)
    assert await world.promote() == 1
    assert [c.run_id for c in await world.claim(worker)] == [second]


async def test_run_that_never_started_gives_its_place_in_the_window_back(world: World) -> None:
    await world.cap(starts_per_minute_per_key=1)
    [promoted, next_] = await world.enqueue(2, key="a")
    await intake.request_cancel(world.store, [promoted], by="ada")
    assert await world.promote() == 1
    assert await world.place(next_) == Place.READY


async def test_taken_back_run_gives_its_place_in_the_window_back(world: World) -> None:
    await world.cap(starts_per_minute_per_key=2)
    await world.enqueue(3, key="a")
    await world.cap(max_running=1, starts_per_minute_per_key=2)
    assert await world.count("run_start") == 1
    assert (await standing(world))["ready"] == 1


async def test_old_starts_are_forgotten(world: World) -> None:
    await world.cap(starts_per_minute_per_key=2)
    await world.enqueue(2, key="a")
    worker = await world.worker()
    await world.finish(worker, await world.claim(worker))
    await world.later(61)
    await world.promote()
    await world.later(61)
    await world.promote()
    assert await world.count("run_start") == 0


# -------------------------------------------------------------------- who is next


async def order(world: World) -> list[RunId]:
    """Let one run after the other start; return their order."""
    worker, started = await world.worker(), []
    while claimed := await world.claim(worker, 1):
        started += [run.run_id for run in claimed]
        await world.finish(worker, claimed)
        await world.promote()
    return started


@pytest.mark.parametrize("cap", [None, 1])
async def test_keys_take_turns_however_much_one_of_them_has_queued(
    world: World, cap: int | None
) -> None:
    if cap:
        await world.cap(max_running=cap)
    many = await world.enqueue(50, key="many")
    few = await world.enqueue(3, key="few")
    started = await order(world)
    assert sorted(started) == sorted(many + few)
    assert [started.index(run) for run in few] <= [2, 4, 6]


@pytest.mark.parametrize("cap", [None, 1])
async def test_higher_priority_goes_first_whatever_its_key(world: World, cap: int | None) -> None:
    if cap:
        await world.cap(max_running=cap)
    first = await world.enqueue(1, key="a", priority=9)
    low = await world.enqueue(3, key="a")
    high = await world.enqueue(3, key="a", priority=5)
    assert await order(world) == first + high + low


@pytest.mark.parametrize("cap", [None, 1])
async def test_key_is_not_punished_for_what_it_used_before(world: World, cap: int | None) -> None:
    """A key that had the queue for itself takes turns with a newcomer, from now on."""
    if cap:
        await world.cap(max_running=cap)
    await world.enqueue(100, key="old")
    worker = await world.worker()
    for _ in range(60):
        await world.finish(worker, await world.claim(worker, 1))
        await world.promote()
    new = await world.enqueue(20, key="new")
    ahead = (await order(world))[:20]
    assert 9 <= len(set(new) & set(ahead)) <= 11


@pytest.mark.parametrize("cap", [None, 1])
async def test_key_that_comes_with_one_run_at_a_time_cannot_push_the_others_aside(
    world: World, cap: int | None
) -> None:
    if cap:
        await world.cap(max_running=cap)
    await world.enqueue(30, key="bulk")
    await world.enqueue(1, key="drip")
    worker, served = await world.worker(), []
    for _ in range(21):
        [run] = await world.claim(worker, 1)
        served.append(run.key)
        if run.key == "drip":
            await world.enqueue(1, key="drip")
        await world.finish(worker, [run])
        await world.promote()
    # Without a cap it waits for one run more: the head of the queue is the next, not the last one.
    assert (9 if cap else 6) <= served.count("drip") <= 11


async def test_agent_of_twice_the_weight_gets_twice_the_turns(world: World) -> None:
    heavy, revision = await another_agent(world)
    await world.sql("UPDATE rowlock.agent SET weight = 2 WHERE agent_id = $1", heavy)
    await world.enqueue(60)
    await world.enqueue(60, agent_id=heavy, revision_id=revision)
    claimed = await world.claim(await world.worker(), 30)
    assert 19 <= sum(run.agent_id == heavy for run in claimed) <= 21


async def test_promoted_run_is_no_faster_than_one_that_comes_to_the_shared_queue(
    world: World,
) -> None:
    """A backlog is no way around the queue that all agents share."""
    other, revision = await another_agent(world)
    await world.cap(max_running=1)
    [_, held] = await world.enqueue(2)
    worker = await world.worker()
    [run] = await world.claim(worker)
    queued = await world.enqueue(4, agent_id=other, revision_id=revision)
    await world.finish(worker, [run])
    await world.promote()
    started = await order(world)
    assert sorted(started) == sorted([held, *queued])
    assert started.index(held) in (1, 2)
