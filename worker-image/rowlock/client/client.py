"""`Client`: runs from async code."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar, overload

import msgspec

from rowlock.agents.function import AgentFunction
from rowlock.agents.protocol import Agent
from rowlock.client import wishes
from rowlock.client.handle import RunHandle
from rowlock.client.happenings import RunEvent, follow
from rowlock.client.results import check_succeeded, value
from rowlock.client.starting import Starter, rows
from rowlock.client.submission import Limits, check_key
from rowlock.client.watcher import Watcher
from rowlock.client.wishes import PendingApproval
from rowlock.errors import ConfigurationError, InvalidRequest, UnknownRun
from rowlock.settings import DatabaseSettings, load
from rowlock.states import Decision, Phase
from rowlock.store import intake, reading
from rowlock.store.connection import Connection
from rowlock.store.dsn import parse
from rowlock.store.reading import RunInfo
from rowlock.store.types import Enqueued, RunId, Submission

R = TypeVar("R")

#: A run: its handle, its number, or its number as text.
AnyRun: TypeAlias = RunHandle[Any] | int | str

#: Names for what `list` cannot be called inside of the class that has a method of this name.
Handles: TypeAlias = list[RunHandle[R]]
Infos: TypeAlias = list[RunInfo]
Questions: TypeAlias = list[PendingApproval]


class Client:
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

    def __init__(
        self, dsn: str | None = None, *, namespace: str = "", by: str | None = None
    ) -> None:
        self._dsn = dsn or load(DatabaseSettings).database_url.get_secret_value()
        if not self._dsn:
            raise ConfigurationError("dsn: give a database URL, or set ROWLOCK_DATABASE_URL")
        self._place = parse(self._dsn).place
        self._namespace = namespace
        self._by = by or _me()
        self._starter = Starter(namespace)
        self._watcher = Watcher(self._open)
        self._connection: Connection | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._place}>"

    async def __aenter__(self) -> Self:
        """Connect.

        Raises
        ------
        ConfigurationError
            The URL is wrong, the server refuses it, or there is no schema.
        StoreUnavailable
            The server is out of reach.
        """
        self._connection = await self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnect; runs go on without a client."""
        await self._watcher.close()
        if self._connection is not None:
            await self._connection.close()

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

    def run(self, run: AnyRun) -> RunHandle[Any]:
        """Return a handle of a run that was started before; nothing is read yet."""
        if isinstance(run, RunHandle):
            return run
        return RunHandle(self, _run_id(run), msgspec.json.decode)

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

    async def get(self, run: AnyRun) -> RunInfo:
        """Return how a run stands.

        Raises
        ------
        UnknownRun
            There is no such run.
        """
        run_id = self.run(run).id
        for info in await reading.infos(self._store, [run_id], namespace=self._namespace):
            return info
        raise UnknownRun(f"run: there is no run {run_id}")

    async def list(
        self,
        *,
        agent: str | None = None,
        key: str | None = None,
        phase: Phase | str | None = None,
        before: AnyRun | None = None,
        limit: int = 100,
    ) -> Infos:
        """Return how the newest runs stand, the newest first.

        Parameters
        ----------
        agent, key, phase
            Only runs of this agent, with this concurrency key, that stand here
            (Queued, Running, Retrying, Succeeded, Failed, Cancelled).
        before
            Only runs older than this one, for the next page.
        limit
            How many, up to 1,000.
        """
        if not 1 <= limit <= 1000:
            raise InvalidRequest(f"limit: must be from 1 to 1000, not {limit}")
        run_ids = await reading.newest(
            self._store,
            namespace=self._namespace,
            agent=agent,
            key=check_key("key", key),
            phase=_listed(phase),
            before=None if before is None else self.run(before).id,
            limit=limit,
        )
        return await reading.infos(self._store, run_ids, namespace=self._namespace)

    async def cancel(self, run: AnyRun, *, reason: str | None = None) -> bool:
        """Ask for the end of a run; return whether it has ended by now.

        The wish stands: a run that a worker holds ends within a second or so, one that nobody
        holds at once, and a result that was committed before is kept.

        Raises
        ------
        UnknownRun
            There is no such run.
        """
        run_id = (await self.get(run)).id

        async def ask() -> bool:
            ended = await intake.request_cancel(self._store, [run_id], by=self._by, reason=reason)
            return run_id in ended

        return await wishes.until_true(ask)

    async def suspend(self, run: AnyRun, *, reason: str | None = None) -> bool:
        """Ask for a run to wait until somebody continues it; return whether it does by now.

        The wish stands: a run that a worker holds leaves it at its next step boundary.

        Raises
        ------
        UnknownRun, WishRefused
            There is no such run, or it has ended.
        """
        run_id = (await self.get(run)).id
        return await wishes.suspend(self._store, run_id, by=self._by, reason=reason)

    async def continue_(self, run: AnyRun) -> bool:
        """Let a suspended run go on; return whether it was suspended, or about to be.

        Raises
        ------
        UnknownRun, WishRefused
            There is no such run, or it has ended.
        """
        return await wishes.continue_(self._store, (await self.get(run)).id)

    async def retry(self, run: AnyRun) -> int:
        """Start another attempt of a run that has ended, and return its number.

        Finished steps are read back; `wait` and `events` then wait for the new attempt.
        Of many who ask at once one wins, and all get the same number.

        Raises
        ------
        UnknownRun, WishRefused, HistoryExpired
            There is no such run, it has not ended, or its history may be gone.
        """
        return await wishes.retry(self._store, (await self.get(run)).id, by=self._by)

    async def approvals(self, run: AnyRun | None = None) -> Questions:
        """Return the tool calls that wait for a person, of one run or of all, the oldest first."""
        run_id = None if run is None else (await self.get(run)).id
        return await wishes.pending(self._store, run_id)

    async def approve(
        self,
        asked: PendingApproval | AnyRun,
        *,
        step: str | None = None,
        digest: str | None = None,
        reason: str = "",
    ) -> None:
        """Allow a tool call that waits for it.

        Parameters
        ----------
        asked
            The question, or its run.
        step, digest
            Of a run's questions the one about this step, if it has this digest.
        reason
            Kept with the answer.

        Raises
        ------
        WishRefused
            There is no such question, more than one, or another answer stands.
        """
        await self._decide(asked, step, digest, Decision.APPROVED, reason)

    async def deny(
        self,
        asked: PendingApproval | AnyRun,
        *,
        reason: str,
        step: str | None = None,
        digest: str | None = None,
    ) -> None:
        """Forbid a tool call that waits; its model is told why.

        Parameters
        ----------
        asked
            The question, or its run.
        step, digest
            Of a run's questions the one about this step, if it has this digest.

        Raises
        ------
        WishRefused
            There is no such question, more than one, or another answer stands.
        """
        await self._decide(asked, step, digest, Decision.DENIED, reason)

    @property
    def _store(self) -> Connection:
        if self._connection is None:
            raise InvalidRequest("the client is not open: use it with `async with`")
        return self._connection

    async def _open(self) -> Connection:
        return await Connection.open(self._dsn, name="client")

    def _handle(self, accepted: Enqueued, read: Callable[[bytes], R]) -> RunHandle[R]:
        created = accepted.outcome is Submission.CREATED
        return RunHandle(self, accepted.run_id, read, created=created)

    async def _decide(
        self,
        asked: PendingApproval | AnyRun,
        step: str | None,
        digest: str | None,
        decision: Decision,
        reason: str,
    ) -> None:
        if not isinstance(asked, PendingApproval):
            run_id = (await self.get(asked)).id
            asked = await wishes.the_one(self._store, run_id, step=step, digest=digest)
        await wishes.decide(self._store, asked, decision, by=self._by, reason=reason)


def _run_id(run: int | str) -> RunId:
    text = str(run)
    if isinstance(run, bool) or not text.isascii() or not text.isdigit() or int(text) >= 2**63:
        raise InvalidRequest(f"run: {text[:40]!r} is no run's number")
    return RunId(int(text))


def _listed(phase: Phase | str | None) -> Phase | None:
    if phase is None or phase in reading.LISTED:
        return None if phase is None else Phase(phase)
    raise InvalidRequest(f"phase: {str(phase)!r} is not one of {', '.join(reading.LISTED)}")


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return f"uid {os.getuid()}"
