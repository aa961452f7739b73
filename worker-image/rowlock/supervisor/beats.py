"""Beats for all loop processes of this worker, in one statement, on a connection of their own.

The supervisor beats and not the loops, so that no model, no tool, nothing that holds the GIL
and no full writer delays a beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rowlock import metrics
from rowlock.clock import Clock
from rowlock.metrics import Tally
from rowlock.store import workers
from rowlock.store.connection import Connection
from rowlock.supervisor.child import Child
from rowlock.supervisor.cpu import CpuMeter


@dataclass(frozen=True, slots=True)
class BeatReport:
    """What one beat said."""

    accepted: int
    refused: tuple[Child, ...]


class Beater:
    """Renews the leases of a worker's loop processes."""

    def __init__(self, connection: Connection, *, clock: Clock, tally: Tally) -> None:
        self._connection = connection
        self._clock = clock
        self._tally = tally
        self._cpu = CpuMeter()

    async def run_once(self, children: Sequence[Child]) -> BeatReport:
        """Beat for `children`; a refused one is fenced.

        An accepted beat counts from when it was sent: it may have been taken at any time since.
        """
        if not children:
            return BeatReport(0, ())
        now = self._clock.monotonic()
        sent_ns, cpu = int(now * 1e9), self._cpu.percent(now)
        beats = [replace(child.beat(), cpu_percent=cpu) for child in children]
        accepted = await workers.beat(self._connection, beats)
        refused: list[Child] = []
        for child in children:
            if child.exited.done():  # meanwhile; its board may be gone
                continue
            if child.worker_id in accepted:
                child.board.accepted(sent_ns)
            else:
                refused.append(child)
        self._tally.add(metrics.BEATS, "accepted", by=len(accepted))
        self._tally.add(metrics.BEATS, "refused", by=len(refused))
        return BeatReport(len(accepted), tuple(refused))
