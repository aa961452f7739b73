"""The supervisor of a worker: one process that runs none of its customers' code.

It registers its loop processes, beats for them, watches that they tick, buries what dies,
passes on what people ask of runs, and does its share of the rounds for all.
What it does must work when everything else hangs, so each duty has its own task,
and those that must not wait for others have their own connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from rowlock import metrics
from rowlock.clock import Clock, SystemClock
from rowlock.engine.messages import FromLoop, Live, Look
from rowlock.engine.rounds import Guard, keep, pause
from rowlock.errors import StoreError, StoreUnavailable
from rowlock.metrics import Exporter, Tally
from rowlock.settings import WorkerSettings
from rowlock.store import intake, workers
from rowlock.store.connection import Connection
from rowlock.store.nudges import CHANNEL
from rowlock.supervisor.beats import Beater
from rowlock.supervisor.child import Child
from rowlock.supervisor.crew import Crew, Plan
from rowlock.supervisor.exposition import Pulse, serve
from rowlock.supervisor.plans import make_plans, quarantine_plans
from rowlock.supervisor.promotions import Promoter
from rowlock.supervisor.quarantine import PERIOD as QUARANTINE_PERIOD
from rowlock.supervisor.quarantine import Quarantine
from rowlock.supervisor.rehearsal import RehearsalPlan
from rowlock.supervisor.stalls import PERIOD, StallWatch
from rowlock.supervisor.upkeep import Upkeep, note_fenced
from rowlock.supervisor.wishes import POLL_SECONDS, WishPoller

log = structlog.get_logger(__name__)

T = TypeVar("T")

_CONNECT_RETRY_SECONDS = 0.5


class Supervisor:
    """Runs a worker to its end.

    Parameters
    ----------
    rehearsal
        For somebody who tries an agent out, and calls `leave` instead of sending signals.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        clock: Clock | None = None,
        *,
        rehearsal: RehearsalPlan | None = None,
    ) -> None:
        self._settings = settings
        self._rehearsal = rehearsal
        self._clock = clock or SystemClock()
        self._tally = Tally()
        self._exporter = Exporter()
        self._pulse = Pulse()
        self._drain = asyncio.Event()
        self._now = asyncio.Event()
        self._over = asyncio.Event()
        self._connections: list[Connection] = []
        self._watch: StallWatch[Child] = StallWatch(settings.stall_ceiling_seconds)
        self._crew: Crew
        self._quarantine: Quarantine

    async def run(self) -> int:
        """Work until SIGTERM or SIGINT; return the exit code.

        Raises
        ------
        ConfigurationError
            The database refuses us, or has no schema.
        StoreUnavailable
            The database was away for the whole of `connect_timeout_seconds`.
        """
        if self._rehearsal is None:
            self._listen_to_signals()
        if self._settings.metrics_port:
            serve(self._settings.metrics_port, self._exporter, self._pulse)
        try:
            beats = await self._open("beats", command_timeout=self._settings.renew_seconds)
            control = await self._open("control")
            upkeep = await self._open("upkeep")
            promoting = await self._open("promotions")
            await self._patiently(lambda: self._start_crew(control))
        except StoreUnavailable:
            if self._drain.is_set():
                return 0  # nothing was begun
            raise
        with contextlib.suppress(StoreError):  # polls find what no word was heard of
            await promoting.listen(CHANNEL, self._look)
        duties = self._duties(beats, control, upkeep, promoting)
        await self._drain.wait()
        log.info("Leaving", drain_seconds=self._settings.drain_seconds)
        clean = await self._crew.leave(self._settings.drain_seconds, self._now)
        self._over.set()
        await asyncio.wait(duties, timeout=1.0)
        await asyncio.gather(*(connection.close() for connection in self._connections))
        log.info("Left", clean=clean)
        return 0 if clean else 1

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.leave)

    def leave(self) -> None:
        """Drain and end; the second call ends the drain."""
        if self._drain.is_set():
            self._now.set()
        self._drain.set()

    async def _open(self, purpose: str, *, command_timeout: float = 30.0) -> Connection:
        url = self._settings.database_url.get_secret_value()
        name = f"{self._settings.name} {purpose}"
        connection = await self._patiently(
            lambda: Connection.open(url, name=name, command_timeout=command_timeout)
        )
        self._connections.append(connection)
        return connection

    async def _patiently(self, once: Callable[[], Awaitable[T]]) -> T:
        """Do `once`, at the start, waiting for a PostgreSQL that is merely away."""
        patience = self._clock.monotonic() + self._settings.connect_timeout_seconds
        said = False
        while True:
            try:
                return await once()
            except StoreUnavailable as error:
                if self._clock.monotonic() > patience or self._drain.is_set():
                    raise
                if not said:
                    log.warning("Waiting for PostgreSQL", error=str(error))
                    said = True
                await pause(self._drain, _CONNECT_RETRY_SECONDS)

    async def _start_crew(self, connection: Connection) -> None:
        settings = self._settings
        pool = self._pool = await intake.ensure_pool(
            connection, namespace=settings.namespace, name=settings.pool
        )
        fenced = await workers.fence_instance(connection, instance=settings.instance_name)
        note_fenced(fenced, reason="WorkerDied", tally=self._tally)
        plans = self._tried(make_plans(settings, pool))
        self._crew = Crew(
            plans,
            connection,
            tally=self._tally,
            on_report=self._on_report,
            on_end=self._on_end,
        )
        self._crew.start()
        log.info(
            "Worker started",
            pool=settings.pool,
            namespace=settings.namespace,
            processes=len(plans),
            slots=settings.slots,
        )

    def _tried(self, plans: list[Plan]) -> list[Plan]:
        return plans if self._rehearsal is None else self._rehearsal.applied_to(plans)

    def _duties(
        self, beats: Connection, control: Connection, upkeep: Connection, promoting: Connection
    ) -> list[asyncio.Task[None]]:
        settings, tally, over = self._settings, self._tally, self._over
        self._beater = Beater(beats, clock=self._clock, tally=tally)
        self._wishes = WishPoller(control)
        self._promoter = Promoter(promoting, tally=tally)
        self._quarantine = Quarantine(
            self._tried(quarantine_plans(settings, self._pool)),
            self._crew,
            upkeep,
            pool=self._pool,
            most=settings.quarantine_processes,
            drain_seconds=settings.drain_seconds,
            tally=tally,
        )
        rounds = self._rounds = Upkeep(
            upkeep, lease_seconds=settings.lease_seconds, clock=self._clock, tally=tally
        )
        quick = min(1.0, settings.renew_seconds)
        return [
            asyncio.create_task(keep(Guard(name, tally), once, wait, over))
            for name, once, wait in (
                ("beat", self._beat, lambda ok: settings.renew_seconds if ok else quick),
                ("wishes", self._poll_wishes, lambda _: POLL_SECONDS),
                ("promotions", self._promote, lambda _: self._promoter.pause()),
                ("upkeep", rounds.run_once, lambda _: rounds.pause()),
                ("quarantine", self._look_for_suspects, lambda _: QUARANTINE_PERIOD),
                ("stalls", self._look_for_stalls, lambda _: PERIOD),
                ("metrics", self._show_metrics, lambda _: 1.0),
            )
        ]

    async def _beat(self) -> None:
        report = await self._beater.run_once(self._crew.living)
        for child in report.refused:
            self._crew.fence(child)

    async def _poll_wishes(self) -> None:
        await self._wishes.run_once(self._crew.living)

    async def _promote(self) -> None:
        # Who leaves claims nothing: what it promoted would wait for another worker's next poll.
        if not self._drain.is_set():
            await self._promoter.run_once(self._crew.living)

    def _look(self) -> None:
        """Have the loops look for runs now: a person waits for one."""
        for child in self._crew.living:
            child.send(Look())

    async def _look_for_suspects(self) -> None:
        if not self._drain.is_set():
            await self._quarantine.run_once()

    async def _look_for_stalls(self) -> None:
        self._pulse.beat()
        for child in self._watch.stalled(self._crew.living, time.monotonic()):
            self._crew.stall(child, self._settings.stall_ceiling_seconds)

    async def _show_metrics(self) -> None:
        self._exporter.add(self._tally.take())
        if self._rounds.partition_days is not None:
            self._exporter.show(metrics.PARTITION_DAYS, self._rounds.partition_days)
        self._exporter.show(metrics.QUARANTINE_PROCESSES, len(self._quarantine.processes))
        for child in self._crew.living:
            self._exporter.show(metrics.BEAT_AGE, child.board.beat_age(), child.boot.label)

    def _on_report(self, child: Child, report: FromLoop) -> None:
        if isinstance(report, Live):
            if self._rehearsal is not None:
                self._rehearsal.on_live(report)
            return
        self._exporter.add(report.counters)
        for name, value in report.gauges:
            self._exporter.show(metrics.TABLE[name], value, child.boot.label)

    def _on_end(self, child: Child) -> None:
        """Nobody may follow in its place: it holds nothing any more, and has no room."""
        for gauge in (metrics.RUNNING, metrics.SLOTS):
            self._exporter.show(gauge, 0, child.boot.label)
