"""Shows of each Agent whether it makes sense and whether its pool is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rowlock_operator import metrics as m
from rowlock_operator.intake.catalog import Catalog, Name
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.ownstatus import write_status
from rowlock_operator.kube.resources import AGENTS
from rowlock_operator.pools.status import agent_status


@dataclass(frozen=True, slots=True)
class AgentsReport:
    """What one round did."""

    looked_at: int = 0
    written: int = 0


class Agents:
    """The Agents that have to be looked at, and the round that does so."""

    def __init__(
        self, client: KubeClient, catalog: Catalog, metrics: m.Metrics, *, default_pool: str
    ) -> None:
        self._client = client
        self._catalog = catalog
        self._metrics = metrics
        self._default_pool = default_pool
        self._dirty: set[Name] = set()
        self._written: dict[str, Mapping[str, Any]] = {}

    def mark(self, news: Iterable[Seen]) -> None:
        """Note what is new: an Agent itself, or a WorkerPool that others may refer to."""
        for seen in news:
            if seen.kind == AGENTS.kind:
                self._dirty.add((seen.key.namespace, seen.key.name))
            else:
                self._dirty |= {n for n in self._catalog.agents if n[0] == seen.key.namespace}

    def mark_all(self) -> None:
        """Look at every Agent again."""
        self._dirty |= self._catalog.agents.keys()
        known = {agent.key.uid for agent in self._catalog.agents.values()}
        self._written = {uid: it for uid, it in self._written.items() if uid in known}

    async def run_once(self) -> AgentsReport:
        """Bring the status of each marked Agent up to date."""
        looked_at = written = 0
        while self._dirty:
            name = self._dirty.pop()
            try:
                written += await self._show(name)
            except BaseException:
                self._dirty.add(name)
                self._metrics.add(m.RECONCILES, AGENTS.kind, "error")
                raise
            looked_at += 1
            self._metrics.add(m.RECONCILES, AGENTS.kind, "done")
        return AgentsReport(looked_at, written)

    async def _show(self, name: Name) -> bool:
        agent = self._catalog.agents.get(name)
        if agent is None:
            return False
        pool = agent.pool(self._default_pool)
        before = self._written.get(agent.key.uid, agent.status)
        status = agent_status(
            agent,
            pool=pool,
            pool_exists=(name[0], pool) in self._catalog.pools,
            before=before,
            now=datetime.now(UTC),
        )
        if status == before:
            return False
        if await write_status(self._client, AGENTS, *name, uid=agent.key.uid, status=status):
            self._written[agent.key.uid] = status
        return True
