"""A run's history as spans; pure.

| span | from | to |
|---|---|---|
| `run AGENT` | the run was accepted | its end |
| `queue` | the run was accepted | its first worker |
| `lease N` | a worker claimed the run | it ended there, was lost or handed over |
| `step KEY` | a step's first or only try of this call began | it was recorded |

Arguments, results and prompts are in none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import msgspec

from rowlock import traces
from rowlock.agents.record import Record
from rowlock.states import EventKind, FenceReason, Phase
from rowlock.store import bodies
from rowlock.store.reading import HistoryRow, RunInfo
from rowlock.store.types import RunId, RunSnapshot
from rowlock_operator.mirror.leases import Lease, changes_of, leases_of

Value = str | int | bool
_MOST_CHARACTERS = 200
_LOST = frozenset(reason.value for reason in FenceReason)
_TOLD = {
    EventKind.TAKEN_OVER: "taken over",
    EventKind.HANDED_OVER: "handed over",
    EventKind.ATTEMPT_FAILED: "attempt failed",
    EventKind.PARKED: "parked",
    EventKind.DECIDED: "decided",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened at one time."""

    name: str
    at: datetime
    attributes: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """One span, in our own words.

    Parameters
    ----------
    id, parent
        64 bits; no parent for the run's own span.
    error
        Why it went wrong; empty if it did not.
    """

    trace_id: int
    id: int
    parent: int | None
    name: str
    start: datetime
    end: datetime
    attributes: dict[str, Value]
    error: str = ""
    moments: tuple[Moment, ...] = ()


def story(snapshot: RunSnapshot, info: RunInfo, rows: Sequence[HistoryRow]) -> list[Span]:
    """Return all spans of a run that has ended, the run's own first."""
    end = info.finished_at or snapshot.finished_at
    if end is None:
        return []
    leases = leases_of(snapshot, changes_of(snapshot))
    spans = [_run(snapshot, info, rows, end)]
    if info.started_at:
        spans.append(_queue(info, info.started_at))
    spans += [_lease(info.id, lease) for lease in leases if lease.start and lease.end]
    known = {lease.epoch: lease for lease in leases if lease.start and lease.end}
    spans += [*_steps(info.id, rows, known), *_interrupted(info.id, rows, known, end)]
    return spans


def _run(snapshot: RunSnapshot, info: RunInfo, rows: Iterable[HistoryRow], end: datetime) -> Span:
    attributes: dict[str, Value] = {
        "rowlock.run.id": str(info.id),
        "rowlock.agent": info.agent,
        "rowlock.phase": info.phase.value,
        "rowlock.attempt": info.attempt,
        "rowlock.takeovers": info.takeovers,
        "rowlock.agentrun.name": snapshot.name,
        "rowlock.agentrun.uid": snapshot.uid,
        "k8s.namespace.name": snapshot.namespace,
        "gen_ai.usage.input_tokens": info.tokens_in,
        "gen_ai.usage.output_tokens": info.tokens_out,
        "rowlock.cost.micro_usd": info.cost_micro,
    }
    failed = info.phase is Phase.FAILED
    if info.reason:
        attributes["rowlock.reason"] = info.reason
    return Span(
        trace_id=traces.trace_id(info.id),
        id=traces.run_span(info.id),
        parent=None,
        name=f"run {info.agent}",
        start=info.created_at,
        end=end,
        attributes=attributes,
        error=_short(f"{info.reason}: {info.message or ''}") if failed else "",
        moments=tuple(_moments(rows)),
    )


def _moments(rows: Iterable[HistoryRow]) -> Iterator[Moment]:
    for row in rows:
        if row.kind in _TOLD:
            told: dict[str, Value] = {"rowlock.epoch": row.epoch, "rowlock.attempt": row.attempt}
            yield Moment(_TOLD[row.kind], row.at, told)


def _queue(info: RunInfo, started: datetime) -> Span:
    return Span(
        trace_id=traces.trace_id(info.id),
        id=traces.queue_span(info.id),
        parent=traces.run_span(info.id),
        name="queue",
        start=info.created_at,
        end=started,
        attributes={"rowlock.priority": info.priority},
    )


def _lease(run_id: RunId, lease: Lease) -> Span:
    assert lease.start is not None  # noqa: S101  the caller has looked
    assert lease.end is not None  # noqa: S101
    return Span(
        trace_id=traces.trace_id(run_id),
        id=traces.lease_span(run_id, lease.epoch),
        parent=traces.run_span(run_id),
        name=f"lease {lease.epoch}",
        start=lease.start,
        end=lease.end,
        attributes={
            "rowlock.epoch": lease.epoch,
            "rowlock.attempt": lease.attempt,
            "rowlock.worker": lease.worker,
            "rowlock.outcome": lease.outcome,
        },
        error=lease.outcome if lease.outcome in _LOST else "",
    )


def _steps(run_id: RunId, rows: Iterable[HistoryRow], leases: dict[int, Lease]) -> Iterator[Span]:
    for row in rows:
        if row.kind not in (EventKind.STEP_DONE, EventKind.STEP_FAILED) or row.key is None:
            continue
        record = _record(row)
        if record.again:  # it is tried once more under the same id
            continue
        begun = row.at - timedelta(milliseconds=row.duration_ms or 0)
        failed = row.kind is EventKind.STEP_FAILED
        yield _step(run_id, row, record, leases, begun, row.at, record.error if failed else "")


def _interrupted(
    run_id: RunId, rows: Sequence[HistoryRow], leases: dict[int, Lease], end: datetime
) -> Iterator[Span]:
    """Yield steps that were announced in a lease and not ended in it."""
    over = (EventKind.STEP_DONE, EventKind.STEP_FAILED)
    ended = {(row.key, row.epoch) for row in rows if row.kind in over}
    for row in rows:
        if row.kind is EventKind.STEP_INTENT and (row.key, row.epoch) not in ended:
            lease = leases.get(row.epoch)
            until = max(row.at, lease.end if lease and lease.end else end)
            step = _step(run_id, row, _record(row), leases, row.at, until, "interrupted")
            # The call itself goes on in another lease, and its span has the call's id.
            yield replace(step, id=traces.interrupted_span(step.id, row.epoch))


def _step(
    run_id: RunId,
    row: HistoryRow,
    record: Record,
    leases: dict[int, Lease],
    begun: datetime,
    until: datetime,
    error: str,
) -> Span:
    key = row.key or ""
    held = row.epoch in leases
    return Span(
        trace_id=traces.trace_id(run_id),
        id=traces.step_span(run_id, key, record.number, row.attempt),
        parent=traces.lease_span(run_id, row.epoch) if held else traces.run_span(run_id),
        name=f"step {key.partition('#')[0]}",
        start=begun,
        end=until,
        attributes={
            "rowlock.step": key,
            "rowlock.call": record.number,
            "rowlock.tries": row.tries,
            "rowlock.attempt": row.attempt,
            "rowlock.epoch": row.epoch,
            "gen_ai.usage.input_tokens": record.usage[0],
            "gen_ai.usage.output_tokens": record.usage[1],
        },
        error=_short(error),
    )


def _record(row: HistoryRow) -> Record:
    """Return what a step recorded; where it cannot be read, or is too large, next to nothing."""
    try:
        return msgspec.json.decode(bodies.unpack(row.body or b'{"args":""}'), type=Record)
    except (msgspec.MsgspecError, ValueError):
        return Record(args="")


def _short(text: str) -> str:
    return text[:_MOST_CHARACTERS]
