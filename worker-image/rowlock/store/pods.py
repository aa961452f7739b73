"""Pods of workers: which ones the operator of a cluster has to judge, and what it knows of nodes.

Gone pods are fenced by `workers.fence_pods`. A lost node is only noted here: the reaper fences
its workers when their leases lapse, so a pod that goes on beating loses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rowlock.store.connection import Connection


class WorkerPod(NamedTuple):
    """A pod with workers that are not fenced.

    Parameters
    ----------
    node_lost
        What `mark_node_lost` noted last.
    """

    uid: str
    namespace: str
    name: str
    node_lost: bool


async def worker_pods(
    conn: Connection, *, cluster: str, namespaces: Sequence[str] = ()
) -> list[WorkerPod]:
    """Return the pods of a cluster, and of its namespaces (none for all), that hold workers."""
    rows = await conn.fetch("pod_workers", cluster, list(namespaces) or None)
    return [WorkerPod(*row) for row in rows]


async def mark_node_lost(conn: Connection, pod_uids: Collection[str], *, lost: bool) -> None:
    """Note whether the nodes of these pods are lost."""
    if pod_uids:
        await conn.execute("mark_node_lost", list(pod_uids), lost)
