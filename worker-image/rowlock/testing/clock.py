"""Time that passes only when somebody waits, or says so."""

from __future__ import annotations


class StillClock:
    """A clock for tests: a wait ends at once and moves the time on.

    Attributes
    ----------
    slept
        Seconds of every wait.
    """

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._now = 0.0

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Move the time on by `seconds`."""
        self.slept.append(seconds)
        self._now += seconds

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self._now += seconds
