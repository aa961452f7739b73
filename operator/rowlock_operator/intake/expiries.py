"""Deletes AgentRuns whose time to live is over: due rows from the database, no timer per object.

An object goes only as it was just read: over, with no further attempt asked for, and unchanged.
Those that were refused have no row; the sweep shows them here.
What cannot be deleted now rests by itself, for longer each time, and holds up nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, unique
from typing import Any

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock.store import expiry as store
from rowlock.store.connection import Connection
from rowlock_operator import metrics as m
from rowlock_operator.intake.apart import apart
from rowlock_operator.intake.departures import Departures
from rowlock_operator.intake.seen import Seen, seen_from
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import Conflict, NotFound
from rowlock_operator.kube.putoff import PutOff
from rowlock_operator.kube.resources import AGENT_RUNS, ObjectKey

log = structlog.get_logger(__name__)

_AT_ONCE = 100
_PERIOD_SECONDS = 2.0


@unique
class Fate(Enum):
    """What becomes of one object."""

    DELETE = "delete"
    #: It is gone, or another one has its name.
    GONE = "gone"
    #: It has to say first how it ended, or goes on.
    STAY = "stay"


def fate(seen: Seen | None, *, uid: str) -> Fate:
    """Decide what becomes of an object whose time is over by its row."""
    if seen is None or seen.key.uid != uid:
        return Fate.GONE
    return Fate.DELETE if seen.finished and not seen.redrive and not seen.deleting else Fate.STAY


def seconds_left(status: Mapping[str, Any], ttl: int, *, now: datetime) -> float | None:
    """Return for how long an object still stays after the end that it shows; None if it has none.

    Parameters
    ----------
    ttl
        Seconds from that end on.
    """
    ended = status.get("completionTime")
    if not ended:
        return None
    return ttl - (now - datetime.fromisoformat(ended)).total_seconds()


@dataclass(slots=True)
class Rowless:
    """An object without a row that is over; `look_at` is on the monotonic clock."""

    key: ObjectKey
    ttl: int
    look_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """What one round did."""

    due: int = 0
    deleted: int = 0


class Expiries:
    """Looks for what is due, every other second."""

    def __init__(
        self,
        client: KubeClient,
        connection: Connection,
        departures: Departures,
        metrics: m.Metrics,
        *,
        cluster: str,
        namespaces: tuple[str, ...] = (),
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._connection = connection
        self._departures = departures
        self._metrics = metrics
        self._cluster = cluster
        self._namespaces = namespaces
        self._clock = clock or SystemClock()
        self._rowless: dict[str, Rowless] = {}
        self._put_off = PutOff(clock=clock)

    def consider(self, rowless: Iterable[tuple[ObjectKey, int]]) -> None:
        """Take all objects without a row that are over, with their times to live in seconds."""
        known = self._rowless
        self._rowless = {}
        for key, ttl in rowless:
            old = known.get(key.uid)
            self._rowless[key.uid] = old if old and old.ttl == ttl else Rowless(key, ttl)

    async def run_once(self) -> ExpiryReport:
        """Delete what is due now.

        Raises
        ------
        StoreUnavailable, KubeError
            PostgreSQL or the API server is away; what is refused rests by itself.
        """
        resting = self._put_off.resting()
        due = await store.expired(
            self._connection,
            cluster=self._cluster,
            namespaces=self._namespaces,
            limit=_AT_ONCE,
            but=resting,
        )
        keys = [ObjectKey(*it) for it in due]
        if len(keys) < _AT_ONCE:
            self._put_off.keep({*resting, *(key.uid for key in keys), *self._rowless})
        done = await apart({key.uid: self._expire(key) for key in keys}, self._put_off)
        # Also what was deleted: it is due until it is gone, which others may delay.
        for key in keys:
            if key.uid in done:
                self._put_off.failed(key.uid)
        deleted = sum(done.values()) + await self._expire_rowless()
        self._metrics.add(m.EXPIRED, by=deleted)
        return ExpiryReport(len(due), deleted)

    async def pause(self, report: ExpiryReport) -> None:
        """Wait a moment; not while there is more to delete."""
        await asyncio.sleep(0.1 if report.due == _AT_ONCE else _PERIOD_SECONDS)

    async def _expire(self, key: ObjectKey) -> bool:
        seen = await self._read(key)
        it = fate(seen, uid=key.uid)
        if it is Fate.GONE:
            self._departures.suspect(key)
        return it is Fate.DELETE and seen is not None and await self._delete(seen)

    async def _expire_rowless(self) -> int:
        """Read each once, and again when its time is over."""
        now = self._clock.monotonic()
        due = [
            one
            for one in self._rowless.values()
            if one.look_at <= now and self._put_off.due(one.key.uid)
        ][:_AT_ONCE]
        done = await apart({it.key.uid: self._expire_one(it) for it in due}, self._put_off)
        return sum(done.values())

    async def _expire_one(self, one: Rowless) -> bool:
        seen = await self._read(one.key)
        left = None
        if seen is not None and fate(seen, uid=one.key.uid) is Fate.DELETE:
            left = seconds_left(seen.status, one.ttl, now=datetime.now(UTC))
        if seen is None or left is None:
            self._rowless.pop(one.key.uid, None)
            return False
        if left > 0:
            one.look_at = self._clock.monotonic() + max(left, 1.0)
            return False
        deleted = await self._delete(seen)
        self._put_off.failed(one.key.uid)
        return deleted

    async def _read(self, key: ObjectKey) -> Seen | None:
        try:
            item = await self._client.get(AGENT_RUNS.path(key.namespace, key.name))
        except NotFound:
            return None
        return seen_from(item, AGENT_RUNS.kind)

    async def _delete(self, seen: Seen) -> bool:
        key = seen.key
        try:
            path = AGENT_RUNS.path(key.namespace, key.name)
            await self._client.delete(path, uid=key.uid, version=seen.version)
        except (NotFound, Conflict):
            return False
        log.info("The AgentRun's time to live is over", run=str(key))
        return True
