"""The seven conditions of a run that has a row; pure."""

from __future__ import annotations

from collections.abc import Iterator

from rowlock.states import (
    ConditionReason,
    ConditionType,
    FailureReason,
    FinalStatus,
    ParkReason,
    Place,
    WaitReason,
)
from rowlock.store.types import RunSnapshot
from rowlock.waiting import wait_reason
from rowlock_operator.kube.conditions import Condition
from rowlock_operator.mirror.asking import awaiting_approval
from rowlock_operator.mirror.leases import Change


def run_conditions(snapshot: RunSnapshot, takeover: Change | None) -> Iterator[Condition]:
    """Yield all conditions of the run.

    Parameters
    ----------
    takeover
        The last one, if there was any.
    """
    yield Condition(
        ConditionType.ACCEPTED,
        True,
        ConditionReason.ENQUEUED,
        f"run {snapshot.run_id} is in the database",
        snapshot.created_at,
    )
    yield running(snapshot)
    yield suspended(snapshot)
    yield awaiting_approval(snapshot)
    yield resumed(snapshot, takeover)
    yield from _end(snapshot)


def running(snapshot: RunSnapshot) -> Condition:
    """Return whether a worker holds the run, else why none does."""
    type_ = ConditionType.RUNNING
    if snapshot.place is Place.FINAL:
        return Condition(type_, False, ConditionReason.FINISHED, at=snapshot.finished_at)
    if snapshot.place is Place.LEASE:
        held = f"held by {snapshot.worker}, epoch {snapshot.epoch}"
        if snapshot.cancel_asked:
            return Condition(
                type_,
                True,
                ConditionReason.CANCELLING,
                f"cancel asked; {held}",
                snapshot.claimed_at,
            )
        return Condition(type_, True, ConditionReason.LEASE_HELD, held, snapshot.claimed_at)
    return Condition(type_, False, waits_for(snapshot), _waiting(snapshot), snapshot.ready_at)


def suspended(snapshot: RunSnapshot) -> Condition:
    """Return whether the run is held until somebody continues it."""
    type_ = ConditionType.SUSPENDED
    if ParkReason.SUSPENDED in snapshot.parked_for:
        asked = f"asked by {snapshot.suspend_asked}" if snapshot.suspend_asked else ""
        return Condition(type_, True, WaitReason.SUSPENDED, asked, snapshot.ready_at)
    if snapshot.suspend_asked and snapshot.place is Place.LEASE:
        asked = f"at its next step; asked by {snapshot.suspend_asked}"
        return Condition(type_, False, ConditionReason.SUSPENDING, asked, snapshot.created_at)
    return Condition(type_, False, ConditionReason.NOT_SUSPENDED, at=snapshot.created_at)


def resumed(snapshot: RunSnapshot, takeover: Change | None) -> Condition:
    """Return whether the run was ever taken over; once True it stays so."""
    if takeover is None:
        return Condition(
            ConditionType.RESUMED, False, ConditionReason.NOT_TAKEN_OVER, at=snapshot.created_at
        )
    message = (
        f"{takeover.count}: "
        f"from {takeover.from_worker} to {takeover.to_worker}, resumed at step {takeover.step}"
    )
    why = takeover.reason or ConditionReason.TAKEN_OVER
    return Condition(ConditionType.RESUMED, True, why, message, takeover.at)


def waits_for(snapshot: RunSnapshot) -> WaitReason:
    """Return why a run that is neither held nor final does not run."""
    return wait_reason(
        snapshot.place,
        parked_for=snapshot.parked_for,
        timer_reason=snapshot.timer_reason,
        quarantined=snapshot.quarantined,
    )


def verdict(snapshot: RunSnapshot) -> str:
    """Return in one word how a final run ended."""
    if snapshot.status is FinalStatus.SUCCEEDED:
        return (
            ConditionReason.DEGRADED
            if snapshot.outcome == "degraded"
            else ConditionReason.COMPLETED
        )
    if snapshot.status is FinalStatus.CANCELLED:
        return FailureReason.CANCELLED
    return snapshot.reason or "Failed"


def _waiting(snapshot: RunSnapshot) -> str:
    if snapshot.place is Place.BACKLOG:
        return "a limit of the Agent, in all or for the key, is reached"
    if snapshot.quarantined and not snapshot.due_at:
        return "processes died that it may have killed, so it goes on alone, in one of its own"
    if snapshot.due_at:
        return f"not before {snapshot.due_at:%Y-%m-%dT%H:%M:%SZ}"
    if snapshot.place is Place.READY and snapshot.build is not None:
        return f"only a worker of the build {snapshot.build} goes on with it"
    return ""


def _end(snapshot: RunSnapshot) -> Iterator[Condition]:
    finished, succeeded = ConditionType.FINISHED, ConditionType.SUCCEEDED
    if snapshot.place is not Place.FINAL:
        yield Condition(finished, False, ConditionReason.IN_PROGRESS, at=snapshot.created_at)
        yield Condition(succeeded, None, ConditionReason.IN_PROGRESS, at=snapshot.created_at)
        return
    why, message, at = verdict(snapshot), snapshot.message or "", snapshot.finished_at
    yield Condition(finished, True, why, message, at)
    yield Condition(succeeded, snapshot.status is FinalStatus.SUCCEEDED, why, message, at)
