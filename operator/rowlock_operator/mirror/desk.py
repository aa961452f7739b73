"""The one place from which statuses of AgentRuns are written.

A status is replaced as a whole, and only if the object is still the one that we think it is:
the patch tests the uid (a deleted run's end must never show on a new namesake) and the
resourceVersion (of two operators neither may overwrite what the other wrote later).
A test that fails costs one GET; then the status is built again from what really stands there.
Server-side apply will not do: with a stale uid it answers 200 and writes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Any

import msgspec
import structlog

from rowlock.states import ConditionType
from rowlock_operator import metrics as m
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.conditions import holds
from rowlock_operator.kube.errors import Conflict, Invalid, KubeError, NotFound, Rejected
from rowlock_operator.kube.resources import AGENT_RUNS, ObjectKey

log = structlog.get_logger(__name__)

FIELD_MANAGER = "rowlock-mirror"
_CACHED = 10_000
_TRIES = 4

#: Builds the status from what stands there; None: what stands there is newer, leave it.
Build = Callable[[Mapping[str, Any]], dict[str, Any] | None]


@unique
class Shown(StrEnum):
    """What became of one attempt to show a status; also a metric's label."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    SUPERSEDED = "superseded"
    #: There is no such object any more, or another one has its name.
    GONE = "gone"
    #: The API server will never take this status: a bug, to be looked at by a person.
    PARKED = "parked"


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands on the API server.

    Parameters
    ----------
    raw
        The status as JSON: a third of the memory that the decoded one takes.
    """

    version: str
    raw: bytes = field(repr=False)

    @property
    def status(self) -> Mapping[str, Any]:
        """Return the status."""
        status: Mapping[str, Any] = msgspec.json.decode(self.raw)
        return status


class StatusDesk:
    """Writes statuses and remembers what it wrote, so that an ordinary write needs no read."""

    def __init__(self, client: KubeClient, metrics: m.Metrics, *, cached: int = _CACHED) -> None:
        self._client = client
        self._metrics = metrics
        self._cached = cached
        self._standing: OrderedDict[str, Standing] = OrderedDict()
        self._generations: OrderedDict[str, int] = OrderedDict()

    def note(
        self, key: ObjectKey, *, generation: int, version: str, status: Mapping[str, Any]
    ) -> None:
        """Remember an object as a watch or list showed it: the next write needs no GET."""
        if generation > self._generations.get(key.uid, 0):
            self._generations[key.uid] = generation
            _trim(self._generations, self._cached)
        if key.uid not in self._standing:
            self._remember(key, version, status)

    def generation(self, uid: str) -> int:
        """Return the newest generation that was seen of an object, 0 if none was."""
        return self._generations.get(uid, 0)

    def forget(self, uid: str) -> None:
        """Drop what is remembered of an object."""
        self._standing.pop(uid, None)
        self._generations.pop(uid, None)

    async def show(self, key: ObjectKey, build: Build, *, fresh: bool = False) -> Shown:
        """Write the status that `build` makes.

        Parameters
        ----------
        fresh
            Read first what stands there: somebody found that it is not what we wrote.

        Raises
        ------
        KubeError
            The API server did not take it now; what it would show has to be shown later.
        """
        try:
            outcome = await self._show(key, build, fresh)
        except KubeError:
            self._metrics.add(m.STATUS_WRITES, "failed")
            raise
        self._metrics.add(m.STATUS_WRITES, outcome.value)
        return outcome

    async def _show(self, key: ObjectKey, build: Build, fresh: bool) -> Shown:
        standing = None if fresh else self._standing.get(key.uid)
        standing = standing or await self._read(key)
        for _ in range(_TRIES):
            if standing is None:
                self.forget(key.uid)
                return Shown.GONE
            before = standing.status
            status = build(before)
            if status is None:
                return Shown.SUPERSEDED
            if status == before:
                return Shown.UNCHANGED
            try:
                await self._write(key, standing, status)
            except NotFound:
                standing = None
            except (Invalid, Conflict, Rejected) as error:
                if _is_for_good(error):
                    return self._park(key, error)
                standing = await self._read(key)
            else:
                return Shown.WRITTEN
        raise Conflict(f"the status of {key} changes faster than it can be written")

    async def _write(self, key: ObjectKey, standing: Standing, status: dict[str, Any]) -> None:
        answer = await self._client.json_patch(
            AGENT_RUNS.path(key.namespace, key.name, "status"),
            [
                {"op": "test", "path": "/metadata/uid", "value": key.uid},
                {"op": "test", "path": "/metadata/resourceVersion", "value": standing.version},
                {"op": "add", "path": "/status", "value": status},
            ],
            manager=FIELD_MANAGER,
        )
        if holds(status, ConditionType.FINISHED):
            # Rarely written again; what is remembered is for runs under way.
            self._standing.pop(key.uid, None)
        else:
            self._remember(key, answer["metadata"]["resourceVersion"], status)

    async def _read(self, key: ObjectKey) -> Standing | None:
        try:
            item = await self._client.get(AGENT_RUNS.path(key.namespace, key.name))
        except NotFound:
            return None
        if item["metadata"]["uid"] != key.uid:
            return None
        return self._remember(key, item["metadata"]["resourceVersion"], item.get("status") or {})

    def _park(self, key: ObjectKey, error: KubeError) -> Shown:
        causes = [str(cause) for cause in getattr(error, "causes", ())]
        log.error("The API server refuses a status", run=str(key), error=str(error), causes=causes)
        return Shown.PARKED

    def _remember(self, key: ObjectKey, version: str, status: Mapping[str, Any]) -> Standing:
        standing = Standing(version, msgspec.json.encode(status))
        self._standing[key.uid] = standing
        self._standing.move_to_end(key.uid)
        _trim(self._standing, self._cached)
        return standing


def _is_for_good(error: KubeError) -> bool:
    """Tell a broken status from a patch whose test failed."""
    if isinstance(error, Invalid):
        return bool(error.causes)
    return isinstance(error, Rejected)


def _trim(cache: OrderedDict[str, Any], limit: int) -> None:
    while len(cache) > limit:
        cache.popitem(last=False)
