"""What the watches know of worker pods: a slim record of each, no object."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: Reasons in a pod's status that say that its node, or somebody above it, ended it.
_EVICTIONS = frozenset(
    {
        *("Evicted", "Preempting", "Terminated", "NodeShutdown", "Shutdown", "NodeLost"),
        *(
            "NodeAffinity",
            "DeadlineExceeded",
            "OutOfcpu",
            "OutOfmemory",
            "UnexpectedAdmissionError",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class PodSeen:
    """One pod of a worker.

    Parameters
    ----------
    ended
        Its phase is Failed or Succeeded.
    evicted
        It ended by something that its containers did not do.
    unready
        Its Ready condition is not True: among other causes, so the control plane marks the pods of
        a node that it lost.
    contradicted
        It is said to be unready although all its containers are ready, which only the control
        plane says, and only of pods on a node that it lost.
    """

    uid: str
    namespace: str
    name: str
    node: str = ""
    ended: bool = False
    evicted: bool = False
    unready: bool = False
    contradicted: bool = False

    @property
    def notable(self) -> bool:
        """Tell whether its workers have to be looked at."""
        return self.ended or self.unready


def pod_seen(item: Mapping[str, Any]) -> PodSeen:
    """Return what there is to know of a pod as decoded from JSON."""
    metadata, status = item["metadata"], item.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    unready = (conditions.get("Ready") or {}).get("status") == "False"
    inside = (conditions.get("ContainersReady") or {}).get("status") == "True"
    gates = (item.get("spec") or {}).get("readinessGates")
    lost = status.get("reason") == "NodeLost"
    return PodSeen(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        node=(item.get("spec") or {}).get("nodeName") or "",
        ended=status.get("phase") in ("Failed", "Succeeded"),
        evicted=_is_evicted(status, conditions),
        unready=unready or lost,
        contradicted=lost or (unready and inside and not gates),
    )


def _is_evicted(status: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    disrupted = (conditions.get("DisruptionTarget") or {}).get("status") == "True"
    return disrupted or status.get("reason") in _EVICTIONS


class Roster:
    """The pods that the watches know, and the scopes that were listed.

    A scope is what one watch covers: a namespace, or None for all of them.
    """

    def __init__(self) -> None:
        self._pods: dict[str, PodSeen] = {}
        self._listed: set[str | None] = set()
        #: Set when a pod ended, vanished or looks lost; the reader clears it.
        self.changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> PodSeen | None:
        """Return what is known of a pod."""
        return self._pods.get(uid)

    def knows(self, namespace: str) -> bool:
        """Tell whether the pods of a namespace were listed: only then does an absence say much."""
        return bool(self._listed & {namespace, None})

    def replace(self, scope: str | None, pods: Iterable[PodSeen]) -> None:
        """Take a whole list of one scope."""
        kept = {} if scope is None else self._others(scope)
        self._pods = kept | {pod.uid: pod for pod in pods}
        self._listed.add(scope)
        self.changed.set()

    def put(self, pod: PodSeen) -> None:
        """Take a pod that is new or changed."""
        before = self._pods.get(pod.uid)
        self._pods[pod.uid] = pod
        if pod.notable or (before is not None and before.notable):
            self.changed.set()

    def drop(self, uid: str) -> None:
        """Forget a pod that a watch says is gone."""
        if self._pods.pop(uid, None) is not None:
            self.changed.set()

    def _others(self, scope: str) -> dict[str, PodSeen]:
        return {uid: pod for uid, pod in self._pods.items() if pod.namespace != scope}
