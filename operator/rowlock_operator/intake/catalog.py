"""What the operator knows of Agents and WorkerPools: few objects, so all of them stay in memory.

The watches of three kinds know nothing of each other: an AgentRun may be seen before the Agent
that was applied with it. So a name that is not known is looked up before a run has to wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace

from rowlock.clock import Clock, SystemClock
from rowlock_operator.intake.agents import KnownAgent, known_agent
from rowlock_operator.intake.seen import Seen, seen_from
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import Denied, NotFound
from rowlock_operator.kube.resources import AGENTS, WORKER_POOLS, Resource

Name = tuple[str, str]
_MISSING_SECONDS = 2.0


class Catalog:
    """All Agents and WorkerPools of the watched namespaces."""

    def __init__(
        self, client: KubeClient, *, namespaces: Sequence[str] = (), clock: Clock | None = None
    ) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self._clock = clock or SystemClock()
        self._seen: dict[str, dict[Name, Seen]] = {AGENTS.kind: {}, WORKER_POOLS.kind: {}}
        self._agents: dict[Name, KnownAgent] = {}
        self._missing: dict[tuple[str, Name], float] = {}

    @property
    def pools(self) -> Mapping[Name, Seen]:
        """All WorkerPools by namespace and name."""
        return self._seen[WORKER_POOLS.kind]

    @property
    def agents(self) -> Mapping[Name, KnownAgent]:
        """All Agents by namespace and name."""
        return self._agents

    def pools_in(self, namespace: str) -> frozenset[str]:
        """Return the names of the WorkerPools in a namespace."""
        return frozenset(name for inside, name in self.pools if inside == namespace)

    def take(self, seen: Seen) -> bool:
        """Remember what was seen, and tell whether it is newer than what was known."""
        name, known = (seen.key.namespace, seen.key.name), self._seen[seen.kind]
        old = known.get(name)
        same = old is not None and old.key.uid == seen.key.uid
        if seen.gone:
            if same:
                del known[name]
                if seen.kind == AGENTS.kind:
                    del self._agents[name]
            return same
        if same and old is not None and old.generation >= seen.generation:
            return False
        known[name] = seen
        if seen.kind == AGENTS.kind:
            self._agents[name] = known_agent(seen)
        return True

    async def refresh(self) -> list[Seen]:
        """Read everything anew and return what changed: what the watches missed ends here."""
        news = []
        for resource in (AGENTS, WORKER_POOLS):
            listed = [seen async for seen in self._listed(resource)]
            news += [seen for seen in listed if self.take(seen)]
            news += self._forget_all_but(resource.kind, {seen.key.uid for seen in listed})
        return news

    async def look_up(self, agents: Iterable[Name], pools: Iterable[Name]) -> list[Seen]:
        """Ask the API server for the names that are not known, and return those it has."""
        asked = [
            self._get(resource, name)
            for resource, wanted in ((AGENTS, agents), (WORKER_POOLS, pools))
            for name in set(wanted) - self._seen[resource.kind].keys()
        ]
        return [seen for seen in await asyncio.gather(*asked) if seen and self.take(seen)]

    async def _get(self, resource: Resource, name: Name) -> Seen | None:
        key, now = (resource.kind, name), self._clock.monotonic()
        if self._missing.get(key, float("-inf")) > now:
            return None
        try:
            item = await self._client.get(resource.path(*name))
        except (NotFound, Denied):
            self._missing = {k: until for k, until in self._missing.items() if until > now}
            self._missing[key] = now + _MISSING_SECONDS
            return None
        return seen_from(item, resource.kind)

    def _forget_all_but(self, kind: str, uids: set[str]) -> list[Seen]:
        known = list(self._seen[kind].values())
        gone = [replace(seen, gone=True) for seen in known if seen.key.uid not in uids]
        return [seen for seen in gone if self.take(seen)]

    async def _listed(self, resource: Resource) -> AsyncIterator[Seen]:
        for namespace in self._namespaces or (None,):
            async for page in self._client.pages(resource.path(namespace)):
                for item in page["items"]:
                    yield seen_from(item, resource.kind)
