"""The status of an AgentRunBatch, and what is announced of it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rowlock.states import BatchReason, BatchStop, FailureReason, WaitReason
from rowlock.store.batches import BatchStatus
from rowlock_operator.api.agentrunbatch_status import BatchPhase
from rowlock_operator.kube.conditions import Condition, condition_of, holds, merged, timestamp
from rowlock_operator.kube.text import reason_word

#: Failed items that a status names.
MOST_FAILED = 20
#: The batch was refused for what its object says, so nothing of it was started.
_REFUSALS = frozenset({BatchStop.INVALID_ITEMS, BatchStop.ITEMS_UNREADABLE})
_ENDED = {
    BatchPhase.SUCCEEDED: "BatchSucceeded",
    BatchPhase.FAILED: "BatchFailed",
    BatchPhase.CANCELLED: "BatchCancelled",
}


@dataclass(frozen=True, slots=True)
class BatchWaits:
    """Something that the batch needs is not there; it is taken in when it appears."""

    reason: WaitReason
    message: str


@dataclass(frozen=True, slots=True)
class BatchRefused:
    """The batch can never be taken in, and ends."""

    reason: FailureReason | BatchStop
    message: str


def waiting_status(
    waits: BatchWaits, *, generation: int, before: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Return the status of a batch that is not in the database yet."""
    conditions = (
        Condition("Accepted", None, waits.reason.value, waits.message),
        _suspended(False),
        *_in_progress(),
    )
    return {
        "observedGeneration": generation,
        "phase": BatchPhase.PENDING.value,
        "conditions": _merged(conditions, before, generation, now),
    }


def refused_status(
    refused: BatchRefused, *, generation: int, before: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Return the status of a batch that ends without ever having been in the database, or lost it.

    What a vanished row had shown stays: it is all that is left of it.
    """
    why, message = refused.reason.value, refused.message
    cancelled = refused.reason is FailureReason.CANCELLED
    conditions = (
        Condition("Accepted", None if cancelled else False, why, message),
        _suspended(False),
        Condition("Finished", True, why, message),
        Condition("Succeeded", False, why, message),
    )
    return {
        **before,
        "observedGeneration": generation,
        "phase": (BatchPhase.CANCELLED if cancelled else BatchPhase.FAILED).value,
        "completionTime": before.get("completionTime") or timestamp(now),
        "conditions": _merged(conditions, before, generation, now),
    }


def batch_status(
    row: BatchStatus, *, generation: int, before: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Return the whole status of a batch that is in the database."""
    unstarted = row.total - row.fed if row.stopped else 0
    cancelled = row.cancelled + unstarted
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "batchID": str(row.batch_id),
        "phase": phase(row).value,
        "total": row.total,
        "queued": row.total - row.running - row.succeeded - row.failed - cancelled,
        "running": row.running,
        "succeeded": row.succeeded,
        "failed": row.failed,
        "cancelled": cancelled,
        "takeovers": row.takeovers,
        "failedItems": [
            {"id": item, "reason": reason_word(reason)}
            for item, reason in row.failures[:MOST_FAILED]
        ],
        "failedItemsTruncated": row.failed > MOST_FAILED,
    }
    if row.started_at:
        status["startTime"] = timestamp(row.started_at)
    if row.finished_at:
        status["completionTime"] = timestamp(row.finished_at)
    status["conditions"] = _merged(_conditions(row), before, generation, now)
    return status


def phase(row: BatchStatus) -> BatchPhase:
    """Return the phase of a batch that is in the database."""
    if row.finished_at is None:
        if row.suspended:
            return BatchPhase.SUSPENDED
        return BatchPhase.RUNNING if row.started_at else BatchPhase.PENDING
    if row.stopped is None:
        return BatchPhase.SUCCEEDED
    if row.stopped in (BatchStop.CANCELLED, BatchStop.DELETED):
        return BatchPhase.CANCELLED
    return BatchPhase.FAILED


def events(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield reason and note of what a status says for the first time."""
    refused = condition_of(after, "Accepted")
    if refused.get("status") == "False":
        if condition_of(before, "Accepted").get("status") != "False":
            yield "BatchRefused", f"{refused['reason']}: {refused['message']}"
        return
    if "batchID" in after and "batchID" not in before:
        yield "BatchAccepted", f"batch {after['batchID']}"
    stopped = BatchStop.TOO_MANY_FAILED.value
    last = condition_of(after, "Succeeded")
    if last.get("reason") == stopped and condition_of(before, "Succeeded").get("reason") != stopped:
        yield "BatchStopped", last["message"]
    if holds(after, "Finished") and not holds(before, "Finished"):
        yield _ENDED[BatchPhase(after["phase"])], last.get("message") or last.get("reason", "")


def _conditions(row: BatchStatus) -> Iterator[Condition]:
    yield _accepted(row)
    yield _suspended(row.suspended and row.finished_at is None)
    if row.finished_at is None and row.stopped is None:
        yield from _in_progress()
        return
    why, message = _verdict(row)
    ended = row.finished_at is not None
    yield Condition("Finished", ended, why if ended else BatchReason.STOPPING.value, message)
    yield Condition("Succeeded", row.stopped is None, why, message)


def _accepted(row: BatchStatus) -> Condition:
    if row.stopped in _REFUSALS:
        return Condition("Accepted", False, row.stopped.value, row.stop_message)
    if row.sealed:
        return Condition("Accepted", True, BatchReason.ACCEPTED.value)
    return Condition(
        "Accepted", None, BatchReason.READING_ITEMS.value, f"{row.total} items read so far"
    )


def _verdict(row: BatchStatus) -> tuple[str, str]:
    if row.stopped:
        return row.stopped.value, row.stop_message
    parts = [f"{row.succeeded} of {row.total} items succeeded"]
    parts += [f"{row.failed} failed"] if row.failed else []
    parts += [f"{row.cancelled} were cancelled"] if row.cancelled else []
    return BatchReason.COMPLETED.value, ", ".join(parts)


def _suspended(held: bool) -> Condition:
    reason = BatchReason.SUSPENDED if held else BatchReason.NOT_SUSPENDED
    return Condition("Suspended", held, reason.value)


def _in_progress() -> Iterator[Condition]:
    yield Condition("Finished", False, BatchReason.IN_PROGRESS.value)
    yield Condition("Succeeded", None, BatchReason.IN_PROGRESS.value)


def _merged(
    conditions: Iterable[Condition], before: Mapping[str, Any], generation: int, now: datetime
) -> list[dict[str, Any]]:
    return merged(conditions, before.get("conditions") or (), generation=generation, now=now)
