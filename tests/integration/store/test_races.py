"""Two sessions at once, hundreds of times: nothing is lost, doubled or stranded.

Each round lets two real statements meet; a few idle statements before one of them shift the moment.
Interleavings that matter most are also forced one by one, with locks, in the other modules here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import Counter
from collections.abc import Awaitable
from typing import Any

from rowlock.errors import StoreUnavailable
from rowlock.states import EventKind, FenceReason
from rowlock.store import changes, intake, work, workers
from rowlock.store.connection import Connection
from rowlock.store.types import Beat, Claimed, Submission, Verdict
from tests.integration.store.world import World, end, failure, pid, step

DIED = FenceReason.WORKER_DIED


async def late(connection: Connection, idle: int, call: Awaitable[Any]) -> Any:
    """Run `call` after `idle` statements that do nothing."""
    for _ in range(idle):
        await connection.fetch("schema_version")
    return await call


async def race(
    one: tuple[Connection, Awaitable[Any]], two: tuple[Connection, Awaitable[Any]]
) -> tuple[Any, Any]:
    """Start both calls, one of them up to eight statements later than the other."""
    delay = random.randint(-8, 8)
    return await asyncio.gather(
        late(one[0], max(0, delay), one[1]), late(two[0], max(0, -delay), two[1])
    )


async def account(world: World, runs: int) -> Counter[str]:
    """Assert that the database is sound and holds `runs` runs; return where they stand."""
    await intake.cancel_waiting(world.store)
    await world.sound()
    rows = await world.sql(
        "SELECT coalesce(l.place, 'final') AS place, count(*) AS n FROM rowlock.run r "
        "LEFT JOIN rowlock.run_live l USING (run_id) GROUP BY 1"
    )
    places = Counter({row["place"]: row["n"] for row in rows})
    assert places.total() == runs
    return places


# -------------------------------------------------------------------- fencing


async def test_fence_against_claim_strands_no_lease(world: World) -> None:
    claimer, fencer = await world.connect(), await world.connect()
    seen: Counter[str] = Counter()
    for token in range(1, 301):
        await world.enqueue(2, max_takeovers=30000)
        worker = await world.worker()
        claimed, fenced = await race(
            (claimer, work.claim(claimer, worker=worker, pool=world.pool, token=token, limit=2)),
            (fencer, workers.fence(fencer, [worker], reason=DIED)),
        )  # fmt: skip
        moved = {*fenced.requeued, *fenced.delayed}
        assert moved == {run.run_id for run in claimed or []}
        assert await world.count("run_lease") == 0
        seen["claimed first" if claimed else "fenced first"] += 1
    assert len(seen) == 2, seen
    await account(world, 600)


async def test_fence_against_finish_ends_or_moves_each_run_once(world: World) -> None:
    writer, fencer = await world.connect(), await world.connect()
    seen: Counter[str] = Counter()
    for _ in range(200):
        worker, [run] = await world.running(max_takeovers=30000)
        events = [step(run, 1), step(run, 2)]
        flushed, fenced = await race(
            (writer, work.finish(writer, worker=worker, events=events, finals=[end(run)])),
            (fencer, workers.fence(fencer, [worker], reason=DIED)),
        )
        done = flushed.finals == {run.run_id: Verdict.DONE}
        assert done != (fenced.requeued == (run.run_id,))
        assert flushed.fenced != done
        assert len(await work.history(world.store, run.run_id)) == (2 if done else 0)
        await intake.request_cancel(world.store, [run.run_id], by="test")
        seen["finished" if done else "moved"] += 1
    assert len(seen) == 2, seen
    assert await account(world, 200) == {"final": 200}


async def test_late_writer_never_mixes_into_the_history_of_the_next_owner(world: World) -> None:
    old, new, fencer = [await world.connect() for _ in range(3)]
    for _ in range(100):
        worker, [run] = await world.running(max_takeovers=30000)

        async def write(run: Claimed = run, worker: Any = worker) -> int:
            for seq in range(1, 9):
                flushed = await work.append(old, worker=worker, events=[step(run, seq)])
                if flushed.fenced or flushed.lost:
                    return seq - 1
            return 8

        async def take_over(worker: Any = worker) -> int:
            await workers.fence(fencer, [worker], reason=DIED)
            heir = await world.worker()
            [again] = await world.claim(heir, conn=new)
            known = len(await work.history(new, again.run_id))
            await work.append(
                new, worker=heir, events=[step(again, known + 1, kind=EventKind.TAKEN_OVER)]
            )
            await work.finish(new, worker=heir, events=[], finals=[end(again)])
            return known

        written, known = await asyncio.gather(
            write(), late(fencer, random.randint(0, 8), take_over())
        )
        assert written == known
    assert await account(world, 100) == {"final": 100}


async def test_beat_against_reaper_one_of_them_wins(world: World) -> None:
    beater, reaper = await world.connect(), await world.connect()
    seen: Counter[str] = Counter()
    await world.later(100)
    await workers.reap(world.store, gap_seconds=5)
    await world.sql("UPDATE rowlock.reaper SET granted_at = '-infinity'")
    for _ in range(200):
        worker = await world.worker()
        await world.sql(
            "UPDATE rowlock.worker_beat SET beat_at = rowlock.now() - interval '1 minute'"
        )
        accepted, reaped = await race(
            (beater, workers.beat(beater, [Beat(worker, 1, 0, 0, False)])),
            (reaper, workers.reap(reaper, gap_seconds=5)),
        )
        assert not reaped.skipped
        assert (worker in accepted) != (worker in reaped.fenced.workers)
        seen["beat" if accepted else "fenced"] += 1
        await workers.leave(world.store, worker)
    assert len(seen) == 2, seen


async def test_reaper_and_known_death_move_each_run_once(world: World) -> None:
    reaper, fencer = await world.connect(), await world.connect()
    await world.sql("UPDATE rowlock.reaper SET granted_at = '-infinity'")
    for _ in range(100):
        worker, runs = await world.running(3, max_takeovers=30000)
        await world.sql(
            "UPDATE rowlock.worker_beat SET beat_at = rowlock.now() - interval '1 minute'"
        )
        reaped, fenced = await race(
            (reaper, workers.reap(reaper, gap_seconds=60)),
            (fencer, workers.fence(fencer, [worker], reason=DIED)),
        )
        moved = [*reaped.fenced.requeued, *fenced.requeued]
        assert sorted(moved) == sorted(run.run_id for run in runs)
        await intake.request_cancel(world.store, moved, by="test")
    assert await account(world, 300) == {"final": 300}


# -------------------------------------------------------------------- cancel


async def test_cancel_against_claim_ends_the_run_or_reaches_its_worker(world: World) -> None:
    asker, claimer = await world.connect(), await world.connect()
    worker = await world.worker()
    seen: Counter[str] = Counter()
    for token in range(1, 321):
        [run] = await world.enqueue(linked=token % 2 == 0)
        asked, claimed = await race(
            (asker, intake.request_cancel(asker, [run], by="ada")),
            (claimer, work.claim(claimer, worker=worker, pool=world.pool, token=token, limit=1)),
        )  # fmt: skip
        if asked:
            assert (asked, claimed) == ([run], [])
            seen["ended"] += 1
            continue
        assert [c.run_id for c in claimed] == [run]
        assert [w.run_id for w in await workers.wishes(world.store, [worker])] == [run]
        seen["reached"] += 1
        await work.release(world.store, worker=worker, runs=[(run, claimed[0].epoch, 0)])
        assert (await world.final(run))["status"] == 3
    assert len(seen) == 2, seen
    assert await account(world, 320) == {"final": 320}
    assert await world.count("wish") == 0


async def test_cancel_against_finish_ends_each_run_once_and_keeps_the_result(world: World) -> None:
    asker, writer = await world.connect(), await world.connect()
    worker = await world.worker()
    for _ in range(200):
        _, [run] = await world.running(worker=worker)
        asked, flushed = await race(
            (asker, intake.request_cancel(asker, [run.run_id], by="ada")),
            (writer, work.finish(writer, worker=worker, events=[], finals=[end(run)])),
        )
        assert flushed.finals == {run.run_id: Verdict.DONE}
        assert (await world.final(run.run_id))["status"] == 1
        assert asked in ([], [run.run_id])
    assert await account(world, 200) == {"final": 200}
    assert await world.count("wish") == 0


async def test_cancel_against_a_retry_is_never_lost(world: World) -> None:
    asker, writer = await world.connect(), await world.connect()
    worker = await world.worker()
    seen: Counter[int] = Counter()
    for _ in range(200):
        _, [run] = await world.running(worker=worker)
        await race(
            (asker, intake.request_cancel(asker, [run.run_id], by="ada")),
            (writer, work.finish(
                writer, worker=worker, events=[], finals=[failure(run, retry_in=60)])),
        )  # fmt: skip
        await intake.cancel_waiting(world.store)
        final = await world.final(run.run_id)
        assert final["status"] == 3
        seen[final["attempt"]] += 1
    assert set(seen) == {1, 2}, seen
    assert await account(world, 200) == {"final": 200}


async def test_cancel_against_fence_is_never_lost(world: World) -> None:
    asker, fencer = await world.connect(), await world.connect()
    for _ in range(150):
        worker, [run] = await world.running(linked=True)
        await race(
            (asker, intake.request_cancel(asker, [run.run_id], by="ada")),
            (fencer, workers.fence(fencer, [worker], reason=DIED)),
        )
        await intake.cancel_waiting(world.store)
        assert (await world.final(run.run_id))["status"] == 3
        shown = await world.changes(run.run_id)
        assert shown[-1] == 9
        assert shown.count(9) == 1
    assert await account(world, 150) == {"final": 150}


async def test_cancel_against_wake_is_never_lost(world: World) -> None:
    asker, waker = await world.connect(), await world.connect()
    worker = await world.worker()
    for _ in range(150):
        _, [run] = await world.running(worker=worker)
        await work.finish(world.store, worker=worker, events=[], finals=[failure(run, retry_in=0)])
        await race(
            (asker, intake.request_cancel(asker, [run.run_id], by="ada")),
            (waker, intake.wake_due(waker)),
        )
        await intake.cancel_waiting(world.store)
        assert (await world.final(run.run_id))["status"] == 3
    assert await account(world, 150) == {"final": 150}


async def test_deadline_against_claim_and_cancel_ends_each_run_once(world: World) -> None:
    sweeper, claimer, asker = [await world.connect() for _ in range(3)]
    worker = await world.worker()
    for token in range(1, 201):
        [run] = await world.enqueue(queue_deadline_seconds=-1.0)
        expired, claimed, asked = await asyncio.gather(
            late(sweeper, random.randint(0, 3), intake.expire_queued(sweeper)),
            late(claimer, random.randint(0, 3), work.claim(
                claimer, worker=worker, pool=world.pool, token=token, limit=1)),
            late(asker, random.randint(0, 3), intake.request_cancel(asker, [run], by="ada")),
        )  # fmt: skip
        assert len(expired) + len(claimed) <= 1
        if claimed:
            await work.release(world.store, worker=worker, runs=[(run, claimed[0].epoch, 0)])
        assert asked in ([], [run])
    assert await account(world, 200) == {"final": 200}


# -------------------------------------------------------------------- intake and claims


async def test_two_operators_with_the_same_custom_resources_make_each_run_once(
    world: World,
) -> None:
    one, two = await world.connect(), await world.connect()
    for number in range(150):
        keyed = {"idempotency_key": f"key-{number}"} if number % 3 == 0 else {}
        new = [*world.new(20, linked=True), *world.new(1, linked=True, **keyed)]
        orders = [random.sample(new, len(new)) for _ in range(2)]
        answers = await race(
            (one, intake.enqueue(one, orders[0])),
            (two, intake.enqueue(two, orders[1])),
        )
        made: dict[str | None, set[int]] = {}
        for order, answer in zip(orders, answers, strict=True):
            for asked, given in zip(order, answer, strict=True):
                made.setdefault(asked.uid, set()).add(given.run_id)
        assert all(len(ids) == 1 for ids in made.values())
        outcomes = Counter(given.outcome for answer in answers for given in answer)
        assert outcomes == {Submission.CREATED: 21, Submission.EXISTS: 21}
    assert await account(world, 150 * 21) == {"ready": 150 * 21}


async def test_one_key_wanted_by_many_goes_to_one(world: World) -> None:
    one, two = await world.connect(), await world.connect()
    for number in range(150):
        mine = world.new(5, linked=True, idempotency_key=f"key-{number}")
        keys = [f"k{number}-{n}" for n in range(5)]
        many = [
            [world.new(1, idempotency_key=key)[0] for key in order] for order in (keys, keys[::-1])
        ]
        answers = await race(
            (one, intake.enqueue(one, [mine[0], *many[0]])),
            (two, intake.enqueue(two, [*many[1], mine[1]])),
        )
        both = [answers[0][0], answers[1][-1]]
        assert {a.outcome for a in both} == {Submission.CREATED, Submission.DUPLICATE_KEY}
        assert both[0].run_id == both[1].run_id
        assert [a.run_id for a in answers[0][1:]] == [a.run_id for a in answers[1][-2::-1]]
    await account(world, 150 * 6)


async def test_same_custom_resource_under_two_keys_leaves_no_orphan(world: World) -> None:
    one, two = await world.connect(), await world.connect()
    for number in range(100):
        [new] = world.new(1, linked=True)
        variants = [dataclasses.replace(new, idempotency_key=f"{number}-{who}") for who in "ab"]

        async def submit(connection: Connection, variant: Any) -> Any:
            while True:
                try:
                    return (await intake.enqueue(connection, [variant]))[0]
                except StoreUnavailable:
                    continue

        answers = await race((one, submit(one, variants[0])), (two, submit(two, variants[1])))
        assert {a.outcome for a in answers} == {Submission.CREATED, Submission.EXISTS}
        assert len({a.run_id for a in answers}) == 1
    await account(world, 100)


async def test_claimers_never_share_a_run(world: World) -> None:
    await world.enqueue(3000)
    connections = [await world.connect() for _ in range(6)]

    async def drain(connection: Connection) -> list[int]:
        worker = await world.worker()
        got: list[int] = []
        while claimed := await world.claim(worker, random.randint(1, 9), conn=connection):
            got += [run.run_id for run in claimed]
        return got

    shares = await asyncio.gather(*map(drain, connections))
    together = [run for share in shares for run in share]
    assert len(together) == len(set(together)) == 3000
    assert min(map(len, shares)) > 100
    assert await account(world, 3000) == {"lease": 3000}


# -------------------------------------------------------------------- unknown commits


async def test_claim_that_runs_beside_its_own_adopt_leaves_no_unknown_lease(world: World) -> None:
    claimer, adopter = await world.connect(), await world.connect()
    worker = await world.worker()
    seen: Counter[str] = Counter()
    for token in range(1, 301):
        await world.enqueue(2)
        claimed, adopted = await race(
            (claimer, work.claim(claimer, worker=worker, pool=world.pool, token=token, limit=2)),
            (adopter, work.adopt(adopter, worker=worker, token=token, known=[])),
        )  # fmt: skip
        # The claim's answer never arrives: what adopt says must be all there is.
        leases = {r["run_id"] for r in await world.sql("SELECT run_id FROM rowlock.run_lease")}
        assert {run.run_id for run in adopted} == leases
        assert {run.run_id for run in claimed} == leases
        seen["claimed" if leases else "too late"] += 1
        runs = [(run.run_id, run.epoch, 0) for run in adopted]
        await work.release(world.store, worker=worker, runs=runs)
    assert len(seen) == 2, seen
    await account(world, 600)


async def test_killed_claim_is_adopted_whole(world: World) -> None:
    worker = await world.worker()
    seen: Counter[str] = Counter()
    for token in range(1, 71):
        await world.enqueue(3)
        connection = await world.connect()
        answer, _ = await asyncio.gather(
            survive(work.claim(connection, worker=worker, pool=world.pool, token=token, limit=3)),
            kill(world, connection),
        )
        adopted = await work.adopt(world.store, worker=worker, token=token, known=[])
        assert adopted is not None
        leases = {r["run_id"] for r in await world.sql("SELECT run_id FROM rowlock.run_lease")}
        assert {run.run_id for run in adopted} == leases
        if answer is not None:
            assert {run.run_id for run in answer} == leases
        seen["answered" if answer is not None else "unknown"] += 1
        done = await work.finish(
            world.store, worker=worker, events=[], finals=[end(run) for run in adopted]
        )
        assert set(done.finals.values()) <= {Verdict.DONE}
        await connection.close()
    assert seen["unknown"], seen
    await account(world, 210)


async def test_killed_write_is_repeated_without_a_trace(world: World) -> None:
    worker = await world.worker()
    seen: Counter[str] = Counter()
    for number in range(80):
        _, runs = await world.running(3, worker=worker, linked=True)
        connection = await world.connect()
        taken = [step(run, 2, kind=EventKind.TAKEN_OVER) for run in runs]
        events = [*(step(run, 1) for run in runs), *taken]
        finals = [end(runs[0]), failure(runs[1], retry_in=60)]

        def write(
            conn: Connection, number: int = number, events: Any = events, finals: Any = finals
        ) -> Any:
            if number % 2:
                return work.finish(conn, worker=worker, events=events, finals=finals)
            return work.append(conn, worker=worker, events=events)

        answer, _ = await asyncio.gather(survive(write(connection)), kill(world, connection))
        seen["answered" if answer is not None else "unknown"] += 1
        again = await write(world.store)
        assert again.lost == frozenset()
        assert set(again.finals.values()) <= {Verdict.DONE, Verdict.ALREADY_DONE}
        for run in runs:
            assert len(await work.history(world.store, run.run_id)) == 2
            assert (await world.changes(run.run_id)).count(4) == 1
        left = [(run.run_id, run.epoch, 0) for run in runs]
        await work.release(world.store, worker=worker, runs=left)
        await intake.request_cancel(world.store, [run.run_id for run in runs], by="test")
        await connection.close()
    assert seen["unknown"], seen
    assert await account(world, 240) == {"final": 240}


async def test_killed_release_is_repeated_without_a_trace(world: World) -> None:
    worker = await world.worker()
    for _ in range(50):
        _, runs = await world.running(3, worker=worker, linked=True)
        connection = await world.connect()
        left = [(run.run_id, run.epoch, 7) for run in runs]
        await asyncio.gather(
            survive(work.release(connection, worker=worker, runs=left)), kill(world, connection)
        )
        verdicts = await work.release(world.store, worker=worker, runs=left)
        assert set(verdicts.values()) <= {Verdict.DONE, Verdict.ALREADY_DONE}
        for run in runs:
            assert (await world.changes(run.run_id)).count(5) == 1
        await intake.request_cancel(world.store, [run.run_id for run in runs], by="test")
        await connection.close()
    assert await account(world, 150) == {"final": 150}


async def test_write_that_still_runs_beside_its_repetition_is_done_once(world: World) -> None:
    one, two = await world.connect(), await world.connect()
    worker = await world.worker()
    for _ in range(150):
        _, runs = await world.running(3, worker=worker, linked=True)
        events = [step(run, seq) for run in runs for seq in (1, 2)]
        finals = [end(runs[0]), failure(runs[1], retry_in=60)]

        async def write(conn: Connection, events: Any = events, finals: Any = finals) -> Any:
            while True:
                try:
                    return await work.finish(conn, worker=worker, events=events, finals=finals)
                except StoreUnavailable:
                    continue

        answers = await race((one, write(one)), (two, write(two)))
        for run in runs[:2]:
            verdicts = Counter(answer.finals[run.run_id] for answer in answers)
            assert verdicts == {Verdict.DONE: 1, Verdict.ALREADY_DONE: 1}
        assert all(answer.lost == frozenset() for answer in answers)
        await work.release(world.store, worker=worker, runs=[(runs[2].run_id, 1, 0)])
        await intake.request_cancel(world.store, [run.run_id for run in runs], by="test")
    assert await account(world, 450) == {"final": 450}


async def test_mirror_that_reads_while_others_write_misses_no_change(world: World) -> None:
    mirror = await world.connect()
    writers = [await world.connect() for _ in range(3)]
    shown: dict[int, int] = {}
    busy = len(writers)

    async def work_through(connection: Connection) -> None:
        nonlocal busy
        worker = await world.worker()
        for token in range(1, 41):
            await intake.enqueue(connection, world.new(2, linked=True))
            claimed = await work.claim(
                connection, worker=worker, pool=world.pool, token=token, limit=2
            )
            finals = [end(run) for run in claimed or []]
            await work.finish(connection, worker=worker, events=[], finals=finals)
        busy -= 1

    async def reflect() -> None:
        while True:
            last = not busy
            found = await changes.unshown(mirror, limit=50)
            for run, seen in (await changes.snapshots(mirror, {c.run_id for c in found})).items():
                assert seen.revision >= shown.get(run, 0)
                shown[run] = seen.revision
            await changes.shown(mirror, [change.seq for change in found])
            if last and not found:
                return

    await asyncio.gather(reflect(), *map(work_through, writers))
    for page in [await changes.objects(world.store, cluster="cluster", namespaces=None)]:
        assert {entry.run_id: entry.revision for entry in page} == shown
    await account(world, 240)


async def survive(call: Awaitable[Any]) -> Any:
    """Return the answer, or None where the connection was lost."""
    try:
        return await call
    except StoreUnavailable:
        return None


async def kill(world: World, connection: Connection) -> None:
    """End the connection's session, a few statements from now."""
    victim = pid(connection)
    for _ in range(random.randint(0, 4)):
        await world.store.fetch("schema_version")
    await world.value("SELECT pg_terminate_backend($1)", victim)
