"""The one shape of our long-running loops: a round, a wait, until told to stop.

A round is never cancelled, for it may be in the middle of a statement.
What a round raises is logged and counted, and the next one comes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from rowlock import metrics
from rowlock.errors import StoreError
from rowlock.metrics import Tally

log = structlog.get_logger(__name__)


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait `seconds`, or less if `stop` is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


class Guard:
    """Runs rounds that may fail, saying so once when it begins and once when it ends."""

    def __init__(self, name: str, tally: Tally) -> None:
        self._name = name
        self._tally = tally
        self.failures = 0

    async def attempt(self, once: Callable[[], Awaitable[object]]) -> bool:
        """Do `once`; did it work?"""
        try:
            await once()
        except Exception as error:
            self._failed(error)
            return False
        if self.failures:
            log.info("Works again", round=self._name, failures=self.failures)
            self.failures = 0
        return True

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self._tally.add(metrics.ROUND_ERRORS, self._name)
        if not isinstance(error, StoreError):
            log.error("A round met an unexpected error", round=self._name, exc_info=error)
        elif self.failures == 1:
            log.warning("PostgreSQL did not answer", round=self._name, error=str(error))


async def keep(
    guard: Guard,
    once: Callable[[], Awaitable[object]],
    wait: Callable[[bool], float],
    stop: asyncio.Event,
) -> None:
    """Do round after round until `stop`; `wait` tells the pause from whether the round worked."""
    while not stop.is_set():
        worked = await guard.attempt(once)
        await pause(stop, wait(worked))
