"""What becomes of an ended loop process: how it ended, whose fault it was, who gets its runs.

The board still says which run's code was on the loop. That run is put down as the cause;
where the board is silent, the database makes suspects of all that the process held.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from enum import Enum, unique

import structlog

from rowlock import metrics
from rowlock.engine.messages import EXIT_FENCED, EXIT_LEFT
from rowlock.metrics import Tally
from rowlock.states import FenceReason
from rowlock.store import workers
from rowlock.store.connection import Connection
from rowlock.store.types import RunId
from rowlock.supervisor.child import Child
from rowlock.supervisor.upkeep import note_fenced

log = structlog.get_logger(__name__)

_RETRY_SECONDS = 0.1


@unique
class How(Enum):
    """How a loop process ended."""

    LEFT = "left"
    FENCED = "fenced"
    STALLED = "stalled"
    DIED = "died"


def how_ended(code: int, *, stalled: bool, fenced: bool, told: bool, dismissed: bool) -> How:
    """Decide how a process ended from its return code and from what its supervisor did to it.

    A good return code proves nothing by itself: what agents call may end their process as well.
    """
    if fenced or code == EXIT_FENCED:
        return How.FENCED
    if stalled:
        return How.STALLED
    return How.LEFT if dismissed or (told and code == EXIT_LEFT) else How.DIED


_FENCE_REASONS = {
    How.LEFT: FenceReason.LEFT,
    #: It says so, or PostgreSQL does: then this fence finds nothing to do.
    How.FENCED: FenceReason.WORKER_DIED,
    How.STALLED: FenceReason.STALLED,
    How.DIED: FenceReason.WORKER_DIED,
}


@dataclass(frozen=True, slots=True)
class Life:
    """How one process lived.

    Parameters
    ----------
    runs
        How many it held at its end.
    """

    how: How
    seconds: float
    runs: int


class Burial:
    """Buries the processes of one worker.

    Parameters
    ----------
    connection
        For fencing; nothing slow may share it.
    """

    def __init__(self, connection: Connection, *, tally: Tally) -> None:
        self._connection = connection
        self._tally = tally

    async def bury(self, child: Child, code: int) -> Life:
        """Give away what a process that has ended still holds, at once."""
        child.kill_executors()
        how = how_ended(
            code,
            stalled=child.stalled,
            fenced=child.fenced,
            told=child.told,
            dismissed=child.dismissed,
        )
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
        runs = await self._fence(child, how, RunId(run) if run else None)
        await child.close()
        return Life(how, time.monotonic() - child.started_at, runs)

    async def _fence(self, child: Child, how: How, run: RunId | None) -> int:
        reason = _FENCE_REASONS[how]
        seen = {child.worker_id: run} if run else {}
        while True:
            try:
                if how is How.LEFT:
                    await workers.leave(self._connection, child.worker_id)
                    return 0
                fenced = await workers.fence(
                    self._connection, [child.worker_id], reason=reason, on_loop=seen
                )
                note_fenced(fenced, reason=reason, tally=self._tally)
                return sum(map(len, (fenced.requeued, fenced.delayed, fenced.failed)))
            except Exception as error:  # whatever it is: unfenced, its runs wait for the lease
                log.warning("An ended process cannot be fenced yet", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
