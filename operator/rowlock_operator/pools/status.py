"""The statuses of WorkerPools and Agents; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rowlock.store.types import PoolDemand
from rowlock_operator.api.autoscaling import ScalingMode
from rowlock_operator.api.workerpool import WorkerPoolSpec
from rowlock_operator.intake.agents import KnownAgent
from rowlock_operator.kube.conditions import Condition, merged, timestamp
from rowlock_operator.kube.specs import labels
from rowlock_operator.pools.availability import Availability
from rowlock_operator.pools.replicas import wanted_replicas


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a pool's Deployment.

    Parameters
    ----------
    refusal
        (reason, message) if it was not written, and why.
    availability
        None while there is no Deployment.
    """

    refusal: tuple[str, str] | None = None
    availability: Availability | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """What the database says of a pool.

    Parameters
    ----------
    reachable
        PostgreSQL answered.
    row
        None if it has never heard of the pool.
    """

    reachable: bool
    row: PoolDemand | None = None


def pool_status(
    name: str,
    spec: WorkerPoolSpec,
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
        "desiredReplicas": wanted_replicas(spec),
        "selector": labels.selector(name),
        "conditions": merged(
            _pool_conditions(spec, applied, demand),
            before.get("conditions") or (),
            generation=generation,
            now=now,
        ),
    }
    queue = _queue(demand, before, now)
    return status | ({"queue": queue} if queue else {})


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


def _pool_conditions(spec: WorkerPoolSpec, applied: Applied, demand: Demand) -> Iterator[Condition]:
    yield _ready(applied)
    yield _available(applied)
    yield _database(applied, demand)
    yield _scaling(spec)
    yield Condition("ScalingLimited", False, "NotScaling")


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
    beating = demand.row.workers if demand.row else 0
    if beating:
        return Condition(type_, True, "WorkersBeat", f"{beating} worker processes beat")
    if applied.availability and applied.availability.ready:
        return Condition(
            type_, False, "NoWorkerBeats", "Pods are ready, but none has reached the database"
        )
    return Condition(type_, None, "NoWorkers", "no worker has reached the database yet")


def _scaling(spec: WorkerPoolSpec) -> Condition:
    mode = spec.autoscaling.mode
    if mode is ScalingMode.INTERNAL:
        return Condition(
            "ScalingActive", False, "FixedAtMinimum", "this version has no autoscaler of its own"
        )
    if mode is ScalingMode.EXTERNAL:
        return Condition("ScalingActive", False, "External", "replicas are set through /scale")
    return Condition("ScalingActive", False, "Disabled", "autoscaling.mode is None")


def _queue(demand: Demand, before: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    if demand.row is None:
        return dict(before.get("queue") or {})
    queue: dict[str, Any] = {
        "queuedRuns": demand.row.claimable,
        "runningRuns": demand.row.running,
        "sampleTime": timestamp(now),
    }
    if demand.row.oldest_ready_at:
        queue["oldestQueuedTime"] = timestamp(demand.row.oldest_ready_at)
    return queue


def differs(status: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Tell whether a pool's status says something new; the time of the sample alone is nothing."""
    return _without_sample_time(status) != _without_sample_time(before)


def _without_sample_time(status: Mapping[str, Any]) -> dict[str, Any]:
    queue = {
        key: value for key, value in (status.get("queue") or {}).items() if key != "sampleTime"
    }
    return {**status, "queue": queue}
