"""All AgentRunBatches: the round that takes them in, moves them on, shows them and lets them go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock.states import BatchStop, FailureReason
from rowlock.store import batch_rounds
from rowlock.store import batches as store
from rowlock.store.batches import BatchId, BatchStatus
from rowlock.store.connection import Connection
from rowlock_operator import metrics as m
from rowlock_operator.batches.acceptance import Acceptance
from rowlock_operator.batches.departed import Departed
from rowlock_operator.batches.known import KnownBatch, known_batch
from rowlock_operator.batches.materializer import Materializer
from rowlock_operator.batches.status import (
    MOST_FAILED,
    BatchRefused,
    BatchWaits,
    batch_status,
    events,
    refused_status,
    waiting_status,
)
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.conditions import holds
from rowlock_operator.kube.errors import Conflict, KubeError, NotFound, Unreachable
from rowlock_operator.kube.ownstatus import write_status
from rowlock_operator.kube.putoff import PutOff
from rowlock_operator.kube.resources import AGENT_RUN_BATCHES
from rowlock_operator.kube.text import cut
from rowlock_operator.mirror.announcements import Announcement
from rowlock_operator.mirror.announcer import Announcer

log = structlog.get_logger(__name__)

_MISSING = "the database has no row for status.batchID; it will not be run again"
_NEVER = "cancelled before it was taken in"
#: A batch that waits for something is looked at again after so long, whatever the watch says.
_AGAIN_SECONDS = 3.0
_NOTE_BYTES = 1000
#: Seconds between two Events that name refused items of one batch, and the key of making any.
_TELL_SECONDS = 300.0
_MAKING = "AgentRuns"
#: Moving many batches on must not keep statuses waiting.
_ADVANCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class BatchesReport:
    """What one round did."""

    known: int = 0
    fed: int = 0
    made: int = 0
    written: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesSettings:
    """How the round works.

    Parameters
    ----------
    cluster
        Uid of the namespace kube-system.
    status_seconds
        Between two status writes of one batch at least.
    """

    cluster: str
    status_seconds: float = 2


class Batches:
    """Everything that there is to do for AgentRunBatches."""

    def __init__(
        self,
        client: KubeClient,
        connection: Connection,
        acceptance: Acceptance,
        announcer: Announcer,
        *,
        settings: BatchesSettings,
        metrics: m.Metrics,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._connection = connection
        self._acceptance = acceptance
        self._announcer = announcer
        self._settings = settings
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._materializer = Materializer(
            client, connection, cluster=settings.cluster, clock=self._clock
        )
        self._known: dict[str, KnownBatch] = {}
        self._making: set[BatchId] = set()
        self._put_off = PutOff(clock=self._clock)
        self._told = PutOff(first=_TELL_SECONDS, most=_TELL_SECONDS, clock=self._clock)
        self.departed = Departed(client, connection)

    def take(self, seen: Seen) -> None:
        """Note what was seen of an object."""
        if seen.gone:
            self.departed.suspect(seen.key)
            return
        batch = self._known.get(seen.key.uid)
        if batch is None:
            self._known[seen.key.uid] = known_batch(seen)
        elif seen.generation > batch.generation:
            batch.update(seen)

    def appeared(self, news: Iterable[Seen]) -> None:
        """Look again at the batches that may wait for one of these Agents and WorkerPools."""
        namespaces = {seen.key.namespace for seen in news}
        for batch in self._known.values():
            if batch.source and batch.key.namespace in namespaces:
                batch.again_at = float("-inf")

    async def run_once(self) -> BatchesReport:
        """Do all that is to do now; a batch that fails does not hold up the others."""
        # First, and by itself: items need no API server.
        fed = await batch_rounds.advance(
            self._connection, cluster=self._settings.cluster, within=_ADVANCE_SECONDS
        )
        failed = await self._settle_all()
        for gone in await self.departed.confirm(self._settings.cluster):
            self._known.pop(gone, None)
            self._put_off.forget(gone)
            self._told.forget(gone)
        made = await self._make()
        written = await self._show_all()
        await self._expire()
        await self.departed.purge()
        return BatchesReport(len(self._known), fed, made, written, failed)

    def resync(self, listed: Iterable[Seen], rows: Iterable[store.KnownBatch]) -> None:
        """Find what the watch missed.

        Parameters
        ----------
        rows
            Of the database, read before the list began.
        """
        present = {seen.key.uid: seen for seen in listed}
        for seen in present.values():
            self.take(seen)
        for uid in self._known.keys() - present.keys():
            self.departed.suspect(self._known[uid].key)
        found = list(rows)
        self.departed.compare(found, present.keys())
        self._making |= {row.batch_id for row in found if row.materialize and not row.departed}

    # ---------------------------------------------------------------- what the objects ask for

    async def _settle_all(self) -> int:
        failed, now = 0, self._clock.monotonic()
        for batch in [it for it in self._known.values() if it.dirty and it.again_at <= now]:
            try:
                await self._settle(batch)
                self._metrics.add(m.RECONCILES, AGENT_RUN_BATCHES.kind, "done")
            except KubeError as error:
                failed += 1
                batch.again_at = now + _AGAIN_SECONDS
                self._metrics.add(m.RECONCILES, AGENT_RUN_BATCHES.kind, "error")
                log.warning("A batch must wait", batch=str(batch.key), error=str(error))
        return failed

    async def _settle(self, batch: KnownBatch) -> None:
        if holds(batch.status, "Finished"):
            await self._observe(batch)
            return
        if batch.number is None:
            batch.number = await store.find(
                self._connection, cluster=self._settings.cluster, uid=batch.key.uid
            )
        if batch.number is None and not await self._accept(batch):
            return
        await self._steer(batch)
        batch.dirty, batch.source = False, None

    async def _accept(self, batch: KnownBatch) -> bool:
        """Take a batch in; False if it waits, or ended without."""
        outcome = await self._outcome(batch)
        if isinstance(outcome, BatchWaits):
            batch.again_at = self._clock.monotonic() + _AGAIN_SECONDS
            status = waiting_status(outcome, **self._now(batch))
            await self._write(batch, status)
            return False
        if isinstance(outcome, BatchRefused):
            log.info("A batch was refused", batch=str(batch.key), reason=outcome.reason.value)
            await self._write(batch, refused_status(outcome, **self._now(batch)))
            batch.dirty, batch.source, batch.done = False, None, True
            return False
        log.info("A batch was accepted", batch=str(batch.key), number=outcome)
        batch.number = outcome
        self._making.add(outcome)
        return True

    async def _outcome(self, batch: KnownBatch) -> BatchId | BatchWaits | BatchRefused:
        if batch.status.get("batchID") is not None:
            return BatchRefused(FailureReason.ROW_MISSING, _MISSING)
        if batch.desired == "Cancel":
            return BatchRefused(FailureReason.CANCELLED, _NEVER)
        if batch.source is None:
            raise ValueError(f"batch {batch.key} has no source")
        return await self._acceptance.accept(batch.source)

    async def _steer(self, batch: KnownBatch) -> None:
        if batch.number is None:
            return
        if batch.desired == "Cancel":
            message = "spec.desiredState is Cancel"
            await store.stop(self._connection, batch.number, BatchStop.CANCELLED, message)
        await store.steer(
            self._connection,
            batch.number,
            parallelism=batch.parallelism,
            max_failed_percent=batch.max_failed_percent,
            suspended=batch.desired == "Suspend",
        )

    async def _observe(self, batch: KnownBatch) -> None:
        """Answer a change of a batch that has ended: nothing is to be done about it."""
        if batch.observed < batch.generation:
            conditions = [
                {**it, "observedGeneration": batch.generation}
                for it in batch.status.get("conditions") or ()
            ]
            new = {"observedGeneration": batch.generation, "conditions": conditions}
            await self._write(batch, {**batch.status, **new})
        batch.dirty, batch.source, batch.done = False, None, True

    # ---------------------------------------------------------------- what the objects show

    async def _make(self) -> int:
        if not self._making:
            return 0
        templates = {uid: batch.template for uid, batch in self._known.items()}
        if not self._put_off.due(_MAKING):
            return 0
        try:
            report = await self._materializer.run_once(self._making, templates)
        except KubeError as error:
            self._put_off.failed(_MAKING)
            log.warning("AgentRuns of items must wait", error=str(error))
            return 0
        self._put_off.forget(_MAKING)
        self._making -= report.over
        self._tell_refusals(report.refusals)
        return report.made

    def _tell_refusals(self, refusals: Mapping[BatchId, str]) -> None:
        """Announce what was refused, of each batch now and then."""
        for batch in self._known.values():
            refusal = None if batch.number is None else refusals.get(batch.number)
            if refusal and self._told.due(batch.key.uid):
                self._told.failed(batch.key.uid)
                self._announce(batch, "ItemRefused", refusal)

    async def _show_all(self) -> int:
        now = self._clock.monotonic()
        due = {
            batch.number: batch
            for batch in self._known.values()
            if batch.number is not None
            and not batch.done
            and now - batch.shown_at >= self._settings.status_seconds
        }
        if not due:
            return 0
        rows = await store.statuses(self._connection, list(due), failures=MOST_FAILED)
        shown = 0
        try:
            for row in rows:
                shown += await self._show(due[row.batch_id], row)
        except Unreachable as error:
            log.warning("Batches cannot be shown", error=str(error))
        return shown

    async def _show(self, batch: KnownBatch, row: BatchStatus) -> bool:
        status = batch_status(row, **self._now(batch))
        try:
            written = await self._write(batch, status)
        except Unreachable:
            raise
        except KubeError as error:
            log.warning("A batch cannot be shown", batch=str(batch.key), error=str(error))
            return False
        batch.done = row.finished_at is not None and not batch.dirty
        return written

    async def _write(self, batch: KnownBatch, status: Mapping[str, Any]) -> bool:
        """Write a status that says something new, and announce that; tell whether it did."""
        before, key = batch.status, batch.key
        if status == before:
            return False
        batch.shown_at = self._clock.monotonic()
        there = await write_status(
            self._client,
            AGENT_RUN_BATCHES,
            key.namespace,
            key.name,
            uid=key.uid,
            status=status,
        )
        if not there:
            self.departed.suspect(key)
            return False
        batch.status = status
        for reason, note in events(before, status):
            self._announce(batch, reason, note)
        return True

    def _announce(self, batch: KnownBatch, reason: str, note: str) -> None:
        self._announcer.announce(
            Announcement(
                batch.key,
                reason,
                batch.number or batch.generation,
                cut(note, _NOTE_BYTES),
                datetime.now(UTC),
                about=AGENT_RUN_BATCHES,
            )
        )

    async def _expire(self) -> None:
        now = datetime.now(UTC)
        for batch in [it for it in self._known.values() if it.expired(now)]:
            uid = batch.key.uid
            if not self._put_off.due(uid):
                continue
            path = AGENT_RUN_BATCHES.path(batch.key.namespace, batch.key.name)
            try:
                await self._client.delete(path, uid=uid)
            except (NotFound, Conflict):
                pass  # gone, or another object has its name by now
            except KubeError as error:
                seconds = self._put_off.failed(uid)
                log.warning(
                    "A batch cannot be deleted",
                    batch=str(batch.key),
                    error=str(error),
                    again_in=seconds,
                )
                continue
            self.departed.suspect(batch.key)

    def _now(self, batch: KnownBatch) -> dict[str, Any]:
        return {
            "generation": batch.generation,
            "before": batch.status,
            "now": datetime.now(UTC),
        }
