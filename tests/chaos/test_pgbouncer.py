"""Workers behind PgBouncer in transaction mode: each transaction may meet another session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from rowlock.doctor.examination import examine
from rowlock.store import retention
from rowlock.store.connection import Connection
from tests.load import Load
from tests.poolers import binary, pgbouncer, tracks_prepared
from tests.workers import Bench, bench_fixture  # noqa: F401

#: Fewer than the workers open, so that they must share.
SESSIONS = 6


@pytest.fixture(params=["prepared", "unprepared"])
def prepared(request: pytest.FixtureRequest) -> int | None:
    """What `max_prepared_statements` is to be: 200, or 0 (None where it is unknown)."""
    tracks = tracks_prepared(binary())
    if request.param == "prepared":
        if not tracks:
            pytest.skip("this pgbouncer keeps no prepared statements: 1.21 or newer does")
        return 200
    return 0 if tracks else None


@pytest.fixture
def pooled(dsn: str, prepared: int | None) -> Iterator[str]:
    """URL of the test's database through PgBouncer."""
    with pgbouncer(dsn, sessions=SESSIONS, prepared=prepared) as url:
        yield url


async def test_runs_of_many_connections_on_few_sessions_end_once(bench: Bench, pooled: str) -> None:
    load = Load(bench)
    await load.start(dsn=pooled)
    clients = await bench.sql.fetchval(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name NOT IN ('rowlock test', '')"
    )
    assert 1 <= clients <= SESSIONS
    await load.ends_once()
    assert not load.says("does not exist"), "a prepared statement was missing"


async def test_connection_finds_out_whether_statements_may_be_prepared(
    dsn: str, pooled: str, prepared: int | None
) -> None:
    direct = await Connection.open(dsn, name="direct")
    through = await Connection.open(pooled, name="through")
    assert (direct.pooled, direct.prepares) == (False, True)
    assert (through.pooled, through.prepares) == (True, bool(prepared))
    await direct.close()
    await through.close()
    raw = await asyncpg.connect(dsn)
    left = await raw.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'rowl%'")
    await raw.close()
    assert left == 0


async def test_one_process_never_runs_the_statement_of_another(pooled: str) -> None:
    """Two processes name their statements alike: `__asyncpg_stmt_1__` and so on."""
    names = ("pool_demand", "schema_version", "unshown", "violations", "applied_migrations")
    connections = [await Connection.open(pooled, name=f"c{n}") for n in range(20)]

    async def ask(number: int, connection: Connection) -> None:
        for turn in range(30):
            name = names[(number + turn) % len(names)]
            arguments = (0, 1) if name == "unshown" else ()
            rows = await connection.fetch(name, *arguments)
            if name == "schema_version":
                assert list(rows[0].keys()) == ["number"]
            elif name == "applied_migrations":
                assert rows[0]["name"].startswith("0001")
            else:
                assert rows == []

    await asyncio.gather(*(ask(n, connection) for n, connection in enumerate(connections)))
    await asyncio.gather(*(connection.close() for connection in connections))


async def test_doctor_and_gc_work_through_it(pooled: str, prepared: int | None) -> None:
    findings = {finding.check: finding for finding in await examine(pooled)}
    assert findings["pooler"].verdict == ("ok" if prepared else "warn")
    assert {f.verdict for name, f in findings.items() if name != "pooler"} == {"ok"}
    assert (await retention.sweep(pooled, retention_days=30)).dropped == []
