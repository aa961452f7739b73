"""Caps said by a client: who waits, who goes on, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from rowlock import Client, InvalidRequest, SyncClient, UnknownAgent
from tests.client_agents import shouter
from tests.integration.client.conftest import Played

_CAPS = (
    "SELECT max_running, max_running_per_key, starts_per_minute_per_key"
    " FROM rowlock.agent WHERE name = 'shouter'"
)


async def test_runs_over_a_cap_wait_until_it_is_raised(client: Client, played: Played) -> None:
    """A new agent is registered by its caps; what is said again takes the place of all three."""
    await client.set_caps(shouter, max_running_per_key=1)
    await client.start_many(shouter, [{"text": "x"}] * 4, keys=["a", "a", "b", None])
    assert len(await played.claim(9)) == 3, "one for each key, and the one without a key"

    await client.set_caps("shouter", max_running=4)
    assert len(await played.claim(9)) == 1


async def test_a_new_or_an_earlier_cap_is_replaced_as_a_whole(
    client: Client, sql: asyncpg.Connection[Any]
) -> None:
    """What is left out has no limit."""
    await client.set_caps(shouter, max_running=3, starts_per_minute_per_key=10)
    assert tuple(await sql.fetchrow(_CAPS)) == (3, None, 10)
    await client.set_caps("tests.client_agents:shouter", max_running_per_key=2)
    assert tuple(await sql.fetchrow(_CAPS)) == (None, 2, None)
    await client.set_caps("shouter")
    assert tuple(await sql.fetchrow(_CAPS)) == (None, None, None)


@pytest.mark.parametrize(
    ("caps", "named"),
    [
        ({"max_running": 0}, "max_running: must be a whole number from 1 to 2147483647, not 0"),
        ({"max_running": 2.0}, "max_running"),
        ({"max_running_per_key": -1}, "max_running_per_key"),
        ({"max_running_per_key": True}, "max_running_per_key"),
        ({"max_running_per_key": 2**31}, "max_running_per_key"),
        ({"starts_per_minute_per_key": 100_001}, "starts_per_minute_per_key"),
    ],
)
async def test_a_cap_that_makes_no_sense_is_named(
    client: Client, sql: asyncpg.Connection[Any], caps: dict[str, Any], named: str
) -> None:
    """Nothing is written, not even the agent."""
    with pytest.raises(InvalidRequest, match=f"^{named}"):
        await client.set_caps(shouter, **caps)
    assert await sql.fetchval("SELECT count(*) FROM rowlock.agent") == 0


async def test_an_unknown_agent_is_answered_with_those_that_are_known(client: Client) -> None:
    """By its name; whoever gives the agent itself registers it."""
    await client.set_caps(shouter)
    with pytest.raises(UnknownAgent, match="'shuoter'; those known are shouter"):
        await client.set_caps("shuoter", max_running=1)


async def test_the_sync_twin_sets_caps_too(dsn: str, sql: asyncpg.Connection[Any]) -> None:
    """With the same words."""

    def use() -> None:
        with SyncClient(dsn) as client:
            client.set_caps(shouter, max_running=7)

    await asyncio.to_thread(use)
    assert tuple(await sql.fetchrow(_CAPS)) == (7, None, None)
