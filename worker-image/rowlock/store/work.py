"""What a worker does with its runs: claim, read, write, finish, give back.

Each write proves in its own statement that the worker is not fenced and still holds the run.
Each may be repeated after an unknown commit: the answer then says what the first try had done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import asyncpg
import msgspec

from rowlock.states import EventKind
from rowlock.store.connection import Connection
from rowlock.store.types import (
    Carry,
    Claimed,
    Event,
    Flushed,
    Misfit,
    PoolId,
    RevisionId,
    RunBody,
    RunId,
    Verdict,
    WorkerId,
)
from rowlock.store.types import Final as End

_NO_EVENTS: Final[tuple[tuple[()], ...]] = ((),) * 9
_END: Final = attrgetter(
    "run_id", "epoch", "status", "reason", "message", "outcome", "step", "active_ms",
    "tokens_in", "tokens_out", "cost_micro", "result", "retry_in_seconds",
)  # fmt: skip
_NO_MISFITS: Final[Mapping[RunId, Misfit]] = {}
_NO_ENDS: Final[tuple[tuple[()], ...]] = ((),) * 13
_carries: Final = msgspec.json.Decoder(tuple[Carry, ...])


async def claim(
    conn: Connection, *, worker: WorkerId, pool: PoolId, token: int, limit: int
) -> list[Claimed] | None:
    """Lease up to `limit` runs of `pool`, the most urgent first; None if this worker is fenced.

    Parameters
    ----------
    token
        Higher with every claim of this worker (`time.monotonic_ns()`).
        After an error give the same token to `adopt`, before the next claim.
    """
    rows = await conn.fetch("claim", worker, pool, token, limit)
    return _claimed(rows) if rows else None


async def claim_alone(
    conn: Connection, *, worker: WorkerId, pool: PoolId, token: int
) -> list[Claimed] | None:
    """Lease one quarantined run to a process of quarantine that holds none; else as `claim`."""
    rows = await conn.fetch("claim_alone", worker, pool, token)
    return _claimed(rows) if rows else None


async def adopt(
    conn: Connection, *, worker: WorkerId, token: int, known: Collection[RunId]
) -> list[Claimed] | None:
    """Return the leases that a claim without an answer may have left; None if fenced.

    Should that claim arrive later still, it takes nothing:
    its token is not above the worker's floor any more.
    """
    if await conn.fetchrow("raise_claim_floor", worker, token) is None:
        return None
    return _claimed(await conn.fetch("unknown_leases", worker, list(known)))


async def bodies(conn: Connection, run_ids: Collection[RunId]) -> dict[RunId, RunBody]:
    """Read input and options of runs."""
    rows = await conn.fetch("bodies", list(run_ids))
    return {row[0]: RunBody(*row) for row in rows}


async def history(conn: Connection, run_id: RunId) -> list[Event]:
    """Read all events of a run, by their number."""
    rows = await conn.fetch("history", run_id)
    return [Event(r[0], r[1], r[2], r[3], EventKind(r[4]), *r[5:]) for r in rows]


async def revision(conn: Connection, revision_id: RevisionId) -> tuple[str, bytes, str, str] | None:
    """Return entry point, spec, agent's name and digest of a revision; None if there is none."""
    row = await conn.fetchrow("revision", revision_id)
    return None if row is None else (row[0], row[1], row[2], row[3])


async def append(conn: Connection, *, worker: WorkerId, events: Sequence[Event]) -> Flushed:
    """Write events of any number of runs; those of lost runs are left out and named.

    An event whose number is taken was written by an earlier try and is left as it is.
    """
    row = await conn.fetchone("append", worker, *_columns(events))
    return Flushed(fenced=row["fenced"], lost=frozenset(row["lost"]))


async def finish(
    conn: Connection, *, worker: WorkerId, events: Sequence[Event], finals: Sequence[End]
) -> Flushed:
    """Write events and ends of attempts together: for each run all of it, or nothing.

    A final with `retry_in_seconds` ends the attempt and sets the timer for the next one;
    where somebody wished to cancel, the run ends as cancelled instead.
    """
    ends = zip(*map(_END, finals), strict=True) if finals else _NO_ENDS
    row = await conn.fetchone("finish", worker, *_columns(events), *ends)
    verdicts = dict.fromkeys(row["done"], Verdict.DONE)
    unclear = [final for final in finals if final.run_id not in verdicts]
    if unclear and not row["fenced"]:
        verdicts |= await _earlier(conn, worker, unclear)
    lost = {run for run in row["lost"] if verdicts.get(run) is not Verdict.ALREADY_DONE}
    lost |= {run for run, verdict in verdicts.items() if verdict is Verdict.LOST}
    return Flushed(fenced=row["fenced"], lost=frozenset(lost), finals=verdicts)


async def release(
    conn: Connection,
    *,
    worker: WorkerId,
    runs: Sequence[tuple[RunId, int, int]],
    misfits: Mapping[RunId, Misfit] = _NO_MISFITS,
) -> dict[RunId, Verdict]:
    """Give runs back to the queue, each a (run, epoch, milliseconds active in all).

    It is a hand-over, no takeover. A run that somebody wished to cancel ends instead.

    Parameters
    ----------
    misfits
        Of those whose history only another build can go on with.
    """
    if not runs:
        return {}
    ids, epochs, active = (list(column) for column in zip(*runs, strict=True))
    wanted = [misfits.get(run) for run in ids]
    builds = [one.build if one else None for one in wanted]
    said = [one.message if one else None for one in wanted]
    rows = await conn.fetch("release", worker, ids, epochs, active, builds, said)
    done = {row[0] for row in rows}
    verdicts = dict.fromkeys(done, Verdict.DONE)
    unclear = [(run, epoch) for run, epoch, _ in runs if run not in done]
    if unclear:
        rows = await conn.fetch("already_released", *map(list, zip(*unclear, strict=True)))
        verdicts |= _verdicts((run for run, _ in unclear), rows)
    return verdicts


async def _earlier(
    conn: Connection, worker: WorkerId, finals: Sequence[End]
) -> dict[RunId, Verdict]:
    """Tell ends that an earlier try wrote from lost runs, in a snapshot newer than that try."""
    runs, epochs = [f.run_id for f in finals], [f.epoch for f in finals]
    return _verdicts(runs, await conn.fetch("already_finished", worker, runs, epochs))


def _verdicts(runs: Iterable[RunId], done: Sequence[asyncpg.Record]) -> dict[RunId, Verdict]:
    found = {row[0] for row in done}
    return {run: Verdict.ALREADY_DONE if run in found else Verdict.LOST for run in runs}


def _columns(events: Sequence[Event]) -> Iterable[Sequence[Any]]:
    # `age` is the last field and no column.
    return tuple(zip(*events, strict=True))[:-1] if events else _NO_EVENTS


def _claimed(rows: Sequence[asyncpg.Record]) -> list[Claimed]:
    return [_one(row) for row in rows if row[0] is not None]


def _one(row: asyncpg.Record) -> Claimed:
    return Claimed(*(*row[:11], carries(row[11]), *row[12:]))


def carries(stored: str | None) -> tuple[Carry, ...]:
    """Return the entries of a row's `carry`."""
    return _carries.decode(stored) if stored else ()
