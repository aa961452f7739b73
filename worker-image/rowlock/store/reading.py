"""What a client reads: agents and pools by name, runs, and what is new of many runs at once.

All of it is read-only and may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from rowlock.states import EventKind, FinalStatus, ParkReason, Phase, Place
from rowlock.store.connection import Connection
from rowlock.store.types import AgentId, PoolId, RevisionId, RunId

#: Larger bodies are fetched one by one, or not at all.
INLINE_BYTES: Final = 64 * 1024
#: Of one run and one look.
EVENTS_AT_ONCE: Final = 200
_ENDS_AT_ONCE: Final = 500
_NAMES: Final = 50
_LAST_ID: Final = 2**63 - 1
#: Between these a run's number tells its time (41 bits of milliseconds).
_FIRST_TIME: Final = datetime(2025, 1, 1, tzinfo=UTC)
_LAST_TIME: Final = datetime(2094, 1, 1, tzinfo=UTC)


class Registered(NamedTuple):
    """An agent as it was registered last."""

    agent_id: AgentId
    revision_id: RevisionId | None
    entrypoint: str | None
    spec: bytes | None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """How a run stands.

    Parameters
    ----------
    id
        The run's number.
    key
        Its concurrency key.
    phase
        Where it stands, in one word.
    attempt
        Number of the attempt that is under way or that ended it.
    takeovers
        How often a worker was lost under it.
    worker
        Who holds it, or held it last.
    due_at
        When it goes on, for one that waits for a time.
    reason, message
        Why it failed or was cancelled, or what is degraded.
    outcome
        `ok` or `degraded`, for one that succeeded.
    tokens_in, tokens_out, cost_micro
        What it used; cost is in millionths of a US dollar.
    """

    id: RunId
    agent: str
    key: str | None
    priority: int
    phase: Phase
    attempt: int
    takeovers: int
    worker: str | None
    created_at: datetime
    started_at: datetime | None
    due_at: datetime | None
    finished_at: datetime | None
    reason: str | None
    message: str | None
    outcome: str | None
    tokens_in: int
    tokens_out: int
    cost_micro: int


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended.

    Parameters
    ----------
    size
        Of the result in bytes; None without one.
    result
        The stored body; None above 64 KiB.
    """

    run_id: RunId
    attempt: int
    status: FinalStatus
    reason: str | None
    message: str | None
    outcome: str | None
    size: int | None
    result: bytes | None


class HistoryRow(NamedTuple):
    """One row of history; `body` is None where it has none or is over 64 KiB."""

    seq: int
    epoch: int
    attempt: int
    kind: EventKind
    key: str | None
    tries: int
    at: datetime
    duration_ms: int | None
    size: int | None
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Watched:
    """Where a run stands, and what is new in its history.

    Parameters
    ----------
    since
        Of being where it stands.
    more
        Rows were cut off: look again.
    """

    run_id: RunId
    phase: Phase
    attempt: int
    epoch: int
    takeovers: int
    worker: str | None
    since: datetime | None
    due_at: datetime | None
    reason: str | None
    message: str | None
    outcome: str | None
    rows: tuple[HistoryRow, ...]
    more: bool
    final: bool


async def registered(conn: Connection, *, namespace: str, name: str) -> Registered | None:
    """Return an agent and its newest revision; None if there is no such agent."""
    row = await conn.fetchrow("newest_revision", namespace, name)
    return None if row is None else Registered(*row)


async def agent_names(conn: Connection, *, namespace: str) -> list[str]:
    """Return the names of the first fifty agents."""
    return [row["name"] for row in await conn.fetch("agent_names", namespace, _NAMES)]


async def pool_names(conn: Connection, *, namespace: str) -> list[str]:
    """Return the names of the first fifty pools."""
    return [row["name"] for row in await conn.fetch("pool_names", namespace, _NAMES)]


async def find_pool(conn: Connection, *, namespace: str, name: str) -> PoolId | None:
    """Return the id of a pool; None if there is no such pool."""
    row = await conn.fetchrow("pool_id", namespace, name)
    return None if row is None else PoolId(row["pool_id"])


async def existing(conn: Connection, run_ids: Sequence[RunId]) -> set[RunId]:
    """Return those runs that are in history."""
    return {RunId(row["run_id"]) for row in await conn.fetch("existing_runs", list(run_ids))}


async def infos(
    conn: Connection, run_ids: Sequence[RunId], *, namespace: str | None
) -> list[RunInfo]:
    """Return how runs stand, in the order asked; unknown ones are left out.

    Parameters
    ----------
    namespace
        Of their agents; None for any.
    """
    return [_info(row) for row in await conn.fetch("run_infos", list(run_ids), namespace)]


