"""What a run's status says of its open questions to people; pure."""

from __future__ import annotations

from typing import Any, Final

from rowlock.states import ConditionReason, ConditionType, ParkReason
from rowlock.store.types import Asked, RunSnapshot
from rowlock_operator.approvals.identity import approval_name
from rowlock_operator.kube.conditions import Condition, timestamp
from rowlock_operator.kube.text import cut

_TOOL_BYTES: Final = 128


def awaiting_approval(snapshot: RunSnapshot) -> Condition:
    """Return whether the run waits for a person."""
    type_ = ConditionType.AWAITING_APPROVAL
    if not _waits(snapshot):
        return Condition(type_, False, ConditionReason.NO_OPEN_QUESTION, at=snapshot.created_at)
    return Condition(
        type_, True, ConditionReason.OPEN_QUESTION, _message(snapshot), snapshot.ready_at
    )


def pending_approval(snapshot: RunSnapshot) -> dict[str, Any]:
    """Return the oldest question that the run waits for."""
    questions = _questions(snapshot)
    if not _waits(snapshot) or not questions:
        return {}
    asked = questions[0]
    shown: dict[str, Any] = {
        "name": _name(snapshot, asked),
        "tool": cut(asked.tool, _TOOL_BYTES),
        "digest": asked.digest[:80],
    }
    if asked.expires_at is not None:
        shown["expirationTime"] = timestamp(asked.expires_at)
    return {"pendingApproval": shown}


def _waits(snapshot: RunSnapshot) -> bool:
    """A run that is suspended may have its answers already; one that waits has none."""
    asks = ParkReason.APPROVAL in snapshot.parked_for
    return asks and (bool(snapshot.questions) or ParkReason.SUSPENDED not in snapshot.parked_for)


def _questions(snapshot: RunSnapshot) -> list[Asked]:
    """Return the newest question about each step: an older one is about other arguments."""
    return list({asked.step_key: asked for asked in snapshot.questions}.values())


def _message(snapshot: RunSnapshot) -> str:
    questions = _questions(snapshot)
    if not questions:
        return ""
    first = questions[0]
    named = f"{first.tool}: AgentRunApproval {_name(snapshot, first)}"
    more = len(questions) - 1
    return f"{named}, and {more} more" if more else named


def _name(snapshot: RunSnapshot, asked: Asked) -> str:
    return approval_name(
        snapshot.name,
        uid=snapshot.uid,
        step_key=asked.step_key,
        digest=asked.digest,
        attempt=snapshot.attempt,
    )
