"""Every test here runs twice: against PostgreSQL and against the store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.integration.store.conformance.subjects import MemorySubject, PostgresSubject, Subject
from tests.integration.store.conftest import EMPTY
from tests.integration.store.world import World


@pytest.fixture(params=["memory", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """URL of the database; None for the store in memory."""
    return str(request.getfixturevalue("shared_dsn")) if request.param == "postgres" else None


@pytest.fixture
async def subject(database: str | None) -> AsyncIterator[Subject]:
    """An empty store; whatever a test does to it, no invariant may be broken at the end."""
    if database is None:
        memory = MemorySubject()
        await memory.prepare()
        yield memory
        await memory.sound()
        return
    world = await World.create(database)
    postgres = PostgresSubject(world)
    try:
        await postgres.prepare()
        yield postgres
        await postgres.sound()
    finally:
        await world.close()
        cleaner = await asyncpg.connect(database)
        await cleaner.execute(EMPTY)
        await cleaner.close()
