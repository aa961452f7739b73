"""WorkerPool: which workers there are, how many, and how they come and go."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Any, ClassVar, Literal

from pydantic import Field

from .autoscaling import Autoscaling
from .conditions import KEYED_BY_TYPE, Condition
from .fields import Int32, Int64, Timestamp
from .model import Part, Rule
from .names import WORKER_POOLS
from .references import DatabaseSecretReference
from .resource import AGE, Column, Definition, Resource, Scale, condition_column


@unique
class DrainMode(StrEnum):
    """How a worker that must leave lets go of its runs."""

    CHECKPOINT = "Checkpoint"
    FINISH = "Finish"


class Lease(Part):
    """How soon a silent worker counts as lost."""

    duration_seconds: Int32 = Field(default=15, ge=5, le=3600)
    """Seconds without a sign of life after which a worker's runs are taken over."""

    renew_period_seconds: Int32 = Field(default=5, ge=1, le=1200)
    """Seconds between two signs of life."""

    rules: ClassVar = (
        Rule(
            "self.renewPeriodSeconds * 3 <= self.durationSeconds",
            "renewPeriodSeconds must be at most a third of durationSeconds",
        ),
    )


class Drain(Part):
    """How a worker leaves, in a rollout or when the pool shrinks."""

    mode: DrainMode = DrainMode.CHECKPOINT
    """Checkpoint: hand runs over at their next step; Finish: let them end first."""

    deadline_seconds: Int32 = Field(default=300, ge=0, le=86_400)
    """Seconds that this may take, then the rest is taken over."""


class WorkerPoolSpec(Part):
    """Which workers are wanted."""

    image: str = Field(min_length=1, max_length=512)
    """Container image with the agents' code, built from the worker image."""

    service_account_name: str | None = Field(default=None, max_length=253)
    """ServiceAccount of the worker Pods; left out, the namespace's default."""

    database_secret_ref: DatabaseSecretReference | None = None
    """Secret with the database URL of this pool's workers.

    Whoever may create Pods in the namespace can read it.
    """

    slots_per_worker: Int32 = Field(default=256, ge=1, le=4096)
    """Runs that one worker Pod hosts at once."""

    processes_per_worker: Int32 | None = Field(default=None, ge=1, le=64)
    """Processes in a Pod that share the slots; left out, one a core."""

    stall_ceiling_seconds: Int32 = Field(default=60, ge=5, le=3600)
    """Seconds for which agent code may block its process before that is killed."""

    replicas: Int32 | None = Field(default=None, ge=0, le=1000)
    """Worker Pods; read in the modes External and None only, and set through `/scale`."""

    autoscaling: Autoscaling = Autoscaling(min_replicas=1, max_replicas=10)
    """How the number of workers follows the work."""

    lease: Lease = Lease(duration_seconds=15, renew_period_seconds=5)
    """How soon a silent worker counts as lost."""

    drain: Drain = Drain()
    """How a worker leaves."""

    pod_template: dict[str, Any] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )
    """What to add to the Pods: metadata and spec of a Pod template, merged into the generated one.

    It is checked when the Deployment is written, and what is wrong shows in the conditions.
    """


class PoolQueue(Part):
    """How much work waits, as the autoscaler last saw it."""

    queued_runs: Int64 | None = None
    """Runs that a worker could claim now."""

    running_runs: Int64 | None = None
    """Runs held by the pool's workers."""

    oldest_queued_time: Timestamp | None = None
    """Since when the oldest of the queued runs could be claimed."""

    sample_time: Timestamp | None = None
    """When this was read."""


class LastScale(Part):
    """The last change of the number of workers."""

    time: Timestamp | None = None
    """When it was made."""

    from_replicas: Int32 | None = None
    """Workers before."""

    to_replicas: Int32 | None = None
    """Workers wanted since."""

    reason: str | None = Field(default=None, max_length=64)
    """What asked for it, as SlotUtilization or QueueWait."""


class WorkerPoolStatus(Part):
    """Which workers there are."""

    observed_generation: Int64 | None = Field(default=None, ge=0)
    """metadata.generation that this status answers."""

    replicas: Int32 | None = None
    """Worker Pods that exist."""

    ready_replicas: Int32 | None = None
    """Worker Pods that are ready."""

    desired_replicas: Int32 | None = None
    """Worker Pods that are wanted."""

    selector: str | None = Field(default=None, max_length=1024)
    """Label selector of the Pods, for autoscalers that use `/scale`."""

    queue: PoolQueue | None = None
    """How much work waits."""

    last_scale: LastScale | None = None
    """The last change of the number of workers."""

    conditions: tuple[Condition, ...] = Field(
        default=(), max_length=8, json_schema_extra=KEYED_BY_TYPE
    )
    """Ready, Available, DatabaseReachable, ScalingActive, ScalingLimited."""


class WorkerPool(Resource):
    """Worker Pods of one image that claim and carry runs."""

    definition: ClassVar = Definition(
        kind="WorkerPool",
        plural=WORKER_POOLS,
        short_names=("wpool",),
        columns=(
            condition_column("Available"),
            Column("Mode", ".spec.autoscaling.mode"),
            Column("Min", ".spec.autoscaling.minReplicas", "integer"),
            Column("Max", ".spec.autoscaling.maxReplicas", "integer"),
            Column("Desired", ".status.desiredReplicas", "integer"),
            Column("Ready", ".status.readyReplicas", "integer"),
            Column("Queued", ".status.queue.queuedRuns", "integer"),
            Column("Slots", ".spec.slotsPerWorker", "integer", wide=True),
            Column("Scaled", ".status.lastScale.time", "date", wide=True),
            AGE,
        ),
        scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    )

    kind: Literal["WorkerPool"] = "WorkerPool"
    spec: WorkerPoolSpec
    status: WorkerPoolStatus | None = None

    rules: ClassVar = (
        Rule(
            "size(self.metadata.name) <= 52",
            "name must be no more than 52 characters (pod names append 11)",
        ),
    )
