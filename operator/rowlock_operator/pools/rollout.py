"""Which Pods a rollout is about to replace; pure.

With a new image the old workers claim nothing more once a worker of the new one is ready: what
waits goes to the new code, and what an old worker hands over is not taken by another old one.
Each old worker hands its runs over when Kubernetes ends its Pod, one after the other.
A rollout that does not get on gives the old workers back their work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rowlock_operator.kube.specs.labels import TEMPLATE_ANNOTATION


def template_of(item: Mapping[str, Any]) -> str | None:
    """Return which template a Pod, or the template of a Deployment, is."""
    found = (item["metadata"].get("annotations") or {}).get(TEMPLATE_ANNOTATION)
    return None if found is None else str(found)


def outdated(deployment: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the uids of Pods that should claim nothing: a newer one is ready to."""
    wanted = template_of(deployment["spec"]["template"])
    items = list(pods)
    if _stuck(deployment) or not any(template_of(it) == wanted and _ready(it) for it in items):
        return frozenset()
    return frozenset(it["metadata"]["uid"] for it in items if template_of(it) != wanted)


def _ready(item: Mapping[str, Any]) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or ()
    alive = not item["metadata"].get("deletionTimestamp")
    return alive and any(it.get("type") == "Ready" and it["status"] == "True" for it in conditions)


def _stuck(deployment: Mapping[str, Any]) -> bool:
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    return any(it["type"] == "Progressing" and it["status"] == "False" for it in conditions)
