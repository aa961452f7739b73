"""How many workers a pool should have; pure.

There is no autoscaler yet: a pool in mode Internal stands at its minimum, and says so.
"""

from __future__ import annotations

from rowlock_operator.api.autoscaling import ScalingMode
from rowlock_operator.api.workerpool import WorkerPoolSpec


def wanted_replicas(spec: WorkerPoolSpec) -> int:
    """Return the number of worker Pods that are wanted."""
    if spec.autoscaling.mode is ScalingMode.INTERNAL or spec.replicas is None:
        return spec.autoscaling.min_replicas
    return spec.replicas
