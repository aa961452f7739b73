"""How many workers a pool has to begin with, and whose word counts from then on; pure."""

from __future__ import annotations

from rowlock_operator.api.autoscaling import ScalingMode
from rowlock_operator.api.workerpool import WorkerPoolSpec


def first_replicas(spec: WorkerPoolSpec) -> int:
    """Return the number of workers of a pool that has no Deployment yet."""
    given = given_replicas(spec)
    return spec.autoscaling.min_replicas if given is None else given


def given_replicas(spec: WorkerPoolSpec) -> int | None:
    """Return the number that somebody else has set; None where we decide, or nobody has yet."""
    return None if spec.autoscaling.mode is ScalingMode.INTERNAL else spec.replicas


def fill(spec: WorkerPoolSpec, *, standing: int | None) -> int | None:
    """Return what to write into an absent `spec.replicas`, None for nothing.

    An autoscaler cannot begin without a number: minReplicas, or as many as there are within the
    bounds, so that a pool that changes hands loses no workers.
    """
    scaling = spec.autoscaling
    if scaling.mode is not ScalingMode.EXTERNAL or spec.replicas is not None:
        return None
    here = scaling.min_replicas if standing is None else standing
    return min(max(here, scaling.min_replicas), scaling.max_replicas)
