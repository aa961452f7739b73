"""One batch: which statements it takes, and what stands for a row that cannot be stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rowlock.engine.lane import Lane, Leave, Release, Row, Waiter
from rowlock.errors import RowRejected
from rowlock.states import EventKind, FailureReason, FinalStatus
from rowlock.store.types import Event, Final, Flushed, RunId, Verdict

Item = tuple[Lane, Row, Waiter, int]


class Sink(Protocol):
    """The four statements, on one connection of their own."""

    async def append(self, events: Sequence[Event]) -> Flushed:
        """Store history."""
        ...

    async def finish(self, events: Sequence[Event], finals: Sequence[Final]) -> Flushed:
        """Store history and ends."""
        ...

    async def release(self, releases: Sequence[Release]) -> dict[RunId, Verdict]:
        """Give runs back."""
        ...

    async def park(self, leaves: Sequence[Leave]) -> dict[RunId, Verdict]:
        """Let runs wait."""
        ...


async def send(sink: Sink, items: list[Item]) -> Flushed:
    """Store `items` by as few statements as they need; the answer covers all."""
    events: list[Event] = []
    finals: list[Final] = []
    releases: list[Release] = []
    leaves: list[Leave] = []
    for _, row, _, _ in items:
        kind = type(row)
        if kind is Event:
            events.append(row)  # type: ignore[arg-type]  # narrowed by identity, which is quicker
        elif kind is Final:
            finals.append(row)  # type: ignore[arg-type]
        elif kind is Release:
            releases.append(row)  # type: ignore[arg-type]
        else:
            leaves.append(row)  # type: ignore[arg-type]
    if finals:
        answer = await sink.finish(events, finals)
    elif events:
        answer = await sink.append(events)
    else:
        answer = Flushed(fenced=False)
    if answer.fenced or not (releases or leaves):
        return answer
    verdicts = await sink.release(releases) if releases else {}
    if leaves:
        verdicts |= await sink.park(leaves)
    return _with_releases(answer, verdicts)


def _with_releases(answer: Flushed, verdicts: dict[RunId, Verdict]) -> Flushed:
    # Released or parked runs (or ended ones, if somebody had asked for a cancel) are not lost,
    # even if a repeated append finds their lease gone.
    kept = {run for run, verdict in verdicts.items() if verdict is not Verdict.LOST}
    return Flushed(fenced=False, lost=answer.lost - kept, finals={**answer.finals, **verdicts})


def tombstone(row: Event) -> Event:
    """Return an empty row that keeps the number of one that cannot be stored."""
    return row._replace(kind=EventKind.PROGRESS, key=None, body=None, attempt_try=1, dur_ms=None)


def plain_end(row: Final, error: RowRejected) -> Final:
    """Return the failure that stands for an end which cannot be stored; it keeps only numbers."""
    too_large = error.sqlstate.startswith("54")
    return Final(
        run_id=row.run_id,
        epoch=row.epoch,
        status=FinalStatus.FAILED,
        reason=FailureReason.TOO_LARGE if too_large else FailureReason.AGENT_ERROR,
        message=f"PostgreSQL can never store the end of this run (SQLSTATE {error.sqlstate})",
        step=row.step,
        active_ms=row.active_ms,
    )
