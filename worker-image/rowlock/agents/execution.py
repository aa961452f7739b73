"""Doing one step: boundary, intent, call, record.

1. Wait at the boundary, where a worker that drains or doubts its lease stops;
   a blocking function waits for an executor before that, when nothing is announced yet.
2. With side effects: record the intent, durably.
3. Call the function; after a failed try wait, and begin again at 1.
4. Record the result or the failure, durably; only then does the agent go on.

Between 3 and 4 lies a window that no system can close from its own side.
After a crash in it a step without side effects is done again,
an idempotent one is repeated under the same call id,
and of any other nobody knows whether it happened: its agent is told so.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from rowlock.agents.blocking import Crossing
from rowlock.agents.budget import Spending, difference
from rowlock.agents.context import CURRENT, Call
from rowlock.agents.crossing import error_of
from rowlock.agents.pressure import PRESSURE
from rowlock.agents.problems import describe_error
from rowlock.agents.protocol import Journal, Seat
from rowlock.agents.record import Decision, OutcomeUnknown, Record, encode
from rowlock.agents.retry import LONG_WAIT_SECONDS, Next, after_failure, wait_seconds
from rowlock.agents.work import Work
from rowlock.clock import Clock
from rowlock.errors import AgentError, ApprovalDenied, RunError, StepFailed
from rowlock.states import EventKind
from rowlock.traces import Joining

T = TypeVar("T")


class Execution(Generic[T]):
    """One step being done, over all its tries.

    Parameters
    ----------
    decision
        What history says of it.
    """

    __slots__ = (
        "_clock",
        "_decision",
        "_intended",
        "_journal",
        "_reason",
        "_spending",
        "_tries",
        "_work",
        "call",
    )

    def __init__(
        self,
        work: Work[T],
        call: Call,
        *,
        journal: Journal,
        clock: Clock,
        decision: Decision,
        spending: Spending,
    ) -> None:
        self.call = call
        self._spending = spending
        self._work = work
        self._journal = journal
        self._clock = clock
        self._decision = decision
        self._intended = decision.intended
        self._tries = decision.tries
        self._reason = decision.record.error if decision.tries and decision.record else ""

    async def run(self) -> T:
        """Do the step and return its recorded result.

        Raises
        ------
        StepFailed
            For good; the failure is recorded.
        """
        crossing = self._work.crossing() if self._work.crossing is not None else None
        if self._tries:
            await self._wait_on()
        while True:
            self._tries += 1
            seat = await self._begin(crossing)
            started = self._clock.monotonic()
            try:
                if crossing is None or seat is None:
                    body, result = self._work.codec.accept(await self._call())
                else:
                    body, result = await self._call_in(seat, crossing)
            except (Exception, SystemExit) as error:
                PRESSURE.tried(error)
                await self._after(error)
                continue
            PRESSURE.tried()
            await self._succeed(body, seconds=self._clock.monotonic() - started)
            return result

    async def record_unknown(self) -> OutcomeUnknown:
        """Record that nobody knows what became of it, and return the error to raise."""
        message = f"Step {self._work.key!r} was interrupted: it may or may not have happened."
        self._tries = 1
        await self._journal.boundary()
        await self._fail(message, unknown=True)
        return OutcomeUnknown(message)

    async def record_denied(self, message: str) -> ApprovalDenied:
        """Record that a person said no, and return the error to raise."""
        self._tries = 1
        await self._journal.boundary()
        await self._fail(message, denied=True)
        return ApprovalDenied(message)

    async def _wait_on(self) -> None:
        """Wait for what is left of a long wait that a worker before us began."""
        record = self._decision.record
        left = record.wait - self._journal.age(self._work.key) if record else 0.0
        if left > 0:
            await self._journal.pause(left)

    async def _begin(self, crossing: Crossing | None) -> Seat | None:
        """Announce the effect; return the place to make a blocking call in."""
        if crossing is None:
            await self._announce()
            return None
        seat = await self._journal.executor()
        try:
            await self._announce()
        except BaseException:
            seat.leave()
            raise
        return seat

    async def _announce(self) -> None:
        await self._journal.boundary()
        effects = self._work.policy.side_effects
        if effects == "none" or self._intended:
            return
        record = self._new_record()
        record.once = effects == "non_idempotent"
        await self._write(EventKind.STEP_INTENT, record)
        # What may happen only once is announced anew for each try: see `_take_back`.
        self._intended = not record.once

    async def _call(self) -> Any:
        token = CURRENT.set(self.call)
        try:
            if Joining.join is None:
                return await self._work.call()
            journal, call = self._journal, self.call
            with Joining.join(journal.run_id, self._work.key, call.number, journal.attempt):
                return await self._work.call()
        finally:
            CURRENT.reset(token)

    async def _call_in(self, seat: Seat, crossing: Crossing) -> tuple[bytes, T]:
        """Make the call in an executor; return the result's JSON and the result."""
        request = crossing.request(
            run_id=self._journal.run_id,
            attempt=self._journal.attempt,
            call_id=self.call.id,
            timeout=self._work.policy.timeout,
        )
        try:
            answer = await seat.call(request)
        finally:
            seat.leave()
        self.call.add(answer.used, answer.degraded)
        if answer.trouble is not None:
            raise error_of(answer.trouble)
        return answer.body, self._work.codec.read(answer.body)

    async def _after(self, error: BaseException) -> None:
        """Wait for the next try, or raise what ends the step."""
        if isinstance(error, RunError) and not isinstance(error, AgentError):
            raise error
        self._reason = describe_error(error)
        following = after_failure(error, policy=self._work.policy, tries=self._tries)
        if following is not Next.RETRY:
            raise await self._give_up(unknown=following is Next.UNKNOWN) from error
        if self._spending.limited:
            self._spending.check(difference(self.call.used, self.call.before))
        seconds = wait_seconds(error, tries=self._tries, seed=self.call.id)
        if self._work.policy.side_effects == "idempotent" and seconds > self._work.policy.key_ttl:
            raise await self._give_up(unknown=True) from error
        if self._work.policy.side_effects == "non_idempotent" or seconds > LONG_WAIT_SECONDS:
            self._note_failure(seconds)
        await self._journal.pause(seconds)

    def _note_failure(self, seconds: float) -> None:
        """Note that the step may be tried again, and when.

        So a crash while waiting leaves no doubt about an effect that did not begin,
        and the worker that goes on after a long wait knows of it and counts on.
        """
        record = self._new_record()
        record.again, record.error = True, self._reason
        record.wait = seconds if seconds > LONG_WAIT_SECONDS else 0.0
        record.usage, record.degraded = self.call.used, tuple(self.call.degraded)
        self._intended = False
        self._journal.note(EventKind.STEP_FAILED, self._work.key, encode(record), tries=self._tries)

    async def _give_up(self, *, unknown: bool) -> StepFailed:
        step = f"Step {self._work.key!r}"
        if unknown:
            message = f"{step} may or may not have happened: it ended with {self._reason}"
            await self._fail(message, unknown=True)
            return OutcomeUnknown(message)
        tries = "at the first try" if self._tries == 1 else f"after {self._tries} tries"
        message = f"{step} failed {tries}: {self._reason}"
        await self._fail(message)
        return StepFailed(message)

    async def _fail(self, message: str, *, unknown: bool = False, denied: bool = False) -> None:
        record = self._new_record()
        record.error, record.unknown, record.denied = message, unknown, denied
        record.usage, record.degraded = self.call.used, tuple(self.call.degraded)
        await self._write(EventKind.STEP_FAILED, record)

    async def _succeed(self, body: bytes, *, seconds: float) -> None:
        record = self._new_record()
        record.result, record.error = msgspec.Raw(body), self._reason
        record.usage, record.degraded = self.call.used, tuple(self.call.degraded)
        await self._write(EventKind.STEP_DONE, record, dur_ms=int(seconds * 1000))

    def _new_record(self) -> Record:
        return Record(
            args=self._work.args_digest,
            number=self.call.number,
            attempt=self._journal.attempt,
            drops=self._decision.drops,
        )

    async def _write(self, kind: EventKind, record: Record, *, dur_ms: int | None = None) -> None:
        await self._journal.write(
            kind, self._work.key, encode(record), tries=self._tries, dur_ms=dur_ms
        )
