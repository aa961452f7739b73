"""A run's place in the queue, which may change until it has started."""

from __future__ import annotations

from collections.abc import Mapping

from rowlock.store.connection import Connection
from rowlock.store.types import RunId

_PLACES = ("ready", "backlog", "parked")


async def set_priorities(conn: Connection, priorities: Mapping[RunId, int]) -> None:
    """Give runs that never started these priorities; it may be repeated.

    One that moves from one place to another at this moment keeps the old one: ask again.
    """
    if not priorities:
        return
    runs, values = list(priorities), list(priorities.values())
    for place in _PLACES:
        await conn.execute(f"set_priority_{place}", runs, values)
