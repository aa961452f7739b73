"""How often steps are told to come again later: by a model, an API, whatever stands behind them.

A pool whose model provider is at its limit gains nothing by more workers: they are refused, too.
So each process counts, and its beats say what it counted.
"""

from __future__ import annotations

from typing import Final

#: Seconds of one of the two halves of the window.
_HALF_SECONDS: Final = 15.0
_TOO_MANY: Final = 429


def tells_to_wait(error: BaseException) -> bool:
    """Tell whether an error says that the other side has too much to do.

    Our own errors and those of the usual clients say so by `retry_after`, or by the status 429.
    """
    try:
        status = getattr(error, "status_code", None) or getattr(error, "status", None)
        return getattr(error, "retry_after", None) is not None or bool(status == _TOO_MANY)
    except Exception:  # somebody else's class may do anything when it is asked
        return False


class Pressure:
    """Tries of steps in this process and how many were refused, in the last 15 to 30 s."""

    __slots__ = ("_before", "_now", "_since")

    def __init__(self) -> None:
        self._now = [0, 0]
        self._before = [0, 0]
        self._since = 0.0

    def tried(self, error: BaseException | None = None) -> None:
        """Count a try of a step that ended, with `error` or well."""
        self._now[0] += 1
        if error is not None and tells_to_wait(error):
            self._now[1] += 1

    def read(self, now: float) -> tuple[int, int]:
        """Return (tries, refused); call it every few seconds with the monotonic time."""
        passed = now - self._since
        if passed >= _HALF_SECONDS:
            self._before = self._now if passed < 2 * _HALF_SECONDS else [0, 0]
            self._now, self._since = [0, 0], now
        return self._now[0] + self._before[0], self._now[1] + self._before[1]


#: Of this process: a step knows no host, and the host looks here.
PRESSURE: Final = Pressure()
