"""Brings the limits of Agents to the database when they change.

An agent that is new there gets them with its first run; from then on this is who changes them,
whether or not another run comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rowlock.store import intake as store
from rowlock.store.caps import Caps
from rowlock.store.connection import Connection
from rowlock_operator.api.agent import AgentSpec
from rowlock_operator.intake.catalog import Catalog, Name
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.resources import AGENTS


@dataclass(frozen=True, slots=True)
class LimitsReport:
    """How many Agents one round compared with the database."""

    compared: int = 0


class Limits:
    """The Agents whose limits have to be compared, and the round that does so."""

    def __init__(self, connection: Connection, catalog: Catalog) -> None:
        self._connection = connection
        self._catalog = catalog
        self._dirty: set[Name] = set()

    def mark(self, news: Iterable[Seen]) -> None:
        """Note what is new."""
        self._dirty |= {(s.key.namespace, s.key.name) for s in news if s.kind == AGENTS.kind}

    def mark_all(self) -> None:
        """Compare every Agent: somebody else may have written to the database."""
        self._dirty |= self._catalog.agents.keys()

    async def run_once(self) -> LimitsReport:
        """Write the limits of each marked Agent where the database has others."""
        compared = 0
        while self._dirty:
            name = self._dirty.pop()
            try:
                compared += await self._write(name)
            except BaseException:
                self._dirty.add(name)
                raise
        return LimitsReport(compared)

    async def _write(self, name: Name) -> bool:
        agent = self._catalog.agents.get(name)
        if agent is None or agent.spec is None:
            return False
        return await store.limit_agent(
            self._connection, namespace=name[0], name=name[1], limits=limits_of(agent.spec)
        )


def limits_of(spec: AgentSpec) -> Caps:
    """Return what an Agent limits."""
    return Caps(
        max_running=spec.max_concurrent_runs,
        max_running_per_key=spec.max_concurrent_runs_per_key,
        starts_per_minute_per_key=spec.starts_per_minute_per_key,
    )
