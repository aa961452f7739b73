"""The database's ids of agents, their revisions and pools, asked for once each."""

from __future__ import annotations

from rowlock.store import intake as store
from rowlock.store.connection import Connection
from rowlock.store.types import AgentId, PoolId, RevisionId
from rowlock_operator.intake.agents import KnownAgent

_MOST = 10_000


class Revisions:
    """A cache of ids; rows of these tables are never deleted while anything refers to them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._agents: dict[tuple[str, str, str], tuple[AgentId, RevisionId]] = {}
        self._pools: dict[tuple[str, str], PoolId] = {}

    async def of_agent(self, agent: KnownAgent) -> tuple[AgentId, RevisionId]:
        """Return the ids of an agent and of its present revision, made now if they are new."""
        key = (agent.key.namespace, agent.key.name, agent.digest)
        if key not in self._agents:
            _bounded(self._agents)
            self._agents[key] = await self._ensure(agent)
        return self._agents[key]

    async def of_pool(self, namespace: str, name: str) -> PoolId:
        """Return the id of a pool, made now if it is new."""
        key = (namespace, name)
        if key not in self._pools:
            _bounded(self._pools)
            self._pools[key] = await store.ensure_pool(
                self._connection, namespace=namespace, name=name
            )
        return self._pools[key]

    async def _ensure(self, agent: KnownAgent) -> tuple[AgentId, RevisionId]:
        spec = agent.spec
        if spec is None:
            raise ValueError(f"Agent {agent.key} is not valid")
        return await store.ensure_agent(
            self._connection,
            namespace=agent.key.namespace,
            name=agent.key.name,
            entrypoint=spec.entrypoint,
            spec=agent.stored,
            digest=agent.digest,
            max_running=spec.max_concurrent_runs,
            max_running_per_key=spec.max_concurrent_runs_per_key,
            starts_per_minute_per_key=spec.starts_per_minute_per_key,
        )


def _bounded(cache: dict[object, object] | dict) -> None:  # type: ignore[type-arg]
    if len(cache) >= _MOST:
        cache.clear()
