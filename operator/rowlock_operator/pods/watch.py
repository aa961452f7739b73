"""Keeps the roster up to date: a list, then a watch from there on, again and again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock_operator import metrics as m
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import Denied, Expired, KubeError
from rowlock_operator.kube.resources import PODS
from rowlock_operator.kube.specs import labels
from rowlock_operator.pods.roster import Roster, pod_seen

log = structlog.get_logger(__name__)

_SELECTOR = f"app.kubernetes.io/managed-by={labels.MANAGED_BY},{labels.POOL_LABEL}"
_FIRST_WAIT, _LAST_WAIT, _DENIED_WAIT = 0.2, 15.0, 60.0
#: A watch that fell silent without an end is replaced after so long; leases bridge the time.
_WATCH_SECONDS = 120.0
#: A stream that lasted so long was a healthy one, however it ended.
_HEALTHY_SECONDS = 10.0


def failures_after(failures: int, error: KubeError | None, *, lasted: float) -> int:
    """Return how many streams in a row came to nothing.

    Parameters
    ----------
    error
        How the last one ended; None if the server just ended it.
    lasted
        For how many seconds it was open.
    """
    before = 0 if lasted >= _HEALTHY_SECONDS else failures
    ended_well = lasted >= _HEALTHY_SECONDS and (error is None or isinstance(error, Expired))
    return 0 if ended_well else before + 1


def pause(failures: int, *, denied: bool = False) -> float:
    """Return the seconds to wait after so many streams in a row that came to nothing."""
    return _DENIED_WAIT if denied else min(_LAST_WAIT, _FIRST_WAIT * 2.0 ** min(failures - 1, 8))


class PodWatch:
    """Lists and watches the pods of all pools.

    Parameters
    ----------
    namespaces
        Which to watch, each with a stream of its own; empty for all with one.
    """

    def __init__(
        self,
        client: KubeClient,
        roster: Roster,
        metrics: m.Metrics,
        *,
        namespaces: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._roster = roster
        self._metrics = metrics
        self._scopes: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._clock = clock or SystemClock()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for scope in self._scopes:
                group.create_task(self._keep_watching(scope))

    async def _keep_watching(self, scope: str | None) -> None:
        version, failures = "", 0
        while True:
            began, error = self._clock.monotonic(), None
            try:
                version = version or await self._list(scope)
                version = await self._follow(scope, version)
            except KubeError as caught:
                error = caught
            failures = failures_after(failures, error, lasted=self._clock.monotonic() - began)
            if isinstance(error, Expired):
                version = ""
            if failures:
                await self._rest(error, failures)

    async def _rest(self, error: KubeError | None, failures: int) -> None:
        denied = isinstance(error, Denied)
        wait = pause(failures, denied=denied) * random.uniform(0.8, 1.2)  # noqa: S311  spreads
        tell = log.error if denied else log.warning
        why = str(error or "the stream ended at once")
        tell("The pods of workers cannot be watched", error=why, wait=round(wait, 2))
        await self._clock.sleep(wait)

    async def _list(self, scope: str | None) -> str:
        """Read all pods of a scope, and return the version from which to watch."""
        pods, version = [], ""
        params = {"labelSelector": _SELECTOR}
        async for page in self._client.pages(PODS.path(scope), params=params):
            pods += [pod_seen(item) for item in page.get("items") or ()]
            version = page["metadata"]["resourceVersion"]
        self._roster.replace(scope, pods)
        self._measure()
        return version

    async def _follow(self, scope: str | None, version: str) -> str:
        """Take in what happens after `version`, and return the newest version that was seen."""
        params = {"labelSelector": _SELECTOR, "resourceVersion": version}
        events = self._client.watch(PODS.path(scope), params=params, seconds=_WATCH_SECONDS)
        async for event in events:
            version = event["object"]["metadata"]["resourceVersion"]
            self._take(event)
        return version

    def _take(self, event: dict[str, Any]) -> None:
        if event["type"] == "BOOKMARK":
            return
        if event["type"] == "DELETED":
            self._roster.drop(event["object"]["metadata"]["uid"])
        else:
            self._roster.put(pod_seen(event["object"]))
        self._measure()

    def _measure(self) -> None:
        self._metrics.show(m.WORKER_PODS, len(self._roster))
