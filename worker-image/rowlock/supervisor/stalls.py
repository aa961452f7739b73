"""Finds loops that do not tick: slow is not dead, but what never ends must end.

Below the ceiling a blocked loop loses nothing, for its supervisor goes on beating.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

PERIOD = 0.25
#: A round that comes so late says that we ourselves were stopped, and the loops perhaps with us.
_OWN_GAP = 2.0


class Ticking(Protocol):
    """A loop, as far as the watch sees it."""

    @property
    def ticks(self) -> int:
        """How often it has ticked."""
        ...


T = TypeVar("T", bound=Ticking)


@dataclass(slots=True)
class _Seen:
    ticks: int
    changed_at: float


class StallWatch(Generic[T]):
    """Remembers when each loop last ticked.

    Parameters
    ----------
    ceiling_seconds
        Without a tick for so long, a loop is stalled.
    """

    def __init__(self, ceiling_seconds: float) -> None:
        self._ceiling = ceiling_seconds
        self._seen: dict[T, _Seen] = {}
        self._last_round: float | None = None

    def stalled(self, loops: Sequence[T], now: float) -> list[T]:
        """Return the loops that have not ticked for the ceiling; `now` is monotonic seconds.

        Time in which this watch did not look does not count:
        a process group that was stopped is not stalled when it goes on.
        """
        gap = self._last_round is not None and now - self._last_round > _OWN_GAP
        self._last_round = now
        self._seen = {loop: self._look(loop, now, gap) for loop in loops}
        return [loop for loop, seen in self._seen.items() if now - seen.changed_at > self._ceiling]

    def _look(self, loop: T, now: float, gap: bool) -> _Seen:
        seen = self._seen.get(loop)
        if seen is None or gap or seen.ticks != loop.ticks:
            return _Seen(loop.ticks, now)
        return seen
