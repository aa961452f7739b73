"""A run as it changes: its object whenever that is another one, and what is new in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from rowlock.client.happenings import RunEvent
from rowlock.cluster.kubectl import Kubectl
from rowlock.cluster.names import AGENT_RUNS
from rowlock.cluster.objects import Object, holds, moment, run_shape, status_of
from rowlock.cluster.telling import state
from rowlock.errors import ClusterUnavailable, NotInCluster, UnknownRun
from rowlock.states import ConditionType

#: Between two tries to reach the API server, and between two watches that it ended.
_AGAIN_SECONDS: Final = 1.0


async def states(kubectl: Kubectl, name: str) -> AsyncIterator[dict[str, Any]]:
    """Yield an AgentRun now and whenever it has changed; the caller says when it is enough.

    An API server that goes away meanwhile is waited for.

    Raises
    ------
    UnknownRun
        It is not there, or was deleted.
    ClusterError
        The API server does not let us watch, or was away at the start.
    """
    seen = ""
    while True:
        try:
            async with contextlib.aclosing(_watch(kubectl, name)) as found:  # type: ignore[type-var]
                async for item in found:
                    if item["metadata"]["resourceVersion"] != seen:
                        seen = item["metadata"]["resourceVersion"]
                        yield item
        except ClusterUnavailable:
            if not seen:
                raise
        except NotInCluster:
            raise unknown(kubectl, name) from None
        await asyncio.sleep(_AGAIN_SECONDS)


async def _watch(kubectl: Kubectl, name: str) -> AsyncIterator[dict[str, Any]]:
    asked = ("get", AGENT_RUNS, name, "--watch", "--output-watch-events", "-o", "json")
    async with contextlib.aclosing(kubectl.lines(*asked)) as lines:  # type: ignore[type-var]
        async for line in lines:
            event = json.loads(line)
            if event["type"] == "DELETED":
                raise UnknownRun(f"run: AgentRun {name} was deleted, and is cancelled")
            if event["type"] in ("ADDED", "MODIFIED"):
                yield event["object"]


def unknown(kubectl: Kubectl, name: str) -> UnknownRun:
    """Return the error about a run that is not there."""
    where = kubectl.namespace or "of the context"
    hint = " (RUN is the name of an AgentRun here, not a number)" if name.isdigit() else ""
    return UnknownRun(f"there is no run {name} in namespace {where}{hint}")


def finished(item: Object) -> bool:
    """Tell whether a run has ended."""
    return holds(item, ConditionType.FINISHED)


def news(before: Object | None, now: Object) -> Iterator[RunEvent]:
    """Yield what is new of a run since its object looked as `before`."""
    old, new = status_of(before or {}), status_of(now)
    takeover = new.get("lastTakeover")
    if takeover and takeover.get("leaseEpoch") != (old.get("lastTakeover") or {}).get("leaseEpoch"):
        yield _event(now, "taken_over", {
            "reason": takeover.get("reason"),
            "step": takeover.get("resumedFromStep"),
            "takeovers": new.get("takeovers"),
        }, at=takeover.get("time"))  # fmt: skip
    failed = new.get("failure") or {}
    if before is not None and failed != (old.get("failure") or {}) and not finished(now):
        yield _event(now, "attempt_failed", {"message": failed.get("message", "")})
    if before is None or _stands(before) != _stands(now):
        yield _event(now, "state", state(now).data or {})


def _stands(item: Object) -> tuple[Any, ...]:
    stands, status = run_shape(item), status_of(item)
    return (stands.phase, status.get("reason"), stands.worker, stands.attempt, stands.takeovers)


def _event(item: Object, kind: str, data: dict[str, Any], at: str | None = None) -> RunEvent:
    now = state(item)
    return RunEvent(
        seq=now.seq,
        kind=kind,
        at=moment(at) or now.at,
        attempt=now.attempt or 0,
        epoch=now.epoch or 0,
        data=data,
    )
