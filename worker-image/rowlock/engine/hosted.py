"""One run while this process holds it: from its claim to the row that ends its stay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import structlog

from rowlock.agents.protocol import Result
from rowlock.engine import builds, carry, endings
from rowlock.engine.endings import End, Ending, HandOver, Park
from rowlock.engine.journal import RunJournal
from rowlock.engine.lane import Lane, Leave, Release
from rowlock.engine.leaving import leave
from rowlock.engine.onloop import OnLoop
from rowlock.engine.prepared import Prepared, Surroundings
from rowlock.engine.waits import Wait
from rowlock.errors import NonDeterministic, RowRejected
from rowlock.options import RunOptions
from rowlock.states import FinalStatus
from rowlock.store.bodies import pack
from rowlock.store.types import Event, Final, Misfit, Verdict

log = structlog.get_logger(__name__)


class HostedRun:
    """Executes one run and writes how it ended.

    Parameters
    ----------
    on_settled
        Called once when this process has nothing more to do with the run.
        Gets the row that ended its stay, or None if the run was lost.
    """

    __slots__ = (
        "_around",
        "_begun",
        "_ended",
        "_ending",
        "_journal",
        "_lane",
        "_on_settled",
        "_prepared",
        "_settled",
        "_started",
        "_task",
        "_written_by",
        "claimed",
        "deadline_at",
        "options",
        "stopped_at",
    )

    def __init__(
        self,
        prepared: Prepared,
        around: Surroundings,
        on_settled: Callable[[HostedRun, Final | Release | Leave | None, Verdict], None],
    ) -> None:
        self.claimed = claimed = prepared.claimed
        self._prepared = prepared
        self._around = around
        self._on_settled = on_settled
        self._ending: Ending | None = None
        try:
            self.options = prepared.options()
        except msgspec.MsgspecError as error:
            self.options = RunOptions()
            self._ending = endings.bad_options(error)
        self._started = around.clock.monotonic()
        self.deadline_at = (
            self._started + self.options.active_deadline_seconds - claimed.active_ms / 1000
        )
        self._lane = Lane(
            claimed.run_id,
            epoch=claimed.epoch,
            attempt=claimed.attempt,
            next_seq=prepared.history[-1].seq + 1 if prepared.history else 1,
            owner=self,
        )
        self._journal: RunJournal | None = None
        self._task: asyncio.Task[None] | None = None
        #: The build that wrote its newest step; empty for none.
        self._written_by = ""
        self._begun = self._ended = self._settled = False
        #: Monotonic seconds at which the task was asked to end.
        self.stopped_at: float | None = None

    def start(self) -> None:
        """Write what others left for this owner, then execute the agent in a task of its own."""
        if self.claimed.carry:
            self._write_carry()
        early = self._early_ending()
        if early:
            self._end(early)
            return
        coroutine = OnLoop(self._execute(), self._around.board.cells, self.claimed.run_id)
        self._task = asyncio.get_running_loop().create_task(coroutine)

    def _early_ending(self) -> Ending | None:
        if self.claimed.cancelled:
            return endings.cancelled(None)
        if self._around.trust.draining:
            return HandOver()
        if self._prepared.unreadable:
            return self._failed(self._prepared.unreadable)
        return self._ending if self._prepared.body else endings.missing()

    def _write_carry(self) -> None:
        around, claimed, prepared = self._around, self.claimed, self._prepared
        steps = carry.finished_steps(prepared.history)
        for entry in carry.fresh(claimed, prepared.history):
            agent = prepared.revision.agent
            row = carry.lifecycle(entry, claimed, to=around.name, steps=steps)
            carry.announce(
                entry, claimed, agent=agent, to=around.name, steps=steps, tally=around.tally
            )
            event = self._lane.event(row.kind, row.key, row.body)
            around.writer.give(self._lane, event, len(row.body))

    async def _execute(self) -> None:
        self._begun = True
        # What the agent's code logs from here on, and what it calls, tells whose it is.
        structlog.contextvars.bind_contextvars(run=str(self.claimed.run_id))
        if self._ending:
            self._end(self._ending)
            return
        try:
            result = await self._course()
        except BaseException as error:  # an agent may raise SystemExit; the loop must not see it
            ending = self._ending or await self._misfit(error) or self._failed(error)
            self._end(self._ending or ending)
        else:
            ending = self._ending or endings.returned(
                result, max_result_bytes=self._around.max_result_bytes
            )
            self._end(ending, result)

    async def _course(self) -> Result:
        around, prepared = self._around, self._prepared
        self._written_by = builds.writer_of(prepared.history, self.claimed.carry)
        agent = around.load(prepared)
        value = agent.check_input(prepared.input())
        self._journal = around.journal(self.claimed)(
            self._lane,
            self.options,
            history=prepared.history,
            writer=around.writer,
            trust=around.trust,
            owner=self,
            max_body_bytes=around.max_result_bytes,
            seat=partial(around.executors.seat, prepared.revision.module),
            answers=prepared.answers,
            park_seconds=around.park_seconds,
        )
        self._prepared = Prepared(prepared.claimed, prepared.revision, None)
        del prepared  # a long history must not stay in memory twice
        return await agent.execute(self._journal, value)

    async def _misfit(self, error: BaseException) -> Ending | None:
        """Return what follows if another build wrote the history that this code does not match."""
        around, theirs = self._around, self._written_by
        if not isinstance(error, NonDeterministic) or theirs in ("", around.build):
            return None
        try:
            lives = await around.build_lives(theirs)
        except asyncio.CancelledError:
            return None  # somebody ends the run: that decides
        if lives:
            return HandOver(Misfit(theirs, builds.why(error, ours=around.build, theirs=theirs)))
        said = builds.why_none(error, ours=around.build, theirs=theirs)
        return self._failed(NonDeterministic(said))

    def _failed(self, error: BaseException) -> End:
        ending = endings.raised(error, attempt=self.claimed.attempt, options=self.options)
        log.warning(
            "Run failed",
            run=str(self.claimed.run_id),
            reason=ending.reason,
            attempt=self.claimed.attempt,
            retry_in_seconds=ending.retry_in_seconds,
            exc_info=error,
        )
        return ending

    def stop(self, ending: Ending) -> None:
        """End the run's task.

        `ending` stands, whatever the agent makes of that; the first one wins.
        """
        if self._ended or self._ending:
            return
        self._ending = ending
        self.stopped_at = self._around.clock.monotonic()
        # A task that is cancelled before its first step never runs the code that would end the run.
        if self._task is not None and self._begun:
            self._task.cancel()

    def abandon(self) -> None:
        """Let go of a task that does not end: its journal is closed, so it can do no harm."""
        if self._ending:
            self._end(self._ending)

    @property
    def steps_done(self) -> int:
        """How many steps finished here."""
        return self._journal.steps - self._journal.replayed if self._journal else 0

    @property
    def ended(self) -> bool:
        """Was the row that ends its stay given to the writer?"""
        return self._ended

    def drain(self) -> None:
        """End at the next moment when no effect is under way."""
        if self._journal is not None:
            self._journal.drain()

    def yield_now(self) -> None:
        """Go on elsewhere."""
        self.stop(HandOver())

    def park(self, waits: Sequence[Wait]) -> None:
        """Go on when one of `waits` is over."""
        self.stop(Park(tuple(waits)))

    def suspend(self) -> None:
        """Leave when no effect is under way, until somebody continues the run."""
        if self._journal is not None:
            self._journal.suspend()
        else:
            self.stop(Park())

    def _end(self, ending: Ending, result: Result | None = None) -> None:
        if self._ended:
            return
        self._ended = True
        lane, claimed = self._lane, self.claimed
        if isinstance(ending, End):
            final = self._final(ending, result)
            self._around.writer.give(lane, final, len(final.result or b""))
        elif isinstance(ending, HandOver):
            row = Release(claimed.run_id, claimed.epoch, self._active_ms(), ending.misfit)
            self._around.writer.give(lane, row)
        elif isinstance(ending, Park):
            gone = leave(
                ending,
                lane,
                claimed=claimed,
                options=self.options,
                active_ms=self._active_ms(),
                worker=self._around.name,
                build=self._around.build,
            )
            self._around.writer.give(lane, gone, len(gone.parked.body))
        lane.closed = True

    def _final(self, ending: End, result: Result | None) -> Final:
        journal = self._journal
        used = result if result is not None else journal
        good = ending.status is FinalStatus.SUCCEEDED and result is not None
        return Final(
            run_id=self.claimed.run_id,
            epoch=self.claimed.epoch,
            status=ending.status,
            reason=ending.reason,
            message=ending.message,
            outcome=ending.outcome,
            step=journal.steps if journal else carry.finished_steps(self._prepared.history),
            active_ms=self._active_ms(),
            tokens_in=used.tokens_in if used else 0,
            tokens_out=used.tokens_out if used else 0,
            cost_micro=used.cost_micro if used else 0,
            result=pack(result.body) if good and result else None,
            retry_in_seconds=ending.retry_in_seconds,
        )

    def stand_still(self, seconds: float) -> None:
        """Leave `seconds` out of the time that the run was active."""
        self._started += seconds
        self.deadline_at += seconds

    def _active_ms(self) -> int:
        elapsed = self._around.clock.monotonic() - self._started
        return self.claimed.active_ms + int(elapsed * 1000)

    def settled(self, row: Final | Release | Leave, verdict: Verdict) -> None:
        """The writer has written `row`."""
        if not self._settled:
            self._settled = True
            self._on_settled(self, row, verdict)
            self._let_go()

    def lost(self) -> None:
        """Stop quietly: another worker owns the run."""
        self.stop(endings.Nothing())
        self._ended = True
        if not self._settled:
            self._settled = True
            self._on_settled(self, None, Verdict.LOST)
            self._let_go()

    def _let_go(self) -> None:
        """Forget what points back here: a cycle would stay until the collector looks for it."""
        self._task = self._journal = None
        del self._lane

    def rejected(self, row: Event, error: RowRejected) -> None:
        """One of the run's steps can never be stored."""
        self.stop(endings.unstorable(row.key, error))
