"""What is to become of a pod's workers; pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Any

from rowlock.states import FenceReason
from rowlock_operator.pods.roster import PodSeen

_LOST_TAINTS = frozenset({"node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"})


@unique
class Verdict(Enum):
    """What to do about one pod."""

    #: It may live; its lease says the rest.
    KEEP = "keep"
    #: Nobody shows it: ask the API server for this very pod.
    CONFIRM = "confirm"
    #: It is marked unready: ask for its node.
    ASK_NODE = "ask_node"
    #: Its containers have ended, and not by themselves.
    EVICTED = "evicted"
    #: Its containers have ended.
    DIED = "died"
    #: There is no such pod any more.
    GONE = "gone"


#: Which verdicts fence, and for which reason.
REASONS: Mapping[Verdict, FenceReason] = {
    Verdict.EVICTED: FenceReason.WORKER_EVICTED,
    Verdict.DIED: FenceReason.WORKER_DIED,
    Verdict.GONE: FenceReason.WORKER_DELETED,
}


def judge(pod: PodSeen | None, *, listed: bool) -> Verdict:
    """Return what to do about a pod that has unfenced workers.

    A pod that is being deleted is no case of its own: its workers drain until it has ended.

    Parameters
    ----------
    pod
        None if no watch shows it.
    listed
        Whether the watches know its namespace at all.
    """
    if pod is None:
        return Verdict.CONFIRM if listed else Verdict.KEEP
    if pod.ended:
        return Verdict.EVICTED if pod.evicted else Verdict.DIED
    return Verdict.ASK_NODE if pod.unready and pod.node else Verdict.KEEP


def confirmed(pod: PodSeen | None, *, uid: str) -> Verdict:
    """Return what to do about a pod that was just asked for by its name."""
    if pod is None or pod.uid != uid:
        return Verdict.GONE
    return judge(pod, listed=True)


def is_node_lost(node: Mapping[str, Any] | None) -> bool:
    """Tell whether the control plane has lost a node; None is one that does not exist.

    Its pods may run on all the same and beat: whether they do, the leases say.
    """
    if node is None:
        return True
    taints = {taint.get("key") for taint in (node.get("spec") or {}).get("taints") or ()}
    if taints & _LOST_TAINTS:
        return True
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), None)
    return ready in ("False", "Unknown")
