"""What commands ask, answered by the database."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from rowlock.client import wishes
from rowlock.client.client import Client
from rowlock.client.happenings import RunEvent, recorded
from rowlock.client.wishes import PendingApproval
from rowlock.commands.rows import of_info, pool_shape, question_shape, used, wait_shape
from rowlock.commands.saying import said_by
from rowlock.commands.shapes import (
    Answered,
    Happening,
    LogLine,
    Name,
    PoolShape,
    QuestionShape,
    RunShape,
    Started,
    Told,
    WaitShape,
)
from rowlock.commands.sides import Answer, Starting, Wanted, phase_named
from rowlock.commands.timeline import timeline
from rowlock.dev.target import import_from_here, parse_input
from rowlock.errors import InvalidRequest, UnknownRun, WishRefused
from rowlock.states import Decision, Phase
from rowlock.store import changes, lines, reading, redrive
from rowlock.store.bodies import unpack
from rowlock.store.connection import Connection
from rowlock.store.lines import Waiting
from rowlock.store.reading import RunInfo
from rowlock.store.types import RunId
from rowlock.terminal import with_store

T = TypeVar("T")

_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StoreSide:
    """Reads and changes rows.

    Parameters
    ----------
    namespace
        Of the agents; empty for those without one.
    pools_of
        Of the pools; None for all.
    """

    url: str
    namespace: str = ""
    pools_of: str | None = None

    def name(self, text: str) -> RunId:
        """Return the number of a run."""
        if text.isascii() and text.isdigit() and 0 < int(text[:20]) <= _LARGEST:
            return RunId(int(text))
        raise InvalidRequest(
            f"RUN: {text[:80]!r} is no number of a run, as 2531771558; `rowlock list` shows "
            "them (an AgentRun's name is taken through the cluster: --cluster, --context or -n)"
        )

    async def start(self, asked: Starting) -> Started:
        """Enqueue a run."""
        if asked.name is not None:
            raise InvalidRequest("--name: only an AgentRun has one: --cluster, --context or -n")
        value = parse_input(asked.text)
        import_from_here()
        async with self._client() as client:
            handle = await client.start(
                asked.agent,
                value,
                idempotency_key=asked.idempotency_key,
                key=asked.key,
                pool=asked.pool,
                priority=asked.priority,
            )
            return Started(handle.id, asked.agent, handle.created)

    async def until_end(self, run: Name, show: Callable[[RunEvent], None]) -> Told:
        """Follow a run to its end."""
        async with self._client() as client:
            handle = client.run(run)
            async for event in handle.events():
                show(event)
            info = await handle.info()
            good = info.phase is Phase.SUCCEEDED
            return Told(of_info(info), result=await handle.wait() if good else None)

    async def runs(self, wanted: Wanted) -> list[RunShape]:
        """Return runs, the newest first."""
        async with self._client() as client:
            found = await client.list(
                agent=wanted.agent,
                key=wanted.key,
                phase=phase_named(wanted.phase, reading.LISTED),
                since=wanted.since,
                limit=wanted.limit,
            )
        return [of_info(info, namespace=self.namespace or None) for info in found]

    async def tell(self, run: Name) -> Told:
        """Return all that there is to tell of a run."""
        return await self._ask(lambda conn: _told(conn, RunId(int(run))))

    async def queue(self, run: Name | None, pool: str | None, limit: int) -> list[WaitShape]:
        """Return the front of each line, or why this run waits."""

        async def look(conn: Connection) -> list[Waiting]:
            if run is not None:
                return [await _place(conn, RunId(int(run)))]
            return await lines.waiting(conn, namespace=self.pools_of, pool=pool, limit=limit)

        return [wait_shape(one) for one in await self._ask(look)]

    async def pools(self) -> list[PoolShape]:
        """Return what pools have to do."""
        found = await self._ask(changes.pool_demand)
        return [pool_shape(it) for it in found if self.pools_of in (None, it.namespace)]

    async def happenings(self, run: Name, *, after: int, follow: bool) -> AsyncIterator[Happening]:
        """Yield rows of history, and where the run stands."""
        async with contextlib.aclosing(self._events(run, after, follow)) as events:  # type: ignore[type-var]
            async for event in events:
                yield Happening(
                    event.seq, event.kind, event.at, event.attempt, event.epoch,
                    event.step, event.tries, event.duration_ms, event.data,
                )  # fmt: skip

    async def said(self, run: Name, *, follow: bool) -> AsyncIterator[LogLine]:
        """Yield what the database keeps of what a run has said."""
        async with contextlib.aclosing(self._events(run, 0, follow)) as events:  # type: ignore[type-var]
            async for event in events:
                for line in said_by(event):
                    yield line

    async def suspend(self, run: Name, *, by: str, reason: str | None) -> Answered:
        """Wish that a run is held."""
        number = RunId(int(run))
        done = await self._ask(lambda conn: wishes.suspend(conn, number, by=by, reason=reason))
        said = "suspended" if done else "asked: it is held at its next step boundary"
        return Answered(run, "suspend", done, said)

    async def continue_(self, run: Name) -> Answered:
        """Take the wish back."""
        if not await self._ask(lambda conn: wishes.continue_(conn, RunId(int(run)))):
            raise WishRefused(f"run {run} is not suspended")
        return Answered(run, "continue", True, "continues")

    async def cancel(self, run: Name, *, by: str, reason: str | None) -> Answered:
        """Wish for the end of a run."""
        number = RunId(int(run))
        done = await self._ask(lambda conn: wishes.cancel(conn, number, by=by, reason=reason))
        said = "ended" if done else "asked: its worker is ending it"
        return Answered(run, "cancel", done, said)

    async def retry(self, run: Name, *, by: str) -> Answered:
        """Queue another attempt."""
        attempt = await self._ask(lambda conn: wishes.retry(conn, RunId(int(run)), by=by))
        return Answered(run, "retry", True, f"attempt {attempt} is queued", attempt=attempt)

    async def questions(self, run: Name | None) -> list[QuestionShape]:
        """Return the open questions."""
        only = None if run is None else RunId(int(run))
        found = await self._ask(lambda conn: wishes.pending(conn, only))
        return [question_shape(one) for one in found]

    async def answer(self, run: Name, answer: Answer) -> Answered:
        """Answer a question."""

        async def ask(conn: Connection) -> PendingApproval:
            number = RunId(int(run))
            asked = await wishes.the_one(conn, number, step=answer.step, digest=answer.digest)
            by, reason = answer.by, answer.reason
            await wishes.decide(conn, asked, answer.decision, by=by, reason=reason)
            return asked

        meant = await self._ask(ask)
        word = "approve" if answer.decision is Decision.APPROVED else "deny"
        said = f"{meant.step} {answer.decision.name.lower()} by {answer.by}"
        return Answered(run, word, True, said, step=meant.step, digest=meant.digest)

    def _client(self) -> Client:
        return Client(self.url, namespace=self.namespace)

    async def _ask(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        return await with_store(use, self.url)

    async def _events(self, run: Name, after: int, follow: bool) -> AsyncIterator[RunEvent]:
        number = RunId(int(run))
        if not follow:
            for event in await self._ask(lambda conn: recorded(conn, number, after=after)):
                yield event
            return
        async with (
            self._client() as client,
            contextlib.aclosing(client.events(number, after=after)) as happenings,  # type: ignore[type-var]
        ):
            async for event in happenings:
                yield event


async def _told(conn: Connection, run_id: RunId) -> Told:
    found = await reading.infos(conn, [run_id], namespace=None)
    if not found:
        raise UnknownRun(f"there is no run {run_id}")
    [info] = found
    waiting = await lines.place_of(conn, run_id)
    events = await recorded(conn, run_id)
    return Told(
        info=of_info(info),
        used=used(info, events),
        waits=wait_shape(waiting) if waiting else None,
        questions=[question_shape(one) for one in await wishes.pending(conn, run_id)],
        result=await _result(conn, info),
        timeline=timeline(events),
    )


async def _result(conn: Connection, info: RunInfo) -> Any:
    if info.phase is not Phase.SUCCEEDED:
        return None
    for end in await reading.ends(conn, [info.id]):
        body = await reading.result(conn, end)
        return None if body is None else msgspec.json.decode(unpack(body))
    return None


async def _place(conn: Connection, run_id: RunId) -> Waiting:
    found = await lines.place_of(conn, run_id)
    if found is not None:
        return found
    stands = await redrive.standing(conn, run_id)
    if not stands.there:
        raise WishRefused(f"there is no run {run_id}")
    raise WishRefused(f"run {run_id} {'runs' if stands.live else 'has ended'}: it waits nowhere")
