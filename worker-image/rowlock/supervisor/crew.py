"""The loop processes of one worker: started, buried when they end, and replaced.

A process is never reused under its old id: every start is a new worker row,
so that what an earlier one may still be writing can be told from what this one writes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from rowlock.engine.messages import Boot, Drain, Fence, FromLoop, Stop
from rowlock.engine.rounds import pause
from rowlock.errors import StoreError
from rowlock.metrics import Tally
from rowlock.store import workers
from rowlock.store.connection import Connection
from rowlock.store.types import NewWorker
from rowlock.supervisor.burial import Burial, How, Life
from rowlock.supervisor.child import Child

log = structlog.get_logger(__name__)

#: A process that lived for so long was healthy: its end starts the backoff anew.
_HEALTHY_SECONDS = 10.0
_LONGEST_BACKOFF = 5.0
#: How long a fenced process may take to leave by itself.
_FENCE_GRACE = 2.0
#: After the drain time: for handing over what is left, then for burying what was killed.
_STOP_SECONDS = 5.0
_LAST_SECONDS = 5.0


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
        on_end: Callable[[Child], None] = lambda _: None,
    ) -> None:
        self._plans = plans
        self._connection = connection
        self._burial = Burial(connection, tally=tally)
        self._on_report = on_report
        self._on_end = on_end
        self._hired: set[asyncio.Task[Life | None]] = set()
        self._living: dict[object, Child] = {}
        self._lent: dict[int, Plan] = {}
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
            life = await self._live(index, self._lent.get(index, plan))
            if life is None:
                await pause(self._leaving, 1.0)
                continue
            healthy = life.seconds > _HEALTHY_SECONDS or life.how is How.LEFT
            quick_ends = 0 if healthy else quick_ends + 1
            await pause(self._leaving, respawn_seconds(quick_ends - 1))

    async def _live(self, place: object, plan: Plan) -> Life | None:
        """See one process from its start to its end; None if it could not be started."""
        child = await self._start(plan)
        if child is None:
            return None
        self._living[place] = child
        if self._leaving.is_set():
            child.send(Drain())
        code = await child.exited
        del self._living[place]
        life = await self._burial.bury(child, code)
        self._on_end(child)
        return life

    def hire(self, plan: Plan) -> asyncio.Task[Life | None]:
        """Start one process beside the others; it is not replaced when it ends."""
        life = asyncio.create_task(self._live(plan.worker.name, plan))
        self._hired.add(life)
        life.add_done_callback(self._hired.discard)
        return life

    def lend(self, index: int, plan: Plan, *, within: float) -> None:
        """Let a process of `plan` stand in the place `index`, after what is there has drained.

        Parameters
        ----------
        within
            After so many seconds its runs are handed over where they stand.
        """
        self._lent[index] = plan
        child = self._living.get(index)
        if child is not None:
            child.send(Drain())
            asyncio.get_running_loop().call_later(within, child.send, Stop())

    def take_back(self, index: int) -> None:
        """Let an ordinary process stand in the place `index` again."""
        self._lent.pop(index, None)
        child = self._living.get(index)
        if child is not None:
            child.send(Drain())

    @property
    def last_place(self) -> int:
        """The place of the last plan."""
        return len(self._plans) - 1

    @property
    def lent(self) -> dict[int, Child | None]:
        """The places that are lent, and who stands there, if anybody does at this moment."""
        return {index: self._living.get(index) for index in self._lent}

    def drain(self, child: Child) -> None:
        """Let one process leave when its runs have reached a step boundary."""
        child.send(Drain())

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
        gone = asyncio.gather(*self._keepers, *self._hired)
        waits: set[asyncio.Future[object]] = {asyncio.ensure_future(asyncio.shield(gone))}
        if unless is not None:
            waits.add(asyncio.ensure_future(unless.wait()))
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return gone.done()
