"""What an AgentRun shows: a copy of its rows, written by the mirror alone.

Nothing that changes by the second stands here (renewals, places in the queue, tokens of a step):
each write of a status costs every watcher and the API server's storage.
"""

from __future__ import annotations

from pydantic import Field

from rowlock.states import Phase

from .conditions import KEYED_BY_TYPE, Condition
from .fields import Int32, Int64, Timestamp, list_keyed_by
from .model import Part


class LastTakeover(Part):
    """The last time another worker went on with the run."""

    time: Timestamp | None = None
    """When the new worker claimed it."""

    reason: str | None = Field(default=None, max_length=64)
    """Why the old worker lost it, as LeaseExpired or NodeLost."""

    from_worker: str | None = Field(default=None, max_length=253)
    """Worker that lost the run."""

    to_worker: str | None = Field(default=None, max_length=253)
    """Worker that went on with it."""

    resumed_from_step: Int64 | None = Field(default=None, ge=0)
    """Number of finished steps that were read back instead of run again."""

    lease_epoch: Int64 | None = Field(default=None, ge=0)
    """Epoch of the new worker's lease."""


class LeaseRecord(Part):
    """One lease of the run."""

    lease_epoch: Int64
    """Number of the lease; it rises over takeovers, attempts and re-drives."""

    attempt: Int32 | None = None
    """Attempt that it belonged to."""

    worker: str | None = Field(default=None, max_length=253)
    """Worker that held it."""

    start_time: Timestamp | None = None
    """When it was claimed."""

    end_time: Timestamp | None = None
    """When it ended; missing while it is held."""

    outcome: str | None = Field(default=None, max_length=64)
    """How it ended: Succeeded, a failure's reason, or why it was lost."""


class Usage(Part):
    """What the run has used up so far, over all attempts."""

    input_tokens: Int64 | None = None
    """Tokens sent to models."""

    output_tokens: Int64 | None = None
    """Tokens received from models."""

    cost_micro_usd: Int64 | None = None
    """Cost in millionths of a US dollar."""


class RunResult(Part):
    """The beginning of the result, and where all of it is."""

    preview: str | None = Field(default=None, max_length=1024)
    """At most the first 1 KiB of the result."""

    uri: str | None = Field(default=None, max_length=2048)
    """Where the whole result can be read."""

    size_bytes: Int64 | None = None
    """Size of the whole result."""

    sha256: str | None = Field(default=None, max_length=64)
    """Hash of the whole result, in hex."""


class RunFailure(Part):
    """Why the run, or its last attempt, failed."""

    reason: str | None = Field(default=None, max_length=64)
    """One of the failure reasons."""

    message: str | None = Field(default=None, max_length=1024)
    """The error, innermost cause last."""

    step: Int64 | None = None
    """Number of the step that failed."""


class PendingApproval(Part):
    """The question that the run waits for."""

    name: str | None = Field(default=None, max_length=253)
    """Name of the AgentRunApproval to decide."""

    tool: str | None = Field(default=None, max_length=128)
    """Tool that wants to be called."""

    digest: str | None = Field(default=None, max_length=80)
    """Digest of the tool's arguments; the decision must repeat it."""

    expiration_time: Timestamp | None = None
    """When the question expires."""


class AgentRunStatus(Part):
    """What became of it."""

    observed_generation: Int64 | None = Field(default=None, ge=0)
    """metadata.generation that this status answers."""

    revision: Int64 | None = Field(default=None, ge=0)
    """Version of the database row that is shown."""

    run_id: str | None = Field(default=None, max_length=64)
    """Number of the run in the database; never changes once it is there."""

    phase: Phase | None = None
    """Where the run stands, in one word for people; programs look at the conditions."""

    reason: str | None = Field(default=None, max_length=64)
    """The one thing to know now: why it waits, why it failed."""

    attempt: Int32 | None = Field(default=None, ge=0)
    """How often the agent's code has been started."""

    takeovers: Int32 | None = Field(default=None, ge=0)
    """How often another worker went on after one was lost; maxTakeovers may count fewer."""

    redrive: Int32 | None = Field(default=None, ge=0)
    """The spec.redrive that this status answers."""

    worker: str | None = Field(default=None, max_length=253)
    """Worker that holds the run: the name of its Pod."""

    lease_epoch: Int64 | None = Field(default=None, ge=0)
    """Number of the present lease; a writer with a smaller one is refused."""

    agent_revision: str | None = Field(default=None, max_length=64)
    """Revision of the Agent that the run was accepted with, and keeps."""

    queue_time: Timestamp | None = None
    """When the run was written to the database."""

    start_time: Timestamp | None = None
    """When a worker first claimed it."""

    completion_time: Timestamp | None = None
    """When it ended; the TTL counts from here."""

    last_takeover: LastTakeover | None = None
    """The last takeover; missing while there was none."""

    history: tuple[LeaseRecord, ...] = Field(
        default=(), max_length=10, json_schema_extra=list_keyed_by("leaseEpoch")
    )
    """The last ten leases, oldest first."""

    history_truncated: bool | None = Field(default=None, strict=True)
    """True if there were more leases than history shows."""

    usage: Usage | None = None
    """Tokens and cost so far."""

    outcome: str | None = Field(default=None, max_length=64)
    """How good the result of a succeeded run is: ok, or degraded by the agent's own word."""

    result: RunResult | None = None
    """The result of a succeeded run, or its beginning."""

    failure: RunFailure | None = None
    """What went wrong last."""

    pending_approval: PendingApproval | None = None
    """The question to a person that the run waits for."""

    trace_id: str | None = Field(default=None, max_length=32)
    """Trace of the run, for those who trace."""

    conditions: tuple[Condition, ...] = Field(
        default=(), max_length=12, json_schema_extra=KEYED_BY_TYPE
    )
    """Accepted, Running, Suspended, AwaitingApproval, Resumed, Finished, Succeeded.

    All are there from the first write on; `kubectl wait --for=condition=Finished` ends for good
    and bad ends alike.
    """
