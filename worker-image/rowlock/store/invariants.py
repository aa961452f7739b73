"""What must never be: read by `rowlock doctor` and after every race in our tests."""

from __future__ import annotations

from rowlock.store.connection import Connection
from rowlock.store.types import RunId


async def violations(conn: Connection) -> list[tuple[str, RunId]]:
    """Return each broken invariant with its run; empty on a healthy database.

    It reads all live rows and all history.
    """
    return [(row["problem"], RunId(row["run_id"])) for row in await conn.fetch("violations")]
