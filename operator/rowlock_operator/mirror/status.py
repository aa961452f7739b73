"""The whole status of a run, from one snapshot of its rows; pure.

Each write replaces all of it, so nothing old can stay behind, and two mirrors write the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rowlock.states import ConditionReason, EventKind, FinalStatus, Phase, Place, WaitReason
from rowlock.store import bodies
from rowlock.store.types import RunSnapshot
from rowlock_operator.kube.conditions import merged, timestamp
from rowlock_operator.kube.text import cut
from rowlock_operator.mirror.asking import pending_approval
from rowlock_operator.mirror.conditions import run_conditions, verdict, waits_for
from rowlock_operator.mirror.fit import fit
from rowlock_operator.mirror.leases import (
    SHOWN_LEASES,
    Change,
    changes_of,
    last_takeover,
    leases_of,
)

PREVIEW_BYTES = 1024
_MESSAGE_BYTES = 1024
#: A run that sleeps is under way, though no worker holds it.
_PARKED_PHASES = {
    WaitReason.SUSPENDED: Phase.SUSPENDED,
    WaitReason.AWAITING_APPROVAL: Phase.AWAITING_APPROVAL,
    WaitReason.RETRY_BACKOFF: Phase.RETRYING,
    WaitReason.SLEEPING: Phase.RUNNING,
}


def run_status(
    snapshot: RunSnapshot, *, generation: int, before: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Return the status that shows `snapshot`, at most 8 KiB as JSON.

    Parameters
    ----------
    generation
        The `metadata.generation` that is answered: the newest one known.
    before
        The status that stands there now: times of conditions that did not flip are kept.
    now
        For conditions whose time is not in the rows.
    """
    changes = changes_of(snapshot)
    takeover = last_takeover(changes)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "revision": snapshot.revision,
        "runID": str(snapshot.run_id),
        "phase": phase(snapshot).value,
        "reason": reason(snapshot, takeover)[:64],
        "attempt": snapshot.attempt,
        "takeovers": snapshot.takeovers,
        "redrive": snapshot.redrives,
        "leaseEpoch": snapshot.epoch,
        "agentRevision": snapshot.agent_revision[:64],
        "queueTime": timestamp(snapshot.created_at),
        "conditions": merged(
            run_conditions(snapshot, takeover),
            before.get("conditions") or (),
            generation=generation,
            now=now,
        ),
    }
    status |= _times(snapshot) | _takeover(takeover) | _history(snapshot, changes)
    status |= _usage(snapshot) | _result(snapshot) | _failure(snapshot, changes)
    status |= pending_approval(snapshot)
    return fit(status)


def phase(snapshot: RunSnapshot) -> Phase:
    """Return the word for people."""
    if snapshot.place is Place.FINAL:
        return {
            FinalStatus.SUCCEEDED: Phase.SUCCEEDED,
            FinalStatus.CANCELLED: Phase.CANCELLED,
        }.get(snapshot.status or FinalStatus.FAILED, Phase.FAILED)
    if snapshot.place is Place.LEASE:
        return Phase.RUNNING
    if snapshot.place is Place.PARKED:
        return _PARKED_PHASES[waits_for(snapshot)]
    if snapshot.place is Place.TIMER:
        return Phase.RETRYING
    return Phase.QUEUED


def reason(snapshot: RunSnapshot, takeover: Change | None) -> str:
    """Return the one thing to know now."""
    if snapshot.place is Place.FINAL:
        return verdict(snapshot)
    if snapshot.cancel_asked:
        return ConditionReason.CANCELLING
    if snapshot.place is not Place.LEASE:
        return waits_for(snapshot).value
    resumed = takeover is not None and takeover.epoch == snapshot.epoch
    return ConditionReason.RESUMED if resumed else ConditionReason.LEASE_HELD


def _times(snapshot: RunSnapshot) -> dict[str, Any]:
    times = {"startTime": snapshot.started_at, "completionTime": snapshot.finished_at}
    shown: dict[str, Any] = {name: timestamp(at) for name, at in times.items() if at}
    if snapshot.worker and snapshot.place in (Place.LEASE, Place.FINAL):
        shown["worker"] = snapshot.worker[:253]
    return shown


def _takeover(takeover: Change | None) -> dict[str, Any]:
    if takeover is None:
        return {}
    shown = {
        "time": timestamp(takeover.at),
        "reason": takeover.reason[:64],
        "fromWorker": takeover.from_worker[:253],
        "toWorker": takeover.to_worker[:253],
        "resumedFromStep": takeover.step,
        "leaseEpoch": takeover.epoch,
    }
    return {"lastTakeover": shown}


def _history(snapshot: RunSnapshot, changes: list[Change]) -> dict[str, Any]:
    leases = leases_of(snapshot, changes)
    if not leases:
        return {}
    shown: dict[str, Any] = {"history": [lease.to_dict() for lease in leases[-SHOWN_LEASES:]]}
    # Epochs count every lease ever held, also those whose rows are not read any more.
    if len(leases) > SHOWN_LEASES or leases[0].epoch > 1:
        shown["historyTruncated"] = True
    return shown


def _usage(snapshot: RunSnapshot) -> dict[str, Any]:
    if not (snapshot.tokens_in or snapshot.tokens_out or snapshot.cost_micro):
        return {}
    usage = {
        "inputTokens": snapshot.tokens_in,
        "outputTokens": snapshot.tokens_out,
        "costMicroUSD": snapshot.cost_micro,
    }
    return {"usage": usage}


def _result(snapshot: RunSnapshot) -> dict[str, Any]:
    if snapshot.status is not FinalStatus.SUCCEEDED:
        return {}
    shown: dict[str, Any] = {"outcome": (snapshot.outcome or "ok")[:64]}
    if snapshot.result is not None:
        raw = bodies.unpack(snapshot.result)
        shown["result"] = {
            "preview": cut(raw[: PREVIEW_BYTES + 4].decode("utf-8", "ignore"), PREVIEW_BYTES),
            "sizeBytes": len(raw),
            "sha256": hashlib.sha256(raw).hexdigest(),
        }
    elif snapshot.result_size is not None:
        # Too large to be read for each status; its stored size is all that is known here.
        shown["result"] = {"sizeBytes": snapshot.result_size}
    return shown


def _failure(snapshot: RunSnapshot, changes: list[Change]) -> dict[str, Any]:
    if snapshot.status is FinalStatus.FAILED:
        failure: dict[str, Any] = {"reason": verdict(snapshot)[:64]}
        if snapshot.message:
            failure["message"] = cut(snapshot.message, _MESSAGE_BYTES)
        if snapshot.step is not None:
            failure["step"] = snapshot.step
        return {"failure": failure}
    if snapshot.place is Place.FINAL:
        return {}
    return _last_attempt(snapshot, changes)


def _last_attempt(snapshot: RunSnapshot, changes: list[Change]) -> dict[str, Any]:
    failed = [
        (change.reason, change.message)
        for change in changes
        if change.kind is EventKind.ATTEMPT_FAILED
    ]
    # What is carried comes after what the last owner wrote down.
    failed += [
        (entry.reason, entry.message)
        for entry in snapshot.carry
        if entry.event is EventKind.ATTEMPT_FAILED
    ]
    if not failed:
        return {}
    why, message = failed[-1]
    return {"failure": {"reason": why[:64], "message": cut(message, _MESSAGE_BYTES)}}
