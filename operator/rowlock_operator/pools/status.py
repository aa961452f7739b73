"""The statuses of WorkerPools and Agents; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rowlock.store.scaling import PoolSignals
from rowlock_operator.api.autoscaling import ScalingMode
from rowlock_operator.api.pool_words import Limit, Why
from rowlock_operator.intake.agents import KnownAgent
from rowlock_operator.kube.conditions import Condition, merged, timestamp
from rowlock_operator.kube.specs import labels
from rowlock_operator.pools.autoscaler import Scaling
from rowlock_operator.pools.availability import Availability
from rowlock_operator.pools.keeping import Keeping, said
from rowlock_operator.pools.scaling import Outcome


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a pool's Deployment.

    Parameters
    ----------
    refusal
        (reason, message) if it was not written, and why.
    availability
        None while there is no Deployment.
    keeping
        Older builds; None if nobody knows.
    """

    refusal: tuple[str, str] | None = None
    availability: Availability | None = None
    keeping: Keeping | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """What the database says of a pool.

    Parameters
    ----------
    reachable
        PostgreSQL answered.
    signals
        None if it has never heard of the pool.
    """

    reachable: bool
    signals: PoolSignals | None = None


def pool_status(
    name: str,
    scaling: Scaling,
    applied: Applied,
    demand: Demand,
    *,
    generation: int,
    before: Mapping[str, Any],
    now: datetime,
) -> dict[str, Any]:
    """Return the whole status of a WorkerPool."""
    stands = applied.availability
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "replicas": stands.replicas if stands else 0,
        "readyReplicas": stands.ready if stands else 0,
        "desiredReplicas": scaling.desired,
        "selector": labels.selector(name),
        "conditions": merged(
            _pool_conditions(scaling, applied, demand),
            before.get("conditions") or (),
            generation=generation,
            now=now,
        ),
    }
    queue, last = _queue(demand, before, now), _last_scale(scaling, before, now)
    return status | ({"queue": queue} if queue else {}) | ({"lastScale": last} if last else {})


def agent_status(
    agent: KnownAgent, *, pool: str, pool_exists: bool, before: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Return the whole status of an Agent."""
    valid = agent.spec is not None
    accepted = (
        Condition("Accepted", True, "Valid")
        if valid
        else Condition("Accepted", False, "InvalidSpec", agent.problem)
    )
    ready = (
        Condition("Ready", True, "PoolFound", f"runs go to WorkerPool {pool}")
        if valid and pool_exists
        else Condition("Ready", False, *_not_ready(agent, pool))
    )
    return {
        "observedGeneration": agent.generation,
        "revision": agent.digest,
        "conditions": merged(
            (accepted, ready),
            before.get("conditions") or (),
            generation=agent.generation,
            now=now,
        ),
    }


def _not_ready(agent: KnownAgent, pool: str) -> tuple[str, str]:
    if agent.spec is None:
        return "InvalidSpec", agent.problem
    return "PoolNotFound", f"WorkerPool {pool} does not exist"


def _pool_conditions(scaling: Scaling, applied: Applied, demand: Demand) -> Iterator[Condition]:
    yield _ready(applied)
    yield _available(applied)
    yield _database(applied, demand)
    yield _active(scaling)
    yield _limited(scaling)
    yield _old_builds(applied.keeping)


def _ready(applied: Applied) -> Condition:
    if applied.refusal:
        return Condition("Ready", False, *applied.refusal)
    stands = applied.availability
    if stands is None or not stands.available:
        return Condition("Ready", False, *_unavailable(stands))
    return Condition("Ready", True, "WorkersReady", stands.message)


def _available(applied: Applied) -> Condition:
    stands = applied.availability
    if stands is None:
        reason = applied.refusal[0] if applied.refusal else "NoDeployment"
        return Condition("Available", False, reason, "there is no Deployment of this pool")
    return Condition("Available", stands.available, stands.reason, stands.message)


def _unavailable(stands: Availability | None) -> tuple[str, str]:
    if stands is None:
        return "NoDeployment", "the Deployment is not written yet"
    return stands.reason, stands.message


def _database(applied: Applied, demand: Demand) -> Condition:
    type_ = "DatabaseReachable"
    if not demand.reachable:
        return Condition(type_, None, "OperatorCannotReach", "PostgreSQL does not answer")
    beating = demand.signals.demand.workers if demand.signals else 0
    if beating:
        return Condition(type_, True, "WorkersBeat", f"{beating} worker processes beat")
    if applied.availability and applied.availability.ready:
        return Condition(
            type_, False, "NoWorkerBeats", "Pods are ready, but none has reached the database"
        )
    return Condition(type_, None, "NoWorkers", "no worker has reached the database yet")


def _active(scaling: Scaling) -> Condition:
    type_ = "ScalingActive"
    if scaling.mode is ScalingMode.EXTERNAL:
        return Condition(type_, False, "External", "replicas are set through /scale")
    if scaling.mode is ScalingMode.NONE:
        return Condition(type_, False, "Disabled", "autoscaling.mode is None")
    decision = scaling.decision
    if decision is None:
        return Condition(type_, None, "NotDecided", "there is no Deployment to scale yet")
    if decision.why is Why.UNKNOWN or decision.outcome is Outcome.HELD:
        return Condition(type_, False, Why.UNKNOWN.value, decision.message)
    return Condition(type_, True, decision.why.value, f"{decision.needed} workers are needed")


def _limited(scaling: Scaling) -> Condition:
    type_, decision = "ScalingLimited", scaling.decision
    if decision is None:
        return Condition(type_, False, "NotScaling")
    if decision.limit is None:
        return Condition(type_, False, "WithinLimits")
    # That a smaller pool must be enough for a while is how it should be, and no news.
    limits = decision.limit is not Limit.WINDOW
    return Condition(type_, limits, decision.limit.value, decision.message)


def _old_builds(keeping: Keeping | None) -> Condition:
    type_ = "OldBuildsKept"
    if keeping is None:
        return Condition(type_, None, "Unknown", "PostgreSQL does not say which builds have runs")
    if keeping.lost:
        message = f"nobody knows what the Pods of these builds were: {said(keeping.lost)}"
        return Condition(type_, False, "TemplateLost", message)
    if keeping.kept:
        return Condition(type_, True, "PinnedRuns", said(keeping.kept))
    return Condition(type_, False, "NoneNeeded")


def _last_scale(scaling: Scaling, before: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    scaled = scaling.scaled
    if scaled is None:
        return dict(before.get("lastScale") or {})
    return {
        "time": timestamp(now),
        "fromReplicas": scaled.before,
        "toReplicas": scaled.after,
        "reason": scaled.why,
    }


def _queue(demand: Demand, before: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    if demand.signals is None:
        return dict(before.get("queue") or {})
    row = demand.signals.demand
    queue: dict[str, Any] = {
        "queuedRuns": row.claimable,
        "runningRuns": row.running,
        "sampleTime": timestamp(now),
    }
    if row.oldest_ready_at:
        queue["oldestQueuedTime"] = timestamp(row.oldest_ready_at)
    return queue


def differs(status: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Tell whether a pool's status says something new; the time of the sample alone is nothing."""
    return _without_sample_time(status) != _without_sample_time(before)


def _without_sample_time(status: Mapping[str, Any]) -> dict[str, Any]:
    queue = {
        key: value for key, value in (status.get("queue") or {}).items() if key != "sampleTime"
    }
    return {**status, "queue": queue}
