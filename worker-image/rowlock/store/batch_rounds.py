"""Moves batches on: counts what has ended, and starts what may start.

Any number of processes may do so at once: a round holds the batch's row and passes over one that
another round holds. What it decides from the counts is a pure function.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any, Final

from rowlock.states import BatchStop, FinalStatus, Materialize
from rowlock.store import batches, caps, intake, parking
from rowlock.store.batches import BatchId
from rowlock.store.connection import Connection
from rowlock.store.nudges import nudge
from rowlock.store.types import AgentId, NewRun, PoolId, RevisionId, RunId

#: Open items of a batch that says nothing of parallelism: enough to keep workers busy between two
#: rounds, and few enough that a round stays short.
WINDOW: Final = 1000
#: Items started by one transaction; the bodies of more would weigh.
_CHUNK: Final = 500
#: So many rounds a batch may have in a row before others get theirs.
_IN_A_ROW: Final = 8
#: Seconds between two rounds of one batch, over all who do them.
PERIOD: Final = 0.1


@dataclass(frozen=True, slots=True)
class Standing:
    """How a batch stands.

    Parameters
    ----------
    open
        Items with a run that has not ended.
    named
        Items without a run have an AgentRun, or a name for one.
    reader
        How the run ended that reads the items; None while it goes on or there is none.
    """

    parallelism: int | None
    max_failed_percent: int
    materialize: Materialize
    suspended: bool
    sealed: bool
    departed: bool
    stopped: BatchStop | None
    total: int
    fed: int
    failed: int
    open: int
    named: bool = False
    reader: tuple[FinalStatus, str] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What a round does.

    Parameters
    ----------
    room
        Items to start.
    stop
        (reason, message) why nothing more is started from now on.
    finished
        All has ended.
    """

    room: int = 0
    stop: tuple[BatchStop, str] | None = None
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did with one batch."""

    fed: int = 0
    ended: int = 0
    finished: bool = False


def decide(at: Standing) -> Decision:
    """Decide what to do with a batch that has not ended."""
    stop = None if at.stopped else _stop(at)
    if stop:
        return replace(decide(replace(at, stopped=stop[0])), stop=stop)
    if at.stopped:
        # Those that have an AgentRun are started only to be cancelled: each object gets its end.
        rest = at.named and not at.departed
        room = _room(at, at.total - at.fed) if rest else 0
        return Decision(room, finished=at.open == 0 and not rest)
    if not at.sealed:
        return Decision()
    waiting = at.total - at.fed
    if at.suspended:
        return Decision(finished=at.open == 0 and waiting == 0)
    return Decision(_room(at, waiting), finished=at.open == 0 and waiting == 0)


def _room(at: Standing, waiting: int) -> int:
    limit = WINDOW if at.parallelism is None else at.parallelism
    return max(0, min(waiting, limit - at.open))


def _stop(at: Standing) -> tuple[BatchStop, str] | None:
    if not at.sealed and at.reader is not None:
        return BatchStop.ITEMS_UNREADABLE, f"the items could not be read: {at.reader[1]}"
    if at.sealed and at.failed * 100 > at.max_failed_percent * at.total:
        return (
            BatchStop.TOO_MANY_FAILED,
            f"{at.failed} of {at.total} items failed, maxFailedPercent is {at.max_failed_percent}",
        )
    return None


async def advance(conn: Connection, *, cluster: str | None = None, within: float = math.inf) -> int:
    """Move all batches on that nobody else has just moved on; return how many items were started.

    Parameters
    ----------
    cluster
        Only the batches of this one.
    within
        Seconds after which no further batch is begun: the rest is first in the next round.
    """
    fed, began = 0, time.monotonic()
    for row in await conn.fetch("active_batches", cluster, PERIOD):
        if time.monotonic() - began >= within:
            break
        fed += await advance_one(conn, BatchId(row["batch_id"]))
    if fed:
        await nudge(conn)
    return fed


async def advance_one(conn: Connection, batch: BatchId, *, period: float = PERIOD) -> int:
    """Move one batch on as far as it goes now; return how many items were started."""
    fed = 0
    for _ in range(_IN_A_ROW):
        done = await round_of(conn, batch, period=period)
        fed += done.fed
        if done.fed < _CHUNK:
            break
        period = 0
    return fed


async def round_of(conn: Connection, batch: BatchId, *, period: float = PERIOD) -> Round:
    """Do one round of one batch; nothing if somebody else is at it or has just been."""
    async with conn.transaction():
        row = await conn.fetchrow("take_batch", batch, period)
        if row is None:
            return Round()
        settled = await conn.fetchone("settle_items", batch)
        decision = decide(_standing(row, settled))
        if decision.stop:
            why, message = decision.stop
            await conn.execute("stop_batch", batch, why.value, message)
        fed, held = await _feed(conn, row, decision.room)
        finished = decision.finished and not fed
        await conn.execute("move_batch", batch, fed, *tuple(settled)[1:], finished)
    if held:
        await caps.promote(conn, AgentId(row["agent_id"]), wait=False)
    stopped = decision.stop[0] if decision.stop else row["stopped"]
    await _wish(conn, row, None if stopped is None else BatchStop(stopped))
    return Round(fed, sum(tuple(settled)[1:4]), finished)


def _standing(row: Any, settled: Any) -> Standing:
    ended = row["reader_run"] is not None and not row["reading"] and row["reader_status"]
    return Standing(
        parallelism=row["parallelism"],
        max_failed_percent=row["max_failed_percent"],
        materialize=Materialize(row["materialize"]),
        suspended=row["suspended"],
        sealed=row["sealed"],
        departed=row["departed"],
        stopped=None if row["stopped"] is None else BatchStop(row["stopped"]),
        total=row["total"],
        fed=row["fed"],
        failed=row["failed"] + settled["failed"],
        open=settled["open"],
        named=row["named"],
        reader=(FinalStatus(ended), row["reader_reason"] or "it ended early") if ended else None,
    )


async def _feed(conn: Connection, row: Any, room: int) -> tuple[int, bool]:
    """Start up to `room` items in the transaction that holds the batch; tell if a cap holds any."""
    if not room:
        return 0, False
    shown = row["materialize"] == Materialize.ALL
    after = row["fed_place"]
    items = await conn.fetch("next_items", row["batch_id"], min(room, _CHUNK), shown, after)
    if not items:
        return 0, False
    answers = await conn.fetch("enqueue", *intake.columns([_new(row, item) for item in items]))
    started = {answer["place"] - 1: RunId(answer["run_id"]) for answer in answers}
    places = sorted(started)
    await conn.execute(
        "feed_items",
        row["batch_id"],
        [items[place]["item"] for place in places],
        [started[place] for place in places],
        # Objects are made in any order, so an item before these may have none yet.
        after if shown else items[-1]["place"],
    )
    return len(started), any(answer["held"] for answer in answers)


def _new(row: Any, item: Any) -> NewRun:
    uid = item["object_uid"] if row["materialize"] == Materialize.ALL else None
    return NewRun(
        AgentId(row["agent_id"]),
        RevisionId(row["revision_id"]),
        PoolId(row["pool_id"]),
        input=item["input"],
        options=row["options"],
        key=row["key"],
        priority=row["priority"],
        max_takeovers=row["max_takeovers"],
        queue_deadline_seconds=row["queue_deadline_seconds"],
        pinned=row["pinned"],
        cluster=row["cluster"] if uid else None,
        uid=uid,
        namespace=row["namespace"] if uid else "",
        name=item["object_name"] if uid else "",
        generation=1 if uid else 0,
    )


async def _wish(conn: Connection, row: Any, stopped: BatchStop | None) -> None:
    """Have open items end, wait or go on as the batch does; nothing where they do already."""
    batch = BatchId(row["batch_id"])
    by = f"AgentRunBatch {row['name']}"
    if stopped:
        # Too many failures: what runs may still succeed, and has cost already.
        spare = stopped is BatchStop.TOO_MANY_FAILED
        found = batches.runs(await conn.fetch("unasked_items", batch, spare))
        if row["reader_run"] is not None and row["reading"]:
            found.append(RunId(row["reader_run"]))
        await intake.request_cancel(conn, found, by=by, reason=stopped.value)
    elif row["suspended"]:
        found = batches.runs(await conn.fetch("unheld_items", batch))
        await parking.request_suspend(conn, found, by=by)
    elif row["held"]:
        found = batches.runs(await conn.fetch("open_items", batch))
        await parking.request_continue(conn, found, asked_by=by)
        await conn.execute("unhold_batch", batch)
