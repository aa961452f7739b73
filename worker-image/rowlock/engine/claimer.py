"""Keeps the free slots of one loop process filled.

One statement asks for all free slots at once; how soon the next one follows is `pace`'s business.
While more is queued, freed slots are gathered for 10 ms, for few runs cost as much as many.
The end of a run of a capped agent makes room for another: that is promoted, then claimed, at once.

A claim whose answer got lost may have leased runs that nobody here knows.
So after any error the store is asked for them under a new token,
which also makes sure that the lost statement does nothing if it is still on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import structlog

from rowlock import metrics
from rowlock.clock import Clock
from rowlock.engine.backoff import backoff_seconds
from rowlock.engine.desk import Desk
from rowlock.engine.pace import GATHER_SECONDS, ClaimReport, Pace, enough
from rowlock.engine.prepared import Prepared, Revision
from rowlock.engine.runner import Runner
from rowlock.errors import StoreError
from rowlock.metrics import Tally
from rowlock.states import EventKind
from rowlock.store.types import AgentId, Answer, Claimed, Event, RevisionId, RunBody

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: What a row raises that this version cannot make sense of.
_UNREADABLE = (ValueError, TypeError, LookupError)


class Claimer:
    """Claims runs, reads what they need, and starts them.

    Parameters
    ----------
    lag
        Returns how late the loop woke up of late, in seconds.
    on_fenced
        Called once when PostgreSQL says that this worker is fenced.
    """

    def __init__(
        self,
        desk: Desk,
        runner: Runner,
        *,
        lag: Callable[[], float],
        clock: Clock,
        tally: Tally,
        on_fenced: Callable[[], None],
    ) -> None:
        self._desk = desk
        self._runner = runner
        self._lag = lag
        self._clock = clock
        self._tally = tally
        self._on_fenced = on_fenced
        self._revisions: dict[RevisionId, Revision] = {}
        #: Agents with caps, as far as this process was told.
        self.capped: frozenset[AgentId] = frozenset()
        self._left: set[AgentId] = set()
        self._pace = Pace()
        self._unsure = False
        self._gathering: asyncio.TimerHandle | None = None
        self._woken = asyncio.Event()
        self._stopped = False

    def stop(self) -> None:
        """Claim nothing more; `run` returns after the statement under way."""
        self._stopped = True
        self._woken.set()

    def look(self) -> None:
        """Claim now: something came into the queue."""
        self._woken.set()

    def freed(self, agent: AgentId) -> None:
        """A run of `agent` left its slot: if more is queued, ask for a few together."""
        if agent in self.capped:
            self._left.add(agent)
            self._woken.set()
            return
        if not self._pace.hungry:
            return
        if enough(self._runner.free, slots=self._runner.slots):
            self._woken.set()
        elif self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHER_SECONDS, self._woken.set)

    async def run(self) -> None:
        """Claim until stopped."""
        failures = 0
        while not self._stopped:
            try:
                report = await self.run_once()
            except Exception as error:
                failures += 1
                self._note_failure(error, failures)
                await self._clock.sleep(backoff_seconds(failures))
            else:
                failures = 0
                await self._wait(self._pace.pause_after(report, free=self._runner.free))

    def _note_failure(self, error: Exception, failures: int) -> None:
        self._unsure = True
        self._pace.restart()
        self._tally.add(metrics.CLAIMS, "error")
        if not isinstance(error, StoreError):
            log.error("A claim met an unexpected error", exc_info=error)
        elif failures == 1:
            log.warning("PostgreSQL did not answer a claim", error=str(error))

    async def run_once(self) -> ClaimReport:
        """Do one round: find lost claims if there may be any, else claim for the free slots."""
        if self._unsure:
            await self._adopt()
        if self._left:
            await self._promote()
        limit = self._limit()
        if limit <= 0:
            return ClaimReport(asked=0)
        claimed = await self._desk.claim(token=time.monotonic_ns(), limit=limit)
        if claimed is None:
            self._fenced()
            return ClaimReport(asked=0)
        report = ClaimReport(asked=limit, got=len(claimed))
        self._count(report)
        await self._take(claimed)
        return report

    def _limit(self) -> int:
        if self._stopped:
            return 0
        limit = self._pace.limit(free=self._runner.free, slots=self._runner.slots, lag=self._lag())
        if self._pace.held_back and limit == 0:
            self._tally.add(metrics.CLAIMS, "held_back")
        return limit

    def _count(self, report: ClaimReport) -> None:
        result = "full" if report.full else "partial" if report.got else "empty"
        self._tally.add(metrics.CLAIMS, result)
        if report.got:
            self._tally.add(metrics.RUNS_CLAIMED, by=report.got)

    async def _promote(self) -> None:
        """Let others of these agents start; what fails here is left to the supervisors' rounds."""
        left, self._left = self._left, set()
        for agent in left:
            try:
                promoted = await self._desk.promote(agent)
            except StoreError as error:
                self._tally.add(metrics.STORE_ERRORS, "claimer")
                log.warning("PostgreSQL did not answer a promotion", error=str(error))
            else:
                self._tally.add(metrics.RUNS_PROMOTED, by=promoted)

    async def _adopt(self) -> None:
        found = await self._desk.adopt(token=time.monotonic_ns(), known=self._runner.known())
        if found is None:
            self._fenced()
            return
        self._unsure = False
        if found:
            log.info("Runs of a claim whose answer was lost are adopted", runs=len(found))
            self._tally.add(metrics.ADOPTED, by=len(found))
            await self._take(found)

    def _fenced(self) -> None:
        self._stopped = True
        self._on_fenced()

    async def _take(self, claimed: Sequence[Claimed]) -> None:
        """Read what the runs need and start them; they are ours, so this does not give up."""
        if not claimed:
            return
        ids = [run.run_id for run in claimed]
        self._runner.reserve(ids)
        try:
            bodies = await self._patiently(partial(self._desk.bodies, ids))
            for run in claimed:
                self._runner.start(await self._prepare(run, bodies.get(run.run_id)))
        finally:
            # Only an error of our own leaves any; the next `adopt` finds them again.
            self._runner.unreserve(ids)

    async def _prepare(self, run: Claimed, body: RunBody | None) -> Prepared:
        revision = await self._revision(run.revision_id)
        try:
            history = await self._history(run)
            return Prepared(run, revision, body, history, answers=await self._answers(run, history))
        except _UNREADABLE as error:
            return Prepared(run, revision, body, unreadable=error)

    async def _history(self, run: Claimed) -> Sequence[Event]:
        if run.epoch == 1 and run.attempt == 1:
            return ()  # nobody can have written any
        return await self._patiently(partial(self._desk.history, run.run_id))

    async def _answers(self, run: Claimed, history: Sequence[Event]) -> Sequence[Answer]:
        if not any(event.kind is EventKind.PARKED for event in history):
            return ()  # a question is asked by the statement that parks
        return await self._patiently(partial(self._desk.answers, run.run_id))

    async def _revision(self, revision_id: RevisionId) -> Revision:
        known = self._revisions.get(revision_id)
        if known is None:
            known = await self._patiently(partial(self._desk.revision, revision_id))
            self._revisions[revision_id] = known
        return known

    async def build_lives(self, build: str) -> bool:
        """Tell whether a worker of that build may take a run."""
        return await self._patiently(partial(self._desk.build_lives, build))

    async def _patiently(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read again and again until PostgreSQL answers: giving up would strand claimed runs."""
        failures = 0
        while True:
            try:
                return await read()
            except _UNREADABLE:
                raise
            except Exception as error:
                failures += 1
                self._tally.add(metrics.STORE_ERRORS, "claimer")
                if not isinstance(error, StoreError):
                    log.error("A read met an unexpected error", exc_info=error)
                elif failures == 1:
                    log.warning("PostgreSQL did not answer a read", error=str(error))
                await self._clock.sleep(backoff_seconds(failures))

    async def _wait(self, seconds: float) -> None:
        if not self._stopped and seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()
        self._woken.clear()
        if self._gathering:
            self._gathering.cancel()
            self._gathering = None
