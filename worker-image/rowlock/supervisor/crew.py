"""The loop processes of one worker: started, buried when they end, and replaced.

A process is never reused under its old id: every start is a new worker row,
so that what an earlier one may still be writing can be told from what this one writes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, unique

import msgspec
import structlog

from rowlock import metrics
from rowlock.engine.messages import EXIT_FENCED, EXIT_LEFT, Boot, Drain, Fence, FromLoop, Stop
from rowlock.engine.rounds import pause
from rowlock.errors import StoreError
from rowlock.metrics import Tally
from rowlock.states import FenceReason
from rowlock.store import workers
from rowlock.store.connection import Connection
from rowlock.store.types import NewWorker
from rowlock.supervisor.child import Child
from rowlock.supervisor.upkeep import note_fenced

log = structlog.get_logger(__name__)

_RETRY_SECONDS = 0.1
#: A process that lived for so long was healthy: its end starts the backoff anew.
_HEALTHY_SECONDS = 10.0
_LONGEST_BACKOFF = 5.0
#: How long a fenced process may take to leave by itself.
_FENCE_GRACE = 2.0
#: After the drain time: for handing over what is left, then for burying what was killed.
_STOP_SECONDS = 5.0
_LAST_SECONDS = 5.0


@unique
class How(Enum):
    """How a loop process ended."""

    LEFT = "left"
    FENCED = "fenced"
    STALLED = "stalled"
    DIED = "died"


def how_ended(code: int, *, stalled: bool, fenced: bool, dismissed: bool) -> How:
    """Decide how a process ended from its return code and from what its supervisor did to it."""
    if fenced or code == EXIT_FENCED:
        return How.FENCED
    if stalled:
        return How.STALLED
    return How.LEFT if dismissed or code == EXIT_LEFT else How.DIED


_FENCE_REASONS = {
    How.LEFT: FenceReason.LEFT,
    How.STALLED: FenceReason.STALLED,
    How.DIED: FenceReason.WORKER_DIED,
}


def respawn_seconds(quick_ends: int) -> float:
    """Return the wait before a replacement, after so many ends in a row soon after the start."""
    return 0.0 if quick_ends <= 0 else min(_LONGEST_BACKOFF, 0.25 * 2.0 ** min(quick_ends, 10))


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start: one entry for each loop process.

    Parameters
    ----------
    worker
        What the database is told of it.
    boot
        What it is told; its worker id is filled in at each start.
    """

    worker: NewWorker
    boot: Boot


class Crew:
    """Keeps one process alive for each plan until it drains.

    Parameters
    ----------
    connection
        For registering and fencing; nothing slow may share it.
    """

    def __init__(
        self,
        plans: list[Plan],
        connection: Connection,
        *,
        tally: Tally,
        on_report: Callable[[Child, FromLoop], None],
    ) -> None:
        self._plans = plans
        self._connection = connection
        self._tally = tally
        self._on_report = on_report
        self._living: dict[int, Child] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._leaving = asyncio.Event()

    @property
    def living(self) -> list[Child]:
        """The processes that have not ended, fenced ones left out."""
        return [child for child in self._living.values() if not child.fenced]

    def start(self) -> None:
        """Start all processes, each kept by a task of its own."""
        self._keepers = [
            asyncio.create_task(self._keep(index, plan)) for index, plan in enumerate(self._plans)
        ]

    async def _keep(self, index: int, plan: Plan) -> None:
        quick_ends = 0
        while not self._leaving.is_set():
            child = await self._start(plan)
            if child is None:
                await pause(self._leaving, 1.0)
                continue
            self._living[index] = child
            if self._leaving.is_set():
                child.send(Drain())
            code = await child.exited
            del self._living[index]
            await self._bury(child, code)
            lived = time.monotonic() - child.started_at
            quick_ends = 0 if lived > _HEALTHY_SECONDS else quick_ends + 1
            await pause(self._leaving, respawn_seconds(quick_ends - 1))

    async def _start(self, plan: Plan) -> Child | None:
        sent_ns = time.monotonic_ns()
        try:
            [worker_id] = await workers.register(self._connection, [plan.worker])
            if self._leaving.is_set():
                await workers.leave(self._connection, worker_id)
                return None
            boot = msgspec.structs.replace(plan.boot, worker_id=worker_id)
            return await Child.start(boot, self._on_report, registered_ns=sent_ns)
        except StoreError as error:
            log.warning("A loop process cannot be registered yet", error=str(error))
        except Exception as error:  # nothing may end the keeping of a process
            log.error("A loop process cannot be started", exc_info=error)
        return None

    async def _bury(self, child: Child, code: int) -> None:
        """Give away what a process that has ended still holds, at once."""
        child.kill_executors()
        how = how_ended(code, stalled=child.stalled, fenced=child.fenced, dismissed=child.dismissed)
        run = child.run_on_loop
        self._tally.add(metrics.PROCESS_ENDS, how.value)
        say = log.info if how is How.LEFT else log.warning
        say(
            "A loop process ended",
            how=how.value,
            code=code,
            pid=child.process.pid,
            worker=child.worker_id,
            run_on_loop=str(run) if run else None,
        )
        await self._fence(child, how)
        await child.close()

    async def _fence(self, child: Child, how: How) -> None:
        if how is How.FENCED:
            return
        reason = _FENCE_REASONS[how]
        while True:
            try:
                if how is How.LEFT:
                    await workers.leave(self._connection, child.worker_id)
                    return
                fenced = await workers.fence(self._connection, [child.worker_id], reason=reason)
                note_fenced(fenced, reason=reason, tally=self._tally)
                return
            except Exception as error:  # whatever it is: unfenced, its runs wait for the lease
                log.warning("An ended process cannot be fenced yet", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    def fence(self, child: Child) -> None:
        """PostgreSQL refused its beat: it should leave by itself, and is killed if it does not."""
        if child.fenced or child.exited.done():
            return
        child.fenced = True
        log.warning("A loop process is fenced", pid=child.process.pid, worker=child.worker_id)
        child.send(Fence())
        asyncio.get_running_loop().call_later(_FENCE_GRACE, child.kill)

    def stall(self, child: Child, seconds: float) -> None:
        """Its loop does not tick: end it."""
        run = child.run_on_loop
        log.error(
            "A loop process does not tick within its stallCeilingSeconds and is killed",
            pid=child.process.pid,
            worker=child.worker_id,
            ceiling_seconds=seconds,
            run_on_loop=str(run) if run else None,
        )
        child.stalled = True
        child.kill()

    async def leave(self, drain_seconds: float, now: asyncio.Event) -> bool:
        """Let every process reach its end; return whether all runs found another owner.

        Parameters
        ----------
        drain_seconds
            After so long the rest is handed over where it stands, then killed.
        now
            Set it to skip the waiting.
        """
        self._leaving.set()
        self._tell(Drain())
        if await self._gone(drain_seconds, unless=now):
            return True
        if not now.is_set():
            log.warning("The drain time is over", processes=len(self._living))
            self._tell(Stop())
            await self._gone(_STOP_SECONDS, unless=now)
        for child in self._living.values():
            child.dismissed = True
            child.kill()
        return await self._gone(_LAST_SECONDS)

    def _tell(self, message: Drain | Stop) -> None:
        for child in self._living.values():
            child.send(message)

    async def _gone(self, seconds: float, *, unless: asyncio.Event | None = None) -> bool:
        gone = asyncio.gather(*self._keepers)
        waits: set[asyncio.Future[object]] = {asyncio.ensure_future(asyncio.shield(gone))}
        if unless is not None:
            waits.add(asyncio.ensure_future(unless.wait()))
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return gone.done()
