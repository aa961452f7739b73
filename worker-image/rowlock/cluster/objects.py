"""What objects of the cluster say, in the shapes that commands show; pure.

An object may be older than its operator, or written by hand: nothing in it has to be there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rowlock.commands.shapes import PoolShape, RunShape, Usage, WaitShape
from rowlock.states import ConditionType, Phase, WaitReason

Object = Mapping[str, Any]

#: Reasons that say no more than the phase.
_PLAIN: Final = {"Completed", "LeaseHeld"}
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_DUE: Final = re.compile(r"not before (\S+)$")


def status_of(item: Object) -> Object:
    """Return an object's status, empty without one."""
    return item.get("status") or {}


def spec_of(item: Object) -> Object:
    """Return an object's spec, empty without one."""
    return item.get("spec") or {}


def name_of(item: Object) -> str:
    """Return an object's name."""
    return str(item["metadata"]["name"])


def ref(spec: Object, field: str) -> str | None:
    """Return the name in a reference; None without one."""
    return (spec.get(field) or {}).get("name")


def condition(item: Object, kind: ConditionType) -> Object:
    """Return a condition, empty without one."""
    for one in status_of(item).get("conditions") or ():
        if one.get("type") == kind:
            return dict(one)
    return {}


def holds(item: Object, kind: ConditionType) -> bool:
    """Tell whether a condition is True."""
    return condition(item, kind).get("status") == "True"


def moment(text: object) -> datetime | None:
    """Return a time of the API server; None without one."""
    try:
        return datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None


def run_shape(item: Object) -> RunShape:
    """Return how an AgentRun stands."""
    spec, status, metadata = spec_of(item), status_of(item), item["metadata"]
    usage = used(item)
    return RunShape(
        run=name_of(item),
        id=_number(status.get("runID")),
        namespace=metadata.get("namespace"),
        agent=ref(spec, "agentRef") or "",
        key=spec.get("concurrencyKey"),
        priority=spec.get("priority") or 0,
        phase=status.get("phase") or Phase.PENDING.value,
        attempt=status.get("attempt") or 0,
        takeovers=status.get("takeovers") or 0,
        worker=status.get("worker"),
        created_at=moment(metadata.get("creationTimestamp")) or _NEVER,
        started_at=moment(status.get("startTime")),
        due_at=_due(item),
        finished_at=moment(status.get("completionTime")),
        reason=None if status.get("reason") in _PLAIN else status.get("reason"),
        message=_message(item),
        outcome=status.get("outcome"),
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        cost_micro=usage.cost_micro,
    )


def used(item: Object) -> Usage:
    """Return what an AgentRun has used."""
    usage = status_of(item).get("usage") or {}
    counts = (usage.get(name) or 0 for name in ("inputTokens", "outputTokens", "costMicroUSD"))
    return Usage(*counts)


def waits(item: Object) -> bool:
    """Tell whether an AgentRun waits: it has not ended, and no worker holds it."""
    return not holds(item, ConditionType.FINISHED) and not holds(item, ConditionType.RUNNING)


def wait_shape(item: Object, pools: Mapping[str, str] | None = None) -> WaitShape:
    """Return why an AgentRun waits.

    Parameters
    ----------
    pools
        Of Agents that name one.
    """
    spec, stands = spec_of(item), run_shape(item)
    running = condition(item, ConditionType.RUNNING)
    return WaitShape(
        run=stands.run,
        namespace=stands.namespace,
        pool=ref(spec, "workerPoolRef") or (pools or {}).get(stands.agent),
        agent=stands.agent,
        key=stands.key,
        priority=stands.priority,
        attempt=stands.attempt,
        reason=running.get("reason") or Phase.PENDING.value,
        place=None,
        since=moment(running.get("lastTransitionTime")) or stands.created_at,
        due_at=stands.due_at,
    )


def pool_of_agent(agent: Object) -> str | None:
    """Return the pool that an Agent names for its runs."""
    return ref(spec_of(agent).get("runDefaults") or {}, "workerPoolRef")


def pool_shape(item: Object) -> PoolShape:
    """Return what a WorkerPool has to do, and who does it."""
    spec, status = spec_of(item), status_of(item)
    queue = status.get("queue") or {}
    ready = status.get("readyReplicas") or 0
    available: Object = next(
        (it for it in status.get("conditions") or () if it.get("type") == "Available"), {}
    )
    return PoolShape(
        namespace=item["metadata"].get("namespace", ""),
        name=name_of(item),
        workers=ready,
        desired=status.get("desiredReplicas"),
        slots=ready * (spec.get("slotsPerWorker") or 0),
        running=queue.get("runningRuns"),
        claimable=queue.get("queuedRuns"),
        quarantined=None,
        waiting=None,
        oldest_ready_at=moment(queue.get("oldestQueuedTime")),
        available=None if available.get("status") == "True" else available.get("reason"),
    )


def _message(item: Object) -> str | None:
    failure = status_of(item).get("failure") or {}
    if failure.get("message"):
        return str(failure["message"])
    kind = ConditionType.FINISHED if holds(item, ConditionType.FINISHED) else ConditionType.RUNNING
    if kind is ConditionType.RUNNING and not waits(item):
        return None
    return condition(item, kind).get("message") or None


def _due(item: Object) -> datetime | None:
    running = condition(item, ConditionType.RUNNING)
    found = _DUE.search(running.get("message") or "")
    return moment(found[1]) if found and running.get("reason") in set(WaitReason) else None


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isdigit() else None
