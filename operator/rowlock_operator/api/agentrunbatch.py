"""AgentRunBatch: do this for each of many items, as rows of the database and not as objects."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import ClassVar, Literal

from pydantic import Field

from .agentrun import DesiredState, RunApproval
from .agentrunbatch_status import AgentRunBatchStatus
from .fields import INT32_MAX, Int32, list_keyed_by
from .limits import RunLimits
from .model import Part, Rule, unchanged
from .names import AGENT_RUN_BATCHES
from .references import DNS_LABEL, ConfigMapKeyReference, LocalReference
from .resource import AGE, Column, Definition, Resource


@unique
class Materialize(StrEnum):
    """Which items become AgentRuns that people can look at."""

    NONE = "None"
    FAILED = "Failed"
    ALL = "All"


class BatchItem(Part):
    """One piece of work."""

    id: str = Field(min_length=1, max_length=40, pattern=DNS_LABEL)
    """Name of the item within its batch: a DNS label."""

    text: str = Field(max_length=2048)
    """The agent's input: JSON where the agent declares a type, else plain text."""


class ItemsFrom(Part):
    """Where items are read from, one JSON object `{"id": …, "text": …}` a line."""

    config_map_key_ref: ConfigMapKeyReference | None = None
    """Entry of a ConfigMap; read once, when the batch is accepted."""

    uri: str | None = Field(default=None, max_length=2048)
    """Address of a file, `https://`, `http://` or `file://`, that workers of the pool read.

    It must not hold a password: whoever may read the object can read it.
    """

    rules: ClassVar = (
        Rule(
            "has(self.configMapKeyRef) != has(self.uri)",
            "exactly one of configMapKeyRef, uri must be set",
        ),
    )


class RunTemplate(RunLimits):
    """What each item is run with."""

    agent_ref: LocalReference
    """Agent to run; it may be created later, the batch waits for it."""

    priority: Int32 = Field(default=0, ge=-1000, le=1000)
    """Queued runs of a pool with a higher number start first."""

    concurrency_key: str | None = Field(default=None, min_length=1, max_length=128)
    """Whom the items are for; the Agent's limits per key count by it."""

    approval: RunApproval | None = None
    """How long a question to a person stays open."""


class AgentRunBatchSpec(Part):
    """What is asked for.

    Items and runTemplate can never change; what else is changed counts from then on.
    """

    run_template: RunTemplate
    """What each item is run with."""

    items: tuple[BatchItem, ...] | None = Field(
        default=None, max_length=100, json_schema_extra=list_keyed_by("id")
    )
    """The items themselves, if they are few."""

    items_from: ItemsFrom | None = None
    """Where the items are read from."""

    parallelism: Int32 | None = Field(default=None, ge=1, le=10_000)
    """Items under way at once, those included that wait for a person or for their next attempt.

    Left out, as many as the workers and the Agent's own limits take.
    """

    max_failed_percent: Int32 = Field(default=100, ge=0, le=100)
    """If more of all items than this have failed, nothing more is started and the batch fails."""

    materialize: Materialize = Materialize.NONE
    """Which items become AgentRuns: None, Failed (1,000 at most), or All (of 1,000 at most).

    It is settled when the batch is accepted.
    """

    desired_state: DesiredState = DesiredState.RUN
    """Run, Suspend (start nothing more and hold what runs), or Cancel, which is final."""

    ttl_seconds_after_finished: Int32 | None = Field(default=None, ge=0, le=INT32_MAX)
    """Seconds after the end until the object is deleted, with its AgentRuns."""

    rules: ClassVar = (
        Rule(
            "has(self.items) != has(self.itemsFrom)", "exactly one of items, itemsFrom must be set"
        ),
        Rule(
            "self.runTemplate == oldSelf.runTemplate",
            "runTemplate must not change after creation",
        ),
        Rule(unchanged("items"), "items must not change after creation"),
        Rule(unchanged("itemsFrom"), "itemsFrom must not change after creation"),
        Rule(
            "oldSelf.desiredState != 'Cancel' || self.desiredState == 'Cancel'",
            "desiredState must not leave Cancel",
        ),
    )


class AgentRunBatch(Resource):
    """Runs of one Agent, one for each item; the items are rows, and this object counts them."""

    definition: ClassVar = Definition(
        kind="AgentRunBatch",
        plural=AGENT_RUN_BATCHES,
        short_names=("abatch",),
        columns=(
            Column("Agent", ".spec.runTemplate.agentRef.name"),
            Column("Phase", ".status.phase"),
            Column("Total", ".status.total", "integer"),
            Column("Running", ".status.running", "integer"),
            Column("Succeeded", ".status.succeeded", "integer"),
            Column("Failed", ".status.failed", "integer"),
            Column("Takeovers", ".status.takeovers", "integer", wide=True),
            AGE,
        ),
    )

    kind: Literal["AgentRunBatch"] = "AgentRunBatch"
    spec: AgentRunBatchSpec
    status: AgentRunBatchStatus | None = None

    rules: ClassVar = (
        Rule("size(self.metadata.name) <= 52", "name must be no more than 52 characters"),
    )
