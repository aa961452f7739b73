"""The way into the database for what a worker itself runs as an agent.

A process that imports agents has the way in no environment variable, and none of what it starts
has it at all. The host of such a process says it here once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rowlock.errors import StoreUnavailable
from rowlock.store.connection import Connection

_urls: list[str] = []


def use(url: str) -> None:
    """Remember the way."""
    _urls[:] = [url]


@asynccontextmanager
async def into_the_store() -> AsyncIterator[Connection]:
    """Yield a connection that ends with the block.

    Raises
    ------
    StoreUnavailable
        PostgreSQL is away, or this is no process of a worker.
    """
    if not _urls:
        raise StoreUnavailable("only a process of a worker has a way into the database")
    conn = await Connection.open(_urls[0], name="read-items", check_schema=False)
    try:
        yield conn
    finally:
        await conn.close()
