"""AgentRuns that show items of a batch: linked by a name that is written before they are created.

The name ends with random digits, so nobody else has it. Whoever sees the new object first, its
creator or intake, writes its uid; another object that gets the same name later is not ours.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.states import FailureReason, Materialize
from rowlock.store.batch_rounds import WINDOW
from rowlock.store.batches import MOST_OBJECTS, BatchId
from rowlock.store.connection import Connection
from rowlock.store.types import RunId

_NAME_LENGTH = 63
_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Wanted:
    """A batch that may have AgentRuns to make.

    Parameters
    ----------
    count
        Further items to be given a name now.
    stopped
        Nothing is started any more.
    finished
        All of its items have ended.
    unmade
        Some items have a name and no AgentRun yet.
    """

    batch_id: BatchId
    namespace: str
    name: str
    uid: str
    all: bool
    count: int
    stopped: bool = False
    finished: bool = False
    unmade: bool = False


@dataclass(frozen=True, slots=True)
class Unmade:
    """An item whose AgentRun has a name and may not exist yet."""

    item: str
    name: str
    input: bytes


@dataclass(frozen=True, slots=True)
class Made:
    """An AgentRun that may be one of a batch."""

    namespace: str
    name: str
    uid: str
    generation: int


def object_name(batch: str, item: str) -> str:
    """Return a new name for the AgentRun of an item: a DNS label of at most 63 characters."""
    digits = secrets.token_hex(_DIGITS // 2)
    stem = f"{batch.replace('.', '-')}-{item}"[: _NAME_LENGTH - _DIGITS - 1].rstrip("-")
    return f"{stem}-{digits}"


def may_be_ours(name: str) -> bool:
    """Tell whether a name looks like one of `object_name`."""
    stem, _, digits = name.rpartition("-")
    return bool(stem) and len(digits) == _DIGITS and set(digits) <= set("0123456789abcdef")


async def wanted(conn: Connection, ids: Collection[BatchId], *, at_once: int) -> list[Wanted]:
    """Return which of these batches may have AgentRuns to make, and how many to name now.

    Left out are those that never will again: their object is gone, or they show no items.
    """
    rows = await conn.fetch("objects_wanted", list(ids))
    return [
        Wanted(
            BatchId(row["batch_id"]),
            row["namespace"],
            row["name"],
            row["uid"],
            row["materialize"] == Materialize.ALL,
            _count(dict(row), at_once),
            row["stopped"],
            row["finished"],
            row["unmade"],
        )
        for row in rows
    ]


def _count(row: Mapping[str, Any], at_once: int) -> int:
    if not row["sealed"]:
        return 0
    count: int = min(at_once, MOST_OBJECTS - row["objects"])
    if row["materialize"] == Materialize.ALL:
        room = WINDOW if row["parallelism"] is None else row["parallelism"]
        count = 0 if row["stopped"] or row["suspended"] else min(count, room - row["taken"])
    return max(0, count)


async def name_items(conn: Connection, batch: Wanted) -> int:
    """Reserve names for the items of a batch that are to get an AgentRun; return for how many."""
    if not batch.count:
        return 0
    rows = await conn.fetch("unnamed_items", batch.batch_id, batch.count, batch.all)
    if rows:
        items = [row["item"] for row in rows]
        names = [object_name(batch.name, item) for item in items]
        await conn.execute("name_objects", batch.batch_id, items, names)
    return len(rows)


async def unmade(
    conn: Connection, batch: BatchId, *, limit: int, but: Collection[str] = ()
) -> list[Unmade]:
    """Return items whose AgentRun has a name, none of `but`, and may not exist yet."""
    return [Unmade(*row) for row in await conn.fetch("unmade_objects", batch, limit, list(but))]


async def refuse(
    conn: Connection, batch: BatchId, names: Collection[str], *, reason: FailureReason | None
) -> None:
    """Make no AgentRuns of these names any more.

    Parameters
    ----------
    reason
        Why those of their items fail that have no run; None: they count as never started.
    """
    if names:
        why = None if reason is None else reason.value
        await conn.execute("refuse_objects", batch, list(names), reason is not None, why)


async def link(
    conn: Connection, objects: Sequence[Made], *, cluster: str
) -> dict[str, RunId | None]:
    """Link those AgentRuns to their items that are ours.

    Returns the uid of each, with its run if that has got its object now: it has to be shown.
    """
    if not objects:
        return {}
    rows = await conn.fetch(
        "link_objects",
        cluster,
        [it.namespace for it in objects],
        [it.name for it in objects],
        [it.uid for it in objects],
        [it.generation for it in objects],
    )
    return {row["uid"]: None if row["linked"] is None else RunId(row["linked"]) for row in rows}
