"""Keeps workers of older builds while runs are pinned to them: one Deployment a build.

Their Pods are made from the template that the pool's Deployment had then. It is taken from the
Deployment itself before a rollout, and from its ReplicaSets after one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from rowlock.store.builds import BoundRuns
from rowlock_operator.api.workerpool import WorkerPoolSpec
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import Conflict, NotFound
from rowlock_operator.kube.ownstatus import FIELD_MANAGER
from rowlock_operator.kube.resources import DEPLOYMENTS, REPLICA_SETS, ObjectKey
from rowlock_operator.kube.specs import labels
from rowlock_operator.kube.specs.deployment import PoolIdentity
from rowlock_operator.kube.specs.keeper import build_of, keeper
from rowlock_operator.pools.deployments import Deployments, replicas_of
from rowlock_operator.pools.keeping import Keeping, Kept, to_keep

log = structlog.get_logger(__name__)

Item = dict[str, Any]


class Keepers:
    """The Deployments of older builds, of all pools."""

    def __init__(self, client: KubeClient, deployments: Deployments) -> None:
        self._client = client
        self._deployments = deployments

    async def ensure(
        self, pool: ObjectKey, spec: WorkerPoolSpec, bound: Sequence[BoundRuns], *, current: str
    ) -> Keeping:
        """Keep what has pinned runs, let go of what has none; before a rollout begins.

        Parameters
        ----------
        bound
            Runs of this pool that only one build may go on with.
        current
            The build that the pool's spec names.

        Raises
        ------
        KubeError
            The API server did not take it.
        PoolRefused
            A Deployment of that name belongs to somebody else.
        """
        most = max(1, spec.autoscaling.max_replicas)
        wanted = to_keep(bound, current=current, slots=spec.slots_per_worker, most=most)
        standing = self._deployments.kept(pool)
        kept: list[Kept] = []
        lost: list[Kept] = []
        for one in wanted:
            found = await self._keep(pool, one, standing.pop(one.build, None))
            (kept if found else lost).append(one)
        for build, item in standing.items():
            await self._let_go(pool, build, item)
        return Keeping(tuple(kept), tuple(lost))

    async def _keep(self, pool: ObjectKey, one: Kept, standing: Item | None) -> bool:
        """Have as many workers of a build as it needs; False if nobody knows what its Pods were."""
        if standing is not None and replicas_of(standing) == one.replicas:
            return True
        template = (standing or await self._source(pool, one.build) or {}).get("spec", {})
        if not template:
            return False
        who = PoolIdentity(pool.namespace, pool.name, pool.uid)
        item = keeper(who, one.build, template["template"], replicas=one.replicas)
        if standing is None:
            await self._deployments.refuse_foreign(DEPLOYMENTS, who, item)
        path = DEPLOYMENTS.path(pool.namespace, item["metadata"]["name"])
        await self._client.apply(path, item, manager=FIELD_MANAGER)
        if standing is None:
            log.info("Workers of an older build stay", pool=str(pool), build=one.build)
        return True

    async def _source(self, pool: ObjectKey, build: str) -> Mapping[str, Any] | None:
        """Return the Deployment, or the ReplicaSet of it, that has a build's template."""
        main = self._deployments.standing(pool)
        if main is None or build_of(main) == build:
            return main
        params = {"labelSelector": labels.selector(pool.name)}
        async for page in self._client.pages(REPLICA_SETS.path(pool.namespace), params=params):
            for item in page["items"]:
                if labels.is_owned(item, main["metadata"]["uid"]) and build_of(item) == build:
                    return dict(item)
        return None

    async def _let_go(self, pool: ObjectKey, build: str, item: Item) -> None:
        metadata = item["metadata"]
        try:
            path = DEPLOYMENTS.path(pool.namespace, metadata["name"])
            await self._client.delete(path, uid=metadata["uid"])
        except (NotFound, Conflict):
            return  # somebody else did
        log.info("No run needs an older build any more", pool=str(pool), build=build)
