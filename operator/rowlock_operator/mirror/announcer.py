"""Writes Kubernetes Events: bounded, slower than statuses, and nothing depends on them.

The condition and the counter are written first; an Event that is dropped or refused loses nothing
but a line in `kubectl describe`. Warnings are never dropped for Normal ones.
While the API server is away Events wait, as many as there is room for.
The mirror keeps the change that an Event announces in the database until it hears from here that
the Event is settled: one that waits when its operator is killed is written by the next.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from dataclasses import dataclass

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock_operator import metrics as m
from rowlock_operator.kube.client import KubeClient, Lane
from rowlock_operator.kube.errors import Conflict, KubeError, Throttled, Unreachable
from rowlock_operator.kube.resources import EVENTS
from rowlock_operator.mirror.announcements import Announcement, event_body

log = structlog.get_logger(__name__)

_MOST_WAITING = 5000
_AT_ONCE = 4
_AWAY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class AnnouncerReport:
    """What one round did."""

    written: int = 0
    failed: int = 0


class Announcer:
    """A bounded queue of Events and the loop that writes them.

    Parameters
    ----------
    normal
        Whether Events of type Normal are written at all.
    """

    def __init__(
        self,
        client: KubeClient,
        metrics: m.Metrics,
        *,
        normal: bool = True,
        most: int = _MOST_WAITING,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._normal = normal
        self._most = most
        self._clock = clock or SystemClock()
        self._warnings: deque[Announcement] = deque()
        self._quiet: deque[Announcement] = deque()
        self._settled: list[int] = []
        self._something = asyncio.Event()
        self._instance = socket.gethostname()

    def __len__(self) -> int:
        return len(self._warnings) + len(self._quiet)

    def announce(self, said: Announcement) -> bool:
        """Take an Event to be written soon; False if it is dropped, because too many wait."""
        if said.type == "Normal" and not self._normal:
            return False
        queue = self._quiet if said.type == "Normal" else self._warnings
        if len(self) >= self._most and not self._make_room(queue):
            self._metrics.add(m.EVENTS, "dropped")
            return False
        queue.append(said)
        self._something.set()
        return True

    def settled(self) -> list[int]:
        """Return the numbers of the changes whose Events are written, refused or dropped since."""
        settled, self._settled = self._settled, []
        return settled

    async def run(self) -> None:
        """Write Events as they come, until cancelled."""
        while True:
            await self._something.wait()
            report = await self.run_once()
            if report.failed:
                await self._clock.sleep(_AWAY_SECONDS)

    def _settle(self, said: Announcement) -> None:
        """Let the change go that an Event announced; others have numbers of their own."""
        if said.of_change:
            self._settled.append(said.number)

    async def run_once(self) -> AnnouncerReport:
        """Write a few of the waiting Events, warnings first."""
        batch = self._take(_AT_ONCE)
        done = await asyncio.gather(*(self._write(said) for said in batch))
        for said, is_done in zip(batch, done, strict=True):
            if is_done or not self.announce(said):
                self._settle(said)
        return AnnouncerReport(written=sum(done), failed=len(done) - sum(done))

    async def drain(self) -> None:
        """Write all that wait, or stop at the first that the API server does not take now."""
        while len(self) and not (await self.run_once()).failed:
            pass

    def _make_room(self, queue: deque[Announcement]) -> bool:
        if queue is self._warnings and self._quiet:
            self._settle(self._quiet.popleft())
            self._metrics.add(m.EVENTS, "dropped")
            return True
        return False

    def _take(self, count: int) -> list[Announcement]:
        batch: list[Announcement] = []
        while len(batch) < count and len(self):
            batch.append((self._warnings or self._quiet).popleft())
        if not len(self):
            self._something.clear()
        return batch

    async def _write(self, said: Announcement) -> bool:
        """Write one Event; False if it has to be tried again."""
        path = EVENTS.path(said.key.namespace)
        body = event_body(said, instance=self._instance)
        try:
            await self._client.create(path, body, lane=Lane.EVENT)
        except Conflict:
            self._metrics.add(m.EVENTS, "exists")
        except (Unreachable, Throttled):
            return False
        except KubeError as error:
            self._metrics.add(m.EVENTS, "failed")
            log.debug("An Event was refused", name=said.name, error=str(error))
        else:
            self._metrics.add(m.EVENTS, "written")
        return True
