"""The Deployments of WorkerPools: read together, written one by one, never taken from others.

Server-side apply sets the fields that we have an opinion on and leaves those of others alone.
It is asked for only when something differs from what was last applied: a rollout, an edit by hand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from rowlock_operator.api.workerpool import WorkerPoolSpec
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import NotFound
from rowlock_operator.kube.ownstatus import FIELD_MANAGER
from rowlock_operator.kube.resources import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    PODS,
    ObjectKey,
    Resource,
)
from rowlock_operator.kube.specs import labels
from rowlock_operator.kube.specs.deployment import (
    PoolIdentity,
    PoolRefused,
    SecretKey,
    deployment,
    disruption_budget,
)
from rowlock_operator.pools.availability import Availability, availability, needs_pods
from rowlock_operator.pools.replicas import wanted_replicas

Item = dict[str, Any]


class Deployments:
    """Deployments and PodDisruptionBudgets of all pools.

    Parameters
    ----------
    database
        The installation's Secret with the database URL, for pools that name none.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespaces: Sequence[str] = (),
        database: SecretKey | None = None,
        log_format: str = "json",
    ) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self._database = database
        self._log_format = log_format
        self._standing: dict[tuple[str, str], Item] = {}
        self._applied: dict[str, tuple[str, int]] = {}

    async def read(self) -> None:
        """Read the Deployments of all pools."""
        params = {"labelSelector": f"app.kubernetes.io/managed-by={labels.MANAGED_BY}"}
        standing = {}
        for namespace in self._namespaces or (None,):
            async for page in self._client.pages(DEPLOYMENTS.path(namespace), params=params):
                for item in page["items"]:
                    metadata = item["metadata"]
                    standing[metadata["namespace"], metadata["name"]] = item
        self._standing = standing

    async def ensure(self, pool: ObjectKey, spec: WorkerPoolSpec) -> Availability:
        """Make the pool's objects what they should be, and return how its Deployment stands.

        Raises
        ------
        PoolRefused
            The pool makes no Deployment, or one of that name belongs to somebody else.
        Rejected
            The API server refuses what the podTemplate makes of it.
        """
        who = PoolIdentity(pool.namespace, pool.name, pool.uid)
        wanted = deployment(
            who,
            spec,
            replicas=wanted_replicas(spec),
            database=self._secret(spec),
            log_format=self._log_format,
        )
        digest = hashlib.sha256(msgspec.json.encode(wanted, order="sorted")).hexdigest()
        standing = self._standing.get((pool.namespace, wanted["metadata"]["name"]))
        if standing is None or not self._is_applied(pool.uid, digest, standing):
            standing = await self._apply(who, wanted, digest)
        return await self._judge(pool, standing)

    async def availability(self, pool: ObjectKey) -> Availability | None:
        """Return how the pool's Deployment stands, None if it has none."""
        standing = self._standing.get((pool.namespace, labels.object_name(pool.name)))
        if standing is None or not labels.is_owned(standing, pool.uid):
            return None
        return await self._judge(pool, standing)

    def forget_all_but(self, uids: set[str]) -> None:
        """Forget pools that were deleted."""
        self._applied = {uid: it for uid, it in self._applied.items() if uid in uids}

    def _is_applied(self, uid: str, digest: str, standing: Item) -> bool:
        return self._applied.get(uid) == (digest, standing["metadata"]["generation"])

    async def _apply(self, who: PoolIdentity, wanted: Item, digest: str) -> Item:
        await self._refuse_foreign(DEPLOYMENTS, who, wanted)
        budget = disruption_budget(who)
        await self._refuse_foreign(DISRUPTION_BUDGETS, who, budget)
        standing = await self._write(DEPLOYMENTS, wanted)
        await self._write(DISRUPTION_BUDGETS, budget)
        self._applied[who.uid] = (digest, standing["metadata"]["generation"])
        return standing

    async def _refuse_foreign(self, resource: Resource, who: PoolIdentity, wanted: Item) -> None:
        name = wanted["metadata"]["name"]
        try:
            found = await self._client.get(resource.path(who.namespace, name))
        except NotFound:
            return
        if not labels.is_owned(found, who.uid):
            raise PoolRefused(
                f"{resource.kind}NotOwned",
                f"{resource.kind} {name} exists and does not belong to this WorkerPool",
            )

    async def _write(self, resource: Resource, wanted: Item) -> Item:
        metadata = wanted["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"])
        written: Item = await self._client.apply(path, wanted, manager=FIELD_MANAGER)
        return written

    async def _judge(self, pool: ObjectKey, standing: Item) -> Availability:
        pods: list[Item] = []
        if needs_pods(standing):
            params = {"labelSelector": labels.selector(pool.name), "limit": "20"}
            page = await self._client.get(PODS.path(pool.namespace), params=params)
            pods = page["items"]
        return availability(standing, pods)

    def _secret(self, spec: WorkerPoolSpec) -> SecretKey | None:
        reference = spec.database_secret_ref
        return SecretKey(reference.name, reference.key) if reference else self._database
