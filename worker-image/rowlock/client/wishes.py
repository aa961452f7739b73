"""What may be asked of a run beside its end: hold it, let it go on, try again; and what it asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from rowlock.errors import HistoryExpired, UnknownRun, WishRefused
from rowlock.states import Decision
from rowlock.store import approvals, intake, parking, redrive
from rowlock.store.bodies import unpack
from rowlock.store.connection import Connection
from rowlock.store.types import Approval, Decided, Deciding, Redriving, RunId

#: How long a call asks again before it leaves the rest to the workers.
PATIENCE_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A tool call that waits for a person.

    Parameters
    ----------
    run_id
        The run's number.
    step
        Key of the step that it is about.
    tool, arguments
        What would be done.
    note
        What the tool says about it.
    digest
        Of tool and arguments: an answer holds for no others.
    expires_at
        When it counts as denied; None for never.
    """

    run_id: RunId
    step: str
    tool: str
    arguments: Any
    note: str
    digest: str
    attempt: int
    asked_at: datetime
    expires_at: datetime | None


async def until_true(ask: Callable[[], Awaitable[bool]]) -> bool:
    """Ask again until it is so, or patience ends."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not await ask():
        if time.monotonic() > until:
            return False
        await asyncio.sleep(AGAIN_SECONDS)
    return True


async def suspend(conn: Connection, run_id: RunId, *, by: str, reason: str | None) -> bool:
    """Wish that a run waits until somebody continues it; return whether it does by now.

    Raises
    ------
    UnknownRun, WishRefused
        There is no such run, or it has ended.
    """
    await _must_be_live(conn, run_id)

    async def ask() -> bool:
        return bool(await parking.request_suspend(conn, [run_id], by=by, reason=reason))

    return await until_true(ask)


async def cancel(conn: Connection, run_id: RunId, *, by: str, reason: str | None) -> bool:
    """Wish for the end of a run; return whether it has ended by now.

    Raises
    ------
    UnknownRun
        There is no such run.
    """
    if not (await redrive.standing(conn, run_id)).there:
        raise _unknown(run_id)

    async def ask() -> bool:
        return run_id in await intake.request_cancel(conn, [run_id], by=by, reason=reason)

    return await until_true(ask)


async def continue_(conn: Connection, run_id: RunId) -> bool:
    """Take the wish back; return whether there was one.

    Raises
    ------
    UnknownRun, WishRefused
        There is no such run, or it has ended.
    """
    await _must_be_live(conn, run_id)
    return bool(await parking.request_continue(conn, [run_id]))


async def retry(conn: Connection, run_id: RunId, *, by: str) -> int:
    """Queue a further attempt of a run that has ended; return its number.

    Raises
    ------
    UnknownRun, HistoryExpired, WishRefused
        There is no such run, its history may be gone, or it has not ended.
    """
    outcome = await redrive.redrive(conn, run_id, by=by)
    if outcome in (Redriving.QUEUED, Redriving.ALREADY_ASKED):
        return (await redrive.standing(conn, run_id)).newest
    if outcome is Redriving.HISTORY_EXPIRED:
        raise HistoryExpired(f"the history of run {run_id} is past its retention: start a new run")
    if outcome is Redriving.NOT_FINISHED:
        raise WishRefused(f"run {run_id} has not ended: cancel it first, or wait")
    raise _unknown(run_id)


async def pending(conn: Connection, run_id: RunId | None) -> list[PendingApproval]:
    """Return the open questions of a run, or of all runs, the oldest first."""
    return [_shown(one) for one in await approvals.pending_approvals(conn, run_id)]


async def decide(
    conn: Connection, asked: PendingApproval, decision: Decision, *, by: str, reason: str
) -> None:
    """Answer a question.

    Raises
    ------
    WishRefused
        Another answer stands, or it is not open any more.
    """
    decided = await approvals.decide(
        conn,
        asked.run_id,
        step_key=asked.step,
        digest=asked.digest,
        attempt=asked.attempt,
        decision=decision,
        by=by,
        reason=reason,
    )
    refusal = _refusal(decided, asked)
    if refusal:
        raise WishRefused(refusal)


async def the_one(
    conn: Connection, run_id: RunId, *, step: str | None, digest: str | None
) -> PendingApproval:
    """Return the question of a run that is meant.

    Raises
    ------
    WishRefused
        There is none, more than one, or another than the person has seen.
    """
    meant = [one for one in await pending(conn, run_id) if step in (None, one.step)]
    if not meant:
        about = f" about step {step}" if step else ""
        raise WishRefused(f"run {run_id} has no open question{about}")
    if len(meant) > 1:
        steps = ", ".join(one.step for one in meant)
        raise WishRefused(f"run {run_id} has {len(meant)} open questions: name a step of {steps}")
    if digest not in (None, meant[0].digest):
        raise WishRefused(f"the question about {meant[0].step} has digest {meant[0].digest}")
    return meant[0]


async def _must_be_live(conn: Connection, run_id: RunId) -> None:
    now = await redrive.standing(conn, run_id)
    if not now.there:
        raise _unknown(run_id)
    if now.live is None:
        raise WishRefused(f"run {run_id} has ended")


def _unknown(run_id: RunId) -> UnknownRun:
    return UnknownRun(f"run: there is no run {run_id}")


def _refusal(decided: Decided, asked: PendingApproval) -> str:
    answer = decided.answer
    if decided.outcome in (Deciding.DECIDED, Deciding.ALREADY_DECIDED):
        return ""
    if decided.outcome is Deciding.TAKEN and answer:
        return f"{asked.step} was {answer.decision.name.lower()} by {answer.by} before"
    if decided.outcome is Deciding.EXPIRED:
        return f"the question about {asked.step} has expired"
    return f"the question about {asked.step} is not open any more"


def _shown(one: Approval) -> PendingApproval:
    shown = msgspec.json.decode(unpack(one.question))
    return PendingApproval(
        run_id=one.run_id,
        step=one.step_key,
        tool=one.tool,
        arguments=shown.get("arguments"),
        note=shown.get("note", ""),
        digest=one.digest,
        attempt=one.attempt,
        asked_at=one.asked_at,
        expires_at=one.expires_at,
    )
