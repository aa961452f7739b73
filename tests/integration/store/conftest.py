"""The world that each test of the store gets.

A database of its own costs a test half a second, emptying one costs ten milliseconds:
so all tests here share one database, and only those that change its schema ask for `dsn`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from tests.integration.store.world import World, copied_database

EMPTY = """
DO $$
DECLARE what text;
BEGIN
  FOR what IN
    SELECT oid::regclass FROM pg_class
    WHERE relnamespace = 'rowlock'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
      AND relname NOT IN ('migration', 'reaper', 'history_floor', 'agent', 'agent_revision')
  LOOP
    EXECUTE 'DELETE FROM ' || what;
  END LOOP;
  DELETE FROM rowlock.agent_revision;
  DELETE FROM rowlock.agent;
  UPDATE rowlock.reaper
  SET tick_at = rowlock.now(), granted_at = rowlock.now(), mass_since = NULL;
END $$;
"""


@pytest.fixture(scope="session")
def shared_dsn(postgres_url: str, template: str) -> Iterator[str]:
    """URL of the database that the store's tests share."""
    with copied_database(postgres_url, template) as url:
        yield url


@pytest.fixture
async def world(shared_dsn: str) -> AsyncIterator[World]:
    """A pool, an agent and a store connection in an empty database."""
    made = await World.create(shared_dsn)
    try:
        yield made
    finally:
        await made.close()
        cleaner = await asyncpg.connect(shared_dsn)
        await cleaner.execute(EMPTY)
        await cleaner.close()


@pytest.fixture
async def own_world(dsn: str) -> AsyncIterator[World]:
    """The same in a database that the test may spoil."""
    made = await World.create(dsn)
    try:
        yield made
    finally:
        await made.close()
