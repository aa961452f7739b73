"""Takes a batch of AgentRuns into the database: look up, resolve, enqueue, tell.

Every step may be repeated: after an error the inbox hands the same objects over again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog

from rowlock.errors import RowRejected, StoreUnavailable
from rowlock.states import FailureReason, WaitReason
from rowlock.store import batch_objects, changes, expiry, parking, priority, redrive
from rowlock.store import intake as store
from rowlock.store.batch_objects import Made, may_be_ours
from rowlock.store.connection import Connection
from rowlock.store.expiry import TimeToLive
from rowlock.store.types import Enqueued, Redriving, RunId, Submission
from rowlock_operator import metrics as m
from rowlock_operator.intake.departures import DELETION, Departures
from rowlock_operator.intake.enqueuer import Answer, Enqueuer, ttls_of_new
from rowlock_operator.intake.holds import Holds
from rowlock_operator.intake.lookups import Lookups
from rowlock_operator.intake.resolver import Accepted, Refused, Resolution, Waits
from rowlock_operator.intake.seen import Seen
from rowlock_operator.intake.sorting import Sort, may_have_row, sort
from rowlock_operator.intake.waiting import Waiting, WaitingRun
from rowlock_operator.mirror.desk import StatusDesk
from rowlock_operator.mirror.noticeboard import NoticeBoard
from rowlock_operator.mirror.notices import EndNotice, RedriveNotice, SeenNotice, WaitNotice

log = structlog.get_logger(__name__)

#: Who asks, where a person changed this field.
_FIELD = "spec.desiredState"


@dataclass(frozen=True, slots=True)
class AdmissionReport:
    """What became of a batch."""

    taken: int = 0
    enqueued: int = 0
    waits: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlets:
    """Where admission leaves what others carry on."""

    statuses: StatusDesk
    notices: NoticeBoard
    departures: Departures
    waiting: Waiting
    holds: Holds


@dataclass(frozen=True, slots=True)
class _Batch:
    """Objects with what is to be done with each, and the rows that some have."""

    objects: Sequence[Seen]
    sorts: dict[str, Sort]
    rows: dict[str, RunId]

    def of(self, *kinds: Sort) -> list[Seen]:
        return [seen for seen in self.objects if self.sorts[seen.key.uid] in kinds]


class Admission:
    """Decides what becomes of AgentRuns, and does it."""

    def __init__(
        self,
        connection: Connection,
        lookups: Lookups,
        outlets: Outlets,
        *,
        cluster: str,
        metrics: m.Metrics,
    ) -> None:
        self._connection = connection
        self._lookups = lookups
        self._to = outlets
        self._cluster = cluster
        self._metrics = metrics
        self._enqueuer = Enqueuer(connection, cluster=cluster)

    async def admit(self, objects: Sequence[Seen]) -> AdmissionReport:
        """Take in a batch.

        Raises
        ------
        StoreUnavailable, KubeError
            Something is away; hand over the same batch again.
        """
        try:
            return await self._admit(objects)
        except StoreUnavailable:
            self._tell_pending(objects)
            raise

    async def _admit(self, objects: Sequence[Seen]) -> AdmissionReport:
        batch = await self._sorted(await self._new_to_us(objects))
        resolved = await self._lookups.resolve(batch.of(Sort.RESOLVE))
        # Before anything else is awaited: an Agent that appears from now on must find its runs.
        self._await_what_is_missing(resolved)
        accepted = [(seen, it) for seen, it in resolved if isinstance(it, Accepted)]
        answers = await self._enqueuer.enqueue(accepted)
        await self._settle(batch, accepted, answers)
        # A run that stays cancelled answers a re-drive by one more attempt that is cancelled.
        refused = await self._redrive(batch)
        await self._cancel(batch)
        await self._suspend(batch, answers)
        await self._show(batch, but=refused)
        # From here on nothing can fail, so nothing is told twice.
        self._hold(batch, answers)
        self._tell_refused_redrives(batch, refused)
        self._tell_rowless(batch)
        self._tell_resolved(resolved)
        self._tell_answers(answers)
        return self._report(batch, resolved, answers)

    async def _new_to_us(self, objects: Sequence[Seen]) -> Sequence[Seen]:
        """Leave out those that the batches made for items whose run is not there yet.

        One whose run is there gets it here, if its creator died before it could say so.
        """
        made = [
            Made(seen.key.namespace, seen.key.name, seen.key.uid, seen.generation)
            for seen in objects
            if not seen.gone and seen.run_id is None and may_be_ours(seen.key.name)
        ]
        ours = await batch_objects.link(self._connection, made, cluster=self._cluster)
        linked = [run for run in ours.values() if run is not None]
        if linked:
            await changes.recreate_changes(self._connection, linked)
        return [seen for seen in objects if seen.key.uid not in ours]

    async def _sorted(self, objects: Sequence[Seen]) -> _Batch:
        for seen in objects:
            if not seen.gone:
                self._to.statuses.note(
                    seen.key, generation=seen.generation, version=seen.version, status=seen.status
                )
        asked = [seen.key.uid for seen in objects if may_have_row(seen)]
        rows: dict[str, RunId] = {}
        if asked:
            rows = await store.run_ids_by_object(
                self._connection, cluster=self._cluster, uids=asked
            )
        sorts = {seen.key.uid: sort(seen, has_row=seen.key.uid in rows) for seen in objects}
        return _Batch(objects, sorts, rows)

    async def _settle(
        self,
        batch: _Batch,
        accepted: Sequence[tuple[Seen, Accepted]],
        answers: Sequence[tuple[Seen, Answer]],
    ) -> None:
        """Bring to the database what may change after a run was accepted."""
        known = batch.of(Sort.SHOW, Sort.CANCEL)
        ttls = ttls_of_new(accepted, answers)
        ttls += [TimeToLive(batch.rows[seen.key.uid], seen.ttl) for seen in known]
        await expiry.set_ttl(self._connection, ttls)
        waiting = [seen for seen in batch.of(Sort.SHOW) if "startTime" not in seen.status]
        priorities = {batch.rows[seen.key.uid]: seen.priority for seen in waiting}
        await priority.set_priorities(self._connection, priorities)

    def _hold(self, batch: _Batch, answers: Sequence[tuple[Seen, Answer]]) -> None:
        """Have finalizers added to new objects, and looked at on those that are deleted."""
        keys = [seen.key for seen in batch.objects if seen.held and not seen.gone]
        if self._to.holds.enabled:
            keys += [seen.key for seen, _ in answers if not seen.held]
        self._to.holds.look_at(keys)

    async def _cancel(self, batch: _Batch) -> None:
        wishes: dict[tuple[str, str | None], list[RunId]] = defaultdict(list)
        for seen in batch.of(Sort.CANCEL):
            by = DELETION if seen.deleting else _FIELD
            wishes[by, seen.spec.get("desiredStateReason")].append(batch.rows[seen.key.uid])
        for (by, reason), run_ids in wishes.items():
            await store.request_cancel(self._connection, run_ids, by=by, reason=reason)

    async def _redrive(self, batch: _Batch) -> dict[str, Redriving]:
        """Ask for the attempts that are wished for, and return by uid which were refused."""
        refused: dict[str, Redriving] = {}
        for seen in batch.of(Sort.SHOW, Sort.CANCEL):
            if seen.redrive and not seen.deleting:
                run_id = batch.rows[seen.key.uid]
                by = f"spec.redrive {seen.redrive}"
                outcome = await redrive.redrive_once(self._connection, run_id, by=by)
                no = outcome in (Redriving.HISTORY_EXPIRED, Redriving.UNKNOWN)
                if no:
                    refused[seen.key.uid] = outcome
                say = log.warning if no else log.info
                say("A re-drive was asked for", run=str(seen.key), outcome=outcome.value)
        return refused

    def _tell_refused_redrives(self, batch: _Batch, refused: Mapping[str, Redriving]) -> None:
        """Say on the object itself that it does not run again; its row says nothing of it."""
        for seen in batch.objects:
            if seen.key.uid in refused:
                expired = refused[seen.key.uid] is Redriving.HISTORY_EXPIRED
                reason = FailureReason.HISTORY_EXPIRED if expired else FailureReason.ROW_MISSING
                notice = RedriveNotice(reason, seen.redrive)
                self._to.notices.post(seen.key, seen.generation, notice)

    async def _suspend(self, batch: _Batch, answers: Sequence[tuple[Seen, Answer]]) -> None:
        """Hold what is to be held, and let go of what our own field held before."""
        rows = [(seen, batch.rows[seen.key.uid]) for seen in batch.of(Sort.SHOW)]
        known = [(seen, run_id) for seen, run_id in rows if not seen.suspended]
        rows += [(seen, it.run_id) for seen, it in answers if isinstance(it, Enqueued)]
        wishes: dict[str | None, list[RunId]] = defaultdict(list)
        for seen, run_id in rows:
            if seen.suspended:
                wishes[seen.spec.get("desiredStateReason")].append(run_id)
        for reason, run_ids in wishes.items():
            await parking.request_suspend(self._connection, run_ids, by=_FIELD, reason=reason)
        if known:
            free = [run_id for _, run_id in known]
            await parking.request_continue(self._connection, free, asked_by=_FIELD)

    async def _show(self, batch: _Batch, *, but: Collection[str]) -> None:
        shown = [
            batch.rows[seen.key.uid]
            for seen in batch.of(Sort.CANCEL, Sort.SHOW)
            if seen.key.uid not in but
        ]
        if shown:
            await changes.recreate_changes(self._connection, shown)

    def _await_what_is_missing(self, resolved: Sequence[tuple[Seen, Resolution]]) -> None:
        for seen, it in resolved:
            if isinstance(it, Waits):
                self._to.waiting.add(WaitingRun(seen.key, it.reason, it.agent, it.pool))

    def _tell_pending(self, objects: Sequence[Seen]) -> None:
        """Say of objects that say nothing yet why that is so."""
        notice = WaitNotice(WaitReason.DATABASE_UNAVAILABLE, "PostgreSQL does not answer")
        for seen in objects:
            if not seen.status and not seen.gone and not seen.deleting:
                self._to.notices.post(seen.key, seen.generation, notice)

    def _tell_rowless(self, batch: _Batch) -> None:
        for seen in batch.of(Sort.DEPART, Sort.IGNORE, Sort.REFUSE_CANCELLED):
            self._to.waiting.discard(seen.key.uid)
            self._to.notices.withdraw(seen.key.uid)
        for seen in batch.of(Sort.DEPART):
            self._to.departures.suspect(seen.key)
        for seen in batch.of(Sort.REFUSE_CANCELLED):
            self._refuse(seen, FailureReason.CANCELLED, "cancelled before it was taken in")
        for seen in batch.of(Sort.SHOW_REFUSAL):
            again = RedriveNotice(FailureReason.ROW_MISSING, seen.redrive)
            notice = again if seen.redrive else SeenNotice()
            self._to.notices.post(seen.key, seen.generation, notice)

    def _tell_resolved(self, resolved: Sequence[tuple[Seen, Resolution]]) -> None:
        for seen, it in resolved:
            if isinstance(it, Waits):
                notice = WaitNotice(it.reason, it.message)
                self._to.notices.post(seen.key, seen.generation, notice)
                continue
            self._to.waiting.discard(seen.key.uid)
            if isinstance(it, Refused):
                self._refuse(seen, it.reason, it.message)

    def _tell_answers(self, answers: Sequence[tuple[Seen, Answer]]) -> None:
        for seen, answer in answers:
            if isinstance(answer, RowRejected):
                self._refuse(seen, FailureReason.INVALID_SPEC, str(answer))
            elif answer.outcome is Submission.DUPLICATE_KEY:
                self._refuse(seen, FailureReason.DUPLICATE_IDEMPOTENCY_KEY, _first(answer))
            else:
                self._to.notices.withdraw(seen.key.uid)

    def _refuse(self, seen: Seen, reason: FailureReason, message: str) -> None:
        log.info("An AgentRun was refused", run=str(seen.key), reason=reason.value)
        self._to.notices.post(seen.key, seen.generation, EndNotice(reason, message))

    def _report(
        self,
        batch: _Batch,
        resolved: Sequence[tuple[Seen, Resolution]],
        answers: Sequence[tuple[Seen, Answer]],
    ) -> AdmissionReport:
        outcomes = [getattr(answer, "outcome", None) for _, answer in answers]
        counts = {
            "enqueued": outcomes.count(Submission.CREATED),
            "known": len(batch.rows) + outcomes.count(Submission.EXISTS),
            "duplicate": outcomes.count(Submission.DUPLICATE_KEY),
            "waits": sum(isinstance(it, Waits) for _, it in resolved),
            "refused": sum(isinstance(it, Refused) for _, it in resolved) + outcomes.count(None),
            "cancelled": len(batch.of(Sort.CANCEL, Sort.REFUSE_CANCELLED)),
        }
        for outcome, count in counts.items():
            self._metrics.add(m.INTAKE, outcome, by=count)
        self._metrics.show(m.WAITING_RUNS, len(self._to.waiting))
        return AdmissionReport(
            taken=len(batch.objects),
            enqueued=counts["enqueued"],
            waits=counts["waits"],
            refused=counts["refused"] + counts["duplicate"],
        )


def _first(answer: Enqueued) -> str:
    return f"idempotencyKey is held by {answer.holder or f'run {answer.run_id}'}"
