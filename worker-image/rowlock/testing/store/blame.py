"""Whose fault it is that a process died, and who must go on alone.

`migrations/0006_pre_blame.sql` and docs/explanation/blame.md say why;
these are the same rules on plain values.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from rowlock.states import Blame, FenceReason
from rowlock.testing.store.tables import Live, Worker

#: Ways in which one process ends, and mostly one of its runs is why.
_DEATHS = (FenceReason.WORKER_DIED, FenceReason.STALLED)
#: With this many suspicions a run goes on alone.
_TOO_SUSPECT = 2
_PROBATION, _MOST_DOUBLINGS = timedelta(seconds=30), 10


def blame(reason: str, *, alone: bool, on_loop: bool, known: bool) -> Blame | None:
    """Judge one run of a process that ended; None where no worker was lost.

    Parameters
    ----------
    alone
        It was the only run there.
    on_loop
        Its code was on the event loop.
    known
        The code of any of the runs there was.
    """
    if reason == FenceReason.LEFT:
        return None
    if on_loop or alone or reason not in _DEATHS:
        return Blame.BLAMED
    return Blame.DISPLACED if known else Blame.SUSPECTED


def suspicion(reason: str, verdict: Blame | None) -> int:
    """Return how many more processes the run may have killed."""
    return int(reason in _DEATHS and verdict in (Blame.BLAMED, Blame.SUSPECTED))


def probation(suspected: int) -> timedelta:
    """Return how long a suspect must live alone until it may be among others again."""
    return _PROBATION * (1 << min(max(suspected - _TOO_SUSPECT, 0), _MOST_DOUBLINGS))


def put_down(run: Live, reason: str, verdict: Blame | None) -> None:
    """Count a loss in the row of a run."""
    more = suspicion(reason, verdict)
    run.takeovers += reason != FenceReason.LEFT
    run.blamed += verdict is Blame.BLAMED
    run.suspected += more
    run.quarantined |= more > 0 and run.suspected >= _TOO_SUSPECT


def acquit(run: Live, holder: Worker, now: datetime) -> None:
    """Let a leased run be among others again if it has lived alone for its time."""
    if holder.new.quarantine and now >= (run.claimed_at or now) + probation(run.suspected):
        run.quarantined = False
