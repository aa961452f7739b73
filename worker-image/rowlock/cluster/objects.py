"""What objects of the cluster say, in the shapes that commands show; pure.

An object may be older than its operator, or written by hand: nothing in it has to be there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from rowlock.commands.shapes import (
    Happening,
    PoolShape,
    QuestionShape,
    RunShape,
    Told,
    Usage,
    WaitShape,
)
from rowlock.states import ConditionType, Phase, WaitReason

Object = Mapping[str, Any]

#: Reasons that say no more than the phase.
_PLAIN: Final = {"Completed", "LeaseHeld"}
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
        agent=_ref(spec, "agentRef") or "",
        key=spec.get("concurrencyKey"),
        priority=spec.get("priority") or 0,
        phase=status.get("phase") or Phase.PENDING.value,
        attempt=status.get("attempt") or 0,
        takeovers=status.get("takeovers") or 0,
        worker=status.get("worker"),
        created_at=moment(metadata.get("creationTimestamp")) or datetime.min,
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
        pool=_ref(spec, "workerPoolRef") or (pools or {}).get(stands.agent),
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
    return _ref(spec_of(agent).get("runDefaults") or {}, "workerPoolRef")


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


def question_shape(item: Object) -> QuestionShape:
    """Return what an AgentRunApproval asks."""
    spec = spec_of(item)
    return QuestionShape(
        run=_ref(spec, "runRef") or _batch_item(spec),
        name=name_of(item),
        step=spec.get("callID") or name_of(item),
        tool=spec.get("tool") or "",
        arguments=None,
        note=spec.get("summary") or "",
        digest=spec.get("digest") or "",
        attempt=None,
        asked_at=moment(item["metadata"].get("creationTimestamp")),
        expires_at=moment(spec.get("expirationTime")),
    )


def open_question(item: Object) -> bool:
    """Tell whether an AgentRunApproval waits for its decision."""
    undecided = not spec_of(item).get("decision")
    return undecided and status_of(item).get("phase") in (None, "Pending")


def shown_question(item: Object) -> list[QuestionShape]:
    """Return the question that an AgentRun's own status shows."""
    asks = status_of(item).get("pendingApproval") or {}
    if not asks:
        return []
    name = asks.get("name")
    return [
        QuestionShape(
            run=name_of(item),
            name=name,
            step=name or "",
            tool=asks.get("tool") or "",
            arguments=None,
            note="",
            digest=asks.get("digest") or "",
            attempt=status_of(item).get("attempt"),
            asked_at=moment(
                condition(item, ConditionType.AWAITING_APPROVAL).get("lastTransitionTime")
            ),
            expires_at=moment(asks.get("expirationTime")),
        )
    ]


def told(item: Object, events: Iterable[Happening]) -> Told:
    """Return all that an AgentRun and its events tell."""
    value, preview = result(item)
    return Told(
        info=run_shape(item),
        used=used(item),
        waits=wait_shape(item) if waits(item) else None,
        questions=shown_question(item),
        result=value,
        preview=preview,
        conditions=[dict(one) for one in status_of(item).get("conditions") or ()],
        leases=[dict(one) for one in status_of(item).get("history") or ()],
        events=list(events),
    )


def result(item: Object) -> tuple[Any, str | None]:
    """Return the result of a run that succeeded, or else the beginning of one that is too large.

    A status holds the first KiB of it.
    """
    shown = status_of(item).get("result") or {}
    preview = shown.get("preview")
    if preview is None:
        return None, "" if shown else None
    if shown.get("sizeBytes", 0) > len(preview.encode()):
        return None, preview
    try:
        return json.loads(preview), None
    except ValueError:
        return None, preview


def happening(item: Object) -> Happening:
    """Return what a Kubernetes event tells."""
    reason = str(item.get("reason") or "")
    number = item["metadata"]["name"].rpartition(".")[2]
    data = {
        "reason": reason,
        "type": item.get("type"),
        "note": item.get("message"),
        "worker": (item.get("related") or {}).get("name"),
    }
    return Happening(
        seq=int(number) if number.isdigit() else 0,
        kind=_snake(reason.removeprefix("Run")),
        at=moment(item.get("eventTime") or item.get("lastTimestamp")),
        data={name: value for name, value in data.items() if value is not None},
    )


def state(item: Object) -> Happening:
    """Return where an AgentRun stands, as the last line of its events."""
    status, stands = status_of(item), run_shape(item)
    data: dict[str, Any] = {
        "phase": stands.phase,
        "reason": status.get("reason"),
        "worker": stands.worker,
        "takeovers": stands.takeovers,
    }
    if stands.finished_at:
        data |= {"message": stands.message, "outcome": stands.outcome}
    return Happening(
        seq=status.get("revision") or 0,
        kind="state",
        at=stands.finished_at or moment(condition(item, ConditionType.RUNNING).get(
            "lastTransitionTime")) or stands.created_at,
        attempt=stands.attempt,
        epoch=status.get("leaseEpoch"),
        data=data,
    )  # fmt: skip


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


def _ref(spec: Object, field: str) -> str | None:
    return (spec.get(field) or {}).get("name")


def _batch_item(spec: Object) -> str:
    item = spec.get("batchItemRef") or {}
    return f"{item.get('batch', '')}/{item.get('item', '')}"


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isdigit() else None


def _snake(reason: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", reason).lower()
