"""Kubernetes Events of runs: which change is announced, and in which words; pure.

The name is made of the run, its uid, the reason and the number of the change: writing the same
Event twice, or from two operators, meets "already exists". Names must be lower case, and without
the uid a re-created run would find its Events taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rowlock.states import (
    KUBERNETES_EVENTS,
    ChangeKind,
    EventKind,
    FinalStatus,
)
from rowlock.store.types import Change, RunSnapshot
from rowlock_operator.kube.conditions import micro_timestamp
from rowlock_operator.kube.resources import (
    AGENT_RUN_APPROVALS,
    AGENT_RUNS,
    EVENTS,
    PODS,
    ObjectKey,
    Resource,
)
from rowlock_operator.kube.text import cut
from rowlock_operator.mirror import leases
from rowlock_operator.mirror.conditions import verdict

CONTROLLER = "rowlock.dev/operator"
_NOTE_BYTES = 1000
_FINAL = {
    FinalStatus.SUCCEEDED: "RunSucceeded",
    FinalStatus.FAILED: "RunFailed",
    FinalStatus.CANCELLED: "RunCancelled",
}


@dataclass(frozen=True, slots=True)
class Announcement:
    """One Event to write.

    Parameters
    ----------
    number
        Of the change that it announces, or whatever else tells Events of this reason apart.
    pod, pod_uid
        The Pod that the run went to; empty if there is none to point at. The uid is empty too
        when the run has gone on elsewhere since.
    approval
        The AgentRunApproval that it is about; empty for none.
    about
        The kind of the object.
    of_change
        The number is that of a change, which stays in the database until this Event is settled.
    """

    key: ObjectKey
    reason: str
    number: int
    note: str
    at: datetime
    pod: str = ""
    pod_uid: str = ""
    approval: str = ""
    about: Resource = AGENT_RUNS
    of_change: bool = False

    @property
    def type(self) -> str:
        """Return Normal or Warning."""
        return KUBERNETES_EVENTS[self.reason].type

    @property
    def name(self) -> str:
        """Return the Event's name, at most 253 characters."""
        return f"{self.key.name}.{self.key.uid[:8]}.{self.reason.lower()}.{self.number}"


def announcement(change: Change, snapshot: RunSnapshot) -> Announcement | None:
    """Return what to announce of a change, if anything."""
    said = _said(change, snapshot)
    if said is None:
        return None
    reason, note, worker = said
    key = ObjectKey(snapshot.namespace, snapshot.name, snapshot.uid)
    pod, pod_uid = _pod_of(worker, snapshot)
    return Announcement(
        key,
        reason,
        change.seq,
        cut(note, _NOTE_BYTES),
        change.at,
        pod=pod,
        pod_uid=pod_uid,
        of_change=True,
    )


def event_body(said: Announcement, *, instance: str) -> dict[str, Any]:
    """Return the Event as events.k8s.io/v1 wants it.

    Parameters
    ----------
    instance
        Name of the operator process that writes it.
    """
    body: dict[str, Any] = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": said.name, "namespace": said.key.namespace},
        "eventTime": micro_timestamp(said.at),
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128],
        "action": KUBERNETES_EVENTS[said.reason].action,
        "reason": said.reason,
        "type": said.type,
        "note": said.note,
        "regarding": _reference(said.key, said.about),
    }
    related = (PODS, said.pod) if said.pod else (AGENT_RUN_APPROVALS, said.approval)
    if related[1]:
        body["related"] = {
            "apiVersion": related[0].api_version,
            "kind": related[0].kind,
            "namespace": said.key.namespace,
            "name": related[1],
            **({"uid": said.pod_uid} if said.pod_uid else {}),
        }
    return body


def _said(change: Change, snapshot: RunSnapshot) -> tuple[str, str, str] | None:
    """Return reason, note and the worker that the run went to."""
    if change.kind is ChangeKind.QUEUED:
        return "RunQueued", f"run {snapshot.run_id} waits for a worker", ""
    if change.kind is ChangeKind.CLAIMED and change.epoch == 1:
        worker = _worker_of(change.epoch, snapshot)
        return "RunStarted", f"claimed by {worker}" if worker else "claimed by a worker", worker
    if change.kind is ChangeKind.ENDED and snapshot.status is not None:
        return _FINAL[snapshot.status], _end_note(snapshot), ""
    if change.kind is ChangeKind.RETRYING:
        return "RunRetrying", _retry_note(snapshot), ""
    if change.kind in (ChangeKind.TAKEN_OVER, ChangeKind.HANDED_OVER):
        return _moved(change, snapshot)
    return _held(change, snapshot)


def _held(change: Change, snapshot: RunSnapshot) -> tuple[str, str, str] | None:
    if change.kind is ChangeKind.SUSPENDED:
        asked = f"asked by {snapshot.suspend_asked}" if snapshot.suspend_asked else "held"
        return "RunSuspended", asked, ""
    if change.kind is ChangeKind.CONTINUED:
        return "RunContinued", "waits for a worker", ""
    return None


def _moved(change: Change, snapshot: RunSnapshot) -> tuple[str, str, str] | None:
    taken = change.kind is ChangeKind.TAKEN_OVER
    kind = EventKind.TAKEN_OVER if taken else EventKind.HANDED_OVER
    moves = [
        move
        for move in leases.changes_of(snapshot)
        if move.kind is kind and move.epoch == change.epoch
    ]
    if not moves:
        return None
    move = moves[-1]
    note = f"from {move.from_worker} to {move.to_worker}, resumed at step {move.step}"
    if not taken:
        why = f": {move.message}" if move.message else ""
        return "RunHandedOver", note + why, move.to_worker
    return "RunTakenOver", f"{note}, {move.count}: {move.reason}", move.to_worker


def _pod_of(worker: str, snapshot: RunSnapshot) -> tuple[str, str]:
    """Return name and uid of a worker's Pod; a worker outside Kubernetes has none."""
    name = worker.split("/", maxsplit=1)[0]
    if worker != snapshot.worker:
        return name, ""
    return (name, snapshot.pod_uid) if snapshot.pod_uid else ("", "")


def _worker_of(epoch: int, snapshot: RunSnapshot) -> str:
    known = leases.leases_of(snapshot, leases.changes_of(snapshot))
    return next((lease.worker for lease in known if lease.epoch == epoch), "")


def _end_note(snapshot: RunSnapshot) -> str:
    if snapshot.status is FinalStatus.SUCCEEDED:
        return f"finished with a result ({snapshot.outcome or 'ok'})"
    return f"{verdict(snapshot)}: {snapshot.message}" if snapshot.message else verdict(snapshot)


def _retry_note(snapshot: RunSnapshot) -> str:
    due = f", not before {snapshot.due_at:%H:%M:%SZ}" if snapshot.due_at else ""
    return f"attempt {snapshot.attempt} follows{due}"


def _reference(key: ObjectKey, about: Resource) -> Mapping[str, str]:
    return {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "namespace": key.namespace,
        "name": key.name,
        "uid": key.uid,
    }
