"""All parts of one operator, wired together.

Each loop has a database connection of its own, so that none waits for another's statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rowlock.store import batches as batch_store
from rowlock.store.connection import Connection
from rowlock_operator import metrics as m
from rowlock_operator.approvals.approvals import Approvals
from rowlock_operator.batches.acceptance import Acceptance
from rowlock_operator.batches.batches import Batches, BatchesSettings
from rowlock_operator.intake.admission import Admission, Outlets
from rowlock_operator.intake.catalog import Catalog
from rowlock_operator.intake.config_maps import ConfigMaps
from rowlock_operator.intake.departures import DepartureReport, Departures
from rowlock_operator.intake.dispatch import Dispatch
from rowlock_operator.intake.expiries import Expiries
from rowlock_operator.intake.holds import Holds, HoldSettings
from rowlock_operator.intake.inbox import Inbox
from rowlock_operator.intake.limits import Limits
from rowlock_operator.intake.lookups import Lookups
from rowlock_operator.intake.recall import Recall
from rowlock_operator.intake.seen import Seen, seen_from
from rowlock_operator.intake.source import Handover
from rowlock_operator.intake.sweep import Sweep, SweepOutlets, SweepReport, SweepSettings
from rowlock_operator.intake.waiting import Waiting
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.resources import AGENT_RUN_BATCHES
from rowlock_operator.kube.specs.deployment import SecretKey
from rowlock_operator.lifecycle.loops import Loop, every
from rowlock_operator.lifecycle.upkeep import Upkeep
from rowlock_operator.mirror.announcer import Announcer
from rowlock_operator.mirror.desk import StatusDesk
from rowlock_operator.mirror.mirror import Mirror, MirrorReport, MirrorSettings
from rowlock_operator.mirror.noticeboard import NoticeBoard
from rowlock_operator.mirror.scope import Scope
from rowlock_operator.pods.fencing import PodFencing, PodScope
from rowlock_operator.pods.roster import Roster
from rowlock_operator.pods.watch import PodWatch
from rowlock_operator.pools.agents import Agents
from rowlock_operator.pools.autoscaler import Autoscaler
from rowlock_operator.pools.deployments import Deployments
from rowlock_operator.pools.mover import Mover
from rowlock_operator.pools.pools import Pools, PoolsReport
from rowlock_operator.settings import OperatorSettings
from rowlock_operator.traces.tracer import Tracer


@dataclass(frozen=True, slots=True)
class Connections:
    """The database connections of one operator."""

    intake: Connection
    mirror: Connection
    sweep: Connection
    upkeep: Connection
    pools: Connection
    limits: Connection
    approvals: Connection
    pods: Connection
    endings: Connection
    pulse: Connection
    batches: Connection
    traces: Connection | None = None


class Assembly:
    """The parts, and the loops that drive them."""

    def __init__(
        self,
        settings: OperatorSettings,
        client: KubeClient,
        connections: Connections,
        *,
        cluster: str,
        metrics: m.Metrics,
    ) -> None:
        self._settings = settings
        self._client = client
        self._metrics = metrics
        self._wire_mirror(client, connections, cluster)
        self._wire_endings(client, connections, cluster)
        self._wire_intake(client, connections, cluster)
        self._wire_pools(client, connections, cluster)
        self._wire_pods(client, connections, cluster)
        self.upkeep = Upkeep(connections.upkeep, metrics)

    def loops(self) -> list[Loop]:
        """Return all loops."""
        loops = [
            Loop("intake", self.dispatch.run_once, self.dispatch.pause),
            Loop("sweep", self._sweep_once, self._until_next_sweep),
            Loop("departures", self.departures.run_once, self._until_departure),
            Loop("expiries", self.expiries.run_once, self.expiries.pause),
            Loop("holds", self.holds.run_once, self.holds.pause),
            Loop("mirror", self.mirror.run_once, self._until_change),
            Loop("agents", self.agents.run_once, every(0.5)),
            Loop("approvals", self.approvals.run_once, self.approvals.pause),
            Loop("limits", self.limits.run_once, every(0.2)),
            Loop("pools", self.pools.run_once, self._until_next_pools),
            Loop("pods", self.pod_fencing.run_once, self.pod_fencing.pause),
            Loop("batches", self.batches.run_once, every(0.2)),
            Loop("upkeep", self.upkeep.run_once, every(1.0)),
        ]
        if self.tracer is not None:
            loops.append(Loop("traces", self.tracer.run_once, every(1.0)))
        return loops

    async def flush(self) -> None:
        """Bring to its end what is under way, as far as that works at once."""
        await self.dispatch.run_once()
        await self.notices.run_once()
        report = await self.mirror.run_once()
        while report.shown:
            report = await self.mirror.run_once()
        await self.announcer.drain()
        await self.mirror.forget()

    def _wire_mirror(self, client: KubeClient, connections: Connections, cluster: str) -> None:
        settings, metrics = self._settings, self._metrics
        self.desk = StatusDesk(client, metrics)
        self.notices = NoticeBoard(self.desk)
        self.announcer = Announcer(client, metrics, normal=settings.normal_events)
        self.departures = Departures(client, connections.sweep, cluster=cluster, metrics=metrics)
        self.approvals = Approvals(
            client,
            connections.approvals,
            self.announcer,
            metrics,
            cluster=cluster,
            namespaces=settings.namespaces,
        )
        self.mirror = Mirror(
            connections.mirror,
            self.desk,
            self.announcer,
            scope=Scope(cluster, settings.namespaces),
            gone=self.departures,
            metrics=metrics,
            settings=MirrorSettings(delay=settings.show_delay_seconds),
        )
        self.mirror.on_change = self.approvals.note
        self.tracer = _tracer(settings, connections, metrics)
        if self.tracer is not None:
            self.mirror.on_end = self.tracer.ended

    def _wire_endings(self, client: KubeClient, connections: Connections, cluster: str) -> None:
        settings = self._settings
        self.expiries = Expiries(
            client,
            connections.endings,
            self.departures,
            self._metrics,
            cluster=cluster,
            namespaces=settings.namespaces,
        )
        hold = HoldSettings(
            cluster=cluster,
            enabled=settings.deletion_hold,
            limit=settings.deletion_hold_seconds,
        )
        self.holds = Holds(client, connections.endings, self._metrics, hold)

    def _wire_intake(self, client: KubeClient, connections: Connections, cluster: str) -> None:
        settings, metrics = self._settings, self._metrics
        self.handover = Handover()
        self.catalog = Catalog(client, namespaces=settings.namespaces)
        self.limits = Limits(connections.limits, self.catalog)
        waiting = Waiting()
        lookups = Lookups(self.catalog, ConfigMaps(client), settings.run_defaults)
        outlets = Outlets(
            statuses=self.desk,
            notices=self.notices,
            departures=self.departures,
            waiting=waiting,
            holds=self.holds,
        )
        admission = Admission(
            connections.intake, lookups, outlets, cluster=cluster, metrics=metrics
        )
        self.inbox = Inbox(admission, metrics)
        recall = Recall(client, self.inbox, waiting)
        self._wire_batches(client, connections.batches, lookups, cluster)
        self.dispatch = Dispatch(
            self.handover,
            self.inbox,
            self.catalog,
            recall,
            tell=self._tell,
            approval=self.approvals.put,
            batch=self.batches.take,
        )
        self.sweep = Sweep(
            client,
            connections.sweep,
            SweepSettings(
                cluster=cluster,
                namespaces=settings.namespaces,
                percent=settings.max_vanished_percent,
            ),
            SweepOutlets(
                inbox=self.inbox,
                departures=self.departures,
                notices=self.notices,
                expiries=self.expiries,
                holds=self.holds,
                ttl_else=lookups.ttl,
                waits_in_mirror=self.mirror.waits,
            ),
            metrics,
        )

    def _wire_pods(self, client: KubeClient, connections: Connections, cluster: str) -> None:
        namespaces, roster = self._settings.namespaces, Roster()
        self.pod_watch = PodWatch(client, roster, self._metrics, namespaces=namespaces)
        self.pod_fencing = PodFencing(
            client,
            connections.pods,
            roster,
            self._metrics,
            scope=PodScope(cluster, namespaces),
        )

    def _wire_batches(
        self, client: KubeClient, connection: Connection, lookups: Lookups, cluster: str
    ) -> None:
        settings = self._settings
        self._cluster, self._batch_rows = cluster, connection
        self.batches = Batches(
            client,
            connection,
            Acceptance(connection, lookups, ConfigMaps(client), cluster=cluster),
            self.announcer,
            settings=BatchesSettings(cluster=cluster, status_seconds=settings.batch_status_seconds),
            metrics=self._metrics,
        )

    def _wire_pools(self, client: KubeClient, connections: Connections, cluster: str) -> None:
        settings = self._settings
        self.agents = Agents(
            client, self.catalog, self._metrics, default_pool=settings.run_defaults.pool
        )
        deployments = Deployments(
            client,
            namespaces=settings.namespaces,
            database=_secret(settings.worker_database_secret),
            log_format=settings.log_format,
            cluster=cluster,
        )
        mover = Mover(client, connections.pools, deployments)
        self.pools = Pools(
            client,
            connections.pools,
            self.catalog,
            deployments,
            Autoscaler(client, deployments, mover, self._metrics),
            self.announcer,
            self._metrics,
        )

    def _tell(self, news: Sequence[Seen]) -> None:
        self.agents.mark(news)
        self.limits.mark(news)
        self.batches.appeared(news)

    async def _sweep_once(self) -> SweepReport:
        self.dispatch.appeared(await self.catalog.refresh())
        self.agents.mark_all()
        self.limits.mark_all()
        self.approvals.mark_all()
        await self._sweep_batches()
        return await self.sweep.run_once()

    async def _sweep_batches(self) -> None:
        namespaces = self._settings.namespaces
        rows = await batch_store.known(
            self._batch_rows, cluster=self._cluster, namespaces=namespaces or None
        )
        listed = []
        for namespace in namespaces or (None,):
            async for page in self._client.pages(AGENT_RUN_BATCHES.path(namespace)):
                listed += [seen_from(it, AGENT_RUN_BATCHES.kind) for it in page["items"]]
        self.batches.resync(listed, rows)

    async def _until_next_sweep(self, _report: SweepReport) -> None:
        """Wait for the next sweep; an outage of the API server that ended is one more reason."""
        self._client.recovered.clear()
        pause = every(self._settings.sweep_seconds, jitter=0.1)
        waits = {
            asyncio.ensure_future(pause(None)),
            asyncio.ensure_future(self._client.recovered.wait()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _until_next_pools(self, report: PoolsReport) -> None:
        """Wait for the next look at the pools; one of them may want to be polled sooner."""
        await every(min(self._settings.pool_period_seconds, report.period))(None)

    async def _until_departure(self, _report: DepartureReport) -> None:
        if not len(self.departures):
            await self.departures.wait()

    async def _until_change(self, report: MirrorReport) -> None:
        if not report.shown:
            await asyncio.sleep(0.1)


def _tracer(
    settings: OperatorSettings, connections: Connections, metrics: m.Metrics
) -> Tracer | None:
    if connections.traces is None:
        return None
    from rowlock_operator.traces.export import Collector  # noqa: PLC0415  an extra

    return Tracer(connections.traces, Collector(ratio=settings.trace_ratio), metrics)


def _secret(given: str) -> SecretKey | None:
    if not given:
        return None
    name, _, key = given.partition("/")
    return SecretKey(name, key or "url")
