"""Fences the workers of pods that ended, and notes which ones stand on a lost node.

Every round begins with the rows, so what an operator did not do before its end the next one does.
Any number of operators at once do no harm: a fenced worker is fenced once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from rowlock.states import FenceReason
from rowlock.store import pods as store
from rowlock.store import workers
from rowlock.store.connection import Connection
from rowlock.store.pods import WorkerPod
from rowlock_operator import metrics as m
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import KubeError, NotFound
from rowlock_operator.kube.resources import PODS
from rowlock_operator.pods.nodes import Nodes
from rowlock_operator.pods.roster import Roster, pod_seen
from rowlock_operator.pods.verdicts import REASONS, Verdict, confirmed, judge

log = structlog.get_logger(__name__)

_IDLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class PodsReport:
    """What one round saw and did; `unsure` pods could not be asked for."""

    pods: int = 0
    fenced: int = 0
    lost: int = 0
    unsure: int = 0


@dataclass(frozen=True, slots=True)
class PodScope:
    """Whose pods are judged: those of one cluster, and of its watched namespaces (none for all)."""

    cluster: str
    namespaces: tuple[str, ...] = ()


class PodFencing:
    """Compares pods with workers."""

    def __init__(
        self,
        client: KubeClient,
        connection: Connection,
        roster: Roster,
        metrics: m.Metrics,
        *,
        scope: PodScope,
    ) -> None:
        self._client = client
        self._connection = connection
        self._roster = roster
        self._metrics = metrics
        self._scope = scope
        self._nodes = Nodes(client)

    async def run_once(self) -> PodsReport:
        """Judge every pod with unfenced workers once.

        Raises
        ------
        StoreUnavailable
            PostgreSQL is away; run it again.
        """
        self._roster.changed.clear()
        known = await store.worker_pods(
            self._connection, cluster=self._scope.cluster, namespaces=self._scope.namespaces
        )
        verdicts = await asyncio.gather(*map(self._judge, known))
        fenced = await self._fence(known, verdicts)
        lost = await self._mark(known, verdicts)
        return PodsReport(len(known), fenced, lost, verdicts.count(None))

    async def pause(self, _report: PodsReport) -> None:
        """Wait for news of a pod, or a moment."""
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                await self._roster.changed.wait()
        except TimeoutError:
            return

    async def _judge(self, pod: WorkerPod) -> Verdict | bool | None:
        """Return the verdict, or whether the pod's node is lost; None if nobody could be asked."""
        seen = self._roster.get(pod.uid)
        verdict = judge(seen, listed=self._roster.knows(pod.namespace))
        try:
            if verdict is Verdict.CONFIRM:
                verdict = await self._confirm(pod)
            if verdict is Verdict.ASK_NODE and seen:
                return await self._nodes.lost(seen)
        except KubeError as error:
            log.warning("A pod could not be looked at", pod=_name(pod), error=str(error))
            return None
        return verdict

    async def _confirm(self, pod: WorkerPod) -> Verdict:
        try:
            item = await self._client.get(PODS.path(pod.namespace, pod.name))
        except NotFound:
            return confirmed(None, uid=pod.uid)
        return confirmed(pod_seen(item), uid=pod.uid)

    async def _fence(
        self, known: Sequence[WorkerPod], verdicts: Sequence[Verdict | bool | None]
    ) -> int:
        doomed: defaultdict[FenceReason, list[WorkerPod]] = defaultdict(list)
        for pod, verdict in zip(known, verdicts, strict=True):
            if isinstance(verdict, Verdict) and verdict in REASONS:
                doomed[REASONS[verdict]].append(pod)
        return sum([await self._fence_all(pods, reason) for reason, pods in doomed.items()])

    async def _fence_all(self, pods: Sequence[WorkerPod], reason: FenceReason) -> int:
        moved = await workers.fence_pods(self._connection, [pod.uid for pod in pods], reason=reason)
        log.warning(
            "The pods of workers have ended",
            pods=[_name(pod) for pod in pods],
            reason=reason.value,
            workers=len(moved.workers),
            requeued=len(moved.requeued),
            delayed=len(moved.delayed),
            failed=len(moved.failed),
        )
        self._metrics.add(m.POD_FENCED, reason.value, by=len(moved.workers))
        return len(moved.workers)

    async def _mark(
        self, known: Sequence[WorkerPod], verdicts: Sequence[Verdict | bool | None]
    ) -> int:
        """Note what is new about nodes; a pod that is not in doubt stands on a good one."""
        judged = [(pod, v is True) for pod, v in zip(known, verdicts, strict=True) if v is not None]
        for lost in (True, False):
            news = [pod for pod, it in judged if it is lost and pod.node_lost is not lost]
            await store.mark_node_lost(self._connection, [pod.uid for pod in news], lost=lost)
            if news:
                log.warning("Nodes of workers", lost=lost, pods=[_name(pod) for pod in news])
        return sum(lost for _, lost in judged)


def _name(pod: WorkerPod) -> str:
    return f"{pod.namespace}/{pod.name}"
