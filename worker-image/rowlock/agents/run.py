"""`Run`: what an agent's code holds in its hand while it runs."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, overload

import msgspec

from rowlock.agents.asking import blocking_of, crossing_of, digest_of, policy_of, question_of
from rowlock.agents.budget import NO_BUDGET, Budget
from rowlock.agents.context import CURRENT
from rowlock.agents.identity import digest, keyed, numbered
from rowlock.agents.messages import Usage
from rowlock.agents.parallel import settle
from rowlock.agents.problems import cut
from rowlock.agents.protocol import Journal, Result
from rowlock.agents.retry import SideEffects
from rowlock.agents.signature import Declared, step_function
from rowlock.agents.steps import Steps
from rowlock.agents.work import Work
from rowlock.clock import Clock, SystemClock
from rowlock.errors import AgentError
from rowlock.states import EventKind

R = TypeVar("R")
T = TypeVar("T")
T2 = TypeVar("T2")
T3 = TypeVar("T3")

_MAX_PROGRESS_LENGTH = 1024
_CLOCK = SystemClock()


class Run:
    """One execution of one run.

    After a crash the agent's function starts again from its beginning, with a new `Run`;
    the steps that history holds answer at once.
    So everything that costs, changes or reads the world outside belongs into a step.
    """

    __slots__ = ("_counts", "_steps")

    def __init__(
        self, journal: Journal, *, clock: Clock = _CLOCK, budget: Budget = NO_BUDGET
    ) -> None:
        self._steps = Steps(journal, clock, budget)
        self._counts: dict[str, int] = {}

    @property
    def id(self) -> str:
        """The run's number, as people see it."""
        return str(self._steps.journal.run_id)

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1; a takeover does not raise it."""
        return self._steps.journal.attempt

    @property
    def call_id(self) -> str:
        """The name of the call that is being made, for a provider's idempotency key.

        It is the same for every try and after every crash, and belongs to this step alone.

        Raises
        ------
        AgentError
            Outside a step or tool there is no call.
        """
        call = CURRENT.get()
        if call is None:
            raise AgentError("run.call_id exists only while a step or tool runs.")
        return call.id

    @property
    def usage(self) -> Usage:
        """What the steps up to here have used, the same in every replay.

        What earlier attempts used for steps that were not asked for yet is not in it,
        but counts towards the budget.
        """
        return Usage(*self._steps.totals.used)

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[R]],
        *args: Any,
        key: str | int | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        side_effects: SideEffects | None = None,
        blocking: bool | None = None,
    ) -> Coroutine[object, None, R]: ...

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., R],
        *args: Any,
        key: str | int | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        side_effects: SideEffects | None = None,
        blocking: bool | None = None,
    ) -> Coroutine[object, None, R]: ...

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        key: str | int | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        side_effects: SideEffects | None = None,
        blocking: bool | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Call `fn(*args)` once and record what it returns; await the answer.

        The step's identity is fixed by this call, before anything is awaited:
        parallel steps are the same ones again after a crash, whatever order they end in.

        Parameters
        ----------
        name
            What people see.
        fn
            An `async def`, or a plain `def` at the top of a module, which runs in an executor.
            If its first parameter is annotated `Run`, this run is passed.
            Its return annotation says how to read the result back; without one it is plain JSON.
        args
            Data: plain values, models, dataclasses, collections of them.
        key
            Tells steps of one name apart; without it they are told apart by their arguments,
            and by their order where those are the same.
        retries
            Further tries after a failed one; `PermanentError` ends them.
            By default what a tool declares, else 4.
        timeout
            Seconds for each try. By default what a tool declares, else no limit.
        side_effects
            `none`: may be done again after a crash.
            `idempotent`: may be repeated with the same `run.call_id`.
            `non_idempotent`: is tried once, and never again once begun.
            By default what a tool declares, else `none`.
        blocking
            False: a plain `def` runs in a thread of this process, which nothing can stop.
            True: refuse an `async def`. By default what a tool declares.

        Raises
        ------
        AgentDefinitionError
            A plain `def` that no executor can find by its module and name.
        StepFailed
            It used up its tries, or raised `PermanentError`.
        OutcomeUnknown
            A `non_idempotent` one was interrupted.
        ApprovalDenied
            `fn` is a tool that needs a person's agreement, and did not get it.
        NonDeterministic
            This attempt has recorded the same name and key with other arguments.
        """
        rules = self._steps.rules
        policy = policy_of(name, fn, side_effects, retries=retries, timeout=timeout, rules=rules)
        target = fn.fn if isinstance(fn, Declared) else fn
        known = step_function(target, run_type=Run)
        args_digest = digest_of(name, args)
        identity = self._identity(name, key, args_digest)
        work: Work[Any] = Work(
            key=identity,
            args_digest=args_digest,
            fn=target,
            args=(self, *args) if known.takes_run else args,
            codec=known.codec,
            policy=policy,
            is_async=known.is_async,
            crossing=crossing_of(
                name, target, args, known=known, blocking=blocking_of(fn, blocking)
            ),
            question=question_of(fn, identity, args, rules=rules),
        )
        return self._steps.perform(work)

    async def sleep(self, seconds: float, *, key: str | int | None = None) -> None:
        """Wait, across crashes and takeovers; a long wait holds no worker.

        The time counts from the first call: after a takeover only the rest is waited,
        and in a re-drive nothing of a wait that is over.

        Parameters
        ----------
        key
            Tells waits apart; without it their length does, and their order where that is the same.
            Give one where `seconds` is computed from the time of day.

        Raises
        ------
        AgentError
            It is called inside a step, or `seconds` is no length of time.
        """
        if not (isinstance(seconds, int | float) and 0 <= seconds < math.inf):
            raise AgentError(f"run.sleep takes seconds from 0 on, not {seconds!r}.")
        length = digest((seconds,))
        name = keyed("sleep", key) if key is not None else self._next("sleep", length)
        await self._steps.sleep(name, float(seconds))

    @overload  # as asyncio.gather: so many types as there are steps
    async def gather(
        self,
        one: Coroutine[Any, Any, T],
        two: Coroutine[Any, Any, T2],
        /,
        *,
        limit: int | None = None,
    ) -> tuple[T, T2]: ...

    @overload
    async def gather(
        self,
        one: Coroutine[Any, Any, T],
        two: Coroutine[Any, Any, T2],
        three: Coroutine[Any, Any, T3],
        /,
        *,
        limit: int | None = None,
    ) -> tuple[T, T2, T3]: ...

    @overload
    async def gather(self, *coros: Coroutine[Any, Any, T], limit: int | None = None) -> list[T]: ...

    async def gather(self, *coros: Coroutine[Any, Any, Any], limit: int | None = None) -> Any:
        """Await steps at once and return a list of their results in this order.

        Type checkers see two or three of them as a tuple, so that each keeps its type.
        All of them end, then the first error in this order is raised: no step is left half done.

        Parameters
        ----------
        limit
            How many may run at once.
        """
        return await settle(coros, limit=limit)

    def progress(self, text: str) -> None:
        """Record a line for people, such as "12 of 40 pages"; never waits, never fails the run."""
        body = msgspec.json.encode({"text": cut(text, _MAX_PROGRESS_LENGTH)})
        key = self._next("progress", digest((text,)))
        if self._steps.journal.recall(key) is None:
            self._steps.journal.note(EventKind.PROGRESS, key, body)

    def text(self, delta: str) -> None:
        """Show a piece of text to whoever watches; it is never stored."""
        self._steps.journal.publish(delta)

    def mark_degraded(self, reason: str) -> None:
        """Let the run succeed with outcome `degraded`, and say why."""
        (CURRENT.get() or self._steps.totals).degrade(reason)

    def count_usage(self, tokens_in: int, tokens_out: int, cost_micro: int = 0) -> None:
        """Add what a model call used; inside a step it is recorded with the step.

        Parameters
        ----------
        cost_micro
            Millionths of a US dollar.
        """
        if tokens_in < 0 or tokens_out < 0 or cost_micro < 0:
            raise AgentError("run.count_usage takes numbers from 0 on: what is used stays used.")
        call = CURRENT.get()
        if call is not None:
            call.add((tokens_in, tokens_out, cost_micro))
        else:
            self._steps.count((tokens_in, tokens_out, cost_micro))

    def _result(self, body: bytes) -> Result:
        steps = self._steps
        if steps.spending.over is not None:
            raise steps.spending.over  # the agent's code caught it
        degraded, used = tuple(steps.totals.degraded), steps.spending.used
        return Result(body, degraded, *used, steps=steps.finished)

    def _identity(self, name: str, key: str | int | None, args_digest: str) -> str:
        return keyed(name, key) if key is not None else self._next(name, args_digest)

    def _next(self, name: str, args_digest: str) -> str:
        kind = f"{name}#{args_digest}"
        nth = self._counts[kind] = self._counts.get(kind, -1) + 1
        return numbered(name, args_digest, nth)
