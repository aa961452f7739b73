"""The leases that a run had, and its last takeover, from what its history says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from rowlock.states import EventKind, FinalStatus, Place
from rowlock.store import bodies
from rowlock.store.types import LifecycleEvent, RunSnapshot
from rowlock_operator.kube.conditions import timestamp

SHOWN_LEASES = 10


class _Body(msgspec.Struct, frozen=True):
    """What a lifecycle event says; every field may be missing in rows of an older build."""

    from_: str = msgspec.field(default="", name="from")
    to: str = ""
    reason: str = ""
    epoch: int = 0
    claimed_at: datetime | None = None
    at: datetime | None = None
    step: int = 0
    takeovers: int = 0
    max_takeovers: int = 0
    counted: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One lifecycle event, decoded.

    Parameters
    ----------
    epoch
        Of the lease whose holder wrote it down.
    ended_epoch
        Of the lease that ended.
    at
        When the new holder wrote it down: the run goes on from here.
    counted
        How many of the takeovers count towards `max_takeovers`.
    """

    kind: EventKind
    epoch: int
    attempt: int
    at: datetime
    ended_epoch: int
    claimed_at: datetime | None
    ended_at: datetime
    from_worker: str
    to_worker: str
    reason: str
    step: int
    takeovers: int
    max_takeovers: int
    counted: int
    message: str

    @property
    def count(self) -> str:
        """Return in words how often the run was taken over, and how much of that counts."""
        if self.counted == self.takeovers:
            return f"takeover {self.takeovers} of {self.max_takeovers}"
        return f"takeover {self.takeovers} ({self.counted} of {self.max_takeovers} counted)"


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease of the run; `outcome` is empty while it is held."""

    epoch: int
    attempt: int
    worker: str
    start: datetime | None
    end: datetime | None
    outcome: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as one entry of `status.history`."""
        shown: dict[str, Any] = {"leaseEpoch": self.epoch, "attempt": self.attempt}
        if self.worker:
            shown["worker"] = self.worker[:253]
        if self.start:
            shown["startTime"] = timestamp(self.start)
        if self.end:
            shown["endTime"] = timestamp(self.end)
        if self.outcome:
            shown["outcome"] = self.outcome[:64]
        return shown


def changes_of(snapshot: RunSnapshot) -> list[Change]:
    """Return the lifecycle events of a run, oldest first."""
    return [_decoded(event) for event in snapshot.lifecycle]


def last_takeover(changes: list[Change]) -> Change | None:
    """Return the last takeover, if there was one."""
    taken = [change for change in changes if change.kind is EventKind.TAKEN_OVER]
    return taken[-1] if taken else None


def leases_of(snapshot: RunSnapshot, changes: list[Change]) -> list[Lease]:
    """Return all leases that are known, oldest first."""
    leases = {lease.epoch: lease for lease in _ended(snapshot, changes)}
    if snapshot.place is Place.LEASE:
        leases[snapshot.epoch] = Lease(
            snapshot.epoch, snapshot.attempt, snapshot.worker or "", snapshot.claimed_at, None, ""
        )
    elif snapshot.place is Place.FINAL and snapshot.epoch and snapshot.claimed_at:
        leases.setdefault(snapshot.epoch, _final(snapshot))
    return [leases[epoch] for epoch in sorted(leases)]


def _ended(snapshot: RunSnapshot, changes: list[Change]) -> Iterator[Lease]:
    for entry in snapshot.carry:
        yield Lease(
            entry.epoch, entry.attempt, entry.worker, entry.claimed_at, entry.at, entry.reason
        )
    for change in changes:
        yield Lease(
            change.ended_epoch,
            change.attempt,
            change.from_worker,
            change.claimed_at,
            change.ended_at,
            change.reason,
        )


def _final(snapshot: RunSnapshot) -> Lease:
    failed = snapshot.status is FinalStatus.FAILED
    outcome = snapshot.reason if failed else (snapshot.status or FinalStatus.FAILED).name.title()
    return Lease(
        snapshot.epoch,
        snapshot.attempt,
        snapshot.worker or "",
        snapshot.claimed_at,
        snapshot.finished_at,
        outcome or "Failed",
    )


def _decoded(event: LifecycleEvent) -> Change:
    try:
        raw = bodies.unpack(event.body) if event.body else b"{}"
        body = msgspec.json.decode(raw, type=_Body)
    except (msgspec.MsgspecError, ValueError):
        body = _Body()
    return Change(
        kind=event.kind,
        epoch=event.epoch,
        attempt=event.attempt,
        at=event.at,
        ended_epoch=body.epoch or event.epoch - 1,
        claimed_at=body.claimed_at,
        ended_at=body.at or event.at,
        from_worker=body.from_,
        to_worker=body.to,
        reason=body.reason,
        step=body.step,
        takeovers=body.takeovers,
        max_takeovers=body.max_takeovers,
        counted=body.takeovers if body.counted is None else body.counted,
        message=body.message,
    )
