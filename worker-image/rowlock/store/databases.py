"""Whole databases of a server: copied and dropped, for trials and tests."""

from __future__ import annotations

from typing import Final

from rowlock.store.connection import Connection

_SECONDS: Final = 60.0


async def copy(dsn: str, *, name: str) -> None:
    """Make the database `name` as a copy of the one that `dsn` names; nobody else may be in that.

    Raises
    ------
    StoreUnavailable
        It is there already, or somebody is connected.
    """
    connection = await Connection.open(dsn, name="copy", check_schema=False)
    try:
        row = await connection.fetchone("copy_database_text", name)
        await connection.run_script(row["text"], timeout=_SECONDS)
    finally:
        await connection.close()


async def drop(dsn: str, *, name: str) -> None:
    """Drop the database `name` with all sessions in it, from the one that `dsn` names."""
    connection = await Connection.open(dsn, name="drop", check_schema=False)
    try:
        row = await connection.fetchone("drop_database_text", name)
        await connection.run_script(row["text"], timeout=_SECONDS)
    finally:
        await connection.close()
