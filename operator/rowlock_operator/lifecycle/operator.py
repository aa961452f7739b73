"""One operator process from its start to its end."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import structlog

from rowlock.errors import RowlockError
from rowlock.store import dsn
from rowlock_operator import metrics as m
from rowlock_operator.intake.kopf_source import KopfSource
from rowlock_operator.intake.source import RunSource
from rowlock_operator.kube.access import find_access
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.credentials import Access
from rowlock_operator.lifecycle import startup
from rowlock_operator.lifecycle.assembly import Assembly
from rowlock_operator.lifecycle.channels import open_client, open_connections, open_elector
from rowlock_operator.lifecycle.elector import Elector
from rowlock_operator.lifecycle.health import Health, Role
from rowlock_operator.lifecycle.loops import Loop, LoopRunner, at_once, every
from rowlock_operator.lifecycle.means import Connections, Means
from rowlock_operator.lifecycle.probes import Answer, Vitals, liveness, readiness
from rowlock_operator.lifecycle.pulse import Beat, Ping
from rowlock_operator.lifecycle.supervisor import Supervisor
from rowlock_operator.lifecycle.web import serving
from rowlock_operator.settings import OperatorSettings

log = structlog.get_logger(__name__)

_FLUSH_SECONDS = 8.0
#: A flush that takes longer goes on beside the next leader, which does no harm.
_FLUSH_ALONE_SECONDS = 0.5
_HOLD = "lease"


class Operator:
    """Runs until SIGTERM, or until one of its parts ends."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._metrics = m.Metrics(standby=True)
        self._health = Health()
        self._supervisor = Supervisor()
        self._runner = LoopRunner(self._metrics, self._health)
        self._elector: Elector | None = None
        self._source: RunSource | None = None
        self._assembly: Assembly | None = None
        self._alive_at = time.monotonic()

    async def run(self) -> None:
        """Run.

        Raises
        ------
        ConfigurationError
            A person must change something.
        RowlockError
            The start took too long, a part ended, or another operator leads.
        """
        settings = self._settings
        dsn.parse(settings.database_url.get_secret_value())
        access = find_access(settings.kubeconfig, context=settings.context)
        self._metrics.show(m.INFO, 1, version("rowlock"))
        self._supervisor.stop_on_signals()
        async with (
            serving(
                settings.http_host,
                settings.http_port,
                alive=self._alive,
                ready=self._ready,
                metrics=self._metrics.text,
            ),
            open_client(access, settings, self._metrics) as client,
            open_connections(settings) as connections,
        ):
            self._health.database_up = True
            async with open_elector(access, settings, self._metrics, fit=self._is_fit) as elector:
                self._elector = elector
                await self._run(access, client, connections, elector)

    async def _run(
        self,
        access: Access,
        client: KubeClient,
        connections: Connections,
        elector: Elector | None,
    ) -> None:
        cluster = await startup.patiently(
            "the Kubernetes API server",
            lambda: self._first_contact(client),
            within=self._settings.start_timeout_seconds,
        )
        log.info("Connected", cluster=cluster)
        self._start_loop("beat", Beat(client, self._metrics, self._health).run_once)
        self._start_loop("ping", Ping(connections.pulse, self._health).run_once, every(1.0))
        if elector and not await self._wait_to_lead(elector):
            return
        assembly = Assembly(Means(self._settings, client, connections, cluster, self._metrics))
        self._assembly = assembly
        await self._lead(access, assembly, elector)

    async def _first_contact(self, client: KubeClient) -> str:
        await startup.check_cluster(client)
        await startup.check_api(client, self._settings.namespaces)
        return await startup.cluster_id(client, self._settings.cluster_id)

    async def _wait_to_lead(self, elector: Elector) -> bool:
        """Wait as a standby; False if told to stop meanwhile."""
        await startup.patiently(
            f"the Lease {elector.place}",
            elector.look,
            within=self._settings.start_timeout_seconds,
        )
        self._health.role = Role.STANDBY
        if await self._supervisor.watch(elector.win()):
            self._supervisor.start(_HOLD, elector.hold())
            return True
        self._health.stopping = True
        await elector.release()  # it may just have won
        await self._supervisor.cancel()
        log.info("The standby has stopped")
        return False

    async def _lead(self, access: Access, assembly: Assembly, elector: Elector | None) -> None:
        self._metrics.show(m.LEADER, 1)
        self._metrics.lead()
        source = KopfSource(
            access,
            namespaces=self._settings.namespaces,
            silence=self._settings.watch_silence_seconds,
            count=self._count_event,
        )
        try:
            if await self._supervisor.watch(self._start(assembly, source)):
                await self._supervisor.watch()
        finally:
            if elector and elector.lost:
                await self._leave_at_once()
            else:
                await self._shut_down(assembly, source, elector)

    async def _start(self, assembly: Assembly, source: RunSource) -> None:
        await startup.patiently(
            "the Kubernetes API server",
            assembly.taking_in.catalog.refresh,
            within=self._settings.start_timeout_seconds,
        )
        source.start(assembly.taking_in.handover.put)
        self._source, self._alive_at = source, time.monotonic()
        for loop in assembly.loops():
            self._supervisor.start(loop.name, self._runner.run(loop))
        self._supervisor.start("notices", assembly.showing.notices.run())
        self._supervisor.start("events", assembly.showing.announcer.run())
        self._supervisor.start("pod watch", assembly.pooling.pod_watch.run())
        self._supervisor.start("watch", source.ended())
        self._health.role = Role.LEADING
        log.info("The operator runs", namespaces=self._settings.namespaces or "all")

    async def _shut_down(
        self, assembly: Assembly, source: RunSource, elector: Elector | None
    ) -> None:
        """Bring what is under way to its end, and let the next leader begin as soon as may be."""
        self._health.stopping = True
        await self._supervisor.cancel(but=frozenset({_HOLD}))
        flushing = asyncio.create_task(self._flush(assembly))
        await asyncio.wait({flushing}, timeout=_FLUSH_ALONE_SECONDS)
        if elector:
            await self._supervisor.cancel()
            await elector.release()
        await flushing
        if self._source:
            await source.stop()
        log.info("The operator has stopped")

    async def _flush(self, assembly: Assembly) -> None:
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await assembly.flush()
        except (RowlockError, TimeoutError) as error:
            log.warning("Not all was flushed; the next operator goes on", error=str(error))

    async def _leave_at_once(self) -> None:
        """End without bringing anything to its end: another operator is at work by then."""
        self._health.stopping = True
        left = self._settings.lease_seconds - self._settings.lease_renew_seconds
        log.error("This operator does not lead any more and ends")
        # Whatever hangs below, nothing of this process outlives its Lease.
        last_resort = threading.Timer(left, os._exit, (1,))
        last_resort.daemon = True
        last_resort.start()
        await self._supervisor.cancel()
        if self._source:
            await self._source.stop()

    def _start_loop(
        self,
        name: str,
        once: Callable[[], Awaitable[None]],
        pause: Callable[[Any], Awaitable[Any]] = at_once,
    ) -> None:
        self._supervisor.start(name, self._runner.run(Loop(name, once, pause)))

    def _is_fit(self) -> bool:
        return self._health.database_up

    def _count_event(self, kind: str, echo: bool) -> None:
        self._metrics.add(m.WATCH_EVENTS, kind)
        self._metrics.show(m.WATCH_LAST_EVENT, time.time())
        if echo:
            self._metrics.add(m.WATCH_ECHOES, kind)

    def _alive(self) -> Answer:
        if self._source is None:
            return Answer(True, self._health.role.value)
        now, source = time.monotonic(), self._source.health()
        if source.alive:
            self._alive_at = now
        return liveness(
            Vitals(
                now=now,
                source=source,
                alive_at=self._alive_at,
                ticked_at=self._health.ticked_at,
                shown_at=self._assembly.showing.mirror.shown_at if self._assembly else None,
            )
        )

    def _ready(self) -> Answer:
        return readiness(
            role=self._health.role,
            database_up=self._health.database_up,
            in_touch=self._elector is None or self._elector.in_touch,
            stopping=self._health.stopping,
        )
