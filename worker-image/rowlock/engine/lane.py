"""One run's rows on their way to PostgreSQL, in the order in which they were given.

A lane has at most one batch in flight: two batches on two connections could commit in either order.
Rows get their number here, when they are given and not when they are written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from rowlock.errors import RowRejected
from rowlock.states import EventKind
from rowlock.store.types import Event, Final, Misfit, Parked, RunId, Verdict


@dataclass(frozen=True, slots=True)
class Release:
    """The run goes back to the queue after all its rows are written.

    Parameters
    ----------
    misfit
        Only another build can go on with it.
    """

    run_id: RunId
    epoch: int
    active_ms: int
    misfit: Misfit | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """The run waits without a worker after all its rows are written.

    Parameters
    ----------
    due
        Monotonic seconds at which its first wait is over; None to wait for people alone.
    """

    parked: Parked
    due: float | None

    @property
    def run_id(self) -> RunId:
        """The run."""
        return self.parked.run_id


Row = Event | Final | Release | Leave
Waiter = asyncio.Future[None] | None


class LaneOwner(Protocol):
    """Who hears what became of a lane's rows; called on the loop, must not block."""

    def settled(self, row: Final | Release | Leave, verdict: Verdict) -> None:
        """The run's end was written (or somebody else wrote another): nothing follows."""
        ...

    def lost(self) -> None:
        """This worker does not hold the run any more."""
        ...

    def rejected(self, row: Event, error: RowRejected) -> None:
        """`row` can never be stored; a tombstone stands at its number."""
        ...


class Lane:
    """The queue of one run.

    Parameters
    ----------
    next_seq
        Number of the first row to come; history holds all below.
    """

    __slots__ = (
        "attempt",
        "busy",
        "closed",
        "epoch",
        "next_seq",
        "owner",
        "rows",
        "run_id",
        "since",
    )

    def __init__(
        self, run_id: RunId, *, epoch: int, attempt: int, next_seq: int, owner: LaneOwner
    ) -> None:
        self.run_id = run_id
        self.epoch = epoch
        self.attempt = attempt
        self.next_seq = next_seq
        self.owner = owner
        self.rows: deque[tuple[Row, Waiter, int]] = deque()
        #: Waiting for its turn or in flight.
        self.busy = False
        #: Nothing may be given any more: the end was given, or the run was lost.
        self.closed = False
        #: Monotonic seconds at which the oldest waiting row was given.
        self.since = 0.0

    def event(
        self,
        kind: EventKind,
        key: str | None,
        body: bytes | None,
        *,
        tries: int = 1,
        dur_ms: int | None = None,
    ) -> Event:
        """Return the run's next row of history; it must be given to the writer at once."""
        seq = self.next_seq
        self.next_seq = seq + 1
        return Event(self.run_id, seq, self.epoch, self.attempt, kind, key, tries, dur_ms, body)
