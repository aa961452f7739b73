"""What happens to a run: rows of its history, and changes of where it stands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from rowlock.client.watcher import Watcher
from rowlock.errors import UnknownRun
from rowlock.states import FIRST_LIFECYCLE_KIND, EventKind
from rowlock.store import reading
from rowlock.store.bodies import unpack
from rowlock.store.connection import Connection
from rowlock.store.reading import HistoryRow, Watched
from rowlock.store.types import RunId


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One thing that happened to a run.

    Parameters
    ----------
    seq
        Its number in the run's history, or that of the row before a change of state:
        `events(after=seq)` goes on behind it.
    kind
        `state` for a change of where the run stands; `step_intent`, `step_done`, `step_failed`,
        `progress`, `sleep`, `decided` (a person's answer), `parked` (it waits without a worker),
        `taken_over`, `handed_over` and `attempt_failed` for a row of history.
    at
        When, by the database's clock.
    epoch
        How many leases the run has had: each worker's rows carry one of their own.
    step
        Key of the step that a row is about.
    tries, duration_ms
        Of a step.
    data
        What a row holds, or what a state says: `phase`, `worker`, `takeovers`, and where the run
        has ended `reason`, `message`, `outcome`. None where it is over 64 KiB.
    """

    seq: int
    kind: str
    at: datetime | None
    attempt: int
    epoch: int
    step: str | None = None
    tries: int = 1
    duration_ms: int | None = None
    data: dict[str, Any] | None = field(default_factory=dict)


async def follow(watcher: Watcher, run_id: RunId, *, after: int) -> AsyncIterator[RunEvent]:
    """Yield what happens to a run behind number `after` of its history, until it has ended."""
    seen: _State | None = None
    while True:
        now = await watcher.news(run_id, after=after, unless=partial(_is, seen))
        for row in now.rows:
            yield _from_row(row)
            after = row.seq
        if now.more:
            continue
        if _state(now) != seen:
            seen = _state(now)
            yield _from_state(now, after)
        if now.final:
            return


async def recorded(conn: Connection, run_id: RunId, *, after: int = 0) -> list[RunEvent]:
    """Return what has happened to a run by now behind number `after`, and last where it stands.

    Raises
    ------
    UnknownRun
        There is no such run.
    """
    events: list[RunEvent] = []
    while True:
        found = await reading.watched(conn, {run_id: after})
        if not found:
            raise UnknownRun(f"run: there is no run {run_id}")
        [now] = found
        events += [_from_row(row) for row in now.rows]
        after = now.rows[-1].seq if now.rows else after
        if not now.more:
            return [*events, _from_state(now, after)]


_State = tuple[str, int, int, str | None]


def _is(seen: _State | None, now: Watched) -> bool:
    return _state(now) == seen


def _state(now: Watched) -> _State:
    return (now.phase.value, now.attempt, now.epoch, now.worker)


def _from_row(row: HistoryRow) -> RunEvent:
    return RunEvent(
        seq=row.seq,
        kind=row.kind.name.lower(),
        at=row.at,
        attempt=row.attempt,
        epoch=row.epoch,
        step=row.key if _is_of_a_step(row.kind) else None,
        tries=row.tries,
        duration_ms=row.duration_ms,
        data=_data(row),
    )


def _is_of_a_step(kind: EventKind) -> bool:
    return kind < FIRST_LIFECYCLE_KIND and kind is not EventKind.PROGRESS


def _data(row: HistoryRow) -> dict[str, Any] | None:
    if row.body is None:
        return {} if row.size is None else None
    held = msgspec.json.decode(unpack(row.body))
    return held if isinstance(held, dict) else {"value": held}


def _from_state(now: Watched, seq: int) -> RunEvent:
    data: dict[str, Any] = {
        "phase": now.phase.value,
        "worker": now.worker,
        "takeovers": now.takeovers,
    }
    if now.due_at is not None:
        data["due_at"] = now.due_at
    if now.final:
        data |= {"reason": now.reason, "message": now.message, "outcome": now.outcome}
    return RunEvent(seq, "state", now.since, now.attempt, now.epoch, data=data)
