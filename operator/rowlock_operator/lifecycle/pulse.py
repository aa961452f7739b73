"""What every process does, leader or standby: show that it is alive, and look for PostgreSQL."""

from __future__ import annotations

import time

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock.errors import StoreUnavailable
from rowlock.store.connection import Connection
from rowlock_operator import metrics as m
from rowlock_operator.kube.client import KubeClient, Lane
from rowlock_operator.lifecycle.health import Health

log = structlog.get_logger(__name__)

_BEAT_SECONDS = 1.0


class Beat:
    """Notes that the loop turns, how late it is, and the gauges that nobody else sets."""

    def __init__(self, client: KubeClient, metrics: m.Metrics, health: Health) -> None:
        self._client = client
        self._metrics = metrics
        self._health = health
        self._clock: Clock = SystemClock()

    async def run_once(self) -> None:
        """Wait for a second, and see how long that took."""
        began = time.monotonic()
        await self._clock.sleep(_BEAT_SECONDS)
        self._health.ticked_at = time.monotonic()
        self._health.lag = max(0.0, self._health.ticked_at - began - _BEAT_SECONDS)
        self._metrics.show(m.LOOP_LAG, self._health.lag, "main")
        self._metrics.show(m.DATABASE_UP, float(self._health.database_up))
        for lane in Lane:
            self._metrics.show(m.API_RATE, self._client.rate(lane), lane.value)


class Ping:
    """Asks PostgreSQL whether it is there, at the same pace whether it was or not.

    On a connection of its own, with a short patience: a statement of another loop that hangs in a
    broken network would be waited for half a minute.
    """

    def __init__(self, connection: Connection, health: Health) -> None:
        self._connection = connection
        self._health = health

    async def run_once(self) -> None:
        """Ask once."""
        try:
            await self._connection.ask()
        except StoreUnavailable as error:
            if self._health.database_up:
                log.warning("PostgreSQL does not answer", error=str(error))
            self._health.database_up = False
            return
        if not self._health.database_up:
            log.info("PostgreSQL answers")
        self._health.database_up = True
