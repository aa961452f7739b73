"""Time, injected.

Durations are measured with a monotonic clock.
Leases are judged by the database's clock alone (`rowlock.now()` in SQL), never by a worker's.
Code that waits or measures takes a `Clock`, so that tests own it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What the engine needs of time."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back and is shared by all processes here."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...


class SystemClock:
    """The machine's own clock."""

    #: CLOCK_MONOTONIC in seconds; on Linux it is the same in every process.
    #: The function itself: each step of each run asks four times.
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` on the running event loop."""
        await asyncio.sleep(seconds)
