"""Which Pods of a pool go when it shrinks; pure.

The controller of the Deployment chooses by its own order: Pods that were not scheduled or are not
ready first, then by `pod-deletion-cost`. So the same order is taken here, and the cost says the
rest: those with the fewest runs. Where it chooses otherwise all the same, a run is handed over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
#: Any Pod without the annotation counts as 0.
VICTIM_COST = "-1000"


@dataclass(frozen=True, slots=True)
class PodOfPool:
    """A Pod that has not begun to end."""

    name: str
    uid: str
    ready: bool
    runs: int = 0
    annotated: bool = True
    cost: str | None = None


def pods_of(items: Iterable[Mapping[str, Any]], loads: Mapping[str, int]) -> list[PodOfPool]:
    """Return the Pods that count, with the runs that each holds."""
    return [
        _pod(item, loads)
        for item in items
        if not item["metadata"].get("deletionTimestamp")
        and (item.get("status") or {}).get("phase") not in ("Failed", "Succeeded")
    ]


def choose(
    pods: Iterable[PodOfPool], count: int, *, before: Collection[str] = ()
) -> list[PodOfPool]:
    """Return the `count` Pods that should go.

    Parameters
    ----------
    before
        Uids of those that were chosen already and rest: they stay chosen.
    """

    def rank(pod: PodOfPool) -> tuple[bool, bool, int, str]:
        return pod.ready, pod.uid not in before, pod.runs, pod.name

    return sorted(pods, key=rank)[: max(0, count)]


def cost_patch(pod: PodOfPool, *, victim: bool) -> list[dict[str, Any]]:
    """Return the JSON Patch that makes a Pod a victim, or a survivor; empty if it is that."""
    path = "/metadata/annotations/" + DELETION_COST.replace("/", "~1")
    if victim == (pod.cost is not None):
        return []
    test = {"op": "test", "path": "/metadata/uid", "value": pod.uid}
    if not victim:
        return [test, {"op": "remove", "path": path}]
    if not pod.annotated:
        value = {DELETION_COST: VICTIM_COST}
        return [test, {"op": "add", "path": "/metadata/annotations", "value": value}]
    return [test, {"op": "add", "path": path, "value": VICTIM_COST}]


def _pod(item: Mapping[str, Any], loads: Mapping[str, int]) -> PodOfPool:
    metadata, conditions = item["metadata"], (item.get("status") or {}).get("conditions") or ()
    annotations = metadata.get("annotations")
    return PodOfPool(
        name=metadata["name"],
        uid=metadata["uid"],
        ready=any(it.get("type") == "Ready" and it.get("status") == "True" for it in conditions),
        runs=loads.get(metadata["uid"], 0),
        annotated=annotations is not None,
        cost=(annotations or {}).get(DELETION_COST),
    )
