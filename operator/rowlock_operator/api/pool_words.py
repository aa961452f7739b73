"""What a WorkerPool's conditions and their reasons mean; the reference page is made from it."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final


@unique
class Why(StrEnum):
    """What asked for the number of workers (`status.lastScale.reason`, reason of ScalingActive)."""

    SLOTS = "SlotUtilization"
    WAIT = "QueueWait"
    BOUNDS = "Bounds"
    UNKNOWN = "SignalStale"


@unique
class Limit(StrEnum):
    """What keeps a pool from the number that is needed (reason of ScalingLimited)."""

    MAXIMUM = "AtMaximum"
    STEP = "StepLimit"
    WINDOW = "Stabilizing"
    ROLLOUT = "RollingOut"
    DOWNSTREAM = "DownstreamSaturated"


POOL_CONDITIONS: Final[dict[str, str]] = {
    "Ready": "The pool was written as it is, and its workers are available.",
    "Available": "As many workers are ready as are wanted.",
    "DatabaseReachable": "Workers beat, so they have reached PostgreSQL.",
    "ScalingActive": "The operator decides the number of workers, and knows what to decide by.",
    "ScalingLimited": "Another number of workers is needed, and something is in the way.",
    "OldBuildsKept": "Workers of older builds stay for runs that are pinned to them.",
}

#: (condition, reason) -> meaning.
POOL_REASONS: Final[dict[tuple[str, str], str]] = {
    ("Ready", "WorkersReady"): "All is as it should be.",
    ("Ready", "NoDatabase"): (
        "There is no databaseSecretRef, and the installation names no Secret either."
    ),
    ("Ready", "InvalidPodTemplate"): (
        "The API server refuses what podTemplate makes of the Deployment; nothing was changed."
    ),
    ("Ready", "DeploymentNotOwned"): "A Deployment of that name belongs to somebody else.",
    ("Ready", "PodDisruptionBudgetNotOwned"): "The same for the PodDisruptionBudget.",
    ("Ready", "NetworkPolicyNotOwned"): "The same for the NetworkPolicy.",
    ("Ready", "ServiceNotOwned"): "The same for the Service.",
    ("Available", "Available"): "As many are ready as are wanted, none perhaps.",
    ("Available", "Progressing"): "The Deployment has not acted on its newest spec yet.",
    ("Available", "NotEnoughWorkers"): "Some are not ready yet, and nothing says why.",
    ("Available", "NoDeployment"): "It could not be written; Ready says why.",
    ("Available", "ReplicaFailure"): "Pods cannot be made: a quota, or an admission refuses them.",
    ("Available", "Unschedulable"): "No node has room for them.",
    ("Available", "ImagePullBackOff"): (
        "The image cannot be had; ErrImagePull, ErrImageNeverPull and InvalidImageName, too."
    ),
    ("Available", "CrashLoopBackOff"): "The worker ends again and again soon after its start.",
    ("Available", "CreateContainerConfigError"): (
        "A Secret or ConfigMap is missing; CreateContainerError and RunContainerError are alike."
    ),
    ("DatabaseReachable", "WorkersBeat"): "Workers beat.",
    ("DatabaseReachable", "NoWorkerBeats"): "Pods are ready, but none has reached the database.",
    ("DatabaseReachable", "NoWorkers"): "No worker has reached the database, and none is ready.",
    ("DatabaseReachable", "OperatorCannotReach"): "The operator itself gets no answer.",
    ("OldBuildsKept", "PinnedRuns"): "They go when these runs have ended; the message counts them.",
    ("OldBuildsKept", "NoneNeeded"): "No run is pinned to an older build.",
    ("OldBuildsKept", "TemplateLost"): (
        "Runs are pinned to a build whose Pods neither the Deployment nor its ReplicaSets "
        "remember: they wait until the pool has that image again."
    ),
    ("OldBuildsKept", "Unknown"): "PostgreSQL does not answer: no rollout of another build begins.",
    ("ScalingActive", Why.SLOTS): "The number follows what runs and waits.",
    ("ScalingActive", Why.WAIT): "The oldest run waits too long: one more worker is asked for.",
    ("ScalingActive", Why.BOUNDS): "minReplicas or maxReplicas were changed.",
    ("ScalingActive", Why.UNKNOWN): (
        "Nobody knows what there is to do, as PostgreSQL does not answer: nothing is changed."
    ),
    ("ScalingActive", "External"): "The number is set through `/scale`.",
    ("ScalingActive", "Disabled"): "autoscaling.mode is None: spec.replicas stands.",
    ("ScalingActive", "NotDecided"): "There is no Deployment to scale yet.",
    ("ScalingLimited", "WithinLimits"): "There are as many workers as are needed.",
    ("ScalingLimited", "NotScaling"): "The operator does not decide.",
    ("ScalingLimited", Limit.MAXIMUM): "More than maxReplicas are needed.",
    ("ScalingLimited", Limit.STEP): "The next step follows at the next poll.",
    ("ScalingLimited", Limit.WINDOW): (
        "Another number is needed, but not for the stabilization window yet. "
        "The condition is False: this is how it should be."
    ),
    ("ScalingLimited", Limit.ROLLOUT): "Fewer are enough; they go after the rollout.",
    ("ScalingLimited", Limit.DOWNSTREAM): (
        "More are needed, but the model provider refuses calls, or PostgreSQL is slow: "
        "more workers would make it worse."
    ),
}
