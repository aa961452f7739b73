"""The one poller of a client: whoever waits for a run, or follows one, waits here.

However many wait, one look asks for all of them, on a connection of its own.
Looks come close together while something happens and apart while nothing does,
and never so close that the database would be busy with them for more than a fifth of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog

from rowlock.errors import StoreError, StoreUnavailable, UnknownRun
from rowlock.store import reading
from rowlock.store.connection import Connection
from rowlock.store.reading import RunEnd, Watched
from rowlock.store.types import RunId

log = structlog.get_logger(__name__)

T = TypeVar("T")

_SHORTEST_SECONDS: Final = 0.02
_LONGEST_SECONDS: Final = 0.25
_LONGER: Final = 1.5
#: Pause behind a look, in times of its own length.
_REST: Final = 4.0
#: While the database is away.
_AWAY_SECONDS: Final = 0.5
_AT_ONCE: Final = 5000
_FOLLOWED_AT_ONCE: Final = 200


@dataclass(eq=False, slots=True)
class _Asked(Generic[T]):
    """One who waits.

    Parameters
    ----------
    after
        Number of history behind which something is new.
    unless
        What was found is not news.
    """

    run_id: RunId
    answer: asyncio.Future[T]
    after: int = 0
    unless: Callable[[T], bool] = lambda _: False


class Watcher:
    """Looks for all who wait, as long as there are any.

    Parameters
    ----------
    connect
        Opens the connection at the first look.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._ends: set[_Asked[RunEnd]] = set()
        self._news: set[_Asked[Watched]] = set()
        self._unproved: set[RunId] = set()
        self._stir = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        #: Looks so far, for tests and for the curious.
        self.looks = 0

    async def end(self, run_id: RunId) -> RunEnd:
        """Wait for the end of a run.

        Raises
        ------
        UnknownRun
            There is no such run.
        """
        return await self._wait(self._ends, _Asked(run_id, _future()))

    async def news(
        self, run_id: RunId, *, after: int, unless: Callable[[Watched], bool]
    ) -> Watched:
        """Wait for rows of history behind number `after`, or for a place that `unless` denies.

        Raises
        ------
        UnknownRun
            There is no such run.
        """
        return await self._wait(self._news, _Asked(run_id, _future(), after, unless))

    async def body(self, end: RunEnd) -> bytes | None:
        """Return the result of a run, however large."""
        if end.result is not None or end.size is None:
            return end.result
        return await reading.result(await self._open(), end)

    async def close(self) -> None:
        """Let all who wait fail, and end the connection."""
        self._closed = True
        self._fail(StoreUnavailable("the client was closed"))
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._connection is not None:
            await self._connection.close()

    async def _wait(self, among: set[_Asked[T]], asked: _Asked[T]) -> T:
        if self._closed:
            raise StoreUnavailable("the client was closed")
        among.add(asked)
        self._unproved.add(asked.run_id)
        self._stir.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            return await asked.answer
        finally:
            among.discard(asked)

    async def _watch(self) -> None:
        pause = _SHORTEST_SECONDS
        while self._ends or self._news:
            self._stir.clear()
            began = time.monotonic()
            try:
                found = await self.run_once()
            except StoreError as error:
                log.warning("A look at runs failed and is repeated", error=str(error))
                await asyncio.sleep(_AWAY_SECONDS)
                continue
            except Exception as error:  # whoever waits must hear of it
                self._fail(error)
                return
            pause = _SHORTEST_SECONDS if found else min(pause * _LONGER, _LONGEST_SECONDS)
            await self._rest(pause, least=_REST * (time.monotonic() - began))

    async def _rest(self, seconds: float, *, least: float) -> None:
        """Wait for `seconds`, or less when somebody new asks, but never below `least`."""
        least = max(least, _SHORTEST_SECONDS)
        await asyncio.sleep(least)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds - least)):
                await self._stir.wait()

    async def run_once(self) -> int:
        """Look once for all; return how many got an answer."""
        self.looks += 1
        connection = await self._open()
        await self._prove(connection)
        return await self._look_for_ends(connection) + await self._look_for_news(connection)

    async def _open(self) -> Connection:
        if self._connection is None:
            self._connection = await self._connect()
        return self._connection

    async def _prove(self, connection: Connection) -> None:
        """Let those fail who wait for a run that is not there."""
        for some in _portions(list(self._unproved), _AT_ONCE):
            missing = set(some) - await reading.existing(connection, some)
            self._unproved.difference_update(some)
            for run_id in missing:
                self._fail(UnknownRun(f"run: there is no run {run_id}"), only=run_id)

    async def _look_for_ends(self, connection: Connection) -> int:
        wanted = _by_run(self._ends)
        answered = 0
        for some in _portions(list(wanted), _AT_ONCE):
            for end in await reading.ends(connection, some):
                answered += sum(_answer(one, end) for one in wanted[end.run_id])
        return answered

    async def _look_for_news(self, connection: Connection) -> int:
        wanted = _by_run(self._news)
        answered = 0
        for some in _portions(list(wanted), _FOLLOWED_AT_ONCE):
            after = {run: min(one.after for one in wanted[run]) for run in some}
            for now in await reading.watched(connection, after):
                answered += sum(_tell(one, now) for one in wanted[now.run_id])
        return answered

    def _fail(self, error: Exception, *, only: RunId | None = None) -> None:
        for ends in self._ends:
            _refuse(ends, error, only)
        for news in self._news:
            _refuse(news, error, only)


def _future() -> asyncio.Future[T]:
    return asyncio.get_running_loop().create_future()


def _by_run(asked: Iterable[_Asked[T]]) -> dict[RunId, list[_Asked[T]]]:
    found: dict[RunId, list[_Asked[T]]] = {}
    for one in asked:
        if not one.answer.done():
            found.setdefault(one.run_id, []).append(one)
    return found


def _portions(items: Sequence[RunId], size: int) -> Iterable[Sequence[RunId]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _answer(one: _Asked[T], found: T) -> bool:
    if one.answer.done():
        return False
    one.answer.set_result(found)
    return True


def _refuse(one: _Asked[T], error: Exception, only: RunId | None) -> None:
    if not one.answer.done() and only in (None, one.run_id):
        one.answer.set_exception(error)


def _tell(one: _Asked[Watched], now: Watched) -> bool:
    """Answer with what is new to this one; another follower may be further behind."""
    rows = tuple(row for row in now.rows if row.seq > one.after)
    # What stands behind rows that were cut off is told with the last of them.
    if not rows and (now.more or (one.unless(now) and not now.final)):
        return False
    return _answer(one, dataclasses.replace(now, rows=rows))
