"""All steps of one execution of one run: ask the history first, do only what it does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from rowlock.agents.budget import NO_BUDGET, Budget, Spending, difference
from rowlock.agents.context import CURRENT, NO_TOKENS, Call, Tokens, Totals
from rowlock.agents.execution import Execution
from rowlock.agents.problems import Misfit
from rowlock.agents.protocol import Journal, Question
from rowlock.agents.questions import denial
from rowlock.agents.record import Decision, Dropped, OutcomeUnknown, Record, Verdict, judge
from rowlock.agents.work import Work
from rowlock.clock import Clock
from rowlock.errors import AgentError, ApprovalDenied, NonDeterministic, StepFailed
from rowlock.options import ToolRule
from rowlock.states import EventKind

T = TypeVar("T")

_NO_RULES: Mapping[str, ToolRule] = {}


class Wait(msgspec.Struct, array_like=True):
    """The body of a sleep's entry."""

    seconds: float
    attempt: int


_decode_wait = msgspec.json.Decoder(Wait).decode


class Steps:
    """What a run has done so far, and the way to do more.

    Parameters
    ----------
    clock
        Measures how long a step took; waiting is the journal's.
    budget
        What the agent may use up.
    """

    __slots__ = (
        "_clock",
        "_dropped",
        "_running",
        "finished",
        "journal",
        "rules",
        "spending",
        "totals",
    )

    def __init__(self, journal: Journal, clock: Clock, budget: Budget = NO_BUDGET) -> None:
        self.journal = journal
        #: By the name of a tool: how the Agent object makes it stricter.
        self.rules: Mapping[str, ToolRule] = _NO_RULES
        if journal.options.tools:
            self.rules = {rule.name: rule for rule in journal.options.tools}
        self.spending = Spending(journal, budget)
        self.finished = 0
        self.totals = Totals()
        self._clock = clock
        self._running: set[str] = set()
        self._dropped = Dropped()

    async def perform(self, work: Work[T]) -> T:
        """Return the step's result, from history or by doing it.

        Raises
        ------
        StepFailed
            It failed for good, now or when it was recorded.
        OutcomeUnknown
            It was interrupted, and may not be repeated.
        NonDeterministic
            History holds it with other arguments, or it is running already.
        BudgetExceeded
            It is new, and the run has used too much.
        """
        decision = self._judge(work)
        if decision.verdict is Verdict.RUN:
            if self.spending.limited:
                self.spending.check()
            if work.question is not None:
                await self._allowed(work, decision, work.question)
            return await self._execute(work, decision)
        return await self._answer(work, decision)

    def _judge(self, work: Work[T]) -> Decision:
        decision = judge(
            self.journal.recall(work.key),
            args=work.args_digest,
            attempt=self.journal.attempt,
            policy=work.policy,
            dropped=self._dropped,
            age=self.journal.age,
        )
        if decision.drops:
            self._dropped.add(decision.drops)
        return decision

    async def _allowed(self, work: Work[Any], decision: Decision, question: Question) -> None:
        """Return when a person has allowed the step.

        Raises
        ------
        ApprovalDenied
            Nobody did.
        """
        if CURRENT.get() is not None:
            raise _inside(work.key)
        reply = await self.journal.ask(question)
        if not reply.approved:
            raise await self._execution(work, decision).record_denied(denial(reply))

    async def repeat(self, work: Work[T], question: Question) -> T:
        """Do a step of which nobody knows whether it happened once more, if a person says so.

        Raises
        ------
        ApprovalDenied
            Nobody did: the step stays as it is.
        """
        if self.spending.limited:
            self.spending.check()
        reply = await self.journal.ask(question)
        if not reply.approved:
            raise ApprovalDenied(denial(reply))
        decision = self._judge(work)
        return await self._execute(work, replace(decision, verdict=Verdict.RUN, intended=False))

    async def sleep(self, key: str, seconds: float) -> None:
        """Wait until `seconds` after this wait was first asked for, in this attempt or an earlier.

        Noted and not awaited: the entry is stored long before a long wait is over,
        and before the run can leave its worker.
        """
        if CURRENT.get() is not None:
            raise _inside(key)
        journal, entry = self.journal, self.journal.recall(key)
        wait = _decode_wait(entry.body) if entry is not None else None
        if entry is None or wait is None or self._dropped.covers(entry.seq, wait.attempt):
            if self.spending.limited:
                self.spending.check()
            wait = Wait(seconds, journal.attempt)
            journal.note(EventKind.SLEEP, key, msgspec.json.encode(wait))
        left = wait.seconds - journal.age(key)
        if left > 0:
            await journal.sleep(left)

    def count(self, used: Tokens, degraded: tuple[str, ...] = ()) -> None:
        """Add to the run what it used and said outside of steps."""
        self.totals.add(used, degraded)
        self.spending.add(used)

    async def _execute(self, work: Work[T], decision: Decision) -> T:
        execution = self._execution(work, decision)
        self._enter(work.key)
        try:
            result = await execution.run()
        finally:
            self._running.discard(work.key)
            call = execution.call
            if call.used is not NO_TOKENS or call.degraded:  # most tools use nothing
                self.totals.add(call.used, call.degraded)
                self.spending.add(difference(call.used, call.before))
        self.finished += 1
        return result

    def _enter(self, key: str) -> None:
        if CURRENT.get() is not None:
            raise _inside(key)
        if key in self._running:
            raise NonDeterministic(
                f"Step {key!r} is running already: give steps that run at once different keys."
            )
        self._running.add(key)

    async def _answer(self, work: Work[T], decision: Decision) -> T:
        """Answer from history."""
        record = decision.record or Record(args=work.args_digest)
        self.totals.add(record.usage, record.degraded)
        if decision.verdict is Verdict.FAIL:
            raise ApprovalDenied(record.error) if record.denied else StepFailed(record.error)
        if decision.verdict is Verdict.UNKNOWN:
            raise await self._unknown(work, decision, record)
        self.finished += 1
        return _read(work, record)

    async def _unknown(self, work: Work[Any], decision: Decision, record: Record) -> OutcomeUnknown:
        if record.unknown:
            return OutcomeUnknown(record.error)
        return await self._execution(work, decision).record_unknown()

    def _execution(self, work: Work[T], decision: Decision) -> Execution[T]:
        paid = decision.record.usage if decision.record is not None else NO_TOKENS
        return Execution(
            work,
            Call(self.journal.run_id, work.key, decision.number, paid),
            spending=self.spending,
            journal=self.journal,
            clock=self._clock,
            decision=decision,
        )


def _inside(key: str) -> AgentError:
    return AgentError(f"Step {key!r} was started inside a step: start it from the agent.")


def _read(work: Work[T], record: Record) -> T:
    if record.result is msgspec.UNSET:
        raise NonDeterministic(f"Step {work.key!r} has no result in its history.")
    try:
        return work.codec.read(bytes(record.result))
    except Misfit as error:
        raise NonDeterministic(f"The recorded result of step {work.key!r}: {error}") from error
