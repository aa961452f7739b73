"""What becomes of one AgentRun: run, then Agent, then installation; a pure function.

What was resolved is stored with the row: a later change of the Agent or the installation
never changes a run that was accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import ValidationError

from rowlock.options import RunOptions
from rowlock.states import FailureReason, WaitReason
from rowlock_operator.api.agentrun import AgentRunSpec
from rowlock_operator.api.limits import RunLimits
from rowlock_operator.intake.agents import KnownAgent, problem_of
from rowlock_operator.intake.inputs import BadInput, ConfigMapKey, input_bytes, source_of
from rowlock_operator.intake.silence import with_silence
from rowlock_operator.intake.tightening import tool_rules
from rowlock_operator.settings import RunDefaults


@dataclass(frozen=True, slots=True)
class Accepted:
    """The run can be written to the database.

    Parameters
    ----------
    body
        The agent's input as packed JSON.
    other_ttl
        Seconds that the object stays after its end unless it says so itself: by the word of its
        Agent or the installation.
    """

    agent: KnownAgent
    pool: str
    body: bytes
    options: RunOptions
    max_takeovers: int
    queue_deadline_seconds: int | None
    priority: int
    concurrency_key: str | None
    idempotency_key: str | None
    other_ttl: int | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """Something that the run needs is not there; it is taken in when it appears.

    Parameters
    ----------
    agent, pool
        What it waits for, or would use; empty if that is not known yet.
    """

    reason: WaitReason
    message: str
    agent: str
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """The run can never be accepted, and ends."""

    reason: FailureReason
    message: str


Resolution = Accepted | Waits | Refused


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What there is around the run.

    Parameters
    ----------
    agent
        None if there is none of that name.
    pools
        Names of the WorkerPools in its namespace.
    entries
        The ConfigMap entries that were looked up; None for one that does not exist.
    """

    agent: KnownAgent | None
    pools: frozenset[str]
    entries: Mapping[ConfigMapKey, str | None]
    defaults: RunDefaults


def parse(spec: Mapping[str, Any]) -> AgentRunSpec | Refused:
    """Return the spec as a model, or why it can never be one."""
    try:
        return AgentRunSpec.model_validate(spec)
    except ValidationError as error:
        return Refused(FailureReason.INVALID_SPEC, problem_of(error))


def resolve(spec: AgentRunSpec, around: Surroundings) -> Resolution:
    """Decide what becomes of a run."""
    name = spec.agent_ref.name
    refusal = _refusal(spec)
    if refusal:
        return refusal
    agent = around.agent
    if agent is None or agent.spec is None:
        why = f"is not valid: {agent.problem}" if agent else "does not exist"
        return Waits(WaitReason.AGENT_NOT_FOUND, f"Agent {name} {why}", agent=name)
    pool = _pool(spec, agent, around.defaults)
    if agent.paused:
        return Waits(
            WaitReason.INTAKE_PAUSED, f"Agent {name} takes in no new runs", agent=name, pool=pool
        )
    if pool not in around.pools:
        return Waits(
            WaitReason.POOL_NOT_FOUND, f"WorkerPool {pool} does not exist", agent=name, pool=pool
        )
    return _with_input(spec, agent, pool, around)


def _with_input(
    spec: AgentRunSpec, agent: KnownAgent, pool: str, around: Surroundings
) -> Resolution:
    wanted = source_of(spec.input)
    if isinstance(wanted, ConfigMapKey) and around.entries.get(wanted) is None:
        return Waits(
            WaitReason.INPUT_NOT_FOUND,
            f"ConfigMap {wanted.name} has no key {wanted.key}",
            agent=spec.agent_ref.name,
            pool=pool,
        )
    text = around.entries.get(wanted) if isinstance(wanted, ConfigMapKey) else wanted
    try:
        body = input_bytes(text)
    except BadInput as error:
        return Refused(error.reason, str(error))
    return _accepted(spec, agent, pool, body, around.defaults)


def _accepted(
    spec: AgentRunSpec, agent: KnownAgent, pool: str, body: bytes, defaults: RunDefaults
) -> Accepted:
    of_agent = agent.spec.run_defaults if agent.spec and agent.spec.run_defaults else RunLimits()
    queue_deadline = _first(
        spec.queue_deadline_seconds,
        of_agent.queue_deadline_seconds,
        defaults.queue_deadline_seconds,
    )
    return Accepted(
        agent=agent,
        pool=pool,
        body=body,
        options=with_silence(
            msgspec.structs.replace(
                _options(spec, of_agent, defaults),
                tools=tool_rules(agent.spec.tools if agent.spec else ()),
            ),
            run=spec.approval,
            agent=agent.spec.approval if agent.spec else None,
        ),
        max_takeovers=_first(spec.max_takeovers, of_agent.max_takeovers, defaults.max_takeovers),
        queue_deadline_seconds=queue_deadline,
        priority=spec.priority,
        concurrency_key=spec.concurrency_key,
        idempotency_key=spec.idempotency_key,
        other_ttl=_first(of_agent.ttl_seconds_after_finished, defaults.ttl_seconds_after_finished),
    )


def _options(run: RunLimits, agent: RunLimits, defaults: RunDefaults) -> RunOptions:
    backoff = _first(
        run.retry_backoff_seconds, agent.retry_backoff_seconds, defaults.retry_backoff_seconds
    )
    ceiling = _first(
        run.max_retry_backoff_seconds,
        agent.max_retry_backoff_seconds,
        defaults.max_retry_backoff_seconds,
    )
    return RunOptions(
        active_deadline_seconds=_first(
            run.active_deadline_seconds,
            agent.active_deadline_seconds,
            defaults.active_deadline_seconds,
        ),
        max_attempts=_first(run.max_attempts, agent.max_attempts, defaults.max_attempts),
        retry_backoff_seconds=backoff,
        # A run that sets only one of the two must not end up with a ceiling below its first wait.
        max_retry_backoff_seconds=max(backoff, ceiling),
        max_total_tokens=_first(
            _budget(run, "max_total_tokens"),
            _budget(agent, "max_total_tokens"),
            defaults.max_total_tokens,
        ),
        max_cost_micro=_first(
            _budget(run, "max_cost_micro_usd"),
            _budget(agent, "max_cost_micro_usd"),
            defaults.max_cost_micro_usd,
        ),
    )


def _budget(limits: RunLimits, field: str) -> int | None:
    return getattr(limits.budget, field) if limits.budget else None


def _pool(spec: AgentRunSpec, agent: KnownAgent, defaults: RunDefaults) -> str:
    return spec.worker_pool_ref.name if spec.worker_pool_ref else agent.pool(defaults.pool)


def _refusal(spec: AgentRunSpec) -> Refused | None:
    if spec.input and spec.input.uri:
        return Refused(
            FailureReason.INVALID_SPEC,
            "input.uri is not supported yet: pass input.text or input.configMapKeyRef",
        )
    for field, key in (
        ("concurrencyKey", spec.concurrency_key),
        ("idempotencyKey", spec.idempotency_key),
    ):
        # PostgreSQL cannot store the character NUL in a text.
        if key is not None and "\x00" in key:
            return Refused(
                FailureReason.INVALID_SPEC, f"{field} must not contain the character NUL"
            )
    return None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
