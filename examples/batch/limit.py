"""How many runs of an agent may work for one key at a time, set from code.

In a cluster the Agent resource says so (`maxConcurrentRunsPerKey`), and this is not needed.
"""

from __future__ import annotations

from rowlock import Client
from rowlock.agents.protocol import Agent
from rowlock.settings import DatabaseSettings, load
from rowlock.store import intake
from rowlock.store.caps import Caps
from rowlock.store.connection import Connection
from rowlock.terminal import database_url


async def limit(client: Client, agent: Agent, *, per_key: int) -> None:
    """Register `agent` and let `per_key` runs of one key work at a time; the last call wins."""
    await client.start_many(agent, [])  # registers it, and starts nothing
    store = await Connection.open(database_url(load(DatabaseSettings)), name="batch")
    try:
        caps = Caps(max_running_per_key=per_key)
        await intake.limit_agent(store, namespace="", name=agent.name, limits=caps)
    finally:
        await store.close()
