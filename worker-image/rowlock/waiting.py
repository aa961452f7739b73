"""Why a run that has not ended does not run: one answer for the terminal and for its resource."""

from __future__ import annotations

from collections.abc import Collection

from rowlock.states import ParkReason, Place, TimerReason, WaitReason


def wait_reason(
    place: Place,
    *,
    parked_for: Collection[str] = (),
    timer_reason: int | None = None,
    quarantined: bool = False,
) -> WaitReason:
    """Return why a run that is neither held nor final does not run.

    Parameters
    ----------
    parked_for
        `ParkReason`s of a parked run.
    timer_reason
        A `TimerReason` of one that waits for its time.
    """
    if place is Place.BACKLOG:
        return WaitReason.CONCURRENCY_LIMIT
    if place is Place.PARKED:
        return _parked(parked_for)
    if place is Place.TIMER:
        retry = timer_reason == TimerReason.RETRY_BACKOFF
        return WaitReason.RETRY_BACKOFF if retry else WaitReason.TAKEOVER_BACKOFF
    return WaitReason.QUARANTINED if quarantined else WaitReason.WAITING_FOR_WORKER


def _parked(reasons: Collection[str]) -> WaitReason:
    """Return the one thing to know: what a person must do comes before what time will do."""
    if ParkReason.SUSPENDED in reasons:
        return WaitReason.SUSPENDED
    if ParkReason.APPROVAL in reasons:
        return WaitReason.AWAITING_APPROVAL
    return WaitReason.SLEEPING if ParkReason.SLEEP in reasons else WaitReason.RETRY_BACKOFF
