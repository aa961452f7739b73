"""What an AgentRun and its Kubernetes events tell of a run; pure."""

from __future__ import annotations

import json
import re
from typing import Any

from rowlock.cluster.objects import (
    Object,
    condition,
    moment,
    name_of,
    run_shape,
    status_of,
    used,
    wait_shape,
    waits,
)
from rowlock.commands.shapes import Happening, QuestionShape, Told
from rowlock.states import ConditionType


def told(item: Object, events: list[Happening] | None) -> Told:
    """Return all that an AgentRun and its events tell; None for events that we may not read."""
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
        events=events,
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


def _snake(reason: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", reason).lower()
