"""Agent: which code, model and tools a run uses, with defaults and limits for all its runs."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import ClassVar, Literal

from pydantic import Field

from .conditions import KEYED_BY_TYPE, Condition
from .fields import INT32_MAX, Int32, Int64, list_keyed_by
from .limits import RunLimits
from .model import Part, Rule
from .names import AGENTS
from .references import ConfigMapKeyReference, LocalReference
from .resource import AGE, Column, Definition, Resource, condition_column


@unique
class Intake(StrEnum):
    """Whether new runs of an Agent start."""

    OPEN = "Open"
    PAUSED = "Paused"


@unique
class VersionPolicy(StrEnum):
    """Which revision of an Agent goes on with a run after a change."""

    LATEST = "Latest"
    PINNED = "Pinned"


@unique
class SideEffects(StrEnum):
    """What repeating an interrupted tool call would do; each is stronger than the one before."""

    NONE = "None"
    IDEMPOTENT = "Idempotent"
    NON_IDEMPOTENT = "NonIdempotent"


@unique
class ToolApproval(StrEnum):
    """Whether a person must agree to each call of a tool."""

    NEVER = "Never"
    ALWAYS = "Always"


@unique
class ApprovalTimeout(StrEnum):
    """What an expired question counts as."""

    DENY = "Deny"
    APPROVE = "Approve"


class AgentModel(Part):
    """The language model of an agent whose code leaves it open."""

    name: str = Field(max_length=128)
    """Name of the model, as its provider calls it."""

    provider: str | None = Field(default=None, max_length=64)
    """Who serves the model, as openai or anthropic."""

    secret_ref: LocalReference | None = None
    """Secret with the provider's key."""


class AgentPrompt(Part):
    """The instructions of an agent whose code leaves them open, from exactly one source."""

    text: str | None = Field(default=None, max_length=65_536)
    """The instructions themselves."""

    config_map_key_ref: ConfigMapKeyReference | None = None
    """Entry of a ConfigMap that holds the instructions."""

    rules: ClassVar = (
        Rule(
            "has(self.text) != has(self.configMapKeyRef)",
            "exactly one of text, configMapKeyRef must be set",
        ),
    )


class AgentTool(Part):
    """A tool that the agent's code declares; this can only make it stricter."""

    name: str = Field(min_length=1, max_length=128)
    """Name of the tool in the code."""

    side_effects: SideEffects | None = None
    """What repeating a call would do; left out, what the code declares."""

    approval: ToolApproval = ToolApproval.NEVER
    """Always: a person must agree to each call; Never: as the code declares."""


class AgentApproval(Part):
    """What becomes of questions to people."""

    timeout_seconds: Int32 = Field(default=86_400, ge=1, le=2_592_000)
    """Seconds until an open question expires; a run may set its own."""

    on_timeout: ApprovalTimeout = ApprovalTimeout.DENY
    """What an expired question counts as."""


class AgentSpec(Part):
    """What its runs use; a change makes a new revision, and runs keep the one they started with."""

    description: str | None = Field(default=None, max_length=512)
    """What the agent is for, for people."""

    entrypoint: str = Field(min_length=1, max_length=253)
    """The agent in the worker image, as `package.module:object`."""

    model: AgentModel | None = None
    """Language model; only for an agent whose code leaves it open."""

    prompt: AgentPrompt | None = None
    """Instructions; only for an agent whose code leaves them open."""

    tools: tuple[AgentTool, ...] = Field(
        default=(), max_length=64, json_schema_extra=list_keyed_by("name")
    )
    """Tools that are to be stricter than the code declares."""

    run_defaults: RunLimits | None = None
    """What a run gets that does not say otherwise; what is missing here, the installation gives."""

    intake: Intake = Intake.OPEN
    """Paused: new runs wait, those that have started go on."""

    max_concurrent_runs: Int32 | None = Field(default=None, ge=1, le=INT32_MAX)
    """Runs that may be under way at once; left out, no limit."""

    max_concurrent_runs_per_key: Int32 | None = Field(default=None, ge=1, le=INT32_MAX)
    """Runs with the same concurrencyKey that may be under way at once."""

    starts_per_minute_per_key: Int32 | None = Field(default=None, ge=1, le=100_000)
    """Runs with the same concurrencyKey that may start within any 60 seconds."""

    version_policy: VersionPolicy = VersionPolicy.LATEST
    """Pinned: only workers of the build that started a run go on with it."""

    approval: AgentApproval | None = None
    """How long questions to people stay open, and what happens then."""


class AgentStatus(Part):
    """What the operator makes of it."""

    observed_generation: Int64 | None = Field(default=None, ge=0)
    """metadata.generation that this status answers."""

    revision: str | None = Field(default=None, max_length=64)
    """Revision that new runs get."""

    conditions: tuple[Condition, ...] = Field(
        default=(), max_length=6, json_schema_extra=KEYED_BY_TYPE
    )
    """Accepted (the spec makes sense) and Ready (what it refers to is there)."""


class Agent(Resource):
    """Code, model, tools, defaults and limits of runs."""

    definition: ClassVar = Definition(
        kind="Agent",
        plural=AGENTS,
        columns=(
            Column("Model", ".spec.model.name"),
            Column("Intake", ".spec.intake"),
            condition_column("Accepted"),
            condition_column("Ready"),
            Column("Pool", ".spec.runDefaults.workerPoolRef.name", wide=True),
            Column("Revision", ".status.revision", wide=True),
            AGE,
        ),
    )

    kind: Literal["Agent"] = "Agent"
    spec: AgentSpec
    status: AgentStatus | None = None

    rules: ClassVar = (
        Rule("size(self.metadata.name) <= 63", "name must be no more than 63 characters"),
    )
