"""The status of an AgentRun that has no row: it waits for something, or was refused; pure.

It never replaces the status of a run that has one: the API server keeps `runID` write-once,
and `notice_status` answers None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rowlock.states import ConditionReason, ConditionType, FailureReason, Phase, WaitReason
from rowlock_operator.kube.conditions import Condition, condition_of, holds, merged, timestamp
from rowlock_operator.kube.text import cut
from rowlock_operator.mirror.fit import fit


@dataclass(frozen=True, slots=True)
class WaitNotice:
    """The run waits outside the database."""

    reason: WaitReason
    message: str


@dataclass(frozen=True, slots=True)
class EndNotice:
    """The run ends without a row."""

    reason: FailureReason
    message: str


@dataclass(frozen=True, slots=True)
class SeenNotice:
    """Only the generation is new; what the status says stays true."""


@dataclass(frozen=True, slots=True)
class RedriveNotice:
    """A further attempt was asked for, and there will be none; what was before stays.

    Parameters
    ----------
    number
        The spec.redrive that is refused.
    """

    reason: FailureReason
    number: int


Notice = WaitNotice | EndNotice | SeenNotice | RedriveNotice

_REDRIVE = {
    FailureReason.HISTORY_EXPIRED: "the steps of the run are not kept any more",
    FailureReason.ROW_MISSING: "the database does not know the run any more",
}


def notice_status(
    notice: Notice, *, generation: int, before: Mapping[str, Any], now: datetime
) -> dict[str, Any] | None:
    """Return the status that says so; None if what stands there must not be replaced."""
    if isinstance(notice, SeenNotice):
        return _observed(before, generation)
    if isinstance(notice, RedriveNotice):
        return _refused_redrive(notice, generation, before, now)
    has_row = before.get("runID") is not None
    if isinstance(notice, WaitNotice):
        return (
            None
            if has_row or holds(before, ConditionType.FINISHED)
            else _waiting(notice, generation, before, now)
        )
    if has_row and notice.reason is not FailureReason.ROW_MISSING:
        return None
    return _ended(notice, generation, before, now)


def _waiting(
    notice: WaitNotice, generation: int, before: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    conditions = merged(
        _wait_conditions(notice), before.get("conditions") or (), generation=generation, now=now
    )
    return {
        "observedGeneration": generation,
        "phase": _waiting_phase(notice.reason).value,
        "reason": notice.reason.value,
        "attempt": 0,
        "takeovers": 0,
        "conditions": conditions,
    }


def _waiting_phase(reason: WaitReason) -> Phase:
    return Phase.PENDING if reason is WaitReason.DATABASE_UNAVAILABLE else Phase.QUEUED


def _ended(
    notice: EndNotice, generation: int, before: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    cancelled = notice.reason is FailureReason.CANCELLED
    # What a vanished row had shown stays: it is all that is left of it.
    status = dict(before) if notice.reason is FailureReason.ROW_MISSING else {}
    status |= {
        "observedGeneration": generation,
        "phase": (Phase.CANCELLED if cancelled else Phase.FAILED).value,
        "reason": notice.reason.value,
        "completionTime": before.get("completionTime") or timestamp(now),
        "conditions": merged(
            _end_conditions(notice, before),
            before.get("conditions") or (),
            generation=generation,
            now=now,
        ),
    }
    if not cancelled:
        status["failure"] = {"reason": notice.reason.value, "message": cut(notice.message, 1024)}
    return fit(status)


def _refused_redrive(
    notice: RedriveNotice, generation: int, before: Mapping[str, Any], now: datetime
) -> dict[str, Any] | None:
    if not holds(before, ConditionType.FINISHED):
        return None
    status = _observed(before, generation)
    why = f"redrive {notice.number} is refused: {_REDRIVE[notice.reason]}"
    refusal = Condition(ConditionType.ACCEPTED, False, notice.reason.value, why)
    [said] = merged([refusal], before.get("conditions") or (), generation=generation, now=now)
    conditions = [
        said if condition["type"] == ConditionType.ACCEPTED else condition
        for condition in status["conditions"]
    ]
    return fit({**status, "reason": notice.reason.value, "conditions": conditions})


def _observed(before: Mapping[str, Any], generation: int) -> dict[str, Any]:
    conditions = [
        {**condition, "observedGeneration": generation}
        for condition in before.get("conditions") or ()
    ]
    return {**before, "observedGeneration": generation, "conditions": conditions}


def _wait_conditions(notice: WaitNotice) -> Iterator[Condition]:
    why, message = notice.reason.value, notice.message
    yield Condition(ConditionType.ACCEPTED, None, why, message)
    yield Condition(ConditionType.RUNNING, False, why, message)
    yield from _quiet()
    yield Condition(ConditionType.RESUMED, False, ConditionReason.NOT_TAKEN_OVER)
    yield Condition(ConditionType.FINISHED, False, ConditionReason.IN_PROGRESS)
    yield Condition(ConditionType.SUCCEEDED, None, ConditionReason.IN_PROGRESS)


def _end_conditions(notice: EndNotice, before: Mapping[str, Any]) -> Iterator[Condition]:
    why, message = notice.reason.value, notice.message
    cancelled = notice.reason is FailureReason.CANCELLED
    yield Condition(ConditionType.ACCEPTED, None if cancelled else False, why, message)
    yield Condition(ConditionType.RUNNING, False, ConditionReason.NOT_STARTED)
    yield from _quiet()
    yield _resumed(before)
    yield Condition(ConditionType.FINISHED, True, why, message)
    yield Condition(ConditionType.SUCCEEDED, False, why, message)


def _quiet() -> Iterator[Condition]:
    yield Condition(ConditionType.SUSPENDED, False, ConditionReason.NOT_SUSPENDED)
    yield Condition(ConditionType.AWAITING_APPROVAL, False, ConditionReason.NO_OPEN_QUESTION)


def _resumed(before: Mapping[str, Any]) -> Condition:
    old = condition_of(before, ConditionType.RESUMED)
    if old.get("status") == "True":
        return Condition(ConditionType.RESUMED, True, old["reason"], old["message"])
    return Condition(ConditionType.RESUMED, False, ConditionReason.NOT_TAKEN_OVER)
