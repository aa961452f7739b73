"""Exports a trace of each run that has ended, some at a time and beside everything else.

What is exported is a convenience: what waits when an operator ends is gone, and so is what a
collector does not take. Both are counted; nothing of a run depends on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from rowlock import traces
from rowlock.store import changes, reading
from rowlock.store.connection import Connection
from rowlock.store.reading import HistoryRow
from rowlock.store.types import RunId
from rowlock_operator import metrics as m
from rowlock_operator.traces.story import Span, story

log = structlog.get_logger(__name__)

_MOST_WAITING = 10_000
_AT_ONCE = 50
#: Of one run; a longer history is cut off at its end.
_MOST_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class TraceReport:
    """What one round did."""

    runs: int = 0
    spans: int = 0
    left: int = 0


class Sink(Protocol):
    """Takes spans in."""

    def wants(self, trace_id: int) -> bool:
        """Tell whether this trace is one of the share that is kept."""
        ...

    async def send(self, spans: Sequence[Span]) -> bool:
        """Send spans; False if they could not be delivered."""
        ...


class Tracer:
    """Takes in runs that have ended, and sends their traces.

    Parameters
    ----------
    connection
        Read from only.
    """

    def __init__(self, connection: Connection, sink: Sink, metrics: m.Metrics) -> None:
        self._connection = connection
        self._sink = sink
        self._metrics = metrics
        self._waiting: deque[RunId] = deque()

    def ended(self, run_id: RunId) -> None:
        """Have the trace of a run sent, if it is one of the share that is kept."""
        if not self._sink.wants(traces.trace_id(run_id)):
            self._metrics.add(m.TRACES, "not_sampled")
        elif len(self._waiting) >= _MOST_WAITING:
            self._metrics.add(m.TRACES, "dropped")
        else:
            self._waiting.append(run_id)

    async def run_once(self) -> TraceReport:
        """Send the traces of up to fifty runs."""
        batch = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
        if not batch:
            return TraceReport()
        try:
            spans = await self._spans(batch)
        except BaseException:
            self._metrics.add(m.TRACES, "failed", by=len(batch))
            raise
        sent = await self._sink.send(spans) if spans else True
        if not sent:
            log.warning("The collector did not take the traces", runs=len(batch))
        self._metrics.add(m.TRACES, "sent" if sent else "failed", by=len(batch))
        return TraceReport(len(batch), len(spans), len(self._waiting))

    async def _spans(self, batch: Sequence[RunId]) -> list[Span]:
        snapshots = await changes.snapshots(self._connection, batch)
        spans: list[Span] = []
        for info in await reading.infos(self._connection, batch, namespace=None):
            snapshot = snapshots.get(info.id)
            if snapshot is not None:
                spans += story(snapshot, info, await self._history(info.id))
        return spans

    async def _history(self, run_id: RunId) -> list[HistoryRow]:
        rows: list[HistoryRow] = []
        while len(rows) < _MOST_ROWS:
            after = rows[-1].seq if rows else 0
            found = await reading.watched(self._connection, {run_id: after})
            rows += found[0].rows if found else ()
            if not found or not found[0].more:
                break
        return rows
