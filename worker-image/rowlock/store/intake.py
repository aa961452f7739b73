"""What comes in: pools, agents, runs, and wishes about them.

Everything here may be repeated: after an error nobody knows whether the statement was committed,
so the caller simply asks again and gets the same answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Any, Final

from rowlock.errors import StoreUnavailable
from rowlock.store import caps
from rowlock.store.bodies import unpack
from rowlock.store.caps import Caps
from rowlock.store.connection import Connection
from rowlock.store.queue import cancel_waiting, ensure_partitions, expire_queued, wake_due
from rowlock.store.types import AgentId, Enqueued, NewRun, PoolId, RevisionId, RunId, Submission

__all__ = [
    "cancel_waiting",
    "columns",
    "enqueue",
    "ensure_agent",
    "ensure_partitions",
    "ensure_pool",
    "ensure_revision",
    "expire_queued",
    "limit_agent",
    "request_cancel",
    "run_ids_by_object",
    "wake_due",
]

#: Runs handled by one statement; more would hold its locks for long.
_BATCH: Final = 1000

_CONTENT = attrgetter(
    "agent_id", "revision_id", "pool_id", "input", "options", "key", "priority", "max_takeovers",
    "queue_deadline_seconds", "idempotency_key",
)  # fmt: skip
_OBJECT = attrgetter("cluster", "uid", "namespace", "name", "generation", "pinned")


async def ensure_pool(conn: Connection, *, namespace: str, name: str) -> PoolId:
    """Return the id of a pool, made now if it is new."""
    row = await conn.fetchrow("pool_id", namespace, name)
    if row is None:
        await conn.execute("ensure_pool", namespace, name)
        row = await conn.fetchrow("pool_id", namespace, name)
    return PoolId(_found(row, "pool")["pool_id"])


async def ensure_agent(  # noqa: PLR0913  an agent has that many parts
    conn: Connection,
    *,
    namespace: str,
    name: str,
    entrypoint: str,
    spec: bytes,
    digest: str,
    max_running: int | None = None,
    max_running_per_key: int | None = None,
    starts_per_minute_per_key: int | None = None,
) -> tuple[AgentId, RevisionId]:
    """Return the ids of an agent and of its revision with `digest`, made now if they are new.

    Parameters
    ----------
    entrypoint
        `module:attribute` of the agent, as its worker imports it.
    spec
        What the agent was declared as, for the reader of a run's history.
    max_running, max_running_per_key, starts_per_minute_per_key
        Caps of the agent, not of the revision: the last call wins (see `caps.set_caps`).
    """
    values = (max_running, max_running_per_key, starts_per_minute_per_key)
    found = await conn.fetchrow("agent", namespace, name)
    if found is None:
        await conn.execute("ensure_agent", namespace, name, *values)
        found = _found(await conn.fetchrow("agent", namespace, name), "agent")
    agent = AgentId(found[0])
    if tuple(found)[1:] != values:
        await caps.set_caps(conn, agent, Caps(*values))
    return agent, await _revision(conn, agent, entrypoint=entrypoint, spec=spec, digest=digest)


async def ensure_revision(
    conn: Connection,
    *,
    agent: AgentId | None,
    namespace: str,
    name: str,
    entrypoint: str,
    spec: bytes,
    digest: str,
) -> tuple[AgentId, RevisionId]:
    """Do what `ensure_agent` does, and leave the caps of an agent alone that is there.

    Parameters
    ----------
    agent
        None: it was not there a moment ago, and is made without caps.
    """
    if agent is None:
        await conn.execute("ensure_agent", namespace, name, None, None, None)
        agent = AgentId(_found(await conn.fetchrow("agent", namespace, name), "agent")[0])
    return agent, await _revision(conn, agent, entrypoint=entrypoint, spec=spec, digest=digest)


async def limit_agent(conn: Connection, *, namespace: str, name: str, limits: Caps) -> bool:
    """Give an agent these caps; False if it is not there yet: `ensure_agent` makes it with them."""
    found = await conn.fetchrow("agent", namespace, name)
    if found is None:
        return False
    if Caps(*tuple(found)[1:]) != limits:
        await caps.set_caps(conn, AgentId(found[0]), limits)
    return True


async def enqueue(conn: Connection, runs: Sequence[NewRun]) -> list[Enqueued]:
    """Accept runs and say for each, in the order asked, what became of it.

    A run is accepted once: by its custom resource (`cluster`, `uid`),
    and by its agent and idempotency key.
    Those of capped agents are promoted from the backlog at once, as far as the caps allow.

    Raises
    ------
    RowRejected
        One of them can never be stored; none of its batch (1,000 runs) was accepted.
    """
    answers: list[Enqueued] = []
    for start in range(0, len(runs), _BATCH):
        answers += await _enqueue(conn, runs[start : start + _BATCH])
    return answers


async def request_cancel(
    conn: Connection, run_ids: Sequence[RunId], *, by: str, reason: str | None = None
) -> list[RunId]:
    """Wish that runs end, end those that no worker holds, and return those that are final now.

    The others reach their worker with its next poll, or end when it loses them.
    Ask again until all are final: a run may have been on its way from one place to another.
    """
    ended: list[RunId] = []
    for start in range(0, len(run_ids), _BATCH):
        batch = list(run_ids[start : start + _BATCH])
        await conn.execute("ask_cancel", batch, by, reason)
        await conn.fetch("cancel_waiting", batch)
        await conn.execute("drop_done_wishes", batch)
        ended += _ids(await conn.fetch("finished", batch))
    return ended


async def run_ids_by_object(
    conn: Connection, *, cluster: str, uids: Collection[str]
) -> dict[str, RunId]:
    """Return the run of each of these custom resources that has one."""
    rows = await conn.fetch("run_ids_by_object", cluster, list(uids))
    return {row["uid"]: RunId(row["run_id"]) for row in rows}


async def _enqueue(conn: Connection, runs: Sequence[NewRun]) -> list[Enqueued]:
    answers = await _create(conn, runs)
    if len(answers) < len(runs):
        missing = [place for place in range(len(runs)) if place not in answers]
        answers |= await _find(conn, runs, missing)
    if len(answers) < len(runs):
        # What stood in the way is gone again (its custom resource was deleted in between).
        missing = [place for place in range(len(runs)) if place not in answers]
        retried = await _create(conn, [runs[place] for place in missing])
        answers |= {missing[at]: answer for at, answer in retried.items()}
    if len(answers) < len(runs):
        raise StoreUnavailable("a concurrent batch holds the same custom resources: try again")
    return [answers[place] for place in range(len(runs))]


async def _create(conn: Connection, runs: Sequence[NewRun]) -> dict[int, Enqueued]:
    places = _first_of_each_object(runs)
    if not places:
        return {}
    asked = [runs[place] for place in places]
    rows = await conn.fetch("enqueue", *columns(asked))
    for agent in {asked[row["place"] - 1].agent_id for row in rows if row["held"]}:
        # If somebody else is promoting just now, the next round of anybody finds these.
        await caps.promote(conn, agent, wait=False)
    return {places[r["place"] - 1]: Enqueued(RunId(r["run_id"]), Submission.CREATED) for r in rows}


def columns(runs: Sequence[NewRun]) -> list[Sequence[Any]]:
    """Return runs as the statement `enqueue` takes them."""
    content = zip(*map(_CONTENT, runs), strict=True)
    return [*content, [_sha(run) for run in runs], *zip(*map(_OBJECT, runs), strict=True)]


def _first_of_each_object(runs: Sequence[NewRun]) -> list[int]:
    seen: set[tuple[str | None, str]] = set()
    places = []
    for place, run in enumerate(runs):
        if run.uid is not None:
            if (run.cluster, run.uid) in seen:
                continue
            seen.add((run.cluster, run.uid))
        places.append(place)
    return places


def _sha(run: NewRun) -> bytes | None:
    # Of the text, not of its compressed form, which may change with the library.
    return hashlib.sha256(unpack(run.input)).digest() if run.idempotency_key is not None else None


async def _find(conn: Connection, runs: Sequence[NewRun], places: list[int]) -> dict[int, Enqueued]:
    asked = [runs[place] for place in places]
    rows = await conn.fetch(
        "find_submitted",
        [run.cluster for run in asked],
        [run.uid for run in asked],
        [run.agent_id for run in asked],
        [run.idempotency_key for run in asked],
        [_sha(run) for run in asked],
    )
    found = {place: _judge(run, row) for place, run, row in zip(places, asked, rows, strict=True)}
    return {place: answer for place, answer in found.items() if answer is not None}


def _judge(run: NewRun, row: Any) -> Enqueued | None:
    """Decide what stood in the way of a run that was not created; None for nothing any more."""
    if row["by_object"] is not None:
        return Enqueued(RunId(row["by_object"]), Submission.EXISTS)
    if row["by_key"] is None:
        return None
    if run.uid is None and row["same_input"]:
        return Enqueued(RunId(row["by_key"]), Submission.EXISTS, row["holder"])
    return Enqueued(RunId(row["by_key"]), Submission.DUPLICATE_KEY, row["holder"])


async def _revision(
    conn: Connection, agent: AgentId, *, entrypoint: str, spec: bytes, digest: str
) -> RevisionId:
    row = await conn.fetchrow("revision_id", agent, digest)
    if row is None:
        await conn.execute("ensure_revision", agent, digest, entrypoint, spec)
        row = await conn.fetchrow("revision_id", agent, digest)
    return RevisionId(_found(row, "revision")["revision_id"])


def _ids(rows: Sequence[Any]) -> list[RunId]:
    return [RunId(row["run_id"]) for row in rows]


def _found(row: Any, what: str) -> Any:
    if row is None:
        raise StoreUnavailable(f"the {what} was deleted while it was looked up: try again")
    return row
