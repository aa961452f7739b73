"""Runs that wait without a worker: for a time, for a person, or because somebody suspended them.

To suspend is a wish that stands: whatever moves the run meanwhile, its worker and a sweep meet it.
To continue takes the wish back. It waits for a statement that is just carrying it out,
so a run is never left suspended by a wish that nobody has any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from rowlock.store.connection import Connection
from rowlock.store.nudges import nudge
from rowlock.store.types import NewQuestion, Parked, RunId, Verdict, WorkerId

_BATCH: Final = 1000
_QUESTION: Final = attrgetter("step_key", "digest", "tool", "question", "expires_in_seconds")


async def park(
    conn: Connection, *, worker: WorkerId, runs: Sequence[Parked]
) -> dict[RunId, Verdict]:
    """Let runs wait, and ask their questions with the same commit.

    A run whose question is answered already goes to the queue,
    one that somebody suspended stays until it is continued,
    one that somebody wished to cancel ends.
    A question that stands already stays as it is.
    """
    if not runs:
        return {}
    rows = await conn.fetch("park", worker, *_columns(runs))
    verdicts = {RunId(row["run_id"]): Verdict.DONE for row in rows}
    unclear = [run for run in runs if run.run_id not in verdicts]
    if unclear:
        ids, epochs = [run.run_id for run in unclear], [run.epoch for run in unclear]
        known = {row["run_id"] for row in await conn.fetch("already_parked", worker, ids, epochs)}
        verdicts |= {
            run: Verdict.ALREADY_DONE if run in known else Verdict.LOST for run in ids
        }  # fmt: skip
    return verdicts


async def wake_parked(conn: Connection, limit: int = 500) -> int:
    """Put up to `limit` runs whose wait is over back into the queue; return how many."""
    return int((await conn.fetchone("wake_parked", limit))["woken"])


async def request_suspend(
    conn: Connection, run_ids: Sequence[RunId], *, by: str, reason: str | None = None
) -> list[RunId]:
    """Wish that runs wait until somebody continues them; return those that do by now.

    A run that a worker holds leaves it at its next step boundary.
    Ask again until all are suspended or final.
    """
    suspended: list[RunId] = []
    for start in range(0, len(run_ids), _BATCH):
        batch = list(run_ids[start : start + _BATCH])
        await conn.execute("ask_suspend", batch, by, reason)
        await conn.fetch("suspend_waiting", batch)
        suspended += [RunId(row["run_id"]) for row in await conn.fetch("suspended", batch)]
    return suspended


async def suspend_waiting(conn: Connection) -> list[RunId]:
    """Carry out the wishes to suspend of runs that no worker holds; return these runs."""
    held: list[RunId] = []
    while True:
        waiting = [row["run_id"] for row in await conn.fetch("waiting_suspensions", _BATCH)]
        if not waiting:
            return held
        now = [RunId(row["run_id"]) for row in await conn.fetch("suspend_waiting", waiting)]
        held += now
        dropped = await conn.execute("drop_done_wishes", waiting)
        if not now and dropped == "DELETE 0":
            return held


async def request_continue(
    conn: Connection, run_ids: Sequence[RunId], *, asked_by: str | None = None
) -> list[RunId]:
    """Take the wish to suspend runs back; return those that were suspended or about to be.

    When it returns, none of them stays suspended.

    Parameters
    ----------
    asked_by
        Leave alone what anybody else suspended.
    """
    continued: set[RunId] = set()
    for start in range(0, len(run_ids), _BATCH):
        batch = list(run_ids[start : start + _BATCH])
        async with conn.transaction():
            taken = await conn.fetch("take_suspend_back", batch, asked_by)
            freed = await conn.fetch("continue_suspended", batch)
        if freed:
            await nudge(conn)
        continued |= {RunId(row["run_id"]) for row in (*taken, *freed)}
    return [run for run in run_ids if run in continued]


def _columns(runs: Sequence[Parked]) -> list[list[Any]]:
    asked = [(run.run_id, question) for run in runs for question in run.questions]
    return [
        [run.run_id for run in runs],
        [run.epoch for run in runs],
        [run.seq for run in runs],
        [run.active_ms for run in runs],
        [",".join(run.reasons) for run in runs],
        [run.wake_in_seconds for run in runs],
        [run.body for run in runs],
        *_question_columns(asked),
    ]


def _question_columns(asked: Sequence[tuple[RunId, NewQuestion]]) -> list[list[Any]]:
    rows = [(run, *_QUESTION(question)) for run, question in asked]
    return [[row[column] for row in rows] for column in range(6)]
