"""How a question stands, what follows from a decision, and the status that says so; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, unique
from typing import Any, Final

import msgspec

from rowlock import options
from rowlock.states import ApprovalCondition, ApprovalPhase, ApprovalReason, Decision
from rowlock.store.bodies import unpack
from rowlock.store.questions import Question
from rowlock_operator.approvals.manifest import shows
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.conditions import Condition, merged, timestamp
from rowlock_operator.kube.text import cut

_ACTIONS: Final = {"Approve": Decision.APPROVED, "Deny": Decision.DENIED}
_WORDS: Final = {Decision.APPROVED: "approved", Decision.DENIED: "denied"}
_BY_BYTES, _REASON_BYTES = 253 * 4, 512 * 4


class _Shown(msgspec.Struct):
    """What matters here of a stored question."""

    repeats: bool = False


@unique
class Step(Enum):
    """What is to be done about one question and its object."""

    CREATE = "create"
    DECIDE = "decide"
    SHOW = "show"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Given:
    """The decision that a person wrote into a spec, as the database can store it."""

    decision: Decision
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How a question stands.

    Parameters
    ----------
    at
        When it was answered.
    """

    phase: ApprovalPhase
    reason: ApprovalReason
    message: str
    at: datetime | None = None


def given(seen: Seen) -> Given | None:
    """Return the decision in an object's spec, if there is one."""
    said = seen.spec.get("decision")
    if not said or said.get("action") not in _ACTIONS:
        return None
    # PostgreSQL cannot store the character NUL in a text; `cut` drops it.
    by = cut(str(said.get("decidedBy") or ""), _BY_BYTES)
    return Given(_ACTIONS[said["action"]], by, cut(str(said.get("reason") or ""), _REASON_BYTES))


def next_step(question: Question, seen: Seen | None) -> Step:
    """Return what is to be done about a question of the database."""
    if seen is None:
        return Step.CREATE if question.open else Step.NOTHING
    if seen.deleting:
        return Step.NOTHING
    decides = question.open and given(seen) is not None and shows(seen, question)
    return Step.DECIDE if decides else Step.SHOW


def standing(question: Question | None, seen: Seen) -> Standing:
    """Return how the question of an object stands; None for one that no run asked."""
    if question is None:
        return _withdrawn(ApprovalReason.NOT_ASKED, "no run of the database asked this question")
    if not shows(seen, question):
        message = "the object was not made by the operator: delete it, and the question is shown"
        return _withdrawn(ApprovalReason.NOT_ASKED, message)
    if question.decision is Decision.EXPIRED:
        return Standing(
            ApprovalPhase.EXPIRED, ApprovalReason.EXPIRED, _silence(question), question.decided_at
        )
    if question.decision is not None:
        return _answered(question, question.decision)
    if question.open:
        return Standing(ApprovalPhase.PENDING, ApprovalReason.OPEN, "")
    return _closed(question)


def accepted(stands: Standing, question: Question | None, seen: Seen) -> Condition:
    """Return whether the decision in the spec is the answer."""
    type_, said = ApprovalCondition.DECISION_ACCEPTED, given(seen)
    if said is None:
        return Condition(type_, None, ApprovalReason.NO_DECISION)
    if stands.phase is ApprovalPhase.PENDING:
        return Condition(type_, None, ApprovalReason.OPEN, "not yet carried out")
    if question is not None and said == _answer(question):
        return Condition(type_, True, ApprovalReason.COUNTED, at=stands.at)
    if stands.phase in (ApprovalPhase.APPROVED, ApprovalPhase.DENIED):
        return Condition(type_, False, ApprovalReason.ALREADY_DECIDED, stands.message)
    return Condition(type_, False, stands.reason, f"too late: {stands.message}")


def approval_status(
    stands: Standing, question: Question | None, seen: Seen, *, now: datetime
) -> dict[str, Any]:
    """Return the whole status of an object.

    Parameters
    ----------
    now
        For conditions whose time is not in the rows.
    """
    conditions = merged(
        _conditions(stands, question, seen),
        seen.status.get("conditions") or (),
        generation=seen.generation,
        now=now,
    )
    status = {
        "observedGeneration": seen.generation,
        "phase": stands.phase.value,
        "conditions": conditions,
    }
    return {**status, "decidedTime": timestamp(stands.at)} if stands.at else status


def settled(seen: Seen) -> bool:
    """Tell whether an object's status is an end that answers all that its spec says."""
    ended = seen.status.get("phase") not in (None, ApprovalPhase.PENDING)
    return ended and seen.observed >= seen.generation


def _conditions(stands: Standing, question: Question | None, seen: Seen) -> Iterator[Condition]:
    decided = stands.phase not in (ApprovalPhase.PENDING, ApprovalPhase.WITHDRAWN)
    at = stands.at or (question.asked_at if question and question.open else None)
    yield Condition(ApprovalCondition.DECIDED, decided, stands.reason, stands.message, at)
    yield accepted(stands, question, seen)


def _answered(question: Question, decision: Decision) -> Standing:
    approved = decision is Decision.APPROVED
    why = f": {question.reason}" if question.reason else ""
    return Standing(
        ApprovalPhase.APPROVED if approved else ApprovalPhase.DENIED,
        ApprovalReason.APPROVED if approved else ApprovalReason.DENIED,
        f"{_WORDS[decision]} by {question.by}{why}",
        question.decided_at,
    )


def _closed(question: Question) -> Standing:
    if question.live_attempt is None:
        return _withdrawn(ApprovalReason.RUN_FINISHED, "the run ended without an answer")
    if question.live_attempt != question.attempt:
        message = f"attempt {question.live_attempt} follows; it asks anew if it must"
        return _withdrawn(ApprovalReason.NEW_ATTEMPT, message)
    return _withdrawn(
        ApprovalReason.STALE_DIGEST, "the run asks about other arguments by now, in another object"
    )


def _withdrawn(reason: ApprovalReason, message: str) -> Standing:
    return Standing(ApprovalPhase.WITHDRAWN, reason, message)


def _silence(question: Question) -> str:
    approves = _silence_approves(question)
    return f"nobody decided in time, which counts as {'approved' if approves else 'denied'}"


def _silence_approves(question: Question) -> bool:
    try:
        chosen = options.decode(question.options)
        repeats = msgspec.json.decode(unpack(question.question), type=_Shown).repeats
    except msgspec.MsgspecError:
        return False
    return chosen.silence_approves and not repeats


def _answer(question: Question) -> Given | None:
    if question.decision is None or question.decision is Decision.EXPIRED:
        return None
    return Given(question.decision, question.by, question.reason)
