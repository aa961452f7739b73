"""Decides for each WorkerPool how many workers it should have, and sees to it.

Mode Internal: `scaling.decide`, every pollPeriodSeconds. External and None: what stands in
`spec.replicas`, which an HPA, KEDA or a person has set; External fills it once where it is absent.
The number that counts is the Deployment's own: whoever decides starts from there, so that an
operator that was just started, or a second one, knows all that the first knew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rowlock.clock import Clock, SystemClock
from rowlock.store.scaling import PoolSignals
from rowlock.store.types import PoolId
from rowlock_operator import metrics as m
from rowlock_operator.api.autoscaling import ScalingMode
from rowlock_operator.api.workerpool import WorkerPoolSpec
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import Invalid, NotFound
from rowlock_operator.kube.ownstatus import FIELD_MANAGER
from rowlock_operator.kube.resources import WORKER_POOLS, ObjectKey
from rowlock_operator.pools.deployments import Deployments, replicas_of
from rowlock_operator.pools.mover import Mover
from rowlock_operator.pools.replicas import fill, given_replicas
from rowlock_operator.pools.scaling import Decision, Past, Policy, Standing, decide


@dataclass(frozen=True, slots=True)
class Scaled:
    """A change of the number of workers."""

    before: int
    after: int
    why: str
    message: str


@dataclass(frozen=True, slots=True)
class Scaling:
    """How it goes with one pool.

    Parameters
    ----------
    desired
        Workers wanted now.
    decision
        The last one of mode Internal; None in the others.
    scaled
        What was changed in this round.
    """

    mode: ScalingMode
    desired: int
    decision: Decision | None = None
    scaled: Scaled | None = None


@dataclass(slots=True)
class _Pool:
    """What is remembered of a pool."""

    generation: int
    due: float
    past: Past = field(default_factory=Past)
    decision: Decision | None = None


class Autoscaler:
    """All pools' numbers of workers."""

    def __init__(
        self,
        client: KubeClient,
        deployments: Deployments,
        mover: Mover,
        metrics: m.Metrics,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._deployments = deployments
        self._mover = mover
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._pools: dict[str, _Pool] = {}

    async def scale(
        self,
        pool: ObjectKey,
        spec: WorkerPoolSpec,
        signals: PoolSignals | None,
        *,
        generation: int,
    ) -> Scaling:
        """Bring one pool to the number of workers that it should have.

        Parameters
        ----------
        signals
            None if PostgreSQL does not answer.
        generation
            Of the WorkerPool: one that was edited is decided about at once.

        Raises
        ------
        KubeError
            The API server did not take it.
        """
        standing = self._deployments.standing(pool)
        if standing is None:
            return Scaling(spec.autoscaling.mode, 0)
        await self._mover.roll(pool, rolling=stands(standing).rolling, pool_id=_id(signals))
        if spec.autoscaling.mode is not ScalingMode.INTERNAL:
            return await self._follow(pool, spec, signals, before=replicas_of(standing))
        known = self._pools.get(pool.uid)
        now = self._clock.monotonic()
        if known is None or known.generation != generation:
            known = _Pool(generation, now, known.past if known else Past())
            self._pools[pool.uid] = known
        if now < known.due:
            return Scaling(ScalingMode.INTERNAL, replicas_of(standing), known.decision)
        known.due = now + spec.autoscaling.poll_period_seconds
        decision = decide(Policy.of(spec), stands(standing), signals, known.past, now=now)
        known.past, known.decision = decision.past, decision
        why, said = decision.why.value, decision.message
        scaled = await self._bring(pool, spec, signals, to=decision.replicas, why=why, said=said)
        desired = scaled.after if scaled else replicas_of(standing)
        return Scaling(ScalingMode.INTERNAL, desired, decision, scaled)

    def forget_all_but(self, uids: set[str]) -> None:
        """Forget pools that were deleted."""
        self._pools = {uid: it for uid, it in self._pools.items() if uid in uids}
        self._mover.forget_all_but(uids)

    async def _follow(
        self, pool: ObjectKey, spec: WorkerPoolSpec, signals: PoolSignals | None, *, before: int
    ) -> Scaling:
        """Do what somebody else has decided."""
        self._pools.pop(pool.uid, None)
        mode, given = spec.autoscaling.mode, given_replicas(spec)
        if (number := fill(spec, standing=before)) is not None:
            await self._fill(pool, number)
        if given is None:
            return Scaling(mode, before)
        scaled = await self._bring(
            pool, spec, signals, to=given, why=mode.value, said="spec.replicas was set"
        )
        return Scaling(mode, scaled.after if scaled else before, scaled=scaled)

    async def _bring(
        self,
        pool: ObjectKey,
        spec: WorkerPoolSpec,
        signals: PoolSignals | None,
        *,
        to: int,
        why: str,
        said: str,
    ) -> Scaled | None:
        standing = self._deployments.standing(pool)
        before = to if standing is None else replicas_of(standing)
        if to == before:
            await self._mover.settle(pool, pool_id=_id(signals))
            return None
        if not await self._mover.move(pool, spec, to, pool_id=_id(signals)):
            return None
        self._metrics.add(m.POOL_SCALINGS, "up" if to > before else "down")
        return Scaled(before, to, why, said)

    async def _fill(self, pool: ObjectKey, number: int) -> None:
        """Write `spec.replicas` where it is still absent: `/scale` does not work without it."""
        path = WORKER_POOLS.path(pool.namespace, pool.name)
        try:
            found = await self._client.get(path)
            if found["spec"].get("replicas") is not None:
                return
            metadata = found["metadata"]
            operations: list[dict[str, Any]] = [
                {"op": "test", "path": "/metadata/uid", "value": pool.uid},
                {
                    "op": "test",
                    "path": "/metadata/resourceVersion",
                    "value": metadata["resourceVersion"],
                },
                {"op": "add", "path": "/spec/replicas", "value": number},
            ]
            await self._client.json_patch(path, operations, manager=FIELD_MANAGER)
        except NotFound:
            return
        except Invalid as error:
            if error.causes:
                raise


def _id(signals: PoolSignals | None) -> PoolId | None:
    """Return the pool in the database; None if that knows none, or does not answer."""
    return signals.demand.pool_id if signals and signals.demand.pool_id else None


def stands(deployment: dict[str, Any]) -> Standing:
    """Return how a Deployment stands, as far as scaling goes."""
    status = deployment.get("status") or {}
    replicas, updated = int(status.get("replicas") or 0), int(status.get("updatedReplicas") or 0)
    generation = int(deployment["metadata"].get("generation") or 0)
    settled = int(status.get("observedGeneration") or 0) >= generation
    return Standing(
        desired=replicas_of(deployment),
        ready=int(status.get("readyReplicas") or 0),
        rolling=not settled or replicas != updated,
    )
