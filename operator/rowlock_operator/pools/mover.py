"""Brings a pool's Deployment to another number of replicas, sparing what runs.

Fewer workers come in three moves: those that hold least are told to rest (a resting worker claims
nothing), they get a low `pod-deletion-cost`, and then the number is lowered.
The controller of the Deployment may choose others all the same, a pending Pod above all.
So afterwards whoever is still there works on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock.errors import StoreError
from rowlock.store import scaling as store
from rowlock.store.connection import Connection
from rowlock.store.types import PoolId
from rowlock_operator.api.workerpool import DrainMode, WorkerPoolSpec
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import Invalid, NotFound
from rowlock_operator.kube.ownstatus import FIELD_MANAGER
from rowlock_operator.kube.resources import PODS, ObjectKey
from rowlock_operator.pools.deployments import Deployments, replicas_of
from rowlock_operator.pools.rollout import outdated
from rowlock_operator.pools.victims import PodOfPool, choose, cost_patch, pods_of

log = structlog.get_logger(__name__)

#: A rest lapses by itself after so long without word of an operator.
REST_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class _Resting:
    """Pods that are about to go and rest, and since when."""

    uids: frozenset[str]
    since: float


@dataclass(frozen=True, slots=True)
class _Outdated:
    """Pods that a rollout is about to replace, and when they were last told to rest."""

    uids: frozenset[str]
    at: float


class Mover:
    """Changes numbers of replicas, and remembers who rests for it."""

    def __init__(
        self,
        client: KubeClient,
        connection: Connection,
        deployments: Deployments,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._connection = connection
        self._deployments = deployments
        self._clock = clock or SystemClock()
        self._resting: dict[str, _Resting] = {}
        self._outdated: dict[str, _Outdated] = {}

    async def move(
        self, pool: ObjectKey, spec: WorkerPoolSpec, to: int, *, pool_id: PoolId | None
    ) -> bool:
        """Have `to` replicas; False if it is not done yet: try again soon.

        Parameters
        ----------
        pool_id
            The pool in the database; None if that knows none, or does not answer.

        Raises
        ------
        KubeError
            The API server did not take it.
        """
        standing = self._deployments.standing(pool)
        if standing is None:
            return False
        before = replicas_of(standing)
        if to < before and not await self._prepare(pool, spec, before - to, pool_id):
            return False
        done = await self._deployments.scale(pool, before=before, to=to)
        if done and (resting := self._resting.get(pool.uid)):
            # The next step waits for its own Pods as long as this one did.
            self._resting[pool.uid] = replace(resting, since=self._clock.monotonic())
        return done

    async def settle(self, pool: ObjectKey, *, pool_id: PoolId | None) -> None:
        """Take the rest back from those that are still there once the Deployment has shrunk."""
        resting, standing = self._resting.get(pool.uid), self._deployments.standing(pool)
        if resting is None or standing is None or not _has_shrunk(standing):
            return
        pods = await self._pods(pool, {})
        there = {pod.uid for pod in pods}
        if pool_id is not None:
            await self._rest(pool, pool_id, resting.uids - there)
        await self._write_costs(pool, pods, victims=frozenset())
        del self._resting[pool.uid]

    async def roll(self, pool: ObjectKey, *, rolling: bool, pool_id: PoolId | None) -> None:
        """While Pods are replaced by others, have the old ones rest as soon as a new one is ready.

        Parameters
        ----------
        rolling
            Pods are being replaced.
        """
        known, standing = self._outdated.get(pool.uid), self._deployments.standing(pool)
        if pool_id is None or standing is None or not (rolling or known):
            return
        pods = await self._deployments.pods(pool) if rolling else []
        uids = outdated(standing, pods)
        now = self._clock.monotonic()
        if known and known.uids == uids and now - known.at < REST_SECONDS / 4:
            return
        going = self._resting.get(pool.uid)
        if uids:
            self._outdated[pool.uid] = _Outdated(uids, now)
        else:
            self._outdated.pop(pool.uid, None)
        if uids or known:
            await self._rest(pool, pool_id, going.uids if going else frozenset())

    def forget_all_but(self, uids: set[str]) -> None:
        """Forget pools that were deleted."""
        self._resting = {uid: it for uid, it in self._resting.items() if uid in uids}
        self._outdated = {uid: it for uid, it in self._outdated.items() if uid in uids}

    async def _prepare(
        self, pool: ObjectKey, spec: WorkerPoolSpec, count: int, pool_id: PoolId | None
    ) -> bool:
        """Choose who goes, and have them rest; False while they should end their runs first."""
        before = self._resting.get(pool.uid)
        try:
            loads = {} if pool_id is None else await store.pod_loads(self._connection, pool_id)
            pods = await self._pods(pool, loads)
            victims = choose(pods, count, before=before.uids if before else frozenset())
            uids = frozenset(pod.uid for pod in victims)
            since = before.since if before else self._clock.monotonic()
            self._resting[pool.uid] = _Resting(uids, since)
            if pool_id is not None:
                # The next look may be a whole poll away.
                lasts = max(REST_SECONDS, 2.0 * spec.autoscaling.poll_period_seconds)
                await self._rest(pool, pool_id, uids, seconds=lasts)
                if await self._has_to_wait(spec, uids, pool_id, since):
                    return False
        except StoreError as error:
            log.warning("Workers go without a rest", pool=str(pool), error=str(error))
            pods, uids = await self._pods(pool, {}), frozenset()
        await self._write_costs(pool, pods, victims=uids)
        return True

    async def _has_to_wait(
        self, spec: WorkerPoolSpec, uids: Collection[str], pool_id: PoolId, since: float
    ) -> bool:
        drain = spec.drain
        if drain.mode is not DrainMode.FINISH:
            return False  # what they hold is handed over
        if self._clock.monotonic() - since > drain.deadline_seconds:
            return False
        loads = await store.pod_loads(self._connection, pool_id)
        return any(loads.get(uid) for uid in uids)

    async def _rest(
        self,
        pool: ObjectKey,
        pool_id: PoolId,
        going: frozenset[str],
        *,
        seconds: float = REST_SECONDS,
    ) -> None:
        """Have these rest, those that a rollout replaces, and nobody else."""
        old = self._outdated.get(pool.uid)
        uids = going | (old.uids if old else frozenset())
        await store.rest_pods(self._connection, pool_id, uids, seconds=seconds)

    async def _pods(self, pool: ObjectKey, loads: Mapping[str, int]) -> list[PodOfPool]:
        return pods_of(await self._deployments.pods(pool), loads)

    async def _write_costs(
        self, pool: ObjectKey, pods: Collection[PodOfPool], *, victims: Collection[str]
    ) -> None:
        for pod in pods:
            patch = cost_patch(pod, victim=pod.uid in victims)
            if patch:
                await self._patch(PODS.path(pool.namespace, pod.name), patch)

    async def _patch(self, path: str, patch: list[dict[str, Any]]) -> None:
        try:
            await self._client.json_patch(path, patch, manager=FIELD_MANAGER)
        except (NotFound, Invalid) as error:
            # Gone, or changed meanwhile: the cost is a hint, and a run is handed over at worst.
            log.info("A Pod's deletion cost was not written", path=path, error=str(error))


def _has_shrunk(standing: Mapping[str, Any]) -> bool:
    status = standing.get("status") or {}
    observed = int(status.get("observedGeneration") or 0)
    settled = observed >= int(standing["metadata"].get("generation") or 0)
    return settled and int(status.get("replicas") or 0) <= replicas_of(standing)
