"""Brings each WorkerPool in line: its Deployment, its PodDisruptionBudget, its status."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from pydantic import ValidationError

from rowlock.errors import StoreUnavailable
from rowlock.store import changes
from rowlock.store.connection import Connection
from rowlock.store.types import PoolDemand
from rowlock_operator import metrics as m
from rowlock_operator.api.workerpool import WorkerPoolSpec
from rowlock_operator.intake.agents import problem_of
from rowlock_operator.intake.catalog import Catalog, Name
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import KubeError, Rejected
from rowlock_operator.kube.ownstatus import write_status
from rowlock_operator.kube.resources import WORKER_POOLS
from rowlock_operator.kube.specs.deployment import PoolRefused
from rowlock_operator.pools.deployments import Deployments
from rowlock_operator.pools.replicas import wanted_replicas
from rowlock_operator.pools.status import Applied, Demand, differs, pool_status

log = structlog.get_logger(__name__)

#: A queue that does not move is written all the same, so that its sample does not look frozen.
_FRESH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class PoolsReport:
    """What one round did."""

    pools: int = 0
    written: int = 0
    failed: int = 0


class Pools:
    """All WorkerPools, looked at every few seconds."""

    def __init__(
        self,
        client: KubeClient,
        connection: Connection,
        catalog: Catalog,
        deployments: Deployments,
        metrics: m.Metrics,
    ) -> None:
        self._client = client
        self._connection = connection
        self._catalog = catalog
        self._deployments = deployments
        self._metrics = metrics
        self._written: dict[str, tuple[Mapping[str, Any], float]] = {}
        self._measured: set[Name] = set()

    async def run_once(self) -> PoolsReport:
        """Bring every pool in line once; one that fails does not hold up the others."""
        rows = await self._demand()
        await self._deployments.read()
        written = failed = 0
        for name, seen in list(self._catalog.pools.items()):
            try:
                written += await self._reconcile(name, seen, rows)
                self._metrics.add(m.RECONCILES, WORKER_POOLS.kind, "done")
            except KubeError as error:
                failed += 1
                self._metrics.add(m.RECONCILES, WORKER_POOLS.kind, "error")
                log.warning(
                    "A WorkerPool could not be brought in line",
                    pool=str(seen.key),
                    error=str(error),
                )
        self._forget_deleted()
        return PoolsReport(len(self._catalog.pools), written, failed)

    async def _demand(self) -> dict[Name, PoolDemand] | None:
        try:
            rows = await changes.pool_demand(self._connection)
        except StoreUnavailable as error:
            log.warning("The demand of the pools is unknown", error=str(error))
            return None
        return {(row.namespace, row.name): row for row in rows}

    async def _reconcile(
        self, name: Name, seen: Seen, rows: Mapping[Name, PoolDemand] | None
    ) -> bool:
        demand = Demand(rows is not None, rows.get(name) if rows else None)
        try:
            spec = WorkerPoolSpec.model_validate(seen.spec)
        except ValidationError as error:
            log.error("A WorkerPool is not valid", pool=str(seen.key), problem=problem_of(error))
            return False
        applied = await self._apply(seen, spec)
        self._measure(name, spec, applied, demand)
        return await self._show(seen, spec, applied, demand)

    async def _apply(self, seen: Seen, spec: WorkerPoolSpec) -> Applied:
        try:
            return Applied(availability=await self._deployments.ensure(seen.key, spec))
        except PoolRefused as refused:
            standing = await self._deployments.availability(seen.key)
            return Applied(refusal=(refused.reason, str(refused)), availability=standing)
        except Rejected as error:
            causes: Sequence[Any] = getattr(error, "causes", ())
            why = "; ".join(map(str, causes)) or str(error)
            standing = await self._deployments.availability(seen.key)
            return Applied(refusal=("InvalidPodTemplate", why), availability=standing)

    async def _show(
        self, seen: Seen, spec: WorkerPoolSpec, applied: Applied, demand: Demand
    ) -> bool:
        before, at = self._written.get(seen.key.uid, (seen.status, float("-inf")))
        status = pool_status(
            seen.key.name,
            spec,
            applied,
            demand,
            generation=seen.generation,
            before=before,
            now=datetime.now(UTC),
        )
        if not differs(status, before) and time.monotonic() - at < _FRESH_SECONDS:
            return False
        key = seen.key
        if await write_status(
            self._client, WORKER_POOLS, key.namespace, key.name, uid=key.uid, status=status
        ):
            self._written[key.uid] = (status, time.monotonic())
        return True

    def _measure(self, name: Name, spec: WorkerPoolSpec, applied: Applied, demand: Demand) -> None:
        self._measured.add(name)
        stands, row = applied.availability, demand.row
        self._metrics.show(m.POOL_REPLICAS, wanted_replicas(spec), *name, "desired")
        self._metrics.show(m.POOL_REPLICAS, stands.ready if stands else 0, *name, "ready")
        if row:
            self._metrics.show(m.POOL_RUNS, row.running, *name, "running")
            self._metrics.show(m.POOL_RUNS, row.claimable, *name, "claimable")
            self._metrics.show(m.POOL_RUNS, row.quarantined, *name, "quarantined")
            self._metrics.show(m.POOL_RUNS, row.waiting, *name, "waiting")
            oldest = row.oldest_ready_at
            self._metrics.show(m.POOL_OLDEST, oldest.timestamp() if oldest else 0, *name)

    def _forget_deleted(self) -> None:
        known = {seen.key.uid for seen in self._catalog.pools.values()}
        self._written = {uid: it for uid, it in self._written.items() if uid in known}
        self._deployments.forget_all_but(known)
        for name in self._measured - self._catalog.pools.keys():
            for state in ("desired", "ready"):
                self._metrics.forget(m.POOL_REPLICAS, *name, state)
            for state in ("running", "claimable", "quarantined", "waiting"):
                self._metrics.forget(m.POOL_RUNS, *name, state)
            self._metrics.forget(m.POOL_OLDEST, *name)
            self._measured.discard(name)
