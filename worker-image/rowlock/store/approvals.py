"""Questions to people, and their answers: facts, each written once.

An answer is one transaction of two statements: the first locks and writes it,
the second, with a newer snapshot, wakes the run that waits for it.
A run that parks meanwhile locks the same row, so one of the two always sees the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rowlock.states import Decision
from rowlock.store.connection import Connection
from rowlock.store.nudges import nudge
from rowlock.store.types import Answer, Approval, Decided, Deciding, RunId

_BATCH: Final = 500


async def decide(
    conn: Connection,
    run_id: RunId,
    *,
    step_key: str,
    digest: str,
    attempt: int,
    decision: Decision,
    by: str,
    reason: str = "",
) -> Decided:
    """Answer an open question; the first answer stands.

    Parameters
    ----------
    digest
        Of the question that the person has seen: an answer to another one is refused.
    """
    async with conn.transaction():
        won = await conn.fetch(
            "decide", run_id, step_key, digest, attempt, decision, by, reason or None
        )
        woken = await _wake(conn, [run_id]) if won else set()
    if woken:
        await nudge(conn)
    given = Answer(step_key, digest, attempt, decision, by, reason)
    if won:
        return Decided(Deciding.DECIDED, given)
    return refused(given, await conn.fetch("approval", run_id, step_key))


async def expire_approvals(conn: Connection, limit: int = _BATCH) -> list[RunId]:
    """Answer up to `limit` questions whose time is over, and wake their runs; return these."""
    async with conn.transaction():
        late = {RunId(row["run_id"]) for row in await conn.fetch("expire_approvals", limit)}
        if late:
            await _wake(conn, sorted(late))
    return sorted(late)


async def pending_approvals(
    conn: Connection, run_id: RunId | None = None, *, limit: int = 1000
) -> list[Approval]:
    """Return up to `limit` open questions of a run, or of all runs, the oldest first."""
    return [Approval(*row) for row in await conn.fetch("pending_approvals", run_id, limit)]


async def answers(conn: Connection, run_id: RunId) -> list[Answer]:
    """Return all answers to a run's questions, those of earlier attempts first."""
    return [_answer(row) for row in await conn.fetch("answers", run_id)]


async def _wake(conn: Connection, run_ids: Sequence[RunId]) -> set[RunId]:
    """Wake those of the runs that wait for an answer; return these, and have the rest shown again.

    A run that is suspended, or that a worker holds, has an answer more: its question is closed.
    """
    woken = {RunId(row["run_id"]) for row in await conn.fetch("wake_decided", list(run_ids))}
    if asleep := [run_id for run_id in run_ids if run_id not in woken]:
        await conn.execute("show_answered", asleep)
    return woken


def refused(given: Answer, rows: Sequence[Any]) -> Decided:
    """Decide what stood in the way of an answer, from the newest questions about its step."""
    if not rows:
        return Decided(Deciding.UNKNOWN)
    same = [r for r in rows if (r["digest"], r["attempt"]) == (given.digest, given.attempt)]
    if not same:
        return Decided(Deciding.OTHER_DIGEST if rows[0]["live"] else Deciding.OVER)
    row = same[0]
    if row["decision"] is None:
        return Decided(Deciding.EXPIRED if row["late"] else Deciding.OVER)
    standing = Answer(
        given.step_key, given.digest, given.attempt,
        Decision(row["decision"]), row["decided_by"], row["reason"] or "",
    )  # fmt: skip
    if standing.decision is Decision.EXPIRED:
        return Decided(Deciding.EXPIRED, standing)
    return Decided(Deciding.ALREADY_DECIDED if standing == given else Deciding.TAKEN, standing)


def _answer(row: Any) -> Answer:
    return Answer(row[0], row[1], row[2], Decision(row[3]), row[4], row[5] or "")
