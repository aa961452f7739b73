"""What one status write showed for the first time, for the counters; pure.

Counted is the step from the status before to the one written, not the changes read: a snapshot may
be newer than the changes that asked for it, and of two operators only one writes each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.states import ConditionType, EventKind, FinalStatus, Place
from rowlock.store.types import RunSnapshot
from rowlock_operator.kube.conditions import holds
from rowlock_operator.mirror.conditions import verdict
from rowlock_operator.mirror.leases import changes_of


@dataclass(frozen=True, slots=True)
class Score:
    """What is new.

    Parameters
    ----------
    ended
        How the run ended, in one word; empty if it has not, or was shown before.
    failure
        The reason, if it failed.
    takeovers
        The reason of each takeover.
    recoveries
        Seconds of each, from the end of the lease to the next owner's first write.
    """

    started: bool = False
    ended: str = ""
    failure: str = ""
    takeovers: tuple[str, ...] = ()
    recoveries: tuple[float, ...] = ()


def score(before: Mapping[str, Any], snapshot: RunSnapshot) -> Score:
    """Return what the status of `snapshot` shows that `before` did not."""
    shown_epoch = int((before.get("lastTakeover") or {}).get("leaseEpoch") or 0)
    ended = snapshot.place is Place.FINAL and not holds(before, ConditionType.FINISHED)
    failed = ended and snapshot.status is FinalStatus.FAILED
    taken = [
        change
        for change in changes_of(snapshot)
        if change.kind is EventKind.TAKEN_OVER and change.epoch > shown_epoch
    ]
    return Score(
        started=snapshot.started_at is not None and "startTime" not in before,
        ended=snapshot.status.name.capitalize() if ended and snapshot.status else "",
        failure=verdict(snapshot) if failed else "",
        takeovers=tuple(change.reason for change in taken),
        recoveries=tuple((change.at - change.ended_at).total_seconds() for change in taken),
    )
