"""Batches as their object asks for them: accepted, filled with items, steered, stopped, shown.

`batch_rounds` moves them on, `batch_objects` gives items an AgentRun.
Everything here may be repeated after an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any, Final, NewType

from rowlock.states import BatchStop, Materialize
from rowlock.store import intake
from rowlock.store.connection import Connection
from rowlock.store.types import NewRun, PoolId, RevisionId, RunId

BatchId = NewType("BatchId", int)

#: Items written by one statement.
_CHUNK: Final = 5000
#: More items than this never all become AgentRuns, nor do more failed ones.
MOST_OBJECTS: Final = 1000


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch to accept.

    Parameters
    ----------
    run
        What each item is run with; its input is left out.
    parallelism
        Open items at once; None for no limit.
    """

    cluster: str
    uid: str
    namespace: str
    name: str
    run: NewRun
    parallelism: int | None = None
    max_failed_percent: int = 100
    materialize: Materialize = Materialize.NONE


@dataclass(frozen=True, slots=True)
class NewItem:
    """One item.

    Parameters
    ----------
    place
        Its line, from 1 on.
    input
        Packed JSON.
    """

    place: int
    item: str
    input: bytes


@dataclass(frozen=True, slots=True)
class Reader:
    """The run that reads a batch's items.

    Parameters
    ----------
    entrypoint
        `module:attribute` of its agent.
    pool
        Whose workers run it.
    """

    namespace: str
    name: str
    entrypoint: str
    digest: str
    pool: PoolId
    options: bytes


@dataclass(frozen=True, slots=True)
class Added:
    """What became of some items.

    Parameters
    ----------
    open
        False: the batch takes no more items.
    doubled
        (place, place of the first) of an item whose id another line has.
    """

    open: bool
    doubled: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """All that a status shows of a batch.

    Parameters
    ----------
    failures
        (item, reason) of the first that failed.
    """

    batch_id: BatchId
    uid: str
    total: int
    fed: int
    succeeded: int
    failed: int
    cancelled: int
    takeovers: int
    sealed: bool
    suspended: bool
    stopped: BatchStop | None
    stop_message: str
    materialize: Materialize
    started_at: datetime | None
    finished_at: datetime | None
    max_failed_percent: int
    running: int
    failures: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class KnownBatch:
    """A batch of the database, as the sweep compares it."""

    batch_id: BatchId
    uid: str
    namespace: str
    name: str
    finished: bool
    departed: bool
    materialize: Materialize


async def accept(conn: Connection, batch: NewBatch, items: Sequence[NewItem]) -> BatchId:
    """Write a batch with all of its items, once; return its number, also if it was there.

    Raises
    ------
    RowRejected
        It can never be stored.
    """
    async with conn.transaction():
        number, new = await _accept(conn, batch)
        if new:
            for start in range(0, len(items), _CHUNK):
                await conn.fetch("add_items", number, *_columns(items[start : start + _CHUNK]))
            await conn.fetch("seal_batch", number)
    return number


async def accept_unread(conn: Connection, batch: NewBatch, reader: Reader, task: Any) -> BatchId:
    """Write a batch whose items a run reads, and enqueue that run.

    Parameters
    ----------
    task
        Called with the batch's number; returns the reader's input, packed.
    """
    agent, revision = await intake.ensure_agent(
        conn,
        namespace=reader.namespace,
        name=reader.name,
        entrypoint=reader.entrypoint,
        spec=b"{}",
        digest=reader.digest,
    )
    async with conn.transaction():
        number, _ = await _accept(conn, batch)
        new = NewRun(
            agent,
            RevisionId(revision),
            reader.pool,
            input=task(number),
            options=reader.options,
            idempotency_key=f"{batch.cluster}/{batch.uid}",
        )
        # With the batch or not at all: nobody would look for the reader of a batch that is there.
        [answer] = await intake.enqueue(conn, [new])
        await conn.execute("read_by", number, answer.run_id)
    return number


async def add_items(conn: Connection, batch: BatchId, items: Sequence[NewItem]) -> Added:
    """Add items to a batch that is being read; those that it has already stay."""
    if not items:
        return Added(open=True)
    row = await conn.fetchone("add_items", batch, *_columns(items))
    if not row["open"] or row["added"] == len(items):
        return Added(open=row["open"])
    known = await conn.fetch("item_places", batch, [item.item for item in items])
    places = {found["item"]: found["place"] for found in known}
    doubled = next(_doubled(items, places), None)
    return Added(open=True, doubled=doubled)


