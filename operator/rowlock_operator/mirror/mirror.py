"""Shows what changed in the database: the loop from `run_change` to statuses and Events.

A change is deleted when its run's status stands on the API server and its Event is written (or
given up), never before, and exactly that row: numbers of changes may become visible out of order.
So an operator that is killed loses no Event: the next one shows the change again, finds the status
as it should be, and writes the Event, whose name is made of the change's number.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock.errors import RowlockError
from rowlock.states import ChangeKind, Place
from rowlock.store import changes as store
from rowlock.store import expiry
from rowlock.store.connection import Connection
from rowlock.store.types import Change, RunId, RunSnapshot
from rowlock_operator import metrics as m
from rowlock_operator.kube.errors import KubeError
from rowlock_operator.kube.resources import ObjectKey
from rowlock_operator.mirror.announcements import announcement
from rowlock_operator.mirror.announcer import Announcer
from rowlock_operator.mirror.backlog import Backlog, Entry
from rowlock_operator.mirror.desk import Shown, StatusDesk
from rowlock_operator.mirror.scope import Scope
from rowlock_operator.mirror.score import Score, score
from rowlock_operator.mirror.status import run_status

log = structlog.get_logger(__name__)

_PAGE = 500
_MOST_WAITING = 5000
_LOOK_BACK_SECONDS = 1.0
_FORGET_SECONDS = 0.5
_PARKED_SECONDS = 600.0


class Gone(Protocol):
    """Takes in runs whose object is not there any more."""

    def suspect(self, key: ObjectKey) -> None:
        """Have it looked at."""
        ...


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """How the mirror works.

    Parameters
    ----------
    delay
        Seconds that a change which is not urgent waits for more of its run.
    batch
        Runs shown in one round; a takeover may have to wait for a round to end.
    """

    delay: float = 0.3
    batch: int = 100


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """What one round did."""

    read: int = 0
    shown: int = 0
    failed: int = 0
    left: int = 0


class Mirror:
    """Reads changes, shows their runs, deletes the changes."""

    def __init__(
        self,
        connection: Connection,
        desk: StatusDesk,
        announcer: Announcer,
        *,
        scope: Scope,
        gone: Gone,
        metrics: m.Metrics,
        settings: MirrorSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._connection = connection
        self._desk = desk
        self._announcer = announcer
        self._scope = scope
        self._gone = gone
        #: Called with a run that changed, before its status is shown.
        self.on_change: Callable[[RunSnapshot], None] = lambda _: None
        self._metrics = metrics
        #: Called with a run whose end stands in its status.
        self.on_end: Callable[[RunId], None] = lambda _: None
        self._settings = settings or MirrorSettings()
        self._clock = clock or SystemClock()
        self._backlog = Backlog(delay=self._settings.delay)
        self._after = 0
        self._looked_back_at = float("-inf")
        self._parked: set[RunId] = set()
        self._over: list[int] = []
        self._forgot_at = float("-inf")
        self.shown_at: float | None = None

    def waits(self, run_id: RunId) -> bool:
        """Tell whether a change of the run was read and not shown yet."""
        return run_id in self._backlog

    async def run_once(self) -> MirrorReport:
        """Read what is new and show what is due."""
        read = await self._read()
        due = self._backlog.due(now=self._clock.monotonic(), limit=self._settings.batch)
        shown = await self._show(due) if due else 0
        self._over += self._announcer.settled()
        if self._is_time_to_forget():
            await self.forget()
        self._measure()
        return MirrorReport(read, shown, len(due) - shown, self._backlog.runs)

    async def _read(self) -> int:
        """Read changes after the last one seen, and once a second from the beginning.

        A lower number may be committed later than a higher one.
        """
        now = self._clock.monotonic()
        if now - self._looked_back_at >= _LOOK_BACK_SECONDS:
            self._after, self._looked_back_at = 0, now
        new = 0
        while self._backlog.runs - len(self._parked) < _MOST_WAITING:
            page = await store.unshown(self._connection, limit=_PAGE, after=self._after)
            new += self._backlog.add(self._scope.may_be_ours(page), now=now)
            if page:
                self._after = page[-1].seq
            if len(page) < _PAGE:
                break
        return new

    async def forget(self) -> None:
        """Delete the changes that nothing waits for any more."""
        self._over += self._announcer.settled()
        if self._over:
            await store.shown(self._connection, self._over)
            self._backlog.let_go(self._over)
        self._over, self._forgot_at = [], self._clock.monotonic()

    def _is_time_to_forget(self) -> bool:
        """Tell whether a commit is worth while: Events end one by one, at a rate of their own."""
        waited = self._clock.monotonic() - self._forgot_at
        return len(self._over) >= _PAGE or waited >= _FORGET_SECONDS

    async def _show(self, due: list[Entry]) -> int:
        snapshots, unreadable = await self._snapshots([entry.run_id for entry in due])
        due = [entry for entry in due if entry.run_id not in unreadable]
        work = []
        for entry in due:
            if self._scope.leaves(snapshots.get(entry.run_id)):
                self._backlog.done(entry.run_id, list(entry.changes))
            else:
                work.append((entry.run_id, tuple(entry.changes.values())))
                if snapshot := snapshots.get(entry.run_id):
                    with self._whatever_happens("approvals", snapshot):
                        self.on_change(snapshot)
        done = await asyncio.gather(
            *(self._show_one(changes, snapshots.get(run_id)) for run_id, changes in work)
        )
        shown = [
            (run_id, [change.seq for change in changes], announced)
            for (run_id, changes), announced in zip(work, done, strict=True)
            if announced is not None
        ]
        # Before the changes may go: they are what reminds of it.
        ended = [run_id for run_id, _, _ in shown if _has_ended(snapshots.get(run_id))]
        await expiry.time_ends(self._connection, ended)
        for run_id, seqs, announced in shown:
            self._parked.discard(run_id)
            self._backlog.keep(seqs)
            self._backlog.done(run_id, seqs)
            self._over += [seq for seq in seqs if seq not in announced]
        return len(shown)

    async def _snapshots(self, run_ids: list[RunId]) -> tuple[dict[RunId, RunSnapshot], set[RunId]]:
        """Read what there is to show; runs that cannot be read are put off, and returned too."""
        try:
            return await store.snapshots(self._connection, run_ids), set()
        except RowlockError:
            raise
        except Exception:
            if len(run_ids) == 1:
                self._put_off(run_ids[0])
                return {}, set(run_ids)
        middle = len(run_ids) // 2
        first, bad = await self._snapshots(run_ids[:middle])
        second, worse = await self._snapshots(run_ids[middle:])
        return first | second, bad | worse

    def _put_off(self, run_id: RunId) -> None:
        self._metrics.add(m.MIRROR_ERRORS, "row")
        log.exception("A row cannot be read", run=str(run_id))
        self._parked.add(run_id)
        self._backlog.retry(run_id, now=self._clock.monotonic(), floor=_PARKED_SECONDS)

    async def _show_one(
        self, changes: tuple[Change, ...], snapshot: RunSnapshot | None
    ) -> set[int] | None:
        """Show one run; return the changes whose Events wait, or None if it must be tried again."""
        if snapshot is None:  # unlinked meanwhile: there is nobody to show it to
            return set()
        run_id = snapshot.run_id
        key = ObjectKey(snapshot.namespace, snapshot.name, snapshot.uid)
        fresh = any(change.again for change in changes)
        replaced: Mapping[str, Any] = {}

        def build(before: Mapping[str, Any]) -> dict[str, Any] | None:
            nonlocal replaced
            replaced = before
            return self._status(snapshot, before)

        try:
            shown = await self._desk.show(key, build, fresh=fresh)
        except KubeError as error:
            wait = self._backlog.retry(run_id, now=self._clock.monotonic())
            log.warning(
                "A status could not be shown yet", run=str(key), error=str(error), wait=wait
            )
            return None
        except Exception:
            # One run that cannot be shown must not hold up all others.
            self._metrics.add(m.MIRROR_ERRORS, "status")
            log.exception("A status could not be built", run=str(key))
            shown = Shown.PARKED
        if shown is Shown.WRITTEN:
            with self._whatever_happens("metrics", snapshot):
                self._count(changes, score(replaced, snapshot))
        return self._settle(key, changes, snapshot, shown)

    def _status(self, snapshot: RunSnapshot, before: Mapping[str, Any]) -> dict[str, Any] | None:
        if int(before.get("revision") or 0) > snapshot.revision:
            return None
        generation = max(
            snapshot.generation,
            self._desk.generation(snapshot.uid),
            int(before.get("observedGeneration") or 0),
        )
        return run_status(snapshot, generation=generation, before=before, now=datetime.now(UTC))

    def _settle(
        self, key: ObjectKey, changes: tuple[Change, ...], snapshot: RunSnapshot, shown: Shown
    ) -> set[int] | None:
        if shown is Shown.PARKED:
            self._parked.add(snapshot.run_id)
            self._backlog.retry(snapshot.run_id, now=self._clock.monotonic(), floor=_PARKED_SECONDS)
            return None
        self._parked.discard(snapshot.run_id)
        if shown is Shown.GONE:
            self._gone.suspect(key)
            return set()
        return self._announce(changes, snapshot)

    def _announce(self, changes: tuple[Change, ...], snapshot: RunSnapshot) -> set[int]:
        news = [change for change in changes if not change.again]
        if _has_ended(snapshot) and any(it.kind is ChangeKind.ENDED for it in news):
            with self._whatever_happens("trace", snapshot):
                self.on_end(snapshot.run_id)
        waiting = set()
        for change in news:
            with self._whatever_happens("event", snapshot):
                said = announcement(change, snapshot)
                if said and self._announcer.announce(said):
                    waiting.add(said.number)
        return waiting

    @contextmanager
    def _whatever_happens(self, part: str, snapshot: RunSnapshot) -> Iterator[None]:
        """Go on after an error: one run that a part cannot cope with must not end all others."""
        try:
            yield
        except Exception:
            self._metrics.add(m.MIRROR_ERRORS, part)
            log.exception("A change could not be worked with", part=part, run=str(snapshot.run_id))

    def _count(self, changes: tuple[Change, ...], new: Score) -> None:
        self.shown_at = time.monotonic()
        now = time.time()
        for change in changes:
            self._metrics.observe(m.MIRROR_LAG, max(0.0, now - change.at.timestamp()))
        if new.started:
            self._metrics.add(m.RUNS_STARTED)
        if new.ended:
            self._metrics.add(m.RUNS_FINISHED, new.ended)
        if new.failure:
            self._metrics.add(m.RUNS_FAILED, new.failure)
        for reason in new.takeovers:
            self._metrics.add(m.TAKEOVERS, reason or "Unknown")
        for seconds in new.recoveries:
            self._metrics.observe(m.TAKEOVER_RECOVERY, max(0.0, seconds))

    def _measure(self) -> None:
        oldest = self._backlog.oldest()
        self._metrics.show(m.MIRROR_BACKLOG, len(self._backlog))
        self._metrics.show(m.MIRROR_OLDEST, oldest.at.timestamp() if oldest else 0)
        self._metrics.show(m.STATUS_PARKED, len(self._parked))


def _has_ended(snapshot: RunSnapshot | None) -> bool:
    return snapshot is not None and snapshot.place is Place.FINAL
