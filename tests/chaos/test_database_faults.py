"""PostgreSQL says "not now" in many ways under load: every run ends once and none fails for it."""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from rowlock.embedded import EmbeddedPostgres
from rowlock.store.migrate import migrate
from tests.load import Load
from tests.workers import Bench, bench_fixture, bench_on, eventually  # noqa: F401


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A server of this test's own, for all of it will be in trouble."""
    with EmbeddedPostgres() as server:
        yield server


@pytest.fixture
async def loaded(bench: Bench) -> Load:
    """Two workers in the middle of some hundred runs."""
    load = Load(bench)
    await load.start()
    return load


# -------------------------------------------------------------------- failover to read-only


@pytest.mark.public_bug("graphile/worker#449")
async def test_a_server_that_only_reads_for_five_seconds_stops_runs_and_fails_none(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    await migrate(server.url())
    admin = await asyncpg.connect(
        server.url(), server_settings={"default_transaction_read_only": "off"}
    )
    async with bench_on(server.url(), tmp_path) as bench:
        load = Load(bench)
        await load.start()
        await admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        await admin.execute("SELECT pg_reload_conf()")
        await load.until(lambda: _true(load.says("25006")), "a worker that meets read-only")
        standing = await load.events()
        # As long as a failover lasts, by the server's own clock.
        await admin.execute("SELECT pg_sleep(5)")
        assert await load.events() <= standing + 64 * 2  # what was in flight at most
        await admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
        await admin.execute("SELECT pg_reload_conf()")
        await load.goes_on()
        await load.ends_once()
    await admin.close()


# -------------------------------------------------------------------- locks that somebody forgot


@contextlib.asynccontextmanager
async def _forgotten(dsn: str, statement: str, *args: Any) -> AsyncIterator[asyncpg.Connection]:
    """Hold what `statement` locks in a session that stands idle in its transaction."""
    raw = await asyncpg.connect(dsn)
    await raw.execute("BEGIN")
    while not await raw.fetch(statement, *args):  # the row went while it was waited for
        continue
    try:
        yield raw
    finally:
        raw.terminate()


@pytest.mark.public_bug("dbos-inc/dbos-transact-ts#1302")
async def test_rows_locked_by_an_idle_session_are_passed_by_when_claiming(loaded: Load) -> None:
    locks = "SELECT run_id FROM rowlock.run_ready ORDER BY run_id LIMIT 20 FOR UPDATE"
    async with _forgotten(loaded.bench.dsn, locks):
        await loaded.ended(at_least=loaded.runs - 20)
        assert await loaded.bench.sql.fetchval("SELECT count(*) FROM rowlock.run_ready") == 20
    await loaded.ends_once()


@pytest.mark.public_bug("dbos-inc/dbos-transact-ts#1302")
async def test_a_worker_whose_row_is_locked_waits_and_the_others_go_on(loaded: Load) -> None:
    sql = loaded.bench.sql
    worker = await sql.fetchval("SELECT min(worker_id) FROM rowlock.worker WHERE fenced_at IS NULL")
    locks = "SELECT worker_id FROM rowlock.worker WHERE worker_id = $1 FOR UPDATE"
    async with _forgotten(loaded.bench.dsn, locks, worker) as holder:
        # The server ends what stands idle in a transaction, as the docs advise to set for all.
        await holder.execute("SET idle_in_transaction_session_timeout = '4s'")
        other = "SELECT count(*) FROM rowlock.run_final WHERE worker_id <> $1"
        before = await sql.fetchval(other, worker)

        async def more() -> bool:
            return int(await sql.fetchval(other, worker)) >= before + 40

        await loaded.until(more, "ends by the other worker")

        async def ended() -> bool:
            return not await sql.fetchval(
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)",
                holder.get_server_pid(),
            )

        await loaded.until(ended, "the end of the idle session by its timeout")
    await loaded.ends_once()


async def test_a_locked_lease_holds_up_its_batch_and_nobody_else(loaded: Load) -> None:
    sql = loaded.bench.sql
    locks = (
        "SELECT run_id FROM rowlock.run_lease WHERE run_id = "
        "(SELECT max(run_id) FROM rowlock.run_lease) FOR UPDATE"
    )
    async with _forgotten(loaded.bench.dsn, locks) as holder:

        async def waits() -> bool:
            return bool(
                await sql.fetchval(
                    "SELECT EXISTS "
                    "(SELECT FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid)))",
                    holder.get_server_pid(),
                )
            )

        await loaded.until(waits, "a writer that waits for the locked lease")
        for _ in range(3):
            await loaded.goes_on()
    await loaded.ends_once()


# -------------------------------------------------------------------- no connection left


async def test_a_connection_limit_reached_is_waited_for(bench: Bench) -> None:
    await bench.sql.execute("CREATE ROLE crowd LOGIN PASSWORD 'geheim' IN ROLE rowlock_worker; ")
    split = urlsplit(bench.dsn)
    dsn = split._replace(netloc=f"crowd:geheim@{split.hostname}:{split.port}").geturl()
    try:
        load = Load(bench)
        await load.start(dsn=dsn)
        await bench.sql.execute("ALTER ROLE crowd CONNECTION LIMIT 1")
        await bench.sql.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'crowd'"
        )
        await load.until(lambda: _true(load.says("53300")), "a worker that is turned away")

        async def crowded() -> bool:
            return (
                int(
                    await bench.sql.fetchval(
                        "SELECT count(*) FROM pg_stat_activity WHERE usename = 'crowd'"
                    )
                )
                <= 1
            )

        await load.until(crowded, "a single session")
        await bench.sql.execute("SELECT pg_sleep(2)")
        await bench.sql.execute("ALTER ROLE crowd CONNECTION LIMIT -1")
        await load.goes_on()
        await load.ends_once()
    finally:
        for worker in bench.workers:
            worker.destroy()
        await bench.sql.execute("DROP OWNED BY crowd; DROP ROLE crowd")


# -------------------------------------------------------------------- disk full


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 96 MiB that PostgreSQL may write on."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    with tempfile.TemporaryDirectory(prefix="rowlock-small-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # pytest's own folders are closed to the server's user
        mount = ["mount", "-t", "tmpfs", "-o", "size=96m,mode=0755", "tmpfs", name]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"cannot mount a small file system here: {done.stderr.strip()}")
        try:
            (folder / "space").mkdir()
            account = pwd.getpwnam("nobody")
            os.chown(folder / "space", account.pw_uid, account.pw_gid)
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


async def test_a_full_disk_is_waited_for_until_there_is_room_again(
    small_disk: Path, server: EmbeddedPostgres, tmp_path: Path
) -> None:
    admin = await asyncpg.connect(server.url())
    await admin.execute(f"CREATE TABLESPACE small LOCATION '{small_disk / 'space'}'")
    await admin.execute("CREATE DATABASE cramped TABLESPACE small")
    dsn = server.url("cramped")
    await migrate(dsn)
    async with bench_on(dsn, tmp_path) as bench:
        load = Load(bench)
        await load.start()
        ballast = small_disk / "ballast"
        _fill(ballast)
        await load.until(lambda: _true(load.says("53100")), "a worker that finds the disk full")
        await admin.execute("SELECT pg_sleep(2)")
        ballast.unlink()
        await load.goes_on()
        await load.ends_once()
    await admin.close()


def _fill(file: Path) -> None:
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(65536))
    with contextlib.suppress(OSError), file.open("ab", buffering=0) as ballast:
        while True:
            ballast.write(bytes(512))


async def _true(value: bool) -> bool:
    return value
