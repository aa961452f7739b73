"""The parts that keep workers: WorkerPools, their Agents, and the pods that die."""

from __future__ import annotations

from rowlock_operator.intake.catalog import Catalog
from rowlock_operator.kube.specs.deployment import SecretKey
from rowlock_operator.lifecycle.loops import Loop, every
from rowlock_operator.lifecycle.means import Means
from rowlock_operator.mirror.announcer import Announcer
from rowlock_operator.pods.fencing import PodFencing, PodScope
from rowlock_operator.pods.roster import Roster
from rowlock_operator.pods.watch import PodWatch
from rowlock_operator.pools.agents import Agents
from rowlock_operator.pools.autoscaler import Autoscaler
from rowlock_operator.pools.deployments import Deployments
from rowlock_operator.pools.mover import Mover
from rowlock_operator.pools.pools import Pools, PoolsReport


class Pooling:
    """What keeps as many workers as there is work."""

    def __init__(self, means: Means, catalog: Catalog, announcer: Announcer) -> None:
        client, settings = means.client, means.settings
        self._period = settings.pool_period_seconds
        self.agents = Agents(
            client, catalog, means.metrics, default_pool=settings.run_defaults.pool
        )
        self.pools = _pools(means, catalog, announcer)
        roster = Roster()
        self.pod_watch = PodWatch(client, roster, means.metrics, namespaces=settings.namespaces)
        self.pod_fencing = PodFencing(
            client,
            means.connections.pods,
            roster,
            means.metrics,
            scope=PodScope(means.cluster, settings.namespaces),
        )

    def loops(self) -> list[Loop]:
        """Return the loops of these parts."""
        return [
            Loop("agents", self.agents.run_once, every(0.5)),
            Loop("pools", self.pools.run_once, self._until_next_look),
            Loop("pods", self.pod_fencing.run_once, self.pod_fencing.pause),
        ]

    async def _until_next_look(self, report: PoolsReport) -> None:
        """Wait for the next look at the pools; one of them may want to be polled sooner."""
        await every(min(self._period, report.period))(None)


def _pools(means: Means, catalog: Catalog, announcer: Announcer) -> Pools:
    client, settings = means.client, means.settings
    deployments = Deployments(
        client,
        namespaces=settings.namespaces,
        database=_secret(settings.worker_database_secret),
        log_format=settings.log_format,
        cluster=means.cluster,
    )
    mover = Mover(client, means.connections.pools, deployments)
    return Pools(
        client,
        means.connections.pools,
        catalog,
        deployments,
        Autoscaler(client, deployments, mover, means.metrics),
        announcer,
        means.metrics,
    )


def _secret(given: str) -> SecretKey | None:
    if not given:
        return None
    name, _, key = given.partition("/")
    return SecretKey(name, key or "url")
