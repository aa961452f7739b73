"""Time that passes only when somebody waits."""

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

    def monotonic(self) -> float:
        """Return the seconds that were waited for."""
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        """Move the time on by `seconds`."""
        self.slept.append(seconds)