async def newest(
    conn: Connection,
    *,
    namespace: str,
    agent: str | None = None,
    key: str | None = None,
    phase: Phase | None = None,
    before: RunId | None = None,
    since: datetime | None = None,
    limit: int = 100,
) -> list[RunId]:
    """Return the newest runs that fit, the newest first.

    Parameters
    ----------
    before
        Only runs older than this one.
    since
        Only runs accepted from then on.
    """
    wanted = None if phase is None else sorted(_PLACES[phase])
    last = _LAST_ID if before is None else before
    if since is not None:
        since = min(max(since, _FIRST_TIME), _LAST_TIME)
    rows = await conn.fetch("newest_runs", namespace, agent, key, wanted, last, limit, since)
    return [RunId(row["run_id"]) for row in rows]


async def ends(conn: Connection, run_ids: Sequence[RunId]) -> list[RunEnd]:
    """Return how those of the runs ended that are final, up to five hundred of them."""
    rows = await conn.fetch("run_ends", list(run_ids), _ENDS_AT_ONCE, INLINE_BYTES)
    return [RunEnd(RunId(row[0]), row[1], FinalStatus(row[2]), *tuple(row)[3:]) for row in rows]


async def result(conn: Connection, end: RunEnd) -> bytes | None:
    """Return the stored result of a run, however large."""
    if end.result is not None or end.size is None:
        return end.result
    row = await conn.fetchrow("run_result", end.run_id, end.attempt)
    return None if row is None else row["result"]


async def watched(conn: Connection, after: Mapping[RunId, int]) -> list[Watched]:
    """Return what is new of runs after a number of their history; unknown ones are left out."""
    rows = await conn.fetch(
        "watched_runs", list(after), list(after.values()), EVENTS_AT_ONCE, INLINE_BYTES
    )
    return [_watched(row) for row in rows]


#: Which live places, waits of a parked run, or statuses of the final row a phase stands for.
_PLACES: Final[dict[Phase, frozenset[str]]] = {
    Phase.QUEUED: frozenset({Place.READY.value, Place.BACKLOG.value}),
    Phase.RUNNING: frozenset({Place.LEASE.value, ParkReason.SLEEP.value}),
    Phase.AWAITING_APPROVAL: frozenset({ParkReason.APPROVAL.value}),
    Phase.SUSPENDED: frozenset({ParkReason.SUSPENDED.value}),
    Phase.RETRYING: frozenset({Place.TIMER.value, ParkReason.RETRY.value}),
    Phase.SUCCEEDED: frozenset({str(int(FinalStatus.SUCCEEDED))}),
    Phase.FAILED: frozenset({str(int(FinalStatus.FAILED))}),
    Phase.CANCELLED: frozenset({str(int(FinalStatus.CANCELLED))}),
}
#: The phases that runs can be listed by.
LISTED: Final = tuple(_PLACES)
_OF_PLACE: Final = {
    place: phase for phase, places in _PLACES.items() for place in places if not place.isdigit()
}
#: Of several reasons to wait the one that a person should see.
_WEIGHT: Final = (
    ParkReason.SUSPENDED, ParkReason.APPROVAL, ParkReason.RETRY, ParkReason.SLEEP,
)  # fmt: skip
_OF_STATUS: Final = {
    FinalStatus.SUCCEEDED: Phase.SUCCEEDED,
    FinalStatus.FAILED: Phase.FAILED,
    FinalStatus.CANCELLED: Phase.CANCELLED,
}


def _phase(row: Any) -> Phase:
    if row["place"] == Place.FINAL:
        return _OF_STATUS[FinalStatus(row["status"])]
    if row["place"] != Place.PARKED:
        return _OF_PLACE[row["place"]]
    return next(
        (_OF_PLACE[reason] for reason in _WEIGHT if reason in row["reasons"]), Phase.RUNNING
    )


def _info(row: Any) -> RunInfo:
    return RunInfo(
        id=RunId(row["run_id"]),
        phase=_phase(row),
        agent=row["agent"],
        key=row["key"],
        priority=row["priority"],
        attempt=row["attempt"],
        takeovers=row["takeovers"],
        worker=row["worker"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        due_at=row["due_at"],
        finished_at=row["finished_at"],
        reason=row["reason"],
        message=row["message"],
        outcome=row["outcome"],
        tokens_in=row["tokens_in"] or 0,
        tokens_out=row["tokens_out"] or 0,
        cost_micro=row["cost_micro"] or 0,
    )


_COLUMNS: Final = (
    "seqs", "epochs", "attempts", "kinds", "keys", "tries", "ats", "durations", "sizes", "bodies",
)  # fmt: skip


def _watched(row: Any) -> Watched:
    rows: tuple[HistoryRow, ...] = ()
    if row["seqs"] is not None:
        columns = [row[column] for column in _COLUMNS]
        columns[3] = [EventKind(kind) for kind in columns[3]]
        rows = tuple(HistoryRow(*one) for one in zip(*columns, strict=True))
    return Watched(
        run_id=RunId(row["run_id"]),
        phase=_phase(row),
        attempt=row["attempt"],
        epoch=row["epoch"],
        takeovers=row["takeovers"],
        worker=row["worker"],
        since=row["since"],
        due_at=row["due_at"],
        reason=row["reason"],
        message=row["message"],
        outcome=row["outcome"],
        rows=rows,
        more=len(rows) == EVENTS_AT_ONCE,
        final=row["place"] == Place.FINAL,
    )
