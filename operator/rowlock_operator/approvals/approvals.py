"""Keeps one AgentRunApproval a question, and carries out what people decide with it.

A round takes the runs of the agenda and, in this order, gives their decisions to the database,
reads how their questions stand after that, and creates or shows what differs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain

import structlog

from rowlock.states import ApprovalPhase
from rowlock.store import questions as store
from rowlock.store.connection import Connection
from rowlock.store.questions import Question
from rowlock.store.types import RunSnapshot
from rowlock_operator import metrics as m
from rowlock_operator.approvals.agenda import Agenda
from rowlock_operator.approvals.deciding import carry_out
from rowlock_operator.approvals.manifest import manifest, name_of, shows
from rowlock_operator.approvals.objects import Name, Objects, is_of_a_run, run_of
from rowlock_operator.approvals.standing import (
    Standing,
    Step,
    approval_status,
    given,
    next_step,
    standing,
)
from rowlock_operator.approvals.telling import news_of
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import KubeError
from rowlock_operator.kube.resources import ObjectKey
from rowlock_operator.mirror.announcer import Announcer

log = structlog.get_logger(__name__)

_AT_ONCE = 50
_PAGE = 1000
_IDLE_SECONDS = 5.0

ByName = Mapping[str, Question]


@dataclass(frozen=True, slots=True)
class ApprovalsReport:
    """What one round did."""

    looked_at: int = 0
    failed: int = 0


class Approvals:
    """The runs whose questions have to be looked at, and the round that does so.

    Parameters
    ----------
    cluster, namespaces
        Whose questions; no namespaces for all.
    """

    def __init__(
        self,
        client: KubeClient,
        connection: Connection,
        announcer: Announcer,
        metrics: m.Metrics,
        *,
        cluster: str,
        namespaces: Sequence[str] = (),
    ) -> None:
        self._connection = connection
        self._announcer = announcer
        self._metrics = metrics
        self._cluster = cluster
        self._namespaces = tuple(namespaces)
        self._objects = Objects(client, namespaces=namespaces)
        self._agenda = Agenda()
        self._asking: dict[str, list[datetime]] = {}
        self._blocked: dict[Name, str] = {}
        self._all = False

    def put(self, seen: Seen) -> None:
        """Take an object that a watch showed."""
        if is_of_a_run(seen) and self._objects.take(seen):
            self._agenda.mark([run_of(seen)])
        if seen.gone and (uid := self._blocked.pop((seen.key.namespace, seen.key.name), None)):
            self._agenda.mark([uid])

    def note(self, snapshot: RunSnapshot) -> None:
        """Look at a run that changed, if it asks or asked something."""
        if snapshot.questions or snapshot.uid in self._asking:
            self._agenda.mark([snapshot.uid])

    def mark_all(self) -> None:
        """Compare all questions with all objects: what was missed ends there."""
        self._all = True
        self._agenda.wake()

    async def run_once(self) -> ApprovalsReport:
        """Look at some of the runs that are due."""
        if self._all:
            self._all = False
            try:
                await self._survey()
            except BaseException:
                self._all = True
                raise
        uids = self._agenda.take(now=time.monotonic(), limit=_AT_ONCE)
        if not uids:
            return ApprovalsReport()
        try:
            asked = await self._questions(uids)
            if await self._carry_out(asked.values()):
                asked = await self._questions(uids)
        except BaseException:
            self._agenda.mark(uids)
            raise
        done = await asyncio.gather(*(self._settle(uid, asked.get(uid, {})) for uid in uids))
        self._measure()
        return ApprovalsReport(len(uids), len(uids) - sum(done))

    async def pause(self, _report: ApprovalsReport) -> None:
        """Wait for something to do."""
        await self._agenda.wait(now=time.monotonic(), at_most=_IDLE_SECONDS)

    async def _survey(self) -> None:
        marked = {run_of(seen) for seen in await self._objects.refresh()} | self._asking.keys()
        wanted, after = self._namespaces or None, ""
        while True:
            page = await store.asking(
                self._connection,
                cluster=self._cluster,
                namespaces=wanted,
                after_uid=after,
                limit=_PAGE,
            )
            marked.update(page)
            if len(page) < _PAGE:
                break
            after = page[-1]
        self._agenda.mark(marked)

    async def _questions(self, uids: Sequence[str]) -> dict[str, ByName]:
        found = await store.questions_of(self._connection, cluster=self._cluster, uids=uids)
        return {
            uid: {name_of(question): question for question in questions}
            for uid, questions in found.items()
        }

    async def _carry_out(self, asked: Iterable[ByName]) -> bool:
        """Give decisions to the database; tell whether there were any."""
        found = (
            (question, self._objects.named(question.namespace, name))
            for questions in asked
            for name, question in questions.items()
        )
        return await carry_out(self._connection, self._metrics, found) > 0

    async def _settle(self, uid: str, asked: ByName) -> bool:
        """Bring the objects of one run in line; False if that has to be tried again."""
        try:
            again = await self._bring_in_line(uid, asked)
        except KubeError as error:
            wait = self._agenda.again(uid, now=time.monotonic())
            log.warning("Approvals cannot be shown yet", run=uid, error=str(error), wait=wait)
            return False
        except Exception:
            # One run whose questions cannot be shown must not hold up all others.
            self._agenda.again(uid, now=time.monotonic())
            log.exception("Approvals could not be shown", run=uid)
            return False
        self._count(uid, asked)
        if again:
            self._agenda.again(uid, now=time.monotonic())
        else:
            self._agenda.done(uid)
        return not again

    async def _bring_in_line(self, uid: str, asked: ByName) -> bool:
        """Create and show what differs; tell whether to look again."""
        again = False
        for name, question in asked.items():
            seen = self._objects.named(question.namespace, name)
            if next_step(question, seen) is Step.CREATE:
                seen = await self._create(question, name)
            if seen is not None and not seen.deleting:
                again |= not await self._show(question, seen)
        for seen in self._objects.of_run(uid):
            if seen.key.name not in asked and not seen.deleting:
                again |= not await self._show(None, seen)
        return again

    async def _create(self, question: Question, name: str) -> Seen | None:
        run = ObjectKey(question.namespace, question.name, question.uid)
        if not await self._objects.wanted(run):
            return None
        seen = await self._objects.create(manifest(question))
        if seen is not None and not shows(seen, question):
            # Somebody else's has the name: once it is deleted, ours can be made.
            self._blocked[question.namespace, name] = question.uid
        return seen

    async def _show(self, question: Question | None, seen: Seen) -> bool:
        """Bring one status up to date; False if it has to be looked at again."""
        stands = standing(question, seen)
        status = approval_status(stands, question, seen, now=datetime.now(UTC))
        waits = stands.phase is ApprovalPhase.PENDING and given(seen) is not None
        if status != seen.status:
            if not await self._objects.write(seen, status):
                return False
            self._tell(stands, question, seen)
        return not waits

    def _tell(self, stands: Standing, question: Question | None, seen: Seen) -> None:
        if seen.status.get("phase") == stands.phase or question is None:
            return
        self._metrics.add(m.APPROVALS, stands.phase.value)
        said = news_of(stands, question, seen)
        if said is not None:
            self._announcer.announce(said)

    def _count(self, uid: str, asked: ByName) -> None:
        self._asking.pop(uid, None)
        if waiting := [question.asked_at for question in asked.values() if question.open]:
            self._asking[uid] = waiting

    def _measure(self) -> None:
        since = list(chain.from_iterable(self._asking.values()))
        self._metrics.show(m.APPROVALS_WAITING, len(since))
        self._metrics.show(m.APPROVALS_OLDEST, min(since).timestamp() if since else 0)
