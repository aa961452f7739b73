"""Kubernetes Events about questions to people; pure."""

from __future__ import annotations

from typing import Final

from rowlock.states import ApprovalPhase
from rowlock.store.questions import Question
from rowlock_operator.approvals.identity import event_number
from rowlock_operator.approvals.standing import Standing
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.resources import ObjectKey
from rowlock_operator.kube.text import cut
from rowlock_operator.mirror.announcements import Announcement

_REASONS: Final = {
    ApprovalPhase.PENDING: "ApprovalRequested",
    ApprovalPhase.APPROVED: "ApprovalDecided",
    ApprovalPhase.DENIED: "ApprovalDecided",
    ApprovalPhase.EXPIRED: "ApprovalExpired",
}
_NOTE_BYTES: Final = 1000


def news_of(stands: Standing, question: Question, seen: Seen) -> Announcement | None:
    """Return what to announce, about the AgentRun, when a question comes to stand like this.

    The name is the same whoever announces it, so it is never announced twice.
    """
    reason = _REASONS.get(stands.phase)
    if reason is None:
        return None
    said = stands.message or str(seen.spec.get("summary") or question.tool)
    return Announcement(
        ObjectKey(question.namespace, question.name, question.uid),
        reason,
        event_number(seen.key.name),
        cut(f"{seen.key.name}: {said}", _NOTE_BYTES),
        stands.at or question.asked_at,
        approval=seen.key.name,
    )
