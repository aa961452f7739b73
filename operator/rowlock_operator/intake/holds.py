"""Holds deleted AgentRuns until their runs have ended, where an installation opted in to that.

Off by default: whoever deletes a namespace while the operator is away must not have to wait for
it. Off, it still releases what was held before it was switched off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, unique
from typing import Any

import structlog

from rowlock.store import expiry as store
from rowlock.store.connection import Connection
from rowlock_operator import metrics as m
from rowlock_operator.api.names import HOLD
from rowlock_operator.intake.apart import apart
from rowlock_operator.kube.client import METADATA_ONLY, KubeClient
from rowlock_operator.kube.errors import Conflict, Invalid, NotFound
from rowlock_operator.kube.putoff import PutOff
from rowlock_operator.kube.resources import AGENT_RUNS, ObjectKey

log = structlog.get_logger(__name__)

_MANAGER = "rowlock-hold"
_AT_ONCE = 100
_PERIOD_SECONDS = 0.5


@unique
class Hold(Enum):
    """What becomes of our finalizer on one object."""

    ADD = "add"
    KEEP = "keep"
    RELEASE = "release"
    #: Its run has still not ended, but it was held for long enough.
    GIVE_UP = "give_up"


def decide(
    metadata: Mapping[str, Any], *, live: bool, enabled: bool, limit: float, now: datetime
) -> Hold:
    """Decide about one object.

    Parameters
    ----------
    live
        Whether its run has not ended.
    limit
        Seconds from its deletion on after which it is held no longer.
    """
    held = HOLD in (metadata.get("finalizers") or ())
    deleted = metadata.get("deletionTimestamp")
    if not held:
        return Hold.ADD if enabled and live and not deleted else Hold.KEEP
    if deleted is None:
        return Hold.KEEP if enabled and live else Hold.RELEASE
    if not live:
        return Hold.RELEASE
    over = datetime.fromisoformat(deleted) + timedelta(seconds=limit) <= now
    return Hold.GIVE_UP if over else Hold.KEEP


@dataclass(frozen=True, slots=True)
class HoldReport:
    """What one round did."""

    added: int = 0
    released: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldSettings:
    """Whether to hold, and for how many seconds from the deletion on."""

    cluster: str
    enabled: bool = False
    limit: float = 600


class Holds:
    """The objects whose finalizer has to be looked at, and the loop that does so."""

    def __init__(
        self,
        client: KubeClient,
        connection: Connection,
        metrics: m.Metrics,
        settings: HoldSettings,
    ) -> None:
        self._client = client
        self._connection = connection
        self._metrics = metrics
        self._settings = settings
        self._watched: dict[str, ObjectKey] = {}
        self._put_off = PutOff()
        self._something = asyncio.Event()

    @property
    def enabled(self) -> bool:
        """Whether objects are held at all."""
        return self._settings.enabled

    def look_at(self, keys: Sequence[ObjectKey]) -> None:
        """Have objects looked at soon: new ones, deleted ones, ended ones."""
        for key in keys:
            self._watched[key.uid] = key
        if keys:
            self._something.set()

    async def run_once(self) -> HoldReport:
        """Add and take away finalizers; deleted objects are looked at until they may go.

        Raises
        ------
        StoreUnavailable, KubeError
            PostgreSQL or the API server is away; what is refused rests by itself.
        """
        batch = [key for uid, key in self._watched.items() if self._put_off.due(uid)][:_AT_ONCE]
        if not self._watched:
            self._something.clear()
            return HoldReport()
        uids = [key.uid for key in batch]
        live = await store.live(self._connection, cluster=self._settings.cluster, uids=uids)
        work = {key.uid: self._settle(key, live=key.uid in live) for key in batch}
        done = await apart(work, self._put_off)
        self._take_turns(batch, done)
        holds = list(done.values())
        return HoldReport(
            holds.count(Hold.ADD),
            holds.count(Hold.RELEASE) + holds.count(Hold.GIVE_UP),
            len(self._watched),
        )

    def _take_turns(self, batch: Sequence[ObjectKey], done: Mapping[str, Hold]) -> None:
        """Have those that nobody has looked at come first, before those that wait for an end."""
        for key in batch:
            if key.uid in done:
                self._put_off.forget(key.uid)
            if self._watched.pop(key.uid, None):
                self._watched[key.uid] = key

    async def pause(self, report: HoldReport) -> None:
        """Wait for an object to look at, or a moment for a run to end."""
        if report.waiting:
            await asyncio.sleep(_PERIOD_SECONDS)
        else:
            await self._something.wait()

    async def _settle(self, key: ObjectKey, *, live: bool) -> Hold:
        path = AGENT_RUNS.path(key.namespace, key.name)
        try:
            metadata = (await self._client.get(path, accept=METADATA_ONLY))["metadata"]
        except NotFound:
            metadata = {}
        if metadata.get("uid") != key.uid:
            self._watched.pop(key.uid, None)
            return Hold.KEEP
        it = decide(
            metadata,
            live=live,
            enabled=self._settings.enabled,
            limit=self._settings.limit,
            now=datetime.now(UTC),
        )
        return await self._carry_out(it, key, metadata)

    async def _carry_out(self, it: Hold, key: ObjectKey, metadata: Mapping[str, Any]) -> Hold:
        finalizers = list(metadata.get("finalizers") or ())
        if it is Hold.ADD:
            finalizers.append(HOLD)
        elif it in (Hold.RELEASE, Hold.GIVE_UP):
            finalizers.remove(HOLD)
        if it is not Hold.KEEP:
            if not await self._write(key, metadata, finalizers):
                return Hold.KEEP
            self._metrics.add(m.HOLDS, it.value)
        if it is Hold.GIVE_UP:
            log.warning("A deleted AgentRun is let go before its run has ended", run=str(key))
        if it is not Hold.KEEP or "deletionTimestamp" not in metadata:
            self._watched.pop(key.uid, None)
        return it

    async def _write(
        self, key: ObjectKey, metadata: Mapping[str, Any], finalizers: Sequence[str]
    ) -> bool:
        """Replace the finalizers; False if the object has changed meanwhile: look again."""
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": key.uid},
            {
                "op": "test",
                "path": "/metadata/resourceVersion",
                "value": metadata["resourceVersion"],
            },
            {"op": "add", "path": "/metadata/finalizers", "value": list(finalizers)},
        ]
        path = AGENT_RUNS.path(key.namespace, key.name)
        try:
            await self._client.json_patch(path, operations, manager=_MANAGER)
        except (NotFound, Conflict):
            return False
        except Invalid as error:
            if error.causes:
                raise
            return False
        return True
