"""`Client`: runs from async code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypeVar, overload

from rowlock.agents.function import AgentFunction
from rowlock.agents.protocol import Agent
from rowlock.client.capping import Capping
from rowlock.client.connected import AnyRun
from rowlock.client.deciding import Deciding
from rowlock.client.handle import RunHandle
from rowlock.client.happenings import RunEvent, follow
from rowlock.client.results import check_succeeded, value
from rowlock.client.starting import rows
from rowlock.client.submission import Limits, check_key
from rowlock.errors import InvalidRequest
from rowlock.states import Phase
from rowlock.store import reading
from rowlock.store.reading import RunInfo
from rowlock.store.types import Enqueued, Submission

R = TypeVar("R")

#: Names for what `list` cannot be called inside of the class that has a method of this name.
Handles: TypeAlias = list[RunHandle[R]]
Infos: TypeAlias = list[RunInfo]


class Client(Deciding, Capping):
    """Starts runs and looks after them; use it with `async with`.

    Two connections serve any number of runs, and one poller all who wait.

    Parameters
    ----------
    dsn
        `postgresql://user:password@host:5432/name`; by default ROWLOCK_DATABASE_URL.
    namespace
        Where agents and pools are looked up: that of the Agent resources, or none.
    by
        Who asks, for the history of what is cancelled; by default the user of this process.
    """

    @overload
    async def start(
        self,
        agent: AgentFunction[..., R],
        input: Any = None,
        *,
        idempotency_key: str | None = None,
        key: str | None = None,
        pool: str | None = None,
        priority: int = 0,
        queue_deadline: float | None = None,
        active_deadline: float | None = None,
        max_attempts: int | None = None,
        max_takeovers: int | None = None,
    ) -> RunHandle[R]: ...

    @overload
    async def start(
        self,
        agent: str | Agent,
        input: Any = None,
        *,
        idempotency_key: str | None = None,
        key: str | None = None,
        pool: str | None = None,
        priority: int = 0,
        queue_deadline: float | None = None,
        active_deadline: float | None = None,
        max_attempts: int | None = None,
        max_takeovers: int | None = None,
    ) -> RunHandle[Any]: ...

    async def start(  # noqa: PLR0913  one parameter an option
        self,
        agent: str | Agent,
        input: Any = None,  # noqa: A002  what authors call it
        *,
        idempotency_key: str | None = None,
        key: str | None = None,
        pool: str | None = None,
        priority: int = 0,
        queue_deadline: float | None = None,
        active_deadline: float | None = None,
        max_attempts: int | None = None,
        max_takeovers: int | None = None,
    ) -> RunHandle[Any]:
        """Start a run and return when it is accepted.

        Parameters
        ----------
        agent
            The name of one that is registered; or an agent, or its "module:attribute":
            it is registered if it is new, its input is checked here and its result is typed.
        input
            Plain data, a pydantic model or whatever else becomes JSON, up to 1 MiB.
        idempotency_key
            The same key and input again give the same run, for as long as that is in history.
        key
            Whom the run is for: an agent's limits per key count by it, and keys take turns.
        pool
            Whose workers run it; by default the agent's own, or `default`.
        priority
            From -1000 to 1000; higher goes first.
        queue_deadline, active_deadline
            Seconds: until a worker has taken it, and of running.
        max_attempts, max_takeovers
            How often the agent's code may be started, and its worker be lost.

        Raises
        ------
        UnknownAgent, UnknownPool
            With the names of those that are there.
        InvalidInput, InvalidRequest, TooLarge
            With the parameter that makes no sense. Nothing was written.
        IdempotencyConflict
            The key belongs to a run with another input.
        StoreUnavailable
            The database is away. With an idempotency key the call has been repeated, and may be
            again; without one nobody knows whether the run was accepted.
        """
        limits = Limits(priority, queue_deadline, active_deadline, max_attempts, max_takeovers)
        made = await self._starter.template(self._store, agent, pool, limits)
        row = made.run(input, key=key, idempotency_key=idempotency_key)
        [accepted] = await self._starter.accept(self._store, [row])
        return self._handle(accepted, made.known.read)

    @overload
    async def start_many(
        self,
        agent: AgentFunction[..., R],
        inputs: Iterable[Any],
        *,
        idempotency_keys: Sequence[str] | None = None,
        keys: Sequence[str | None] | None = None,
        pool: str | None = None,
        priority: int = 0,
        queue_deadline: float | None = None,
        active_deadline: float | None = None,
        max_attempts: int | None = None,
        max_takeovers: int | None = None,
    ) -> Handles[R]: ...

    @overload
    async def start_many(
        self,
        agent: str | Agent,
        inputs: Iterable[Any],
        *,
        idempotency_keys: Sequence[str] | None = None,
        keys: Sequence[str | None] | None = None,
        pool: str | None = None,
        priority: int = 0,
        queue_deadline: float | None = None,
        active_deadline: float | None = None,
        max_attempts: int | None = None,
        max_takeovers: int | None = None,
    ) -> Handles[Any]: ...

    async def start_many(  # noqa: PLR0913  one parameter an option
        self,
        agent: str | Agent,
        inputs: Iterable[Any],
        *,
        idempotency_keys: Sequence[str] | None = None,
        keys: Sequence[str | None] | None = None,
        pool: str | None = None,
        priority: int = 0,
        queue_deadline: float | None = None,
        active_deadline: float | None = None,
        max_attempts: int | None = None,
        max_takeovers: int | None = None,
    ) -> Handles[Any]:
        """Start one run for each input, a thousand with a statement, and return them in this order.

        All inputs are checked before the first run is written. The runs of one statement are
        accepted together; after an error in between those of earlier statements stand,
        so a call that may have to be repeated gives idempotency keys.

        Parameters
        ----------
        idempotency_keys, keys
            One for each input.

        Raises
        ------
        IdempotencyConflict
            Some keys belong to runs with other inputs: `runs` names them. All others are accepted.
        """
        limits = Limits(priority, queue_deadline, active_deadline, max_attempts, max_takeovers)
        made = await self._starter.template(self._store, agent, pool, limits)
        new = await rows(made, tuple(inputs), keys=keys, idempotency_keys=idempotency_keys)
        accepted = await self._starter.accept(self._store, new)
        return [self._handle(one, made.known.read) for one in accepted]

    @overload
    async def wait(self, run: RunHandle[R], *, timeout: float | None = None) -> R: ...

    @overload
    async def wait(self, run: int | str, *, timeout: float | None = None) -> Any: ...

    async def wait(self, run: AnyRun, *, timeout: float | None = None) -> Any:
        """Wait for the end of a run and return its result, of the agent's type where that is known.

        Parameters
        ----------
        timeout
            Seconds; None waits for ever. The run goes on all the same.

        Raises
        ------
        RunFailed, RunCancelled
            It ended without a result: `reason` and `detail` say why.
        TimeoutError
            It has not ended within `timeout`.
        UnknownRun
            There is no such run.
        """
        handle = self.run(run)
        try:
            async with asyncio.timeout(timeout) as limit:
                end = await self._watcher.end(handle.id)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"run {handle.id} has not ended within {timeout:g} s") from None
        check_succeeded(end)
        return value(end, await self._watcher.body(end), handle.read)

    def events(self, run: AnyRun, *, after: int = 0) -> AsyncIterator[RunEvent]:
        """Yield what happens to a run, until it has ended.

        First come the rows that history holds, then each new one; where the run stands is told
        at the beginning and whenever it is seen to have changed. What lies between two looks
        (0.02 to 0.25 s) is seen in history only.

        Parameters
        ----------
        after
            Go on behind this `seq`: 0 for all. Rows are neither left out nor told twice,
            whoever wrote them.

        Raises
        ------
        UnknownRun
            There is no such run.
        """
        if after < 0:
            raise InvalidRequest(f"after: must be 0 or the seq of an event, not {after}")
        return follow(self._watcher, self.run(run).id, after=after)

    async def list(
        self,
        *,
        agent: str | None = None,
        key: str | None = None,
        phase: Phase | str | None = None,
        before: AnyRun | None = None,
        since: datetime | None = None,
        limit: int = 100,
    ) -> Infos:
        """Return how the newest runs stand, the newest first.

        Parameters
        ----------
        agent, key, phase
            Only runs of this agent, with this concurrency key, that stand here
            (Queued, Running, AwaitingApproval, Suspended, Retrying, Succeeded, Failed, Cancelled).
        before
            Only runs older than this one, for the next page.
        since
            Only runs accepted from then on, to the millisecond; it has a time zone.
        limit
            How many, up to 1,000.
        """
        if not 1 <= limit <= 1000:
            raise InvalidRequest(f"limit: must be from 1 to 1000, not {limit}")
        if since is not None and since.tzinfo is None:
            raise InvalidRequest("since: needs a time zone")
        run_ids = await reading.newest(
            self._store,
            namespace=self._namespace,
            agent=agent,
            key=check_key("key", key),
            phase=_listed(phase),
            before=None if before is None else self.run(before).id,
            since=since,
            limit=limit,
        )
        return await reading.infos(self._store, run_ids, namespace=self._namespace)

    def _handle(self, accepted: Enqueued, read: Callable[[bytes], R]) -> RunHandle[R]:
        created = accepted.outcome is Submission.CREATED
        return RunHandle(self, accepted.run_id, read, created=created)


def _listed(phase: Phase | str | None) -> Phase | None:
    if phase is None or phase in reading.LISTED:
        return None if phase is None else Phase(phase)
    raise InvalidRequest(f"phase: {str(phase)!r} is not one of {', '.join(reading.LISTED)}")
