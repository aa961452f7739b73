"""Brings each WorkerPool in line: what it becomes, how many workers it has, its status."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from pydantic import ValidationError

from rowlock.errors import StoreError, StoreUnavailable
from rowlock.store.builds import BoundRuns, bound_runs
from rowlock.store.connection import Connection
from rowlock.store.scaling import PoolSignals, pool_signals
from rowlock.store.types import PoolDemand, PoolId
from rowlock_operator import metrics as m
from rowlock_operator.api.pool_words import Limit
from rowlock_operator.api.workerpool import WorkerPoolSpec
from rowlock_operator.intake.agents import problem_of
from rowlock_operator.intake.catalog import Catalog, Name
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import KubeError, Rejected
from rowlock_operator.kube.ownstatus import write_status
from rowlock_operator.kube.resources import WORKER_POOLS
from rowlock_operator.kube.specs.deployment import PoolRefused
from rowlock_operator.mirror.announcer import Announcer
from rowlock_operator.pools.announcements import announcements
from rowlock_operator.pools.autoscaler import Autoscaler, Scaling
from rowlock_operator.pools.deployments import Deployments
from rowlock_operator.pools.keepers import Keepers
from rowlock_operator.pools.keeping import Keeping, without_bound
from rowlock_operator.pools.scaling import FULL_PERCENT, LATE_MS
from rowlock_operator.pools.status import Applied, Demand, differs, pool_status

log = structlog.get_logger(__name__)

#: A queue that does not move is written all the same, so that its sample does not look frozen.
_FRESH_SECONDS = 60.0
_LONGEST_PERIOD = 300.0
_RUN_STATES = ("running", "claimable", "quarantined", "waiting")


@dataclass(frozen=True, slots=True)
class PoolsReport:
    """What one round did.

    Parameters
    ----------
    period
        Seconds after which the most impatient pool wants the next round.
    """

    pools: int = 0
    written: int = 0
    scaled: int = 0
    failed: int = 0
    period: float = _LONGEST_PERIOD

    def and_(self, done: PoolsReport) -> PoolsReport:
        """Return this and what was done of one more pool."""
        return PoolsReport(
            self.pools,
            self.written + done.written,
            self.scaled + done.scaled,
            self.failed + done.failed,
            min(self.period, done.period),
        )


class Pools:
    """All WorkerPools, looked at every few seconds."""

    def __init__(
        self,
        client: KubeClient,
        connection: Connection,
        catalog: Catalog,
        deployments: Deployments,
        autoscaler: Autoscaler,
        announcer: Announcer,
        metrics: m.Metrics,
    ) -> None:
        self._client = client
        self._connection = connection
        self._catalog = catalog
        self._deployments = deployments
        self._keepers = Keepers(client, deployments)
        self._autoscaler = autoscaler
        self._announcer = announcer
        self._metrics = metrics
        self._written: dict[str, tuple[Mapping[str, Any], float]] = {}
        self._measured: set[Name] = set()

    async def run_once(self) -> PoolsReport:
        """Bring every pool in line once; one that fails does not hold up the others."""
        rows, bound = await self._signals(), await self._bound()
        await self._deployments.read()
        report = PoolsReport(len(self._catalog.pools))
        for name, seen in list(self._catalog.pools.items()):
            try:
                done = await self._reconcile(name, seen, rows, bound)
                self._metrics.add(m.RECONCILES, WORKER_POOLS.kind, "done")
            except (KubeError, StoreError) as error:
                done = PoolsReport(failed=1)
                self._metrics.add(m.RECONCILES, WORKER_POOLS.kind, "error")
                log.warning(
                    "A WorkerPool could not be brought in line",
                    pool=str(seen.key),
                    error=str(error),
                )
            report = report.and_(done)
        self._forget_deleted()
        return report

    async def _signals(self) -> dict[Name, PoolSignals] | None:
        try:
            rows = await pool_signals(self._connection, late_ms=LATE_MS, full_percent=FULL_PERCENT)
        except StoreUnavailable as error:
            log.warning("The demand of the pools is unknown", error=str(error))
            return None
        return {(row.demand.namespace, row.demand.name): row for row in rows}

    async def _bound(self) -> list[BoundRuns] | None:
        try:
            return await bound_runs(self._connection)
        except StoreUnavailable as error:
            log.warning("The builds of runs are unknown", error=str(error))
            return None

    async def _reconcile(
        self,
        name: Name,
        seen: Seen,
        rows: Mapping[Name, PoolSignals] | None,
        everything: Sequence[BoundRuns] | None,
    ) -> PoolsReport:
        demand = Demand(rows is not None, rows.get(name) if rows else None)
        try:
            spec = WorkerPoolSpec.model_validate(seen.spec)
        except ValidationError as error:
            log.error("A WorkerPool is not valid", pool=str(seen.key), problem=problem_of(error))
            return PoolsReport()
        pool_id = demand.signals.demand.pool_id if demand.signals else None
        bound = None if everything is None else [it for it in everything if it.pool_id == pool_id]
        refusal, keeping = await self._apply(seen, spec, bound)
        # Nobody has queued anything for a pool that the database does not know.
        signals = demand.signals or (_nothing(name) if demand.reachable else None)
        if signals and bound and refusal is None:
            current = self._deployments.wanted_build(seen.key, spec)
            signals = without_bound(signals, bound, current=current)
        scaling = await self._scale(seen, spec, signals)
        stands = await self._deployments.availability(seen.key)
        applied = Applied(refusal, stands, keeping)
        self._measure(name, scaling, applied, demand)
        written = await self._show(seen, scaling, applied, demand)
        period = float(spec.autoscaling.poll_period_seconds)
        return PoolsReport(written=written, scaled=scaling.scaled is not None, period=period)

    async def _apply(
        self, seen: Seen, spec: WorkerPoolSpec, bound: Sequence[BoundRuns] | None
    ) -> tuple[tuple[str, str] | None, Keeping | None]:
        """Write the pool's objects; return why they were refused, and which builds are kept.

        Older builds come first: a rollout of the Deployment begins to end their workers.
        Where nobody knows which have runs, nothing of them changes, and no rollout begins.
        """
        keeping: Keeping | None = None
        try:
            current = self._deployments.wanted_build(seen.key, spec)
            if bound is not None:
                keeping = await self._keepers.ensure(seen.key, spec, bound, current=current)
            if bound is not None or not self._deployments.would_roll(seen.key, current):
                await self._deployments.ensure(seen.key, spec)
        except PoolRefused as refused:
            return (refused.reason, str(refused)), keeping
        except Rejected as error:
            causes: Sequence[Any] = getattr(error, "causes", ())
            return ("InvalidPodTemplate", "; ".join(map(str, causes)) or str(error)), keeping
        return None, keeping

    async def _scale(
        self, seen: Seen, spec: WorkerPoolSpec, signals: PoolSignals | None
    ) -> Scaling:
        scaling = await self._autoscaler.scale(seen.key, spec, signals, generation=seen.generation)
        if done := scaling.scaled:
            log.info(
                "A pool was scaled",
                pool=str(seen.key),
                before=done.before,
                after=done.after,
                reason=done.why,
                message=done.message,
            )
        return scaling

    async def _show(self, seen: Seen, scaling: Scaling, applied: Applied, demand: Demand) -> bool:
        before, at = self._written.get(seen.key.uid, (seen.status, float("-inf")))
        now = datetime.now(UTC)
        status = pool_status(
            seen.key.name,
            scaling,
            applied,
            demand,
            generation=seen.generation,
            before=before,
            now=now,
        )
        if not differs(status, before) and time.monotonic() - at < _FRESH_SECONDS:
            return False
        key = seen.key
        if await write_status(
            self._client, WORKER_POOLS, key.namespace, key.name, uid=key.uid, status=status
        ):
            self._written[key.uid] = (status, time.monotonic())
            for said in announcements(key, before, status, now=now):
                self._announcer.announce(said)
        return True

    def _measure(self, name: Name, scaling: Scaling, applied: Applied, demand: Demand) -> None:
        self._measured.add(name)
        stands, decision, signals = applied.availability, scaling.decision, demand.signals
        needed = decision.needed if decision else scaling.desired
        show = self._metrics.show
        show(m.POOL_REPLICAS, needed, *name, "needed")
        show(m.POOL_REPLICAS, scaling.desired, *name, "desired")
        show(m.POOL_REPLICAS, stands.ready if stands else 0, *name, "ready")
        for limit in Limit:
            limits = decision is not None and decision.limit is limit
            show(m.POOL_LIMITED, float(limits), *name, limit.value)
        if demand.reachable:
            show(m.POOL_SIGNAL, time.time(), *name)
        if signals:
            row, oldest = signals.demand, signals.demand.oldest_ready_at
            for state in _RUN_STATES:
                show(m.POOL_RUNS, getattr(row, state), *name, state)
            show(m.POOL_SLOTS, signals.free, *name, "free")
            show(m.POOL_SLOTS, signals.saturated, *name, "saturated")
            show(m.POOL_OLDEST, oldest.timestamp() if oldest else 0, *name)

    def _forget_deleted(self) -> None:
        known = {seen.key.uid for seen in self._catalog.pools.values()}
        self._written = {uid: it for uid, it in self._written.items() if uid in known}
        self._deployments.forget_all_but(known)
        self._autoscaler.forget_all_but(known)
        for name in self._measured - self._catalog.pools.keys():
            self._metrics.forget_matching(*name)
            self._measured.discard(name)


def _nothing(name: Name) -> PoolSignals:
    return PoolSignals(PoolDemand(PoolId(0), *name, 0, 0, 0, None, 0, 0))
