"""What an AgentRunBatch shows: counts, and the few items that a person must know of."""

from __future__ import annotations

from enum import StrEnum, unique

from pydantic import Field

from .conditions import KEYED_BY_TYPE, Condition
from .fields import Int32, Int64, Timestamp, list_keyed_by
from .model import Part


@unique
class BatchPhase(StrEnum):
    """`status.phase` of a batch, for people."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class FailedItem(Part):
    """One item that failed."""

    id: str = Field(max_length=40)
    """Name of the item."""

    reason: str = Field(max_length=64)
    """Why its run failed, in one word."""


class AgentRunBatchStatus(Part):
    """How far it is; written every few seconds at most."""

    observed_generation: Int64 | None = Field(default=None, ge=0)
    """metadata.generation that this status answers."""

    batch_id: str | None = Field(default=None, max_length=64)
    """Number of the batch in the database."""

    phase: BatchPhase | None = None
    """One word for people; programs look at the conditions."""

    total: Int32 | None = None
    """Items; while they are read from a URI, those read so far."""

    queued: Int32 | None = None
    """Items that no worker holds and that have not ended."""

    running: Int32 | None = None
    """Items that a worker holds."""

    succeeded: Int32 | None = None
    """Items that ended with a result."""

    failed: Int32 | None = None
    """Items that ended without a result."""

    cancelled: Int32 | None = None
    """Items that were cancelled, or never started because the batch stopped."""

    takeovers: Int32 | None = None
    """How often items that have ended were taken over by another worker."""

    failed_items: tuple[FailedItem, ...] = Field(
        default=(), max_length=20, json_schema_extra=list_keyed_by("id")
    )
    """The first items that failed, in the order in which they were given."""

    failed_items_truncated: bool | None = None
    """More items have failed than failedItems names."""

    start_time: Timestamp | None = None
    """When the first items were given to workers."""

    completion_time: Timestamp | None = None
    """When the last item ended."""

    conditions: tuple[Condition, ...] = Field(
        default=(), max_length=8, json_schema_extra=KEYED_BY_TYPE
    )
    """Accepted, Suspended, Finished, Succeeded."""