async def seal(conn: Connection, batch: BatchId) -> None:
    """Say that all items of a batch were added: it starts, unless they are none or too many."""
    async with conn.transaction():
        row = await conn.fetchrow("seal_batch", batch)
        if row is None:
            return
        if problem := items_problem(row["total"], Materialize(row["materialize"])):
            await conn.execute("stop_batch", batch, BatchStop.INVALID_ITEMS.value, problem)


def items_problem(total: int, materialize: Materialize) -> str | None:
    """Return what is wrong with that number of items, if anything."""
    if total == 0:
        return "there is no item: at least one is needed"
    if materialize is Materialize.ALL and total > MOST_OBJECTS:
        return f"materialize All is for {MOST_OBJECTS} items at most, these are {total}"
    return None


async def stop(conn: Connection, batch: BatchId, why: BatchStop, message: str) -> None:
    """Start nothing more of a batch; the first reason stays."""
    await conn.execute("stop_batch", batch, why.value, message)


async def steer(
    conn: Connection,
    batch: BatchId,
    *,
    parallelism: int | None,
    max_failed_percent: int,
    suspended: bool,
) -> None:
    """Have a batch go on as its object says now."""
    await conn.execute("steer_batch", batch, parallelism, max_failed_percent, suspended)


async def depart(conn: Connection, batch: BatchId) -> None:
    """Stop a batch whose object is gone; `purge` deletes it when all has ended."""
    await stop(conn, batch, BatchStop.DELETED, "its AgentRunBatch was deleted")
    await conn.execute("batch_departed", batch)


async def purge(conn: Connection, batch: BatchId, *, limit: int = _CHUNK) -> bool:
    """Delete up to `limit` items of a batch, or also itself; tell whether anything is left."""
    tag = await conn.execute("purge_items", batch, limit)
    if int(tag.rpartition(" ")[2]) == limit:
        return True
    await conn.execute("purge_batch", batch)
    return False


async def find(conn: Connection, *, cluster: str, uid: str) -> BatchId | None:
    """Return the batch of an object."""
    row = await conn.fetchrow("batch_of_object", cluster, uid)
    return None if row is None else BatchId(row["batch_id"])


async def statuses(
    conn: Connection, ids: Collection[BatchId], *, failures: int
) -> list[BatchStatus]:
    """Return what the statuses of batches show, with up to `failures` failed items of each."""
    return [_status(dict(r)) for r in await conn.fetch("batch_statuses", list(ids), failures)]


async def known(
    conn: Connection, *, cluster: str, namespaces: Sequence[str] | None
) -> list[KnownBatch]:
    """Return all batches of a cluster, or of some of its namespaces."""
    wanted = None if namespaces is None else list(namespaces)
    rows = await conn.fetch("batches_of", cluster, wanted)
    return [KnownBatch(**{**r, "materialize": Materialize(r["materialize"])}) for r in rows]


async def _accept(conn: Connection, batch: NewBatch) -> tuple[BatchId, bool]:
    run = batch.run
    row = await conn.fetchrow(
        "accept_batch",
        *(batch.cluster, batch.uid, batch.namespace, batch.name),
        *(run.agent_id, run.revision_id, run.pool_id, run.key, run.priority, run.max_takeovers),
        *(run.queue_deadline_seconds, run.options),
        *(batch.parallelism, batch.max_failed_percent, batch.materialize.value),
        run.pinned,
    )
    if row is not None:
        return BatchId(row["batch_id"]), True
    found = await conn.fetchone("batch_of_object", batch.cluster, batch.uid)
    return BatchId(found["batch_id"]), False


def _columns(items: Sequence[NewItem]) -> list[list[Any]]:
    return [list(column) for column in zip(*map(astuple, items), strict=True)]


def _doubled(items: Sequence[NewItem], places: dict[str, int]) -> Iterator[tuple[int, int]]:
    for item in items:
        first = places.get(item.item, item.place)
        if first != item.place:
            yield item.place, first


def _status(row: dict[str, Any]) -> BatchStatus:
    row["batch_id"] = BatchId(row["batch_id"])
    row["stopped"] = None if row["stopped"] is None else BatchStop(row["stopped"])
    row["materialize"] = Materialize(row["materialize"])
    row["failures"] = tuple(tuple(text.split(" ", 1)) for text in row["failures"])
    return BatchStatus(**row)


def runs(rows: Sequence[Any]) -> list[RunId]:
    """Return the runs of rows."""
    return [RunId(row["run_id"]) for row in rows]
