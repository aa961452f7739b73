"""Whether a Deployment has its Pods, and if not, what is in the way; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Reasons of waiting containers that a person has to look at.
_CONTAINER_TROUBLES = frozenset(
    {
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
#: Characters of what a container said last.
_LONGEST = 500
#: Reasons of Available=False that do not go away by waiting.
TROUBLES = _CONTAINER_TROUBLES | {"ReplicaFailure", "Unschedulable"}


@dataclass(frozen=True, slots=True)
class Availability:
    """What a Deployment's status says.

    Parameters
    ----------
    settled
        The controller has acted on the newest spec.
    """

    available: bool
    reason: str
    message: str
    replicas: int = 0
    ready: int = 0
    settled: bool = True


def availability(deployment: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> Availability:
    """Return how a pool's Deployment stands.

    Parameters
    ----------
    pods
        Its Pods; read only when something is missing.
    """
    status = deployment.get("status") or {}
    replicas, ready = int(status.get("replicas") or 0), int(status.get("readyReplicas") or 0)
    wanted = int(deployment.get("spec", {}).get("replicas") or 0)
    settled = int(status.get("observedGeneration") or 0) >= int(
        deployment["metadata"].get("generation") or 0
    )
    reason, message = _why(status, pods, ready=ready, wanted=wanted, settled=settled)
    return Availability(not reason, reason or "Available", message, replicas, ready, settled)


def _why(
    status: Mapping[str, Any],
    pods: Iterable[Mapping[str, Any]],
    *,
    ready: int,
    wanted: int,
    settled: bool,
) -> tuple[str, str]:
    if not settled:
        return "Progressing", "the Deployment has not been acted on yet"
    if wanted == 0:
        return "", "no workers are wanted"
    failure = _condition(status.get("conditions") or (), "ReplicaFailure")
    if failure.get("status") == "True":
        return "ReplicaFailure", str(failure.get("message", ""))
    if ready >= wanted:
        return "", f"{ready} of {wanted} workers are ready"
    trouble = next((found for pod in pods if (found := _trouble(pod))), None)
    return trouble or ("NotEnoughWorkers", f"{ready} of {wanted} workers are ready")


def needs_pods(deployment: Mapping[str, Any]) -> bool:
    """Tell whether the Pods have to be read to say what is wrong."""
    ready = int((deployment.get("status") or {}).get("readyReplicas") or 0)
    return ready < int(deployment.get("spec", {}).get("replicas") or 0)


def _trouble(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    scheduled = _condition(status.get("conditions") or (), "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return "Unschedulable", f"{name}: {scheduled.get('message', '')}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _CONTAINER_TROUBLES:
            words = [str(waiting.get("message", "")), _last_words(container)]
            return str(waiting["reason"]), f"{name}: {'; it said: '.join(filter(None, words))}"
    return None


def _last_words(container: Mapping[str, Any]) -> str:
    """Return the line with which a container ended; the kubelet keeps the end of its log."""
    ended = (container.get("lastState") or {}).get("terminated") or {}
    lines = str(ended.get("message") or "").strip().splitlines()
    return lines[-1][:_LONGEST] if lines else ""


def _condition(conditions: Sequence[Mapping[str, Any]], type_: str) -> Mapping[str, Any]:
    return next((c for c in conditions if c.get("type") == type_), {})
