"""Caps while everybody moves at once: never exceeded, never leaked.

A watcher reads leases and queue of the agent in one snapshot, again and again,
and at the end the times that the database wrote into history say the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from rowlock.states import Decision, FenceReason
from rowlock.store import approvals, caps, intake, invariants, parking, redrive, work, workers
from rowlock.store.caps import Caps
from rowlock.store.connection import Connection
from rowlock.store.types import Claimed, NewQuestion, Parked, WorkerId
from tests.integration.store.world import World, end, failure, raw_of

DIED = FenceReason.WORKER_DIED
ROUNDS = 300
_TOKENS = itertools.count(1_000_000)

_SUCCEEDED = "SELECT count(*) FROM rowlock.run_final WHERE status = 1"
_ALL_DUE = "UPDATE rowlock.run_timer SET due_at = rowlock.now() WHERE due_at > rowlock.now()"
_NEXT_SEQ = "SELECT coalesce(max(seq), 0) + 1 FROM rowlock.run_event WHERE run_id = $1"
_HOLD_SLOTS = """
SELECT u.key, count(*) AS held
FROM (SELECT agent_id, key FROM rowlock.run_ready
      UNION ALL SELECT agent_id, key FROM rowlock.run_lease) u
WHERE u.agent_id = $1 GROUP BY u.key
"""


class Watcher:
    """Looks at the agent as long as the others race."""

    def __init__(self, world: World, raw: asyncpg.Connection[Any], limits: Caps) -> None:
        self._world = world
        self._raw = raw
        self._limits = limits
        self.looks = 0
        self.most = 0
        self.wrong: list[str] = []

    async def look(self) -> None:
        rows = await self._raw.fetch(_HOLD_SLOTS, self._world.agent)
        held = {row["key"]: row["held"] for row in rows}
        total, limits = sum(held.values()), self._limits
        self.looks += 1
        self.most = max(self.most, total)
        if limits.max_running is not None and total > limits.max_running:
            self.wrong.append(f"{total} of the agent")
        per_key = limits.max_running_per_key
        if per_key is not None:
            self.wrong += [f"{n} of {key}" for key, n in held.items() if key and n > per_key]


@contextlib.asynccontextmanager
async def watched(world: World, limits: Caps) -> AsyncIterator[Watcher]:
    """Look for a cap that is exceeded while the block runs, and fail at its end."""
    watcher, over = Watcher(world, await world.raw(), limits), asyncio.Event()

    async def watch() -> None:
        while not over.is_set():
            await watcher.look()

    # A group, so that a watcher that fails ends the block, too.
    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        try:
            yield watcher
        finally:
            over.set()
    assert watcher.wrong == []
    assert watcher.looks > 20


class Crew:
    """Workers that claim, finish, fail, release, park and die, until all runs have succeeded."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.deeds: Counter[str] = Counter()

    async def feed(self, conn: Connection, keys: tuple[str | None, ...]) -> None:
        """Enqueue all runs, few at a time."""
        for _ in range(ROUNDS // 10):
            chosen = random.choices(keys, k=10)
            new = [one for key in chosen for one in self.world.new(key=key, max_takeovers=99)]
            await intake.enqueue(conn, new)

    async def work(self, conn: Connection, *, alone: bool = False) -> None:
        """Claim runs and end them, in all the ways in which a run can leave a worker.

        Parameters
        ----------
        alone
            Claim only those that were twice where a process died.
        """
        worker = await self.world.worker(quarantine=alone)
        while await self._more(conn):
            claimed = await claim(self.world, conn, worker, alone=alone)
            if claimed and random.random() < 0.15:
                self.deeds["died"] += 1
                await workers.fence(conn, [worker], reason=random.choice([DIED, FenceReason.LEFT]))
                worker = await self.world.worker(quarantine=alone)
                continue
            for run in claimed:
                await self._end(conn, worker, run)

    async def promote(self, conn: Connection, *, wait: bool) -> None:
        """Wake and promote, as the rounds of workers do; no backoff takes its time here."""
        while await self._more(conn):
            await raw_of(conn).execute(_ALL_DUE)
            await intake.wake_due(conn)
            await parking.wake_parked(conn)
            if wait:
                await caps.promote(conn, self.world.agent)
            else:
                await caps.promote_waiting(conn)

    async def _more(self, conn: Connection) -> bool:
        """Tell whether a run is left; one that failed may be re-driven, so its end is none."""
        return bool(await raw_of(conn).fetchval(_SUCCEEDED) < ROUNDS)

    async def _end(self, conn: Connection, worker: WorkerId, run: Claimed) -> None:
        [deed] = random.choices(
            ["finish", "retry", "release", "sleep", "ask", "suspend", "redrive"], [8, *[1] * 6]
        )
        self.deeds[deed] += 1
        if deed in ("sleep", "ask", "suspend"):
            await self._wait(conn, worker, run, deed)
            return
        if deed == "release":
            await work.release(conn, worker=worker, runs=[(run.run_id, run.epoch, 0)])
            return
        final = failure(run, retry_in=0) if deed == "retry" else end(run)
        if deed == "redrive":
            final = failure(run)
        await work.finish(conn, worker=worker, events=[], finals=[final])
        if deed == "redrive":
            await redrive.redrive(conn, run.run_id, by="test")

    async def _wait(self, conn: Connection, worker: WorkerId, run: Claimed, deed: str) -> None:
        """Let a run leave for a wait that is over at once."""
        seq = await raw_of(conn).fetchval(_NEXT_SEQ, run.run_id)
        reasons = {"sleep": ("sleep",), "ask": ("approval",), "suspend": ()}[deed]
        wake_in = 0.0 if deed == "sleep" else None
        asked = (NewQuestion(f"s{seq}", "d", "t", b"{}"),) if deed == "ask" else ()
        if deed == "suspend":
            await parking.request_suspend(conn, [run.run_id], by="test")
        row = Parked(run.run_id, run.epoch, seq, 0, reasons, wake_in, b"{}", asked)
        await parking.park(conn, worker=worker, runs=[row])
        for one in asked:
            await approvals.decide(
                conn, run.run_id, step_key=one.step_key, digest="d", attempt=run.attempt,
                decision=Decision.APPROVED, by="test",
            )  # fmt: skip
        if deed == "suspend":
            await parking.request_continue(conn, [run.run_id])


async def most_at_once(world: World) -> int:
    """Return how many attempts were under way at once at most, by the times in history."""
    rows = await world.sql(
        "SELECT claimed_at, finished_at FROM rowlock.run_final WHERE claimed_at IS NOT NULL"
    )
    steps = [(row["claimed_at"], 1) for row in rows] + [(row["finished_at"], -1) for row in rows]
    return max(itertools.accumulate(step for _, step in sorted(steps)))


@pytest.mark.parametrize(
    ("limits", "keys", "most"),
    [
        (Caps(3), ("a", "b", None), 3),
        (Caps(None, 1), ("a", "b", "c"), 3),
        (Caps(4, 2), ("a", "b", "c", None), 4),
    ],
    ids=["agent", "key", "both"],
)
async def test_caps_hold_under_eight_claimers_that_finish_fail_wait_and_die(
    world: World, limits: Caps, keys: tuple[str | None, ...], most: int
) -> None:
    await caps.set_caps(world.store, world.agent, limits)
    crew = Crew(world)
    feeder, *others = [await world.connect() for _ in range(13)]
    async with watched(world, limits) as watcher:
        await asyncio.gather(
            crew.feed(feeder, keys),
            *(crew.work(conn) for conn in others[:8]),
            crew.work(others[8], alone=True),
            *(crew.promote(conn, wait=conn is others[9]) for conn in others[9:]),
        )
    await world.sound()
    assert await world.value(_SUCCEEDED) == ROUNDS
    assert await world.count("run_live") == 0
    assert watcher.most == most, "some slots were never used"
    assert await most_at_once(world) <= most
    assert min(crew.deeds.values()) > 3
    assert len(crew.deeds) == 8, "each way to leave a worker was taken"


async def test_starts_of_any_minute_hold_under_eight_claimers(world: World) -> None:
    """The clock moves on by random steps; in between all of them claim at once."""
    limit, count = 5, 60
    await world.cap(starts_per_minute_per_key=limit)
    connections = [await world.connect() for _ in range(10)]
    await world.enqueue(count, key="a")

    async def claim_and_end(conn: Connection) -> int:
        worker = await world.worker()
        claimed = await claim(world, conn, worker)
        await work.finish(conn, worker=worker, events=[], finals=[end(run) for run in claimed])
        return len(claimed)

    ended = 0
    for _ in range(300):
        calls = [claim_and_end(conn) for conn in connections[:8]]
        promoting = [caps.promote(conn, world.agent) for conn in connections[8:]]
        ended += sum((await asyncio.gather(*calls, *promoting))[:8])
        if ended == count:
            break
        await world.later(random.uniform(1, 25))
    rows = await world.sql("SELECT started_at FROM rowlock.run_final ORDER BY 1")
    at = [row["started_at"].timestamp() for row in rows]
    assert len(at) == count
    assert all(b - a >= 60 for a, b in zip(at, at[limit:], strict=False))
    await world.sound()


# -------------------------------------------------------------------- caps that change


async def test_enqueue_on_its_way_while_a_cap_is_set_does_not_slip_past_it(world: World) -> None:
    slow, setter = await world.connect(), await world.connect()
    async with slow.transaction():
        [accepted] = await intake.enqueue(slow, world.new())
        setting = asyncio.create_task(caps.set_caps(setter, world.agent, Caps(1)))
        await world.blocked(setter)
    await setting
    [second] = await world.enqueue()
    assert await world.places([accepted.run_id]) == {"ready"}
    assert await world.place(second) == "backlog"
    await world.sound()


async def test_enqueue_that_meets_a_cap_being_set_obeys_it(world: World) -> None:
    late = await world.connect()
    async with world.holding("SELECT rowlock.hold_still($1)", world.agent) as setter:
        coming = asyncio.create_task(intake.enqueue(late, world.new(3)))
        await world.blocked(late)
        await setter.execute("UPDATE rowlock.agent SET max_running = 1")
    await coming
    rows = await world.sql("SELECT place, count(*) FROM rowlock.run_live GROUP BY 1")
    assert dict(map(tuple, rows)) == {"ready": 1, "backlog": 2}


@pytest.mark.parametrize("how", ["release", "fence", "wake"])
async def test_run_that_comes_back_while_a_cap_is_set_obeys_it(world: World, how: str) -> None:
    worker, [run] = await world.running()
    if how == "wake":
        await work.finish(world.store, worker=worker, events=[], finals=[failure(run, retry_in=0)])
    late = await world.connect()
    calls = {
        "release": lambda: work.release(late, worker=worker, runs=[(run.run_id, 1, 0)]),
        "fence": lambda: workers.fence(late, [worker], reason=DIED),
        "wake": lambda: intake.wake_due(late),
    }
    async with world.holding("SELECT rowlock.hold_still($1)", world.agent) as setter:
        coming = asyncio.create_task(calls[how]())
        await world.blocked(late)
        await setter.execute("UPDATE rowlock.agent SET max_running = 1")
    await coming
    assert await world.place(run.run_id) == "backlog"


async def test_promotions_of_one_agent_take_turns(world: World) -> None:
    """Two of them at cap 2: the second sees what the first has done, or leaves."""
    await world.cap(max_running=1)
    await world.enqueue(5)
    await world.sql("UPDATE rowlock.agent SET max_running = 2")
    slow, second, third = [await world.connect() for _ in range(3)]
    async with slow.transaction():
        await slow.fetch("take_turn", world.agent, True)
        waiting = asyncio.create_task(caps.promote(second, world.agent))
        await world.blocked(second)
        assert await caps.promote(third, world.agent, wait=False) == 0
        backlog = await slow.fetch("backlog_front", world.agent, 1)
        await slow.fetch("promote", world.agent, [row["run_id"] for row in backlog], False)
    assert await waiting == 0
    await world.sound()


async def test_caps_that_change_all_the_time_are_kept_all_the_time(world: World) -> None:
    """No ready run is ever over the cap of its instant: `violations` is one snapshot."""
    setter, looker, *others = [await world.connect() for _ in range(9)]
    over = asyncio.Event()
    looks, *_ = await asyncio.gather(
        look_for_violations(looker, over),
        change_caps(world, setter, over),
        keep_feeding(world, others[0], over),
        keep_promoting(others[1], over),
        *(keep_serving(world, conn, over) for conn in others[2:]),
    )
    assert looks > 20
    await world.sound()
    assert await world.count("run_backlog") == 0, "nothing is left behind when caps are removed"


async def change_caps(world: World, conn: Connection, over: asyncio.Event) -> None:
    for _ in range(40):
        limits = Caps(random.choice([None, 1, 2, 5]), random.choice([None, 1, 2]))
        await caps.set_caps(conn, world.agent, limits)
    await caps.set_caps(conn, world.agent, Caps())
    over.set()


async def look_for_violations(conn: Connection, over: asyncio.Event) -> int:
    looks = 0
    while not over.is_set():
        assert await invariants.violations(conn) == []
        looks += 1
    return looks


async def keep_feeding(world: World, conn: Connection, over: asyncio.Event) -> None:
    while not over.is_set():
        await intake.enqueue(conn, world.new(5, key=random.choice(["a", "b"])))


async def keep_promoting(conn: Connection, over: asyncio.Event) -> None:
    while not over.is_set():
        await caps.promote_waiting(conn)


async def keep_serving(world: World, conn: Connection, over: asyncio.Event) -> None:
    worker = await world.worker()
    while not over.is_set():
        for run in await claim(world, conn, worker):
            if random.random() < 0.2:
                await work.release(conn, worker=worker, runs=[(run.run_id, run.epoch, 0)])
            else:
                await work.finish(conn, worker=worker, events=[], finals=[end(run)])


async def claim(
    world: World, conn: Connection, worker: WorkerId, *, alone: bool = False
) -> list[Claimed]:
    given = {"worker": worker, "pool": world.pool, "token": next(_TOKENS)}
    if alone:
        claimed = await work.claim_alone(conn, **given)
    else:
        claimed = await work.claim(conn, **given, limit=3)
    assert claimed is not None
    return claimed
