"""One operator process from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import structlog

from rowlock.errors import RowlockError
from rowlock.store import dsn
from rowlock_operator import metrics as m
from rowlock_operator.intake.kopf_source import KopfSource
from rowlock_operator.intake.source import RunSource
from rowlock_operator.kube.access import find_access
from rowlock_operator.kube.client import KubeClient, Rates
from rowlock_operator.kube.credentials import Access
from rowlock_operator.lifecycle import startup
from rowlock_operator.lifecycle.assembly import Assembly, Connections
from rowlock_operator.lifecycle.health import Health
from rowlock_operator.lifecycle.loops import LoopRunner
from rowlock_operator.lifecycle.probes import Answer, Vitals, liveness, readiness
from rowlock_operator.lifecycle.supervisor import Supervisor
from rowlock_operator.lifecycle.web import serving
from rowlock_operator.settings import OperatorSettings

log = structlog.get_logger(__name__)

_FLUSH_SECONDS = 8.0


class Operator:
    """Runs until SIGTERM, or until one of its parts ends."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._metrics = m.Metrics()
        self._health = Health()
        self._supervisor: Supervisor | None = None
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
            The start took too long, or a part ended.
        """
        settings = self._settings
        dsn.parse(settings.database_url.get_secret_value())
        access = find_access(settings.kubeconfig, context=settings.context)
        self._metrics.show(m.INFO, 1, version("rowlock"))
        self._supervisor = Supervisor()
        self._supervisor.stop_on_signals()
        async with (
            serving(
                settings.http_host,
                settings.http_port,
                alive=self._alive,
                ready=self._ready,
                metrics=self._metrics.text,
            ),
            self._client(access) as client,
            self._connections() as connections,
        ):
            await self._run(access, client, connections, self._supervisor)

    async def _run(
        self,
        access: Access,
        client: KubeClient,
        connections: Connections,
        supervisor: Supervisor,
    ) -> None:
        within = self._settings.start_timeout_seconds
        cluster = await startup.patiently(
            "the Kubernetes API server", lambda: self._first_contact(client), within=within
        )
        assembly = Assembly(
            self._settings,
            client,
            connections,
            cluster=cluster,
            metrics=self._metrics,
            health=self._health,
        )
        self._assembly = assembly
        await startup.patiently(
            "the Kubernetes API server", assembly.catalog.refresh, within=within
        )
        source = self._start_source(access, assembly)
        self._start_loops(assembly, source, supervisor)
        log.info(
            "The operator runs", cluster=cluster, namespaces=self._settings.namespaces or "all"
        )
        try:
            await supervisor.watch()
        finally:
            await self._shut_down(assembly, source, supervisor)

    async def _first_contact(self, client: KubeClient) -> str:
        await startup.check_api(client, self._settings.namespaces)
        return await startup.cluster_id(client, self._settings.cluster_id)

    def _start_source(self, access: Access, assembly: Assembly) -> RunSource:
        source = KopfSource(access, namespaces=self._settings.namespaces, count=self._count_event)
        self._source = source
        source.start(assembly.handover.put)
        return source

    def _start_loops(self, assembly: Assembly, source: RunSource, supervisor: Supervisor) -> None:
        runner = LoopRunner(self._metrics, self._health)
        for loop in assembly.loops():
            supervisor.start(loop.name, runner.run(loop))
        supervisor.start("notices", assembly.notices.run())
        supervisor.start("events", assembly.announcer.run())
        supervisor.start("pod watch", assembly.pod_watch.run())
        supervisor.start("watch", source.ended())
        self._health.started = True

    async def _shut_down(
        self, assembly: Assembly, source: RunSource, supervisor: Supervisor
    ) -> None:
        """Stop what comes in first, then bring what is under way to its end."""
        self._health.stopping = True
        await source.stop()
        await supervisor.cancel()
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await assembly.flush()
        except (RowlockError, TimeoutError) as error:
            log.warning("Not all was flushed; the next operator goes on", error=str(error))
        log.info("The operator has stopped")

    @asynccontextmanager
    async def _client(self, access: Access) -> AsyncIterator[KubeClient]:
        settings = self._settings
        rates = Rates(status=settings.status_writes_per_second, event=settings.events_per_second)
        async with KubeClient(
            access,
            rates=rates,
            connections=settings.connections,
            observe=lambda lane, code: self._metrics.add(m.API_REQUESTS, lane.value, str(code)),
        ) as client:
            yield client

    @asynccontextmanager
    async def _connections(self) -> AsyncIterator[Connections]:
        url = self._settings.database_url.get_secret_value()
        opened = {}
        async with contextlib.AsyncExitStack() as stack:
            for name in self._connection_names():
                opened[name] = await startup.patiently(
                    "PostgreSQL",
                    lambda name=name: startup.open_connection(url, name),  # type: ignore[misc]
                    within=self._settings.start_timeout_seconds,
                )
                stack.push_async_callback(opened[name].close)
            self._health.database_up = True
            yield Connections(**opened)

    def _connection_names(self) -> list[str]:
        names = [part.name for part in dataclasses.fields(Connections)]
        return names if self._settings.traces else [name for name in names if name != "traces"]

    def _count_event(self, kind: str, echo: bool) -> None:
        self._metrics.add(m.WATCH_EVENTS, kind)
        self._metrics.show(m.WATCH_LAST_EVENT, time.time())
        if echo:
            self._metrics.add(m.WATCH_ECHOES, kind)

    def _alive(self) -> Answer:
        if self._source is None:
            return Answer(True, "starting")
        now, source = time.monotonic(), self._source.health()
        if source.alive:
            self._alive_at = now
        return liveness(
            Vitals(
                now=now,
                source=source,
                alive_at=self._alive_at,
                ticked_at=self._health.ticked_at,
                shown_at=self._assembly.mirror.shown_at if self._assembly else None,
            )
        )

    def _ready(self) -> Answer:
        return readiness(
            started=self._health.started,
            database_up=self._health.database_up,
            stopping=self._health.stopping,
        )
