"""How many requests a second the operator may make, and how it learns to make fewer.

A token bucket with a rate that adapts (additive increase, multiplicative decrease):
an overloaded API server halves it, each quiet second gives a twentieth of the configured rate back.
"""

from __future__ import annotations

from rowlock.clock import Clock, SystemClock

#: Many requests in flight fail together: they are one sign of overload, not thirty-two.
_ONE_SIGN_SECONDS = 1.0
_FLOOR = 1.0


class Limiter:
    """A token bucket whose rate follows what the API server can bear.

    Parameters
    ----------
    per_second
        The highest rate; it starts there.
    burst
        Requests that may go at once after a quiet time.
    """

    def __init__(
        self, per_second: float, *, burst: float | None = None, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._ceiling = max(per_second, _FLOOR)
        self._burst = max(burst if burst is not None else per_second / 4, 1.0)
        self._rate = self._ceiling
        self._tokens = self._burst
        self._filled_at = self._clock.monotonic()
        self._lowered_at = float("-inf")
        self._raised_at = self._filled_at
        self._paused_until = float("-inf")

    @property
    def rate(self) -> float:
        """Requests a second that are allowed now."""
        return self._rate

    async def acquire(self) -> None:
        """Wait until one more request may go."""
        wait = self.reserve()
        if wait > 0:
            await self._clock.sleep(wait)

    def reserve(self) -> float:
        """Take one token, on credit if need be, and return the seconds to wait for it."""
        now = self._clock.monotonic()
        self._fill(now)
        self._tokens -= 1
        owed = max(0.0, -self._tokens / self._rate)
        return max(owed, self._paused_until - now, 0.0)

    def succeeded(self) -> None:
        """Note that a request was served: a quiet second raises the rate again."""
        now = self._clock.monotonic()
        if self._rate < self._ceiling and now - max(self._raised_at, self._lowered_at) >= 1:
            self._fill(now)
            self._rate = min(self._ceiling, self._rate + self._ceiling / 20)
            self._raised_at = now

    def overloaded(self, *, retry_after: float = 0.0) -> None:
        """Note that the server could not keep up: halve the rate, and pause as long as it asked."""
        now = self._clock.monotonic()
        self._paused_until = max(self._paused_until, now + retry_after)
        if now - self._lowered_at >= _ONE_SIGN_SECONDS:
            self._fill(now)
            self._rate = max(_FLOOR, self._rate / 2)
            self._lowered_at = now

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
