"""The one writer of a loop process: all its runs' rows go through here, in batches.

A commit costs a flush of the disk, whatever is in it, so rows of many runs share one.
There is no timer: a batch leaves at once while fewer than three are in flight,
and what arrives while three are makes the next one bigger. That is all the batching there is.

What can go wrong, and whose problem it is:

* PostgreSQL is away or says "not now": the same batch again, for as long as it takes.
  Every statement may be repeated: history by (run, number), ends by (run, epoch).
* One row can never be stored: the batch is halved until it is found; only its own run fails.
* A run is no longer ours: it is stopped quietly.
* This worker is fenced: the process leaves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from rowlock import metrics
from rowlock.clock import Clock
from rowlock.engine.backoff import backoff_seconds
from rowlock.engine.batch import Item, Sink, plain_end, send, tombstone
from rowlock.engine.lane import Lane, Row, Waiter
from rowlock.errors import RowRejected, StoreError
from rowlock.metrics import Tally
from rowlock.store.types import Event, Final, Flushed, RunId, Verdict

log = structlog.get_logger(__name__)

MAX_ROWS = 500
MAX_BYTES = 1024 * 1024
#: After so long without an answer the log says so at ERROR, once.
_ALERT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class WriterState:
    """How the writer does, for metrics."""

    waiting_rows: int
    waiting_bytes: int
    oldest_wait: float
    slowest_batch: float


class Writer:
    """Takes rows from lanes and settles them.

    Parameters
    ----------
    on_fenced
        Called once when PostgreSQL says that this worker is fenced.
    """

    def __init__(self, *, clock: Clock, tally: Tally, on_fenced: Callable[[], None]) -> None:
        self._clock = clock
        self._tally = tally
        self._on_fenced = on_fenced
        self._ready: deque[Lane] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._waking = False
        self._closed = False
        self._in_flight: dict[int, float] = {}
        self._slowest = 0.0
        self._rows = 0
        self._bytes = 0
        self._monotonic = clock.monotonic

    def give(self, lane: Lane, row: Row, size: int = 0, waiter: Waiter = None) -> None:
        """Queue `row` behind all that its lane was given before.

        Parameters
        ----------
        size
            Bytes of its body.
        waiter
            Gets its result after the commit; left alone if the run is lost.
        """
        lane.rows.append((row, waiter, size))
        self._rows += 1
        self._bytes += size
        if not lane.busy:
            self._line_up(lane)

    def _line_up(self, lane: Lane) -> None:
        lane.busy = True
        lane.since = self._monotonic()
        self._ready.append(lane)
        if self._idle and not self._waking:
            self._wake_one()

    def _wake_one(self) -> None:
        # One is enough: it runs after all that is ready on the loop now, and takes what they gave.
        self._waking = True
        self._idle.popleft().set_result(None)

    def state(self) -> WriterState:
        """Return how it does; the slowest batch starts again from zero."""
        slowest, self._slowest = self._slowest, 0.0
        since = list(self._in_flight.values())
        if self._ready:
            since.append(self._ready[0].since)
        oldest = self._monotonic() - min(since) if since else 0.0
        return WriterState(self._rows, self._bytes, oldest, slowest)

    @property
    def empty(self) -> bool:
        """Is everything that was given settled?"""
        return self._rows == 0

    def close(self) -> None:
        """Let each `run` return after its batch in flight."""
        self._closed = True
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        self._idle.clear()

    async def run(self, sink: Sink) -> None:
        """Write batches on `sink` until closed; start one task for each connection."""
        while not self._closed:
            items = self._take()
            if items:
                await self._flush(sink, items)
            else:
                idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle
                self._waking = False

    def _take(self) -> list[Item]:
        items: list[Item] = []
        size = 0
        ready = self._ready
        while ready and len(items) < MAX_ROWS and size < MAX_BYTES:
            lane = ready.popleft()
            rows = lane.rows
            while rows and len(items) < MAX_ROWS and size < MAX_BYTES:
                row, waiter, bytes_ = rows.popleft()
                items.append((lane, row, waiter, bytes_))
                size += bytes_
        if ready and self._idle and not self._waking:
            self._wake_one()
        return items

    async def _flush(self, sink: Sink, items: list[Item]) -> None:
        flight = id(items)
        self._in_flight[flight] = items[0][0].since
        started = self._monotonic()
        try:
            await self._store(sink, items)
        finally:
            del self._in_flight[flight]
        self._slowest = max(self._slowest, self._monotonic() - started)
        self._go_on(items)

    def _go_on(self, items: list[Item]) -> None:
        last: Lane | None = None
        for lane, _, _, _ in items:  # the rows of a lane stand together
            if lane is last:
                continue
            last = lane
            lane.busy = False
            if lane.rows:
                self._line_up(lane)

    async def _store(self, sink: Sink, items: list[Item]) -> None:
        failures, since = 0, self._monotonic()
        while not self._closed:
            try:
                self._settle(items, await send(sink, items))
                return
            except RowRejected as error:
                await self._narrow(sink, items, error)
                return
            except (ValueError, TypeError, OverflowError) as error:
                # The driver could not put a value on the wire: no server will ever take it.
                await self._narrow(sink, items, RowRejected(repr(error), sqlstate="22000"))
                return
            except Exception as error:
                failures += 1
                self._note_failure(error, failures, self._monotonic() - since)
                await self._clock.sleep(backoff_seconds(failures))

    def _note_failure(self, error: Exception, failures: int, waited: float) -> None:
        self._tally.add(metrics.WRITER_RETRIES)
        if not isinstance(error, StoreError):
            log.error("A batch met an unexpected error and is sent again", exc_info=error)
        elif failures == 1:
            log.warning("PostgreSQL did not take a batch; it is sent again", error=str(error))
        if waited > _ALERT_SECONDS and failures % 60 == 0:
            log.error("PostgreSQL takes no batch", seconds=round(waited), waiting_rows=self._rows)

    async def _narrow(self, sink: Sink, items: list[Item], error: RowRejected) -> None:
        """Find the bad row by halving; one half goes after the other, so a lane keeps its order."""
        if len(items) > 1:
            middle = len(items) // 2
            await self._store(sink, items[:middle])
            await self._store(sink, items[middle:])
            return
        lane, row, waiter, size = items[0]
        self._tally.add(metrics.REJECTED_ROWS, error.sqlstate)
        log.error("PostgreSQL can never store a row", run=str(lane.run_id), exc_info=error)
        if isinstance(row, Event) and row != tombstone(row):
            if waiter is not None:  # a label that nobody waits for is not worth a run
                lane.owner.rejected(row, error)
            await self._store(sink, [(lane, tombstone(row), None, size)])
        elif isinstance(row, Final) and row != plain_end(row, error):
            await self._store(sink, [(lane, plain_end(row, error), None, size)])
        else:
            self._drop(lane.run_id, items)

    def _settle(self, items: list[Item], answer: Flushed) -> None:
        if answer.fenced:
            self._on_fenced()
            self.close()
            return
        self._tally.add(metrics.WRITER_BATCHES)
        self._tally.add(metrics.WRITER_ROWS, by=len(items))
        lost, finals = answer.lost, answer.finals
        for lane, row, waiter, size in items:
            self._rows -= 1
            self._bytes -= size
            if waiter is not None:
                if not waiter.done() and lane.run_id not in lost:
                    waiter.set_result(None)
            elif not isinstance(row, Event):
                lane.owner.settled(row, finals.get(row.run_id, Verdict.LOST))
        for run_id in lost:
            self._drop(run_id, items)

    def _drop(self, run_id: RunId, items: list[Item]) -> None:
        lane = next(item[0] for item in items if item[0].run_id == run_id)
        for _, _, size in lane.rows:
            self._rows -= 1
            self._bytes -= size
        lane.rows.clear()
        lane.closed = True
        lane.owner.lost()
