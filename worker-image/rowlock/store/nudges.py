"""A word to idle workers that a run waits for them.

They would find it anyway, at their next poll; so nobody misses the word when it is lost.
It is sent for what a person asked for, and never by the statement that writes:
a transaction that notifies holds a lock of the whole database while it commits.
"""

from __future__ import annotations

import contextlib
from typing import Final

from rowlock.errors import StoreError
from rowlock.store.connection import Connection

#: Its messages are empty.
CHANNEL: Final = "rowlock_ready"


async def nudge(conn: Connection) -> None:
    """Have idle workers look now; what fails here is left to their polls."""
    with contextlib.suppress(StoreError):
        await conn.fetch("nudge")
