"""What WorkerPools become: read together, written one by one, never taken from others.

A Deployment, and its companions: PodDisruptionBudget, NetworkPolicy, metrics Service.
Server-side apply sets the fields that we have an opinion on and leaves those of others alone.
It is asked for only when something differs from what was last applied (a rollout, an edit by hand),
and every few minutes for the sake of the companions, which nobody reads.
The number of replicas is not ours to repeat: see `scale`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rowlock.clock import Clock, SystemClock
from rowlock_operator.api.workerpool import WorkerPoolSpec
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import Invalid, NotFound
from rowlock_operator.kube.ownstatus import FIELD_MANAGER
from rowlock_operator.kube.resources import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    PODS,
    SERVICES,
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
from rowlock_operator.kube.specs.keeper import build_of
from rowlock_operator.kube.specs.network import metrics_service, network_policy
from rowlock_operator.pools.availability import Availability, availability, needs_pods
from rowlock_operator.pools.replicas import first_replicas

Item = dict[str, Any]


#: After so long companions are written again, whether or not anybody changed them.
_AGAIN_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class _Applied:
    """What was last written, and when.

    Parameters
    ----------
    digest
        Of all that was written.
    generation
        Of the Deployment since; another one means that somebody else has written.
    """

    digest: str
    generation: int
    at: float


class Deployments:
    """Deployments and their companions, of all pools.

    Parameters
    ----------
    database
        The installation's Secret with the database URL, for pools that name none.
    cluster
        Name of this cluster in the database.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespaces: Sequence[str] = (),
        database: SecretKey | None = None,
        log_format: str = "json",
        cluster: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self._database = database
        self._log_format = log_format
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._standing: dict[tuple[str, str], Item] = {}
        self._applied: dict[str, _Applied] = {}

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

    async def ensure(self, pool: ObjectKey, spec: WorkerPoolSpec) -> None:
        """Make the pool's objects what they should be, all but the number of replicas.

        Raises
        ------
        PoolRefused
            The pool makes no Deployment, or one of these objects belongs to somebody else.
        Rejected
            The API server refuses what the podTemplate makes of it.
        """
        who = PoolIdentity(pool.namespace, pool.name, pool.uid)
        standing = self.standing(pool)
        wanted = self._wanted(pool, spec)
        companions = (
            (DISRUPTION_BUDGETS, disruption_budget(who)),
            (NETWORK_POLICIES, network_policy(who, wanted["spec"]["template"])),
            (SERVICES, metrics_service(who)),
        )
        digest = _digest(wanted, companions)
        if standing is None or not self._is_applied(pool.uid, digest, standing):
            await self._apply(who, wanted, companions)
            self._note(pool, digest)

    def standing(self, pool: ObjectKey) -> Item | None:
        """Return the pool's Deployment as last read or written, None if it has none."""
        standing = self._standing.get((pool.namespace, labels.object_name(pool.name)))
        return standing if standing and labels.is_owned(standing, pool.uid) else None

    def kept(self, pool: ObjectKey) -> dict[str, Item]:
        """Return the Deployments that keep older builds of a pool, by their builds."""
        found = (
            item
            for (namespace, _), item in self._standing.items()
            if namespace == pool.namespace
            and labels.KEPT_LABEL in (item["metadata"].get("labels") or {})
            and labels.is_owned(item, pool.uid)
        )
        return {build: item for item in found if (build := build_of(item)) is not None}

    def wanted_build(self, pool: ObjectKey, spec: WorkerPoolSpec) -> str:
        """Return which build the workers of a pool are to be.

        Raises
        ------
        PoolRefused
            The pool makes no Deployment.
        """
        return build_of(self._wanted(pool, spec)) or spec.image

    def would_roll(self, pool: ObjectKey, build: str) -> bool:
        """Tell whether workers of another build stand there now."""
        standing = self.standing(pool)
        return standing is not None and build_of(standing) != build

    async def availability(self, pool: ObjectKey) -> Availability | None:
        """Return how the pool's Deployment stands, None if it has none."""
        standing = self.standing(pool)
        if standing is None:
            return None
        pods: list[Item] = []
        if needs_pods(standing):
            pods = (await self.pods(pool, limit=20))[:20]
        return availability(standing, pods)

    async def pods(self, pool: ObjectKey, *, limit: int = 1000) -> list[Item]:
        """Return up to `limit` of the pool's Pods, without those that are kept for pinned runs."""
        selector = f"{labels.selector(pool.name)},!{labels.KEPT_LABEL}"
        params = {"labelSelector": selector, "limit": str(limit)}
        page = await self._client.get(PODS.path(pool.namespace), params=params)
        return list(page["items"])

    async def scale(self, pool: ObjectKey, *, before: int, to: int) -> bool:
        """Change the number of replicas; False if it is not `before` any more.

        So of two operators that decide the same only one takes the step.
        """
        standing = self.standing(pool)
        if standing is None:
            return False
        path = "/spec/replicas"
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": standing["metadata"]["uid"]},
            {"op": "test", "path": path, "value": before},
            {"op": "replace", "path": path, "value": to},
        ]
        where = DEPLOYMENTS.path(pool.namespace, standing["metadata"]["name"])
        try:
            written = await self._client.json_patch(where, operations, manager=FIELD_MANAGER)
        except NotFound:
            return False
        except Invalid as error:
            if error.causes:
                raise
            return False
        self._note_scaled(pool, standing, to, generation=written["metadata"]["generation"])
        return True

    def forget_all_but(self, uids: set[str]) -> None:
        """Forget pools that were deleted."""
        self._applied = {uid: it for uid, it in self._applied.items() if uid in uids}

    def _wanted(self, pool: ObjectKey, spec: WorkerPoolSpec) -> Item:
        standing = self.standing(pool)
        return deployment(
            PoolIdentity(pool.namespace, pool.name, pool.uid),
            spec,
            replicas=first_replicas(spec) if standing is None else replicas_of(standing),
            database=self._secret(spec),
            log_format=self._log_format,
            cluster=self._cluster,
        )

    def _is_applied(self, uid: str, digest: str, standing: Item) -> bool:
        applied = self._applied.get(uid)
        return (
            applied is not None
            and applied.digest == digest
            and applied.generation == standing["metadata"]["generation"]
            and self._clock.monotonic() - applied.at < _AGAIN_SECONDS
        )

    async def _apply(
        self, who: PoolIdentity, wanted: Item, companions: Sequence[tuple[Resource, Item]]
    ) -> None:
        """Write the Deployment, then its companions; nothing if any of it cannot be."""
        for resource, item in ((DEPLOYMENTS, wanted), *companions):
            await self.refuse_foreign(resource, who, item)
        await self._write(DEPLOYMENTS, wanted, dry_run=True)
        name = wanted["metadata"]["name"]
        self._standing[who.namespace, name] = await self._write(DEPLOYMENTS, wanted)
        for resource, item in companions:
            await self._write(resource, item)

    def _note(self, pool: ObjectKey, digest: str) -> None:
        standing = self.standing(pool)
        if standing is not None:
            generation, now = standing["metadata"]["generation"], self._clock.monotonic()
            self._applied[pool.uid] = _Applied(digest, generation, now)

    def _note_scaled(self, pool: ObjectKey, standing: Item, to: int, *, generation: int) -> None:
        metadata = {**standing["metadata"], "generation": generation}
        spec = {**standing["spec"], "replicas": to}
        scaled = {**standing, "metadata": metadata, "spec": spec}
        self._standing[pool.namespace, metadata["name"]] = scaled
        if pool.uid in self._applied:
            self._note(pool, self._applied[pool.uid].digest)

    async def refuse_foreign(self, resource: Resource, who: PoolIdentity, wanted: Item) -> None:
        """Refuse to write what is there and does not belong to the pool.

        Raises
        ------
        PoolRefused
            It is there.
        """
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

    async def _write(self, resource: Resource, wanted: Item, *, dry_run: bool = False) -> Item:
        metadata = wanted["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"])
        written: Item = await self._client.apply(
            path, wanted, manager=FIELD_MANAGER, dry_run=dry_run
        )
        return written

    def _secret(self, spec: WorkerPoolSpec) -> SecretKey | None:
        reference = spec.database_secret_ref
        return SecretKey(reference.name, reference.key) if reference else self._database


def replicas_of(standing: Mapping[str, Any]) -> int:
    """Return how many replicas a Deployment asks for."""
    return int(standing["spec"].get("replicas") or 0)


def _digest(wanted: Item, companions: Sequence[tuple[Resource, Item]]) -> str:
    spec = {key: value for key, value in wanted["spec"].items() if key != "replicas"}
    written = ({**wanted, "spec": spec}, *(item for _, item in companions))
    return hashlib.sha256(msgspec.json.encode(written, order="sorted")).hexdigest()
