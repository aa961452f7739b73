"""One trial: a worker of its own, one run, and what is seen of it until it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import SecretStr

from rowlock.client.client import Client
from rowlock.client.handle import RunHandle
from rowlock.client.happenings import RunEvent
from rowlock.commands.screen import Screen
from rowlock.dev.questions import Asker, Lines
from rowlock.dev.target import Target
from rowlock.engine.parent import hide_memory
from rowlock.engine.rehearsal import is_step
from rowlock.errors import RowlockError
from rowlock.settings import WorkerSettings, load
from rowlock.states import Phase
from rowlock.store import intake
from rowlock.store.connection import Connection
from rowlock.store.reading import RunInfo
from rowlock.supervisor.rehearsal import RehearsalPlan
from rowlock.supervisor.supervisor import Supervisor

#: Trials in a database that others use, too, have their agents and pools here.
NAMESPACE: Final = "dev"
_SLOTS: Final = 16
_DRAIN_SECONDS: Final = 5.0
_CANCEL_SECONDS: Final = 3.0


class Interrupted(Exception):
    """Somebody pressed Ctrl-C."""


@dataclass(slots=True)
class Outcome:
    """How a trial ended.

    Parameters
    ----------
    result
        What the agent returned, as JSON data.
    events
        All that was seen.
    """

    info: RunInfo
    result: Any = None
    events: list[RunEvent] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Did it succeed?"""
        return self.info.phase is Phase.SUCCEEDED


class Session:
    """Tries one target out.

    Parameters
    ----------
    url
        A migrated database.
    kept
        The database outlives the trial: nothing half done may stay in it.
    crash_at
        A step behind whose effect the loop process dies.
    """

    def __init__(
        self, url: str, target: Target, screen: Screen, *, kept: bool, crash_at: str = ""
    ) -> None:
        self._url = url
        self._target = target
        self._screen = screen
        self._kept = kept
        self._crash_at = crash_at
        self._pool = _pool_name() if kept else "default"
        self._interrupted = asyncio.Event()
        self._lines = Lines(0)

    async def run(self) -> Outcome:
        """Run it to its end.

        Raises
        ------
        Interrupted
            It was stopped; no process is left, and nothing that another worker would go on with.
        RowlockError
            The database refuses us, or is away.
        """
        self._listen()
        hide_memory()
        async with Client(self._url, namespace=NAMESPACE) as client:
            await self._make_pool()
            run: RunHandle[Any] = await client.start(
                self._target.entrypoint, self._target.value, pool=self._pool
            )
            async with self._worker() as working:
                return await self._follow(client, run, working)

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupted.set)

    async def _make_pool(self) -> None:
        connection = await Connection.open(self._url, name="dev")
        try:
            await intake.ensure_pool(connection, namespace=NAMESPACE, name=self._pool)
        finally:
            await connection.close()

    @contextlib.asynccontextmanager
    async def _worker(self) -> AsyncIterator[asyncio.Task[int]]:
        plan = RehearsalPlan(self._screen.say, crash_at=self._crash_at)
        supervisor = Supervisor(self._settings(), rehearsal=plan)
        working = asyncio.create_task(supervisor.run())
        try:
            yield working
        finally:
            supervisor.leave()
            if self._interrupted.is_set():
                supervisor.leave()
            await asyncio.wait({working})

    def _settings(self) -> WorkerSettings:
        return load(
            WorkerSettings,
            database_url=SecretStr(self._url),
            pool=self._pool,
            namespace=NAMESPACE,
            processes=1,
            slots=_SLOTS,
            instance=_pool_name(),
            drain_seconds=_DRAIN_SECONDS,
            metrics_port=0,
            log_format="console",
            log_level="WARNING",
        )

    async def _follow(
        self, client: Client, run: RunHandle[Any], working: asyncio.Task[int]
    ) -> Outcome:
        events: list[RunEvent] = []
        asker = Asker(client, self._screen, self._lines)
        following = asyncio.create_task(self._show(run, events, asker))
        stopping = asyncio.create_task(self._interrupted.wait())
        waits: set[asyncio.Task[Any]] = {following, stopping, working}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not following.done():
            following.cancel()
            await self._give_up(client, run)
            if working.done():
                working.result()
            raise Interrupted
        following.result()
        return await self._outcome(run, events)

    async def _show(self, run: RunHandle[Any], events: list[RunEvent], asker: Asker) -> None:
        async for event in run.events():
            events.append(event)
            self._screen.show(event)
            if event.kind == "state" and (event.data or {})["phase"] == Phase.AWAITING_APPROVAL:
                await asker.ask(run.id)

    async def _outcome(self, run: RunHandle[Any], events: list[RunEvent]) -> Outcome:
        outcome = Outcome(await run.info(), events=events)
        if outcome.good:
            outcome.result = await run._client.run(run.id).wait()
        if self._crash_at and not outcome.info.takeovers:
            self._screen.warn(_no_crash(self._crash_at, events))
        return outcome

    async def _give_up(self, client: Client, run: RunHandle[Any]) -> None:
        if not self._kept:
            return
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await client.cancel(run, reason="interrupted in the terminal")
        except (TimeoutError, RowlockError) as error:
            self._screen.warn(f"run {run.id} may not be cancelled yet: {error}")


def _pool_name() -> str:
    return f"dev-{socket.gethostname()[:30]}-{os.getpid()}-{secrets.token_hex(3)}".lower()


def _no_crash(step: str, events: list[RunEvent]) -> str:
    steps = [event.step for event in events if event.step]
    if any(is_step(key, step) for key in steps):
        return f"--crash-at {step}: the process did not die there"
    names = ", ".join(dict.fromkeys(steps)) or "none"
    return f"--crash-at {step}: there was no such step; those done were {names}"
