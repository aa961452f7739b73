"""Migrations go in once, in order, whole or not at all, whoever calls and how often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from rowlock.errors import ConfigurationError, SchemaMissing
from rowlock.store.connection import Connection
from rowlock.store.migrate import MigrationFailed, migrate, pending, version
from rowlock.store.versions import files, newest_pre
from tests.conftest import on_database

OWN = [migration.name for migration in files()]


@pytest.fixture
async def empty(postgres_url: str) -> AsyncIterator[str]:
    """URL of a database without any schema of ours."""
    admin = await asyncpg.connect(postgres_url)
    await admin.execute("DROP DATABASE IF EXISTS migration_test WITH (FORCE)")
    await admin.execute("CREATE DATABASE migration_test")
    try:
        yield on_database(postgres_url, "migration_test")
    finally:
        await admin.execute("DROP DATABASE migration_test WITH (FORCE)")
        await admin.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of three small migrations, one of them for after the rollout."""
    (tmp_path / "0001_pre_one.sql").write_text("CREATE TABLE rowlock.one (n int);")
    (tmp_path / "0002_post_two.sql").write_text("INSERT INTO rowlock.one VALUES (2);")
    (tmp_path / "0003_pre_three.sql").write_text("INSERT INTO rowlock.one VALUES (3);")
    (tmp_path / "notes.txt").write_text("no migration")
    return tmp_path


async def numbers(url: str) -> list[int]:
    raw = await asyncpg.connect(url)
    rows = await raw.fetch("SELECT n FROM rowlock.one")
    await raw.close()
    return [row["n"] for row in rows]


async def test_empty_database_gets_all_in_order_and_then_nothing_more(empty: str) -> None:
    told: list[str] = []
    assert await migrate(empty, progress=told.append) == told == OWN
    assert await migrate(empty) == []
    connection = await Connection.open(empty, name="test")
    assert await pending(connection) == []
    assert await version(connection) == newest_pre()
    await connection.close()


async def test_unmigrated_database_says_what_is_pending(empty: str) -> None:
    connection = await Connection.open(empty, name="test", check_schema=False)
    assert await pending(connection) == OWN
    assert await version(connection) == 0
    await connection.close()


async def test_many_may_migrate_at_once_and_each_file_goes_in_once(empty: str) -> None:
    applied = await asyncio.gather(*(migrate(empty) for _ in range(5)))
    assert sorted(name for names in applied for name in names) == OWN


async def test_phases_go_in_apart(empty: str, folder: Path) -> None:
    assert await migrate(empty, phase="pre", folder=folder) == [
        "0001_pre_one.sql",
        "0003_pre_three.sql",
    ]
    assert await migrate(empty, phase="pre", folder=folder) == []
    assert await migrate(empty, phase="post", folder=folder) == ["0002_post_two.sql"]
    assert await numbers(empty) == [3, 2]


async def test_all_go_in_by_number(empty: str, folder: Path) -> None:
    assert len(await migrate(empty, folder=folder)) == 3
    assert await numbers(empty) == [2, 3]


async def test_failure_names_the_file_and_leaves_the_database_as_before_it(
    empty: str, folder: Path
) -> None:
    (folder / "0002_post_two.sql").write_text(
        "INSERT INTO rowlock.one VALUES (9); SELECT 1 / 0; INSERT INTO rowlock.one VALUES (9);"
    )
    with pytest.raises(MigrationFailed, match=r"0002_post_two\.sql.*division by zero") as caught:
        await migrate(empty, folder=folder)
    assert isinstance(caught.value, ConfigurationError)
    assert await numbers(empty) == []
    (folder / "0002_post_two.sql").write_text("INSERT INTO rowlock.one VALUES (2);")
    assert await migrate(empty, folder=folder) == ["0002_post_two.sql", "0003_pre_three.sql"]


async def test_syntax_error_is_one_clear_error_too(empty: str, folder: Path) -> None:
    (folder / "0001_pre_one.sql").write_text("CREATE TABEL rowlock.one ();")
    with pytest.raises(MigrationFailed, match=r"0001_pre_one\.sql.*TABEL"):
        await migrate(empty, folder=folder)


async def test_process_refuses_a_database_without_or_with_an_older_schema(
    empty: str, folder: Path
) -> None:
    with pytest.raises(SchemaMissing, match="rowlock migrate"):
        await Connection.open(empty, name="test")
    await migrate(empty, folder=folder)
    raw = await asyncpg.connect(empty)
    await raw.execute("DELETE FROM rowlock.migration WHERE number > 1")
    with pytest.raises(SchemaMissing, match=f"version 1 .* needs {newest_pre()}"):
        await Connection.open(empty, name="test")
    # A post migration that is still to come stops nobody, and neither does a newer schema.
    await raw.execute("INSERT INTO rowlock.migration VALUES (900, '0900_pre_later.sql', 'pre')")
    await raw.close()
    connection = await Connection.open(empty, name="test")
    await connection.close()
