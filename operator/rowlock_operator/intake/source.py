"""The seam where objects come in: kopf today, something faster if a measurement asks for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rowlock_operator.intake.seen import Seen


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """Whether the watches are alive.

    Parameters
    ----------
    watchers, expected
        Streams that are open, and that there should be.
    beat_age
        Seconds since the source's own loop last came round.
    event_at
        Monotonic time of the last event; None before the first.
    ended
        Why the source ended, if it did.
    """

    watchers: int
    expected: int
    beat_age: float
    event_at: float | None = None
    ended: str | None = None

    @property
    def alive(self) -> bool:
        """Tell whether all streams are there and the loop turns."""
        return self.ended is None and self.watchers >= self.expected and self.beat_age < 10


class RunSource(Protocol):
    """Reports the objects of our kinds as it sees them, some more than once."""

    def start(self, deliver: Callable[[Seen], None]) -> None:
        """Begin; `deliver` may be called from any thread and returns at once."""
        ...

    async def stop(self) -> None:
        """End, and return when nothing more will be delivered."""
        ...

    async def ended(self) -> str:
        """Wait until the source ends by itself, and return why: it never should."""
        ...

    def health(self) -> SourceHealth:
        """Say how it goes."""
        ...


class Handover:
    """Carries objects from the source's thread into ours.

    A deque's append and popleft are atomic, so the source never waits for us,
    and our loop is woken once for many objects.
    """

    def __init__(self) -> None:
        self._waiting: deque[Seen] = deque()
        self._loop = asyncio.get_running_loop()
        self._something = asyncio.Event()
        self._woken = False

    def put(self, seen: Seen) -> None:
        """Take an object; callable from any thread."""
        self._waiting.append(seen)
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._something.set)
            except RuntimeError:
                return  # our loop has ended; nobody needs this object any more

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is something; False after `timeout` seconds without."""
        try:
            async with asyncio.timeout(timeout):
                await self._something.wait()
        except TimeoutError:
            return False
        return True

    def take(self) -> list[Seen]:
        """Return all that came in since the last call."""
        self._something.clear()
        self._woken = False
        taken = []
        while self._waiting:
            taken.append(self._waiting.popleft())
        return taken
