"""When each stream is read: all streams of a process share one tick.

A connection that was read stops reading and waits here; at its turn it reads on,
and gets in one piece what the kernel has gathered meanwhile.
While streams are few the tick is short and text comes out smoothly;
with a thousand it is long enough that each read is worth its system calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

SHORTEST_SECONDS = 0.005
LONGEST_SECONDS = 0.1

_SECONDS_PER_STREAM = 0.0001
#: A tick is done in so many slices, so that a thousand streams never hold up the loop at once.
_SLICES = 10


def period(streams: int) -> float:
    """Return the seconds between two reads of one stream when so many are open."""
    return min(max(streams * _SECONDS_PER_STREAM, SHORTEST_SECONDS), LONGEST_SECONDS)


def slice_seconds(streams: int) -> float:
    """Return the seconds between two rounds, each of which serves a part of the streams."""
    return max(period(streams) / _SLICES, SHORTEST_SECONDS)


def share(streams: int, late: float = 0.0) -> int:
    """Return how many streams a round may serve: up to twice the even share, then they spread.

    Parameters
    ----------
    late
        Seconds by which the round comes too late; it makes up for those that should have been.
    """
    return 1 + int(2 * streams * (slice_seconds(streams) + late) / period(streams))


class Paced(Protocol):
    """A connection that is read at its turn."""

    def read_on(self) -> bool:
        """Take its turn; return whether it wants another one."""
        ...


class Tick:
    """The turns of all streams of one event loop.

    Attributes
    ----------
    streams
        How many are open now; whoever opens and closes them counts.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.streams = 0
        self._loop = loop
        self._queue: deque[tuple[float, Paced]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0

    def wait(self, stream: Paced) -> None:
        """Give `stream` a turn, one period from now."""
        self._queue.append((self._loop.time() + period(self.streams), stream))
        if self._timer is None:
            self._set(self._queue[0][0])

    def turn(self) -> None:
        """Serve those that are due, and set the timer for the next round."""
        self._timer = None
        now, queue = self._loop.time(), self._queue
        following = now + period(self.streams)
        for _ in range(min(share(self.streams, now - self._at), len(queue))):
            if queue[0][0] > now:
                break
            stream = queue.popleft()[1]
            if stream.read_on():
                queue.append((following, stream))
        if queue and self._timer is None:
            self._set(max(queue[0][0], now + slice_seconds(self.streams)))

    def _set(self, at: float) -> None:
        self._at = at
        self._timer = self._loop.call_at(at, self.turn)
