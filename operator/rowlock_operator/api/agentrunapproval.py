"""AgentRunApproval: may this one tool call go ahead? The operator asks, a person decides."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import ClassVar, Literal

from pydantic import Field

from rowlock.states import ApprovalPhase

from .conditions import KEYED_BY_TYPE, Condition
from .fields import Int64, Timestamp
from .model import Part, Rule, unchanged
from .names import AGENT_RUN_APPROVALS
from .references import LocalReference
from .resource import AGE, Column, Definition, Resource

#: All that the operator writes at the creation.
_FIXED = ("runRef", "batchItemRef", "tool", "callID", "digest", "summary", "expirationTime")


@unique
class DecisionAction(StrEnum):
    """What a person decided."""

    APPROVE = "Approve"
    DENY = "Deny"


class BatchItemReference(Part):
    """One item of an AgentRunBatch in the same namespace."""

    batch: str = Field(max_length=63)
    """Name of the AgentRunBatch."""

    item: str = Field(max_length=40)
    """Id of the item within the batch."""


class ApprovalDecision(Part):
    """What a person decided, about what, and who it was."""

    action: DecisionAction
    """Approve: the call happens; Deny: it does not, and the agent is told so."""

    decided_by: str = Field(min_length=1, max_length=253)
    """Who decided; a claim, unless an admission policy compares it with the requesting user."""

    digest: str = Field(max_length=80)
    """Repeats spec.digest: it proves what was decided."""

    reason: str | None = Field(default=None, max_length=512)
    """Why, in words; after a denial the agent reads it."""


class AgentRunApprovalSpec(Part):
    """What is asked. Only decision can be set, once, after the creation."""

    run_ref: LocalReference | None = None
    """AgentRun that asks."""

    batch_item_ref: BatchItemReference | None = None
    """Item of a batch that asks, where no AgentRun stands for it."""

    tool: str = Field(min_length=1, max_length=128)
    """Tool that the agent wants to call."""

    call_id: str | None = Field(default=None, max_length=128)
    """Step of the run that the call is, as `rowlock approvals` names it."""

    digest: str = Field(min_length=8, max_length=80)
    """Stands for the tool and all of its arguments; the decision must repeat it."""

    summary: str | None = Field(default=None, max_length=1024)
    """The call as people read it: arguments are shortened, and those named like secrets hidden."""

    expiration_time: Timestamp | None = None
    """When the question expires; left out, never."""

    decision: ApprovalDecision | None = None
    """The answer; final."""

    rules: ClassVar = (
        Rule("has(self.runRef) != has(self.batchItemRef)", "exactly one of runRef, batchItemRef"),
        *(
            Rule(unchanged(field), f"{field} is immutable: only decision may be set")
            for field in _FIXED
        ),
        Rule(
            "!has(oldSelf.decision) || (has(self.decision) && self.decision == oldSelf.decision)",
            "a decision is final",
        ),
        Rule(
            "!has(self.decision) || self.decision.digest == self.digest",
            "decision.digest must repeat spec.digest: it proves what was decided",
        ),
    )


class AgentRunApprovalStatus(Part):
    """What became of the question."""

    observed_generation: Int64 | None = Field(default=None, ge=0)
    """metadata.generation that this status answers."""

    phase: ApprovalPhase | None = None
    """How it stands, in one word for people; programs look at the conditions."""

    decided_time: Timestamp | None = None
    """When the answer was given, or the question expired."""

    conditions: tuple[Condition, ...] = Field(
        default=(), max_length=4, json_schema_extra=KEYED_BY_TYPE
    )
    """Decided (the question has its answer) and DecisionAccepted (it is the one in the spec)."""


class AgentRunApproval(Resource):
    """A question to a person: may this one tool call go ahead.

    The operator makes one for each question of a run; a person sets its decision.
    """

    definition: ClassVar = Definition(
        kind="AgentRunApproval",
        plural=AGENT_RUN_APPROVALS,
        short_names=("aappr",),
        columns=(
            Column("Run", ".spec.runRef.name"),
            Column("Tool", ".spec.tool"),
            Column("Phase", ".status.phase"),
            Column("DecidedBy", ".spec.decision.decidedBy"),
            Column("Expires", ".spec.expirationTime", "date", wide=True),
            AGE,
        ),
    )

    kind: Literal["AgentRunApproval"] = "AgentRunApproval"
    spec: AgentRunApprovalSpec
    status: AgentRunApprovalStatus | None = None

    rules: ClassVar = (
        Rule(
            "oldSelf.hasValue() || !has(self.spec.decision)",
            "an approval is created without a decision",
            at_creation=True,
        ),
    )
