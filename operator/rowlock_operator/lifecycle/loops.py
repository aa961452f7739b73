"""The one shape of every loop: a round, its report, a pause; errors wait longer and longer.

A round that fails with one of our errors is tried again. Anything else is a bug: it ends the
process, the kubelet starts a new one, and the sweep repairs what was left.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock.errors import RowlockError, StoreUnavailable
from rowlock_operator import metrics as m
from rowlock_operator.lifecycle.health import Health

log = structlog.get_logger(__name__)

_FIRST_WAIT, _LAST_WAIT = 0.2, 15.0


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop.

    Parameters
    ----------
    once
        Does one round and returns its report.
    pause
        Waits, given the report, until the next round is worth while.
    """

    name: str
    once: Callable[[], Awaitable[Any]]
    pause: Callable[[Any], Awaitable[Any]]


class LoopRunner:
    """Runs loops and keeps their score."""

    def __init__(self, metrics: m.Metrics, health: Health, *, clock: Clock | None = None) -> None:
        self._metrics = metrics
        self._health = health
        self._clock = clock or SystemClock()

    async def run(self, loop: Loop) -> None:
        """Run a loop until cancelled."""
        failures = 0
        while True:
            try:
                report = await loop.once()
            except RowlockError as error:
                failures += 1
                await self._after(loop, error, failures)
                continue
            if failures:
                log.info("Going on", loop=loop.name, failures=failures)
            failures = 0
            self._metrics.add(m.ROUNDS, loop.name, "done")
            await loop.pause(report)

    async def _after(self, loop: Loop, error: RowlockError, failures: int) -> None:
        self._metrics.add(m.ROUNDS, loop.name, "error")
        if isinstance(error, StoreUnavailable):
            self._health.database_up = False
        wait = backoff(failures)
        tell = log.warning if error.retryable else log.error
        tell("A round failed", loop=loop.name, error=f"{type(error).__name__}: {error}", wait=wait)
        await self._clock.sleep(wait)


def backoff(failures: int) -> float:
    """Return the seconds to wait after so many failures in a row, give or take a fifth."""
    wait = min(_LAST_WAIT, _FIRST_WAIT * 2.0 ** min(failures - 1, 10))
    return round(wait * random.uniform(0.8, 1.2), 3)  # noqa: S311  spreads retries, hides nothing


def unless(
    busy: Callable[[Any], bool], pause: Callable[[Any], Awaitable[Any]]
) -> Callable[[Any], Awaitable[Any]]:
    """Return a pause that is left out while a report says that there is more to do."""

    async def chosen(report: Any) -> None:
        if not busy(report):
            await pause(report)

    return chosen


async def at_once(_report: Any) -> None:
    """Do not pause: the round itself waits."""


def every(seconds: float, *, clock: Clock | None = None, jitter: float = 0.0) -> Callable[..., Any]:
    """Return a pause of `seconds`, give or take the share `jitter`."""
    chosen = clock or SystemClock()

    async def pause(_report: Any) -> None:
        spread = random.uniform(1 - jitter, 1 + jitter)  # noqa: S311
        await chosen.sleep(seconds * spread)

    return pause
