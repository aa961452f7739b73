"""Accepting runs: agent, pool and all inputs first, then the rows, many with a statement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from rowlock.agents.protocol import Agent
from rowlock.client.known import Directory, Known
from rowlock.client.submission import Limits, Template, template
from rowlock.errors import IdempotencyConflict, InvalidRequest, StoreUnavailable, UnknownPool
from rowlock.store import intake, reading
from rowlock.store.caps import Caps
from rowlock.store.connection import Connection
from rowlock.store.types import Enqueued, NewRun, PoolId, Submission

T = TypeVar("T")

#: For how long a call that may be repeated is repeated while the database is away.
PATIENCE_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 0.1
_DEFAULT_POOL: Final = "default"
#: Of one statement.
_RUNS_AT_ONCE: Final = 1000
_BYTES_AT_ONCE: Final = 16 * 1024 * 1024


class Starter:
    """Accepts runs of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._directory = Directory(namespace)
        self._pools: dict[str, PoolId] = {}

    async def template(
        self, conn: Connection, agent: str | Agent, pool: str | None, limits: Limits
    ) -> Template:
        """Return what the runs of one call have in common.

        Raises
        ------
        InvalidRequest, UnknownAgent, UnknownPool
            A parameter makes no sense.
        """
        limits.checked()
        known = await self._directory.find(conn, agent)
        return template(known, await self._pool(conn, pool, known), limits)

    async def cap(self, conn: Connection, agent: str | Agent, caps: Caps) -> None:
        """Give an agent caps.

        Raises
        ------
        InvalidRequest, UnknownAgent
            There is no such agent.
        """
        await self._directory.cap(conn, agent, caps)

    async def accept(self, conn: Connection, runs: Sequence[NewRun]) -> list[Enqueued]:
        """Write runs and say for each what became of it.

        Raises
        ------
        IdempotencyConflict
            Some keys belong to other runs; all other runs are accepted.
        """
        answers: list[Enqueued] = []
        for batch in _batches(runs):
            answers += await _enqueue(conn, batch)
        taken = {
            str(run.idempotency_key): int(answer.run_id)
            for run, answer in zip(runs, answers, strict=True)
            if answer.outcome is Submission.DUPLICATE_KEY
        }
        if taken:
            raise IdempotencyConflict(_conflict(taken), runs=taken)
        return answers

    async def _pool(self, conn: Connection, asked: str | None, known: Known) -> PoolId:
        own = (known.defaults.worker_pool_ref or {}).get("name")
        name = asked or own or _DEFAULT_POOL
        if name not in self._pools:
            self._pools[name] = await self._find_pool(conn, name)
        return self._pools[name]

    async def _find_pool(self, conn: Connection, name: str) -> PoolId:
        namespace = self._namespace
        found = await reading.find_pool(conn, namespace=namespace, name=name)
        if found is not None:
            return found
        if name == _DEFAULT_POOL:
            return await intake.ensure_pool(conn, namespace=namespace, name=name)
        there = ", ".join(await reading.pool_names(conn, namespace=namespace)) or "none"
        raise UnknownPool(f"pool: there is no {name!r}; those known are {there}")


async def rows(
    made: Template,
    inputs: Sequence[Any],
    *,
    keys: Sequence[str | None] | None,
    idempotency_keys: Sequence[str] | None,
) -> list[NewRun]:
    """Return the rows of runs, each input checked.

    Raises
    ------
    InvalidInput, InvalidRequest, TooLarge
        The message names the input by its place.
    """
    for field, given in (("keys", keys), ("idempotency_keys", idempotency_keys)):
        if given is not None and (isinstance(given, str) or len(given) != len(inputs)):
            raise InvalidRequest(
                f"{field}: must be a list with one for each of {len(inputs)} inputs"
            )
    made_rows = []
    for place, value in enumerate(inputs):
        if place % _RUNS_AT_ONCE == 0:
            await asyncio.sleep(0)  # others have their turn: a check takes up to 0.1 ms
        key = keys[place] if keys is not None else None
        once = idempotency_keys[place] if idempotency_keys is not None else None
        field = f"inputs[{place}]"
        made_rows.append(made.run(value, key=key, idempotency_key=once, field=field))
    return made_rows


def _batches(runs: Sequence[NewRun]) -> Iterable[list[NewRun]]:
    """Yield `runs` in portions that one statement may hold."""
    batch: list[NewRun] = []
    size = 0
    for run in runs:
        if batch and (len(batch) == _RUNS_AT_ONCE or size + len(run.input) > _BYTES_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(run)
        size += len(run.input)
    if batch:
        yield batch


async def _enqueue(conn: Connection, runs: Sequence[NewRun]) -> list[Enqueued]:
    if all(run.idempotency_key is not None for run in runs):
        return await patiently(lambda: intake.enqueue(conn, runs))
    try:
        return await intake.enqueue(conn, runs)
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"{error}; whether the run was accepted is unknown: "
            "a call with an idempotency key can be repeated"
        ) from error


async def patiently(once: Callable[[], Awaitable[T]]) -> T:
    """Do `once`, which may be repeated, again while the database is away."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await once()
        except StoreUnavailable:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(AGAIN_SECONDS)


def _conflict(taken: dict[str, int]) -> str:
    key, run = next(iter(taken.items()))
    more = f", and {len(taken) - 1} more" if len(taken) > 1 else ""
    return f"idempotency_key: {key!r} belongs to run {run}, which has another input{more}"
