"""Gathers what there is around each new AgentRun, and has the resolver decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from rowlock_operator.api.agentrun import AgentRunSpec
from rowlock_operator.intake.catalog import Catalog
from rowlock_operator.intake.config_maps import ConfigMaps
from rowlock_operator.intake.inputs import ConfigMapKey, source_of
from rowlock_operator.intake.resolver import Refused, Resolution, Surroundings, parse, resolve
from rowlock_operator.intake.seen import Seen
from rowlock_operator.settings import RunDefaults

log = structlog.get_logger(__name__)

Entries = Mapping[tuple[str, ConfigMapKey], str | None]


class Lookups:
    """Resolves AgentRuns with the Agents, WorkerPools and ConfigMaps that exist now."""

    def __init__(self, catalog: Catalog, config_maps: ConfigMaps, defaults: RunDefaults) -> None:
        self._catalog = catalog
        self._config_maps = config_maps
        self._defaults = defaults

    async def resolve(self, new: Sequence[Seen]) -> list[tuple[Seen, Resolution]]:
        """Return what becomes of each.

        Raises
        ------
        KubeError
            The API server could not be asked for something that is not known yet.
        """
        parsed = [(seen, parse(seen.spec)) for seen in new]
        specs = [(seen, it) for seen, it in parsed if isinstance(it, AgentRunSpec)]
        await self._look_up(specs)
        entries = await self._entries(specs)
        refused: list[tuple[Seen, Resolution]] = [
            (seen, it) for seen, it in parsed if isinstance(it, Refused)
        ]
        return refused + [
            (seen, it)
            for seen, spec in specs
            if (it := self._decide(seen, spec, entries)) is not None
        ]

    def ttl(self, namespace: str, agent: str) -> int | None:
        """Return the seconds that runs of an Agent stay after their end, as things stand now."""
        known = self._catalog.agents.get((namespace, agent))
        defaults = known.spec.run_defaults if known and known.spec else None
        of_agent = defaults.ttl_seconds_after_finished if defaults else None
        return self._defaults.ttl_seconds_after_finished if of_agent is None else of_agent

    def _decide(self, seen: Seen, spec: AgentRunSpec, entries: Entries) -> Resolution | None:
        try:
            return resolve(spec, self._around(seen, spec, entries))
        except Exception:
            # A bug that one object meets must not keep out all others; the sweep tries it again.
            log.exception("An AgentRun could not be resolved", run=str(seen.key))
            return None

    async def _look_up(self, specs: Sequence[tuple[Seen, AgentRunSpec]]) -> None:
        agents = {(seen.key.namespace, spec.agent_ref.name) for seen, spec in specs}
        await self._catalog.look_up(agents, ())
        pools = {(seen.key.namespace, self._pool(seen, spec)) for seen, spec in specs}
        await self._catalog.look_up((), pools)

    def _pool(self, seen: Seen, spec: AgentRunSpec) -> str:
        if spec.worker_pool_ref:
            return spec.worker_pool_ref.name
        agent = self._catalog.agents.get((seen.key.namespace, spec.agent_ref.name))
        return agent.pool(self._defaults.pool) if agent else self._defaults.pool

    async def _entries(self, specs: Sequence[tuple[Seen, AgentRunSpec]]) -> Entries:
        wanted = {
            (seen.key.namespace, where)
            for seen, spec in specs
            if isinstance(where := source_of(spec.input), ConfigMapKey)
        }
        return await self._config_maps.entries(wanted)

    def _around(self, seen: Seen, spec: AgentRunSpec, entries: Entries) -> Surroundings:
        namespace, where = seen.key.namespace, source_of(spec.input)
        mine = {where: entries.get((namespace, where))} if isinstance(where, ConfigMapKey) else {}
        return Surroundings(
            agent=self._catalog.agents.get((namespace, spec.agent_ref.name)),
            pools=self._catalog.pools_in(namespace),
            entries=mine,
            defaults=self._defaults,
        )
