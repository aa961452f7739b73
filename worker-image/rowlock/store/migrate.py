"""Migrations are applied here: each file once, in its own transaction.

Any number of processes may migrate at the same time: they take turns, each file goes in once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from importlib.resources.abc import Traversable
from typing import Literal

from rowlock.errors import ConfigurationError, RowRejected, StoreUnavailable
from rowlock.store.connection import Connection
from rowlock.store.versions import Migration, files

Phase = Literal["pre", "post", "all"]


_PAUSE_SECONDS = 0.5


class MigrationFailed(ConfigurationError):
    """A migration could not be applied; the database is as it was before that file."""


async def migrate(
    dsn: str,
    *,
    phase: Phase = "all",
    progress: Callable[[str], None] | None = None,
    folder: Traversable | None = None,
    wait: float = 0,
) -> list[str]:
    """Apply what is missing and return the names of the files that this call applied.

    Parameters
    ----------
    phase
        Which files: those that precede new code, those that follow it, or all.
    progress
        Called with each file's name before it is applied.
    wait
        Seconds that a server that is out of reach is given to come up.

    Raises
    ------
    MigrationFailed
        One file cannot be applied; the message names it.
    """
    connection = await _reach(dsn, wait)
    try:
        done = [m.name for m in files(folder) if await _apply(connection, m, phase, progress)]
    finally:
        await connection.close()
    return done


async def _reach(dsn: str, wait: float) -> Connection:
    until = time.monotonic() + wait
    while True:
        try:
            return await Connection.open(dsn, name="migrate", check_schema=False)
        except StoreUnavailable:
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)


async def pending(connection: Connection, *, folder: Traversable | None = None) -> list[str]:
    """Return the names of the files that the database lacks."""
    applied = await _applied(connection)
    return [migration.name for migration in files(folder) if migration.name not in applied]


async def version(connection: Connection) -> int:
    """Return the number of the newest `pre` migration in the database, 0 for none."""
    if not await _has_table(connection):
        return 0
    return int((await connection.fetchone("schema_version"))["number"])


async def _apply(
    connection: Connection,
    migration: Migration,
    phase: Phase,
    progress: Callable[[str], None] | None,
) -> bool:
    if phase not in ("all", migration.phase):
        return False
    try:
        async with connection.transaction():
            await connection.fetch("lock_migrations")
            if migration.name in await _applied(connection):
                return False
            if progress:
                progress(migration.name)
            await _bootstrap(connection)
            await connection.run_script(migration.text)
            await connection.execute(
                "record_migration", migration.number, migration.name, migration.phase
            )
    except (RowRejected, StoreUnavailable) as error:
        raise MigrationFailed(f"migration {migration.name} cannot be applied: {error}") from error
    return True


async def _bootstrap(connection: Connection) -> None:
    if not await _has_table(connection):
        await connection.execute("create_schema")
        await connection.execute("create_migration_table")


async def _applied(connection: Connection) -> set[str]:
    if not await _has_table(connection):
        return set()
    return {row["name"] for row in await connection.fetch("applied_migrations")}


async def _has_table(connection: Connection) -> bool:
    return bool((await connection.fetchone("has_migration_table"))["there"])
