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


async def drop(dsn: str, *names: str) -> None:
    """Drop databases with all sessions in them, from the one that `dsn` names; templates, too."""
    connection = await Connection.open(dsn, name="drop", check_schema=False)
    try:
        for name in names:
            for text in ("untemplate_database_text", "drop_database_text"):
                row = await connection.fetchone(text, name)
                await connection.run_script(row["text"], timeout=_SECONDS)
    finally:
        await connection.close()
