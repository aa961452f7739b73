"""AgentRun: do this once, to its end, whatever happens to the workers."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import ClassVar, Literal

from pydantic import Field

from .agentrun_status import AgentRunStatus
from .fields import Int32
from .limits import RunLimits
from .model import Part, Rule, unchanged
from .names import AGENT_RUNS
from .references import ConfigMapKeyReference, LocalReference
from .resource import AGE, Column, Definition, Resource

#: The optional fields of a run that are settled when it is created.
_FIXED = (
    "input",
    "workerPoolRef",
    "concurrencyKey",
    "idempotencyKey",
    "queueDeadlineSeconds",
    "activeDeadlineSeconds",
    "budget",
    "approval",
    "maxAttempts",
    "maxTakeovers",
    "retryBackoffSeconds",
    "maxRetryBackoffSeconds",
)


def _immutable(field: str) -> str:
    return f"{field} is immutable: create a new AgentRun"


@unique
class DesiredState(StrEnum):
    """What should become of a run."""

    RUN = "Run"
    SUSPEND = "Suspend"
    CANCEL = "Cancel"


class RunInput(Part):
    """What the agent is given, from exactly one source."""

    text: str | None = Field(default=None, max_length=65_536)
    """The input itself: JSON where the agent declares a type, else plain text."""

    config_map_key_ref: ConfigMapKeyReference | None = None
    """Entry of a ConfigMap that holds the input; read once, when the run is accepted."""

    uri: str | None = Field(default=None, max_length=2048)
    """Address of an input that is too large for an object; the agent reads it."""

    rules: ClassVar = (
        Rule(
            "[has(self.text), has(self.configMapKeyRef), has(self.uri)].filter(x, x).size() == 1",
            "input must have exactly one of text, configMapKeyRef, uri",
        ),
    )


class RunApproval(Part):
    """How long a person may take over a question of this run.

    What happens then stands on the Agent alone: the author of a run could approve it himself.
    """

    timeout_seconds: Int32 | None = Field(default=None, ge=1, le=2_592_000)
    """Seconds until an open question expires; left out, the Agent's."""


class AgentRunSpec(RunLimits):
    """What is asked for.

    Only desiredState, desiredStateReason, ttlSecondsAfterFinished, redrive and, before the start,
    priority can change after creation.
    """

    agent_ref: LocalReference
    """Agent to run; it may be created later, the run waits for it."""

    input: RunInput | None = None
    """What the agent is given; left out, nothing."""

    priority: Int32 = Field(default=0, ge=-1000, le=1000)
    """Queued runs of a pool with a higher number start first; fixed once the run has started."""

    concurrency_key: str | None = Field(default=None, min_length=1, max_length=128)
    """Whom the run is for, as a customer or repository; the Agent's limits per key count by it."""

    idempotency_key: str | None = Field(default=None, min_length=1, max_length=128)
    """A second run of the Agent with this key is refused as DuplicateIdempotencyKey.

    The key is held while the first object exists or its run is not finished.
    """

    approval: RunApproval | None = None
    """How long a question to a person stays open."""

    desired_state: DesiredState = DesiredState.RUN
    """Run, Suspend (stop at the next step and hold), or Cancel (end, whatever state it is in).

    Cancel is final, unless redrive is raised in the same change.
    """

    desired_state_reason: str | None = Field(default=None, max_length=256)
    """Why somebody suspended or cancelled it; shown in conditions and events."""

    redrive: Int32 = Field(default=0, ge=0, le=1000)
    """Raise it by one after the end to run again; finished steps are kept, not repeated."""

    rules: ClassVar = (
        Rule("self.agentRef == oldSelf.agentRef", _immutable("agentRef")),
        *(Rule(unchanged(field), _immutable(field)) for field in _FIXED),
        Rule(
            "oldSelf.desiredState != 'Cancel' || self.desiredState == 'Cancel'"
            " || self.redrive == oldSelf.redrive + 1",
            "a cancelled run stays cancelled: raise redrive by one in the same change"
            " to run it again",
        ),
        Rule(
            "!has(self.retryBackoffSeconds) || !has(self.maxRetryBackoffSeconds)"
            " || self.retryBackoffSeconds <= self.maxRetryBackoffSeconds",
            "retryBackoffSeconds must not exceed maxRetryBackoffSeconds",
        ),
    )


class AgentRun(Resource):
    """One run of an Agent, taken over by another worker when its own is lost."""

    definition: ClassVar = Definition(
        kind="AgentRun",
        plural=AGENT_RUNS,
        short_names=("arun",),
        columns=(
            Column("Agent", ".spec.agentRef.name"),
            Column("Phase", ".status.phase"),
            Column("Reason", ".status.reason"),
            Column("Attempt", ".status.attempt", "integer"),
            Column("Takeovers", ".status.takeovers", "integer"),
            Column("Worker", ".status.worker", wide=True),
            Column("Outcome", ".status.outcome", wide=True),
            Column("Revision", ".status.revision", "integer", wide=True),
            Column("TTL", ".spec.ttlSecondsAfterFinished", "integer", wide=True),
            Column("Started", ".status.startTime", "date"),
            AGE,
        ),
        selectable=(".spec.agentRef.name", ".spec.desiredState", ".status.phase"),
    )

    kind: Literal["AgentRun"] = "AgentRun"
    spec: AgentRunSpec
    status: AgentRunStatus | None = None

    rules: ClassVar = (
        Rule(
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')"
            " && size(self.metadata.name) <= 63",
            "name must be a DNS label of at most 63 characters",
        ),
        Rule(
            "self.spec.priority == oldSelf.spec.priority"
            " || !has(oldSelf.status) || !has(oldSelf.status.startTime)",
            "priority is fixed once the run has started",
        ),
        Rule(
            "!has(oldSelf.status) || !has(oldSelf.status.runID)"
            " || (has(self.status) && has(self.status.runID)"
            " && self.status.runID == oldSelf.status.runID)",
            "status.runID is write-once",
        ),
        Rule(
            "self.spec.redrive == oldSelf.spec.redrive"
            " || (self.spec.redrive == oldSelf.spec.redrive + 1"
            " && has(oldSelf.status) && has(oldSelf.status.redrive)"
            " && oldSelf.status.redrive == oldSelf.spec.redrive"
            " && has(oldSelf.status.conditions)"
            " && oldSelf.status.conditions.exists(c, c.type == 'Finished' && c.status == 'True'))",
            "redrive may be raised by one, and only after the run has finished",
        ),
    )
