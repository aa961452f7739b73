"""All runs that this process holds.

Two hundred timers would cost more than one look at all runs twice a second, so deadlines and
graces are checked by a sweep; half a second is nothing against their length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from rowlock import metrics
from rowlock.engine import endings
from rowlock.engine.board import RUNNING, SLOTS
from rowlock.engine.endings import HandOver
from rowlock.engine.hosted import HostedRun
from rowlock.engine.lane import Leave, Release
from rowlock.engine.prepared import Prepared, Surroundings
from rowlock.states import FinalStatus, Outcome, ParkReason
from rowlock.store.types import AgentId, Claimed, Final, RunId, Verdict

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 0.5
#: How long an agent's clean-up may take after its task was cancelled.
GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one sweep did."""

    overdue: int
    abandoned: int


class Runner:
    """Starts, stops and counts runs.

    Parameters
    ----------
    slots
        How many runs it may hold.
    on_free
        Called with its agent when a run is gone and its slot free.
    """

    def __init__(
        self,
        around: Surroundings,
        *,
        slots: int,
        on_free: Callable[[AgentId], None] = lambda _: None,
    ) -> None:
        self._around = around
        self._runs: dict[RunId, HostedRun] = {}
        self._reserved: set[RunId] = set()
        self.slots = slots
        self.on_free = on_free
        self._swept_at = around.clock.monotonic()
        around.board.cells[SLOTS] = slots

    @property
    def free(self) -> int:
        """Slots that nothing holds."""
        return self.slots - len(self._runs) - len(self._reserved)

    @property
    def empty(self) -> bool:
        """Is there no run here, nor one on its way?"""
        return not self._runs and not self._reserved

    def known(self) -> set[RunId]:
        """Return all runs that this process believes to hold."""
        return self._reserved | self._runs.keys()

    def claimed(self) -> list[Claimed]:
        """Return the runs that were started here, as they were claimed."""
        return [run.claimed for run in self._runs.values()]

    def reserve(self, run_ids: Iterable[RunId]) -> None:
        """Keep slots for runs that are claimed and not read yet."""
        self._reserved.update(run_ids)

    def unreserve(self, run_ids: Iterable[RunId]) -> None:
        """Give the slots of runs that were not started back."""
        self._reserved.difference_update(run_ids)

    def start(self, prepared: Prepared) -> None:
        """Host a run that was reserved."""
        run_id = prepared.claimed.run_id
        self._reserved.discard(run_id)
        run = HostedRun(prepared, self._around, self._settled)
        self._runs[run_id] = run
        self._show()
        run.start()

    def cancel(self, run_id: RunId, reason: str | None) -> None:
        """Somebody asked to cancel a run; unknown ones are asked for again by the next poll."""
        run = self._runs.get(run_id)
        if run:
            run.stop(endings.cancelled(reason))

    def suspend(self, run_id: RunId) -> None:
        """Somebody asked to suspend a run; unknown ones are asked for again by the next poll."""
        run = self._runs.get(run_id)
        if run:
            run.suspend()

    def drain(self) -> None:
        """Hand each run over at its next step boundary."""
        self._around.trust.drain()
        for run in list(self._runs.values()):
            run.drain()

    def stop(self) -> None:
        """Hand each run over now."""
        for run in list(self._runs.values()):
            run.stop(HandOver())

    def lose_all(self) -> None:
        """This worker is fenced: stop each run quietly."""
        for run in list(self._runs.values()):
            run.lost()

    def abandon_all(self) -> None:
        """Let go of each run whose task has not ended by now."""
        for run in list(self._runs.values()):
            run.abandon()

    def sweep(self) -> SweepReport:
        """Look for runs that were active for too long, and for tasks that do not end."""
        now = self._around.clock.monotonic()
        still = 0.0 if self._around.trust.sure() else now - self._swept_at
        self._swept_at = now
        overdue = abandoned = 0
        for run in list(self._runs.values()):
            if still:
                run.stand_still(still)  # PostgreSQL is away: that is nobody's running time
            if run.stopped_at is None:
                if now > run.deadline_at:
                    overdue += 1
                    run.stop(endings.overdue(run.options))
            elif now - run.stopped_at > GRACE_SECONDS and not run.ended:
                abandoned += 1
                self._abandon(run)
        return SweepReport(overdue, abandoned)

    def _abandon(self, run: HostedRun) -> None:
        self._around.tally.add(metrics.ABANDONED_RUNS)
        log.error(
            "An agent's code ignores its cancellation; the run goes on without it",
            run=str(run.claimed.run_id),
        )
        run.abandon()

    def _settled(
        self, run: HostedRun, row: Final | Release | Leave | None, verdict: Verdict
    ) -> None:
        # The same run may be here again, under a later epoch, before the first answer arrived.
        if self._runs.get(run.claimed.run_id) is run:
            del self._runs[run.claimed.run_id]
        self._show()
        if run.steps_done:
            self._around.tally.add(metrics.STEPS, by=run.steps_done)
        self._count(row, verdict)
        self.on_free(run.claimed.agent_id)

    def _count(self, row: Final | Release | Leave | None, verdict: Verdict) -> None:
        tally = self._around.tally
        if verdict is Verdict.LOST or row is None:
            tally.add(metrics.LOST_RUNS)
        elif isinstance(row, Release):
            tally.add(metrics.RUNS_RELEASED)
        elif isinstance(row, Leave):
            for reason in row.parked.reasons or (ParkReason.SUSPENDED,):
                tally.add(metrics.RUNS_PARKED, reason)
        else:
            tally.add(metrics.RUNS_FINISHED, _status(row), _reason(row))

    def _show(self) -> None:
        self._around.board.cells[RUNNING] = len(self._runs)


def _reason(row: Final) -> str:
    return "Degraded" if row.outcome == Outcome.DEGRADED else str(row.reason or "")


def _status(row: Final) -> str:
    if row.retry_in_seconds is not None:
        return "Retrying"
    return FinalStatus(row.status).name.capitalize()
