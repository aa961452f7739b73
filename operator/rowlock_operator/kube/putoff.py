"""Puts off what failed, each thing by itself: the others need not wait for it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rowlock.clock import Clock, SystemClock

_FIRST_SECONDS = 1.0
_MOST_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class _Rest:
    """How long something rests."""

    seconds: float
    until: float


class PutOff:
    """Remembers what failed and when it is to be tried again, by uid or any other name.

    Each failure in a row doubles the rest. Nothing is kept of what has succeeded or is forgotten.

    Parameters
    ----------
    first
        Seconds of rest after the first failure.
    most
        Seconds of the longest rest.
    """

    def __init__(
        self,
        *,
        first: float = _FIRST_SECONDS,
        most: float = _MOST_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._first = first
        self._most = most
        self._clock = clock or SystemClock()
        self._rests: dict[str, _Rest] = {}

    def __len__(self) -> int:
        return len(self._rests)

    def due(self, uid: str) -> bool:
        """Tell whether something may be tried now; what never failed always may."""
        rest = self._rests.get(uid)
        return rest is None or rest.until <= self._clock.monotonic()

    def resting(self) -> list[str]:
        """Return all that is not to be tried now."""
        return [uid for uid in self._rests if not self.due(uid)]

    def failed(self, uid: str, *, at_least: float = 0) -> float:
        """Have something rest, twice as long as the last time; return for how many seconds.

        Parameters
        ----------
        at_least
            Seconds that whoever refused asked for, such as `Throttled.retry_after`.
        """
        before = self._rests.get(uid)
        seconds = self._first if before is None else before.seconds * 2
        seconds = min(max(seconds, at_least), self._most)
        self._rests[uid] = _Rest(seconds, self._clock.monotonic() + seconds)
        return seconds

    def forget(self, uid: str) -> None:
        """Forget what has succeeded, or is to be tried at once."""
        self._rests.pop(uid, None)

    def keep(self, uids: Collection[str]) -> None:
        """Forget all but these: the others are gone."""
        for uid in self._rests.keys() - set(uids):
            del self._rests[uid]
