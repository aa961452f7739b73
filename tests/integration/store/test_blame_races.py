"""Suspects, claims and fences at once, many times: each loss is judged once, each run is alone."""

from __future__ import annotations

import asyncio
from collections import Counter

from rowlock.states import FenceReason
from rowlock.store import intake, work, workers
from rowlock.store.types import RunId, WorkerId
from tests.integration.store.test_races import account, kill, race, survive
from tests.integration.store.world import World

DIED = FenceReason.WORKER_DIED
ALONE = "UPDATE rowlock.run_ready SET suspected = 2, quarantined = true"


async def judged(world: World, run: RunId) -> tuple[int, int, int]:
    """Return takeovers, blamed, suspected of a live run."""
    [row] = await world.sql("SELECT * FROM rowlock.run_live WHERE run_id = $1", run)
    return row["takeovers"], row["blamed"], row["suspected"]


async def test_a_fence_against_a_claim_of_a_suspect_strands_nothing_and_counts_once(
    world: World,
) -> None:
    claimer, fencer = await world.connect(), await world.connect()
    seen: Counter[str] = Counter()
    for token in range(1, 151):
        [run] = await world.enqueue(1, max_takeovers=9)
        await world.sql(ALONE)
        worker = await world.worker(quarantine=True)
        claimed, fenced = await race(
            (claimer, work.claim_alone(claimer, worker=worker, pool=world.pool, token=token)),
            (fencer, workers.fence(fencer, [worker], reason=DIED)),
        )
        assert fenced.blamed == ((run,) if claimed else ())
        assert await judged(world, run) == ((1, 1, 3) if claimed else (0, 0, 2))
        assert await world.count("run_lease") == 0
        seen["claimed first" if claimed else "fenced first"] += 1
        await intake.request_cancel(world.store, [run], by="test")
    assert len(seen) == 2, seen
    assert await account(world, 150) == {"final": 150}


async def test_claimers_of_both_kinds_share_the_queue_without_touching_each_others_runs(
    world: World,
) -> None:
    connections = [await world.connect() for _ in range(4)]
    suspects = set(await world.enqueue(12))
    await world.sql(ALONE)
    others = set(await world.enqueue(40))
    token = iter(range(1, 10_000))

    async def ordinary(index: int) -> set[RunId]:
        worker, got = await world.worker(), set()
        while len(got) < 40:
            claimed = await work.claim(
                connections[index], worker=worker, pool=world.pool, token=next(token), limit=3
            )
            if not claimed:
                return got
            got |= {run.run_id for run in claimed}
        return got

    async def quarantine(index: int) -> set[RunId]:
        worker, got = await world.worker(quarantine=True), set()
        while claimed := await work.claim_alone(
            connections[index], worker=worker, pool=world.pool, token=next(token)
        ):
            assert len(claimed) == 1
            got.add(claimed[0].run_id)
            await world.finish(worker, claimed)
        return got

    one, two, three, four = await asyncio.gather(
        ordinary(0), ordinary(1), quarantine(2), quarantine(3)
    )
    assert (one | two, one & two) == (others, set())
    assert (three | four, three & four) == (suspects, set())
    await account(world, 52)


async def test_a_killed_fence_is_repeated_and_judges_once(world: World) -> None:
    seen: Counter[str] = Counter()
    for _ in range(60):
        worker, runs = await world.running(3, max_takeovers=9)
        bad, *good = [run.run_id for run in runs]
        connection = await world.connect()

        async def fence(conn: object, worker: WorkerId = worker, bad: RunId = bad) -> object:
            return await workers.fence(conn, [worker], reason=DIED, on_loop={worker: bad})  # type: ignore[arg-type]

        answer, _ = await asyncio.gather(survive(fence(connection)), kill(world, connection))
        seen["answered" if answer is not None else "unknown"] += 1
        await fence(world.store)
        assert await judged(world, bad) == (1, 1, 1)
        assert {await judged(world, run) for run in good} == {(1, 0, 0)}
        await intake.request_cancel(world.store, [run.run_id for run in runs], by="test")
        await connection.close()
    assert seen["unknown"], seen
    assert await account(world, 180) == {"final": 180}


async def test_two_that_fence_the_same_worker_judge_it_once(world: World) -> None:
    """Its supervisor, who saw the run, and the operator, who saw the pod go."""
    one, two = await world.connect(), await world.connect()
    seen: Counter[str] = Counter()
    for _ in range(80):
        worker, runs = await world.running(2, max_takeovers=9)
        bad, good = [run.run_id for run in runs]
        saw, inferred = await race(
            (one, workers.fence(one, [worker], reason=DIED, on_loop={worker: bad})),
            (two, workers.fence(two, [worker], reason=FenceReason.WORKER_DELETED)),
        )
        assert {len(saw.blamed), len(inferred.blamed)} in ({0, 1}, {0, 2})
        wanted = (1, 0, 0) if saw.blamed else (1, 1, 0)
        assert await judged(world, good) == wanted
        assert (await judged(world, bad))[:2] == (1, 1)
        seen["supervisor" if saw.blamed else "operator"] += 1
        await intake.request_cancel(world.store, [bad, good], by="test")
    assert len(seen) == 2, seen
    assert await account(world, 160) == {"final": 160}
