"""Where AgentRuns wait to be taken in: the newest of each object, in the order they came.

While PostgreSQL or the API server is away it goes on coalescing: memory is bounded by the number
of distinct objects, and the sweep makes good whatever a crash loses.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from rowlock_operator import metrics as m
from rowlock_operator.intake.admission import Admission, AdmissionReport
from rowlock_operator.intake.seen import Seen

FLUSH_ROWS = 500


@dataclass(frozen=True, slots=True)
class InboxReport:
    """What one flush did."""

    taken: int = 0
    left: int = 0
    admission: AdmissionReport = field(default_factory=AdmissionReport)


class Coalescer:
    """Keeps one object per uid; no I/O."""

    def __init__(self) -> None:
        self._waiting: dict[str, Seen] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, seen: Seen) -> None:
        """Take an object: the higher generation stays, and nothing comes after a deletion."""
        known = self._waiting.get(seen.key.uid)
        if known is None or _replaces(seen, known):
            self._waiting[seen.key.uid] = seen

    def take(self, limit: int) -> list[Seen]:
        """Return up to `limit` objects, the first that came first, and forget them."""
        uids = list(self._waiting)[:limit]
        return [self._waiting.pop(uid) for uid in uids]

    def put_back(self, batch: Iterable[Seen]) -> None:
        """Take objects again that could not be taken in; what came meanwhile is newer."""
        newer, self._waiting = self._waiting, {}
        for seen in (*batch, *newer.values()):
            self.put(seen)


class Inbox:
    """Hands what waits over to admission, in batches."""

    def __init__(self, admission: Admission, metrics: m.Metrics) -> None:
        self._admission = admission
        self._metrics = metrics
        self._waiting = Coalescer()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, seen: Seen) -> None:
        """Take an AgentRun that was seen."""
        self._waiting.put(seen)

    async def run_once(self) -> InboxReport:
        """Flush one batch; on an error it is kept for the next try."""
        batch = self._waiting.take(FLUSH_ROWS)
        began = time.monotonic()
        try:
            report = await self._admission.admit(batch) if batch else AdmissionReport()
        except BaseException:
            self._waiting.put_back(batch)
            raise
        finally:
            self._metrics.show(m.INBOX_RUNS, len(self._waiting))
        if batch:
            self._metrics.observe(m.INTAKE_SECONDS, time.monotonic() - began)
        return InboxReport(len(batch), len(self._waiting), report)


def _replaces(seen: Seen, known: Seen) -> bool:
    if known.gone:
        return False
    return seen.gone or seen.generation >= known.generation
