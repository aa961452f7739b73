"""How much a claimer asks for, and how soon again: decisions without I/O.

* The last claim was full: more is queued, so ask at once for what is still free.
* Some came: look again soon. Nothing came: look ever more rarely, every 250 ms at the latest.
* The loop wakes up late (over 50 ms): take nothing more until it is under 20 ms again,
  but for a sixteenth of the slots.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

MOST = 64
GATHER_SECONDS = 0.010
_RAMP = (16, 32)
_LAG_STOP = 0.050
_LAG_RESUME = 0.020
_SHARE_WHEN_LATE = 16
_SOON_SECONDS = 0.050
_IDLE_SECONDS = 0.250


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """What one round did.

    Parameters
    ----------
    asked
        Runs asked for; 0 if the round was held back or no slot was free.
    """

    asked: int
    got: int = 0

    @property
    def full(self) -> bool:
        """Is more to be expected?"""
        return self.asked > 0 and self.got == self.asked


class Pace:
    """Remembers what the last rounds brought."""

    def __init__(self) -> None:
        self._rounds = 0
        self._idle_wait = _SOON_SECONDS
        #: The loop is too late to take more.
        self.held_back = False
        #: More is queued than was claimed.
        self.hungry = False

    def limit(self, *, free: int, slots: int, lag: float) -> int:
        """Return how many runs to ask for, with `free` slots and a loop that is `lag` s late."""
        self.held_back = lag > (_LAG_RESUME if self.held_back else _LAG_STOP)
        most = _RAMP[self._rounds] if self._rounds < len(_RAMP) else MOST
        if self.held_back:
            # With so few runs it is the machine that is late, and an idle worker helps nobody.
            free -= slots - slots // _SHARE_WHEN_LATE
        return max(0, min(free, most))

    def restart(self) -> None:
        """Ask for little again: after an outage everybody comes back at once."""
        self._rounds = 0

    def pause_after(self, report: ClaimReport, *, free: int) -> float:
        """Return the seconds until the next round; a freed slot may end it earlier."""
        if report.asked == 0:
            return GATHER_SECONDS if self.held_back else _IDLE_SECONDS
        self._rounds += 1
        self.hungry = report.full
        if report.full:
            return 0.0 if free > 0 else _IDLE_SECONDS
        self._idle_wait = _SOON_SECONDS if report.got else min(_IDLE_SECONDS, self._idle_wait * 1.5)
        return self._idle_wait * random.uniform(0.7, 1.0)  # noqa: S311  spreads the polls


def enough(free: int, *, slots: int) -> bool:
    """Are so many slots free that a claim is worth its statement at once?"""
    return free >= min(MOST, slots // 4)
