"""`rowlock doctor` on a real database: quiet on a healthy one, and each trouble is found."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from rowlock.clock import SystemClock
from rowlock.doctor.checks import CHECKS
from rowlock.doctor.examination import examine
from rowlock.doctor.findings import Finding
from rowlock.metrics import Tally
from rowlock.store import intake
from rowlock.supervisor.upkeep import Upkeep
from tests.conftest import on_database, run_cli
from tests.integration.store.past import Past
from tests.integration.store.test_connection import with_parts
from tests.integration.store.world import World


async def findings(dsn: str) -> dict[str, Finding]:
    return {finding.check: finding for finding in await examine(dsn)}


async def test_a_healthy_database_is_ok_in_every_check(own_world: World) -> None:
    await own_world.running(5, linked=True)
    found = await findings(own_world.dsn)
    assert {name: f.verdict for name, f in found.items() if f.verdict != "ok"} == {}
    assert set(found) == {"schema", "pooler", "invariants"} | {check.name for check in CHECKS}
    assert all(f.cure == "" for f in found.values())


async def test_the_doctor_changes_nothing(own_world: World) -> None:
    name = await own_world.value("SELECT current_database()")
    await own_world.sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    found = await findings(own_world.dsn)
    assert {name: f.says for name, f in found.items() if f.verdict != "ok"} == {
        "server": found["server"].says
    }
    assert "takes no writes" in found["server"].says


# -------------------------------------------------------------------- one trouble each


async def _stuck(world: World) -> None:
    await world.running(1, worker=await world.worker(lease=0.001))
    await world.sql("UPDATE rowlock.reaper SET granted_at = now() - interval '1 hour'")


async def _silent(world: World) -> None:
    await world.worker(lease=0.001)
    await world.sql("UPDATE rowlock.reaper SET granted_at = now() - interval '1 hour'")


async def _taken_over(world: World) -> None:
    [run] = await world.enqueue(1)
    await world.lose(run, 3)


async def _alone(world: World) -> None:
    await world.worker()
    await world.enqueue(1)
    await world.sql(
        "UPDATE rowlock.run_ready SET quarantined = true, ready_at = now() - interval '1 hour'"
    )


async def _no_worker(world: World) -> None:
    await world.enqueue(2)
    await world.sql("UPDATE rowlock.run_ready SET ready_at = now() - interval '1 hour'")


async def _unshown(world: World) -> None:
    await world.running(1, linked=True)
    await world.sql("UPDATE rowlock.run_change SET at = now() - interval '1 hour'")


async def _wish(world: World) -> None:
    _, [run] = await world.running(1)
    await intake.request_cancel(world.store, [run.run_id], by="test")
    await world.sql("UPDATE rowlock.wish SET asked_at = now() - interval '1 hour'")


async def _no_partitions(world: World) -> None:
    tomorrow = await world.value("SELECT to_char((now() AT TIME ZONE 'UTC') + '1 day', 'YYYYMMDD')")
    await world.sql(f"DROP TABLE rowlock.run_event_{tomorrow}")


async def _violated(world: World) -> None:
    [run] = await world.enqueue(1)
    await world.sql("DELETE FROM rowlock.run_ready WHERE run_id = $1", run)


async def _half_gone(world: World) -> None:
    day = await Past(world).day(40)
    await world.sql("INSERT INTO rowlock.expired_day VALUES ($1, now() - interval '1 day')", day)


async def _volatile(world: World) -> None:
    name = await world.value("SELECT current_database()")
    await world.sql(f'ALTER DATABASE "{name}" SET synchronous_commit = off')


async def _crowded(world: World) -> None:
    name = await world.value("SELECT current_database()")
    await world.sql(f'ALTER DATABASE "{name}" CONNECTION LIMIT 2')


@pytest.mark.parametrize(
    ("check", "make", "verdict"),
    [
        ("leases", _stuck, "fail"),
        ("workers", _silent, "warn"),
        ("takeovers", _taken_over, "warn"),
        ("quarantine", _alone, "fail"),
        ("queue", _no_worker, "fail"),
        ("changes", _unshown, "fail"),
        ("wishes", _wish, "fail"),
        ("partitions", _no_partitions, "fail"),
        ("invariants", _violated, "fail"),
        ("retention", _half_gone, "warn"),
        ("settings", _volatile, "fail"),
        ("connections", _crowded, "fail"),
    ],
)
async def test_each_trouble_is_found_by_its_check_with_a_cure(
    own_world: World, check: str, make: Callable[[World], Awaitable[None]], verdict: str
) -> None:
    assert (await findings(own_world.dsn))[check].verdict == "ok"
    await make(own_world)
    found = (await findings(own_world.dsn))[check]
    assert (found.verdict, bool(found.cure)) == (verdict, True), found


async def test_a_session_idle_in_a_transaction_is_named(
    own_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.doctor.judgements.IDLE_SECONDS", (0.0, 3600.0))
    async with own_world.holding("SELECT count(*) FROM rowlock.run") as holder:
        found = (await findings(own_world.dsn))["transactions"]
    assert found.verdict == "warn"
    assert f"{holder.get_server_pid()} (" in found.says


async def test_dead_rows_of_a_hot_table_are_counted(own_world: World) -> None:
    raw = await asyncpg.connect(own_world.dsn)
    await raw.execute("ALTER TABLE rowlock.run_change SET (autovacuum_enabled = off)")
    await raw.execute(
        "INSERT INTO rowlock.run_change SELECT n, n, 1, 1 FROM generate_series(1, 60000) n"
    )
    await raw.execute("DELETE FROM rowlock.run_change")
    await raw.close()  # which reports its counts

    found = (await findings(own_world.dsn))["bloat"]
    assert (found.verdict, found.says.split(",")[0]) == ("warn", "run_change has 60000 dead rows")


async def test_a_reader_may_ask(own_world: World) -> None:
    await own_world.sql("CREATE ROLE onlooker LOGIN PASSWORD 'geheim' IN ROLE rowlock_reader")
    try:
        url = with_parts(own_world.dsn, user="onlooker", password="geheim")
        found = await findings(url)
        assert {name: f.says for name, f in found.items() if f.verdict != "ok"} == {}
        assert "pg_read_all_stats" in found["transactions"].says
    finally:
        await own_world.sql("DROP ROLE onlooker")


# -------------------------------------------------------------------- the command


def _doctor(url: str, *flags: str) -> tuple[int, str, str]:
    command = (sys.executable, "-m", "rowlock.cli", "doctor", *flags)
    done = run_cli(*command, env={"ROWLOCK_DATABASE_URL": url})
    return done.returncode, done.stdout, done.stderr


async def test_the_command_exits_with_1_when_a_check_failed(own_world: World) -> None:
    code, out, err = await asyncio.to_thread(_doctor, own_world.dsn)
    assert (code, err) == (0, "")
    assert {line.split()[0] for line in out.splitlines()} == {"ok"}
    await _violated(own_world)
    code, out, _ = await asyncio.to_thread(_doctor, own_world.dsn)
    assert code == 1
    assert "→ keep the rows" in out
    code, out, err = await asyncio.to_thread(_doctor, own_world.dsn, "-o", "json")
    assert (code, err) == (1, "")
    told = json.loads(out)
    assert told["verdict"] == "fail"
    [bad] = [check for check in told["checks"] if check["verdict"] != "ok"]
    assert bad["check"] == "invariants"
    assert "stands nowhere" in bad["says"]


async def test_a_warning_leaves_the_exit_code_at_0(own_world: World) -> None:
    await _silent(own_world)
    code, out, _ = await asyncio.to_thread(_doctor, own_world.dsn)
    assert (code, out.count("\nwarn ")) == (0, 1)


async def test_wrong_configuration_exits_with_2(own_world: World) -> None:
    assert (await asyncio.to_thread(_doctor, "nonsense"))[0] == 2
    gone = on_database(own_world.dsn, "no_such_database")
    assert (await asyncio.to_thread(_doctor, gone))[0] == 2


async def test_a_database_without_the_schema_is_told_to_migrate(own_world: World) -> None:
    await own_world.sql("DROP SCHEMA rowlock CASCADE")
    code, out, _ = await asyncio.to_thread(_doctor, own_world.dsn)
    assert code == 1
    assert "rowlock migrate" in out
    assert len([line for line in out.splitlines() if line[:4] in ("ok  ", "fail")]) == 2


# -------------------------------------------------------------------- the metric beside it


async def test_a_worker_knows_how_many_days_are_made_ahead(own_world: World) -> None:
    await _no_partitions(own_world)
    upkeep = Upkeep(own_world.store, lease_seconds=15, clock=SystemClock(), tally=Tally())
    assert (await upkeep.run_once()).failed == ()
    assert upkeep.partition_days == 7
