"""History goes by whole days, never one that somebody needs, and nobody waits for it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import asyncpg
import pytest

from rowlock.errors import DatabaseRefused, StoreUnavailable
from rowlock.store import changes, retention, work
from rowlock.store.retention import GcBusy
from rowlock.store.types import RunId
from tests.conftest import run_cli
from tests.integration.store.past import Past
from tests.integration.store.test_connection import with_parts
from tests.integration.store.world import World, end, failure, step
from tests.workers import eventually


@pytest.fixture
async def past(own_world: World) -> Past:
    return Past(own_world)


# -------------------------------------------------------------------- what goes


async def test_a_day_past_its_retention_goes_whole_and_the_others_stay(past: Past) -> None:
    world = past.world
    [old, older], young = (
        [await past.finished(40), await past.finished(40)],
        [await past.finished(29)],
    )
    swept = await past.sweep()
    gone, kept = await past.day(41), await past.day(29)
    assert swept.dropped == [gone + timedelta(days=1)]
    assert swept.kept == {}
    assert await past.tables(swept.dropped[0]) == set()
    assert len(await past.tables(kept)) == 3
    left = await world.sql(
        "SELECT run_id FROM rowlock.run UNION SELECT run_id FROM rowlock.run_event"
    )
    assert [row["run_id"] for row in left] == young
    floor = await world.value("SELECT run_id FROM rowlock.history_floor")
    assert floor == swept.history_floor
    assert max(old, older) < floor <= young[0]
    assert await world.count("expired_day") == 0
    await world.sound()
    assert (await past.sweep()).dropped == [gone]  # it was empty, and made only now


async def test_retention_of_zero_keeps_everything(past: Past) -> None:
    await past.finished(400)
    assert (await past.sweep(0)).dropped == []
    assert await past.world.count("run_final") == 1


async def test_the_database_clock_decides(past: Past) -> None:
    world = past.world
    worker, [claimed] = await world.running(1)
    await work.finish(world.store, worker=worker, events=[], finals=[end(claimed)])
    assert (await past.sweep()).dropped == []
    name = await world.value("SELECT current_database()")
    await world.sql(f"ALTER DATABASE \"{name}\" SET rowlock.clock_offset = '40 days'")
    swept = await past.sweep()
    assert await past.day(0) in swept.dropped
    assert await world.count("run") == 0


# -------------------------------------------------------------------- what stays


async def _ready(past: Past) -> RunId:
    [run] = await past.world.enqueue(1)
    return await past.move(run, 40)


async def _leased(past: Past) -> RunId:
    _, [claimed] = await past.world.running(1)
    return await past.move(claimed.run_id, 40)


async def _waiting_to_retry(past: Past) -> RunId:
    worker, [claimed] = await past.world.running(1)
    finals = [failure(claimed, retry_in=3600)]
    await work.finish(past.world.store, worker=worker, events=[], finals=finals)
    return await past.move(claimed.run_id, 40)


async def _parked(past: Past) -> RunId:
    run = await _ready(past)
    await past.world.sql(
        "WITH gone AS (DELETE FROM rowlock.run_ready RETURNING *) "
        "INSERT INTO rowlock.run_parked SELECT *, '{sleep}', now() + interval '1 day' FROM gone"
    )
    return run


async def _in_the_backlog(past: Past) -> RunId:
    run = await _ready(past)
    await past.world.sql(
        "WITH gone AS (DELETE FROM rowlock.run_ready RETURNING *) "
        "INSERT INTO rowlock.run_backlog SELECT * FROM gone"
    )
    return run


async def _unshown(past: Past) -> RunId:
    run = await past.finished(40, linked=True)
    await past.world.sql("DELETE FROM rowlock.run_object")
    return run


async def _with_its_object(past: Past) -> RunId:
    run = await past.finished(40, linked=True)
    shown = [change.seq for change in await changes.unshown(past.world.store, limit=100)]
    await changes.shown(past.world.store, shown)
    return run


async def _ended_lately(past: Past) -> RunId:
    return await past.finished(40, ended=29)


async def _nowhere(past: Past) -> RunId:
    run = await past.finished(40)
    await past.world.sql("DELETE FROM rowlock.run_final")
    return run


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_ready, "not ended"),
        (_leased, "not ended"),
        (_waiting_to_retry, "not ended"),
        (_parked, "not ended"),
        (_in_the_backlog, "not ended"),
        (_unshown, "no mirror has shown"),
        (_with_its_object, "custom resource"),
        (_ended_lately, "within the retention"),
        (_nowhere, "stands nowhere"),
    ],
)
async def test_a_day_with_a_run_that_is_needed_stays_whole(
    past: Past, make: Callable[[Past], Awaitable[RunId]], why: str
) -> None:
    other = await past.finished(40)
    needed = await make(past)
    day = await past.day(40)
    for _ in range(2):
        swept = await past.sweep()
        assert swept.dropped == []
        assert why in swept.kept[day]
    assert len(await past.tables(day)) == 3
    found = await past.world.sql("SELECT run_id FROM rowlock.run ORDER BY run_id")
    assert {row["run_id"] for row in found} == {needed, other}
    assert await past.world.value("SELECT run_id FROM rowlock.history_floor") == 0


async def test_a_kept_day_does_not_keep_its_neighbours(past: Past) -> None:
    parked = await _parked(past)
    await past.finished(39)
    swept = await past.sweep()
    assert swept.dropped == [await past.day(39)]
    assert await past.world.place(parked) == "parked"
    await past.world.sound()


async def test_a_run_that_is_started_again_under_the_lock_keeps_its_day(past: Past) -> None:
    world = past.world
    run = await past.finished(40)
    again = (
        "WITH floor AS (SELECT FROM rowlock.history_floor WHERE run_id <= $1 FOR SHARE) "
        "INSERT INTO rowlock.run_ready (run_id, pool_id, agent_id, revision_id, priority, "
        "vft, epoch, attempt, takeovers, max_takeovers, active_ms, linked, revision, ready_at) "
        "SELECT run_id, pool_id, agent_id, revision_id, priority, "
        "0, 1, 2, 0, 5, 0, false, 0, now() "
        "FROM rowlock.run, floor WHERE run_id = $1 RETURNING run_id"
    )
    async with world.holding(again, run) as holder:
        sweeping = asyncio.create_task(past.sweep())
        await _until_somebody_waits_for(world, holder)
        assert not sweeping.done()
    assert "not ended" in (await sweeping).kept[await past.day(40)]
    await world.sql("DELETE FROM rowlock.run_ready")
    assert (await past.sweep()).dropped == [await past.day(40)]
    assert await world.sql(again, run) == []  # too late: below the floor


async def test_a_table_that_somebody_detached_by_hand_is_left_alone(past: Past) -> None:
    await past.finished(40)
    archived = f"run_event_{await past.day(40):%Y%m%d}"
    await past.world.sql(f"ALTER TABLE rowlock.run_event DETACH PARTITION rowlock.{archived}")
    await past.world.sql(f"ALTER TABLE rowlock.{archived} RENAME TO archive")
    assert len((await past.sweep()).dropped) == 1
    assert await past.world.value("SELECT count(*) FROM rowlock.archive") == 2


# -------------------------------------------------------------------- beside work


@pytest.fixture
async def reader(past: Past) -> AsyncIterator[asyncpg.Connection]:
    """A session in the middle of a transaction that has read history, of a past day too."""
    await past.finished(40)
    raw = await asyncpg.connect(past.world.dsn)
    await raw.execute("BEGIN; SELECT count(*) FROM rowlock.run_event")
    yield raw
    if not raw.is_closed():
        await raw.close()


async def _until_somebody_waits_for(world: World, holder: asyncpg.Connection) -> None:
    async def waits() -> bool:
        return bool(
            await world.value(
                "SELECT EXISTS "
                "(SELECT FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid)))",
                holder.get_server_pid(),
            )
        )

    await eventually(waits, "a session that waits for the holder")


async def _half_detached(world: World) -> bool:
    return bool(
        await world.value("SELECT coalesce(bool_or(pending), false) FROM rowlock.history_table")
    )


async def test_work_goes_on_while_a_detach_waits_for_an_open_transaction(
    past: Past, reader: asyncpg.Connection
) -> None:
    world = past.world
    sweeping = asyncio.create_task(past.sweep())
    await eventually(lambda: _half_detached(world), "a detach that waits")
    await _until_somebody_waits_for(world, reader)
    worker, claimed = await world.running(50)
    for number in range(1, 4):
        events = [step(run, number) for run in claimed]
        assert not (await work.append(world.store, worker=worker, events=events)).lost
    await work.finish(world.store, worker=worker, events=[], finals=[end(run) for run in claimed])
    assert len(await work.history(world.store, claimed[0].run_id)) == 3
    assert await world.value("SELECT rowlock.ensure_partitions(9)") == 6
    assert not sweeping.done()
    assert await _half_detached(world)
    await reader.execute("COMMIT")
    assert (await sweeping).dropped == [await past.day(40)]
    await world.sound()


@pytest.mark.parametrize("backend", ["dies too", "goes on waiting"])
async def test_a_round_killed_in_the_middle_of_a_detach_is_finished_by_the_next(
    past: Past, reader: asyncpg.Connection, backend: str
) -> None:
    world = past.world
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rowlock.cli", "gc",
        env={**os.environ, "ROWLOCK_DATABASE_URL": world.dsn},
    )  # fmt: skip
    await eventually(lambda: _half_detached(world), "a detach that waits")
    process.kill()
    await process.wait()
    if backend == "dies too":
        await world.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'rowlock gc'"
        )
    sweeping = asyncio.create_task(past.sweep())
    await _until_somebody_waits_for(world, reader)
    await reader.execute("COMMIT")
    swept = await sweeping
    day = await past.day(41) + timedelta(days=1)
    assert day in swept.dropped or day in (await past.sweep()).dropped
    assert await past.tables(day) == set()
    assert await world.count("expired_day") == 0
    await world.sound()


async def test_a_detach_that_waits_for_too_long_gives_up_and_the_next_round_goes_on(
    past: Past, reader: asyncpg.Connection
) -> None:
    with pytest.raises(StoreUnavailable, match=r"could not detach run_event_\d+.*rowlock doctor"):
        await past.sweep(wait_seconds=0.3)
    assert await _half_detached(past.world)
    await reader.execute("COMMIT")
    assert (await past.sweep()).dropped == [await past.day(40)]


async def test_only_one_round_at_a_time(past: Past) -> None:
    async with past.world.holding("SELECT pg_advisory_xact_lock(hashtext('rowlock.gc'))"):
        with pytest.raises(GcBusy):
            await past.sweep()
    assert (await past.sweep()).dropped == []


async def test_only_the_owner_may(past: Past) -> None:
    await past.world.sql("CREATE ROLE guest LOGIN PASSWORD 'geheim' IN ROLE rowlock_operator")
    try:
        url = with_parts(past.world.dsn, user="guest", password="geheim")
        with pytest.raises(DatabaseRefused, match=r"owner of the schema.*postgres"):
            await retention.sweep(url, retention_days=30)
    finally:
        await past.world.sql("DROP ROLE guest")


# -------------------------------------------------------------------- what a day leaves behind


async def test_orphans_go_in_pages_and_nothing_else(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_PAGE", 3)
    world = past.world
    await past.day(40)
    # Seven runs of a past day that is gone after this, and seven that stay.
    for age in (40, 1):
        for number in range(7):
            run = await past.finished(age)
            await world.sql(
                "INSERT INTO rowlock.run_dedup (agent_id, idem_key, run_id, input_sha) "
                "VALUES ($1, $2, $3, '')",
                world.agent, f"{age}-{number}", run,
            )  # fmt: skip
            await world.sql(
                "INSERT INTO rowlock.approval (run_id, step_key, digest, attempt, tool, question) "
                "VALUES ($1, 'a', 'd', 1, 't', ''), ($1, 'b', 'd', 1, 't', '')",
                run,
            )
            await world.sql(
                "INSERT INTO rowlock.run_attempt (run_id, attempt, asked_by) VALUES ($1, 2, 't')",
                run,
            )
            await world.sql(
                "INSERT INTO rowlock.wish (run_id, kind, asked_by) VALUES ($1, 2, 't')", run
            )
            await world.sql(
                "INSERT INTO rowlock.run_start VALUES ($3, $1, 'k', now() - $2::interval)",
                world.agent, timedelta(days=age, minutes=1) if age > 1 else timedelta(), run,
            )  # fmt: skip
    assert await world.count("worker") == 14
    await world.sql(
        "UPDATE rowlock.worker SET fenced_at = now() - interval '31 days', fence_reason = 'Left' "
        "WHERE worker_id IN (SELECT worker_id FROM rowlock.worker ORDER BY worker_id LIMIT 7)"
    )
    swept = await past.sweep()
    assert swept.orphans == {
        "run_dedup": 7, "approval": 14, "run_attempt": 7, "wish": 7, "run_start": 7, "worker": 7,
    }  # fmt: skip
    for table, rows in (("run_dedup", 7), ("approval", 14), ("run_attempt", 7), ("wish", 7)):
        assert await world.count(table) == rows
    assert await world.count("worker") == await world.count("worker_beat") == 7
    assert set((await past.sweep()).orphans.values()) == {0}


async def test_a_worker_that_still_holds_a_run_is_kept(past: Past) -> None:
    world = past.world
    await world.running(1)
    await world.sql("UPDATE rowlock.worker SET fenced_at = now() - interval '99 days'")
    assert (await past.sweep()).orphans["worker"] == 0
    assert await world.count("worker") == 1


async def test_young_partitions_are_analyzed(past: Past) -> None:
    raw = await asyncpg.connect(past.world.dsn)
    await raw.execute(
        "INSERT INTO rowlock.run_event (run_id, seq, epoch, attempt, kind, try) "
        "SELECT rowlock.new_run_id(), 1, 1, 1, 2, 1 FROM generate_series(1, 3000)"
    )
    await raw.close()  # which reports its counts
    today = f"run_event_{await past.day(0):%Y%m%d}"

    async def analyzed() -> bool:
        return today in (await past.sweep()).analyzed

    await eventually(analyzed, f"an ANALYZE of {today}")
    rows = await past.world.value(
        "SELECT reltuples FROM pg_class WHERE oid = $1::regclass", f"rowlock.{today}"
    )
    assert rows == 3000


# -------------------------------------------------------------------- the command


async def test_the_command_says_what_it_did(past: Past) -> None:
    await past.finished(40)
    await past.finished(20)
    env = {"ROWLOCK_DATABASE_URL": past.world.dsn, "ROWLOCK_HISTORY_RETENTION_DAYS": "30"}
    gc = (sys.executable, "-m", "rowlock.cli", "gc")
    done = await asyncio.to_thread(run_cli, *gc, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "detach run_event_" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 days dropped, 0 kept, 0 orphans deleted"
    flags = ("--history-retention-days", "10", "-o", "json")
    done = await asyncio.to_thread(run_cli, *gc, *flags, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["dropped"] == [str(await past.day(20))]
