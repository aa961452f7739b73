"""The same client for code that is not async: each call is one of `Client`, on a loop in a thread.

Nothing is written twice: what a call does, checks and says is what `Client` does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import CancelledError
from types import TracebackType
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from rowlock.agents.function import AgentFunction
from rowlock.agents.protocol import Agent
from rowlock.client.client import Client
from rowlock.client.deciding import Questions
from rowlock.client.handle import RunHandle
from rowlock.client.happenings import RunEvent
from rowlock.client.wishes import PendingApproval
from rowlock.errors import InvalidRequest, StoreUnavailable
from rowlock.store.reading import RunInfo

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Options(TypedDict, total=False):
    """What `Client.start` and `Client.start_many` take alike."""

    pool: str | None
    priority: int
    queue_deadline: float | None
    active_deadline: float | None
    max_attempts: int | None
    max_takeovers: int | None


class StartOptions(Options, total=False):
    """What `Client.start` takes beside agent and input."""

    idempotency_key: str | None
    key: str | None


class ManyOptions(Options, total=False):
    """What `Client.start_many` takes beside agent and inputs."""

    idempotency_keys: Sequence[str] | None
    keys: Sequence[str | None] | None


class Meant(TypedDict, total=False):
    """Which question of a run is meant."""

    step: str | None
    digest: str | None


class Answer(Meant, total=False):
    """What `Client.approve` takes beside the question."""

    reason: str


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="rowlock client", daemon=True
        )
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for `coroutine`; an interrupt of this thread ends it."""
        if self._loop.is_closed():
            coroutine.close()
            raise StoreUnavailable("the client was closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise StoreUnavailable("the client was closed") from None
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield `items`, each fetched when it is asked for."""
        done = object()

        async def following() -> T | object:
            return await anext(items, done)

        try:
            while (item := self.call(following())) is not done:
                yield item  # type: ignore[misc]  # not `done`, so one of the items
        finally:
            if isinstance(items, AsyncGenerator) and not self._loop.is_closed():
                self.call(items.aclose())

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _waiting(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """Return the sync twin of a method, under its name and with its documentation."""

    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(lambda client: method(client, *args, **kwargs))

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    call.__qualname__ = f"SyncClient.{method.__name__}"
    return call


class SyncClient:
    """`Client` without `async`: use it with `with`, from any number of threads."""

    def __init__(
        self, dsn: str | None = None, *, namespace: str = "", by: str | None = None
    ) -> None:
        self._client = Client(dsn, namespace=namespace, by=by)
        self._loop: _Loop | None = None

    def __repr__(self) -> str:
        return repr(self._client).replace("<Client", "<SyncClient", 1)

    def __enter__(self) -> Self:
        loop = self._loop = _Loop()
        try:
            loop.call(self._client.__aenter__())
        except BaseException:
            loop.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._loop is not None:
            self._loop.call(self._client.__aexit__(kind, error, trace))
            self._loop.close()

    @overload
    def start(
        self, agent: AgentFunction[..., R], input: Any = None, **options: Unpack[StartOptions]
    ) -> SyncRunHandle[R]: ...

    @overload
    def start(
        self, agent: str | Agent, input: Any = None, **options: Unpack[StartOptions]
    ) -> SyncRunHandle[Any]: ...

    def start(
        self,
        agent: str | Agent,
        input: Any = None,  # noqa: A002  what authors call it
        **options: Unpack[StartOptions],
    ) -> SyncRunHandle[Any]:
        return SyncRunHandle(self, self._call(lambda client: client.start(agent, input, **options)))

    @overload
    def start_many(
        self, agent: AgentFunction[..., R], inputs: Iterable[Any], **options: Unpack[ManyOptions]
    ) -> SyncHandles[R]: ...

    @overload
    def start_many(
        self, agent: str | Agent, inputs: Iterable[Any], **options: Unpack[ManyOptions]
    ) -> SyncHandles[Any]: ...

    def start_many(
        self, agent: str | Agent, inputs: Iterable[Any], **options: Unpack[ManyOptions]
    ) -> SyncHandles[Any]:
        made = self._call(lambda client: client.start_many(agent, inputs, **options))
        return [SyncRunHandle(self, one) for one in made]

    def run(self, run: AnyRun) -> SyncRunHandle[Any]:
        return SyncRunHandle(self, self._client.run(_own(run)))

    @overload
    def wait(self, run: SyncRunHandle[R], *, timeout: float | None = None) -> R: ...

    @overload
    def wait(self, run: int | str, *, timeout: float | None = None) -> Any: ...

    def wait(self, run: AnyRun, *, timeout: float | None = None) -> Any:
        return self._call(lambda client: client.wait(_own(run), timeout=timeout))

    def events(self, run: AnyRun, *, after: int = 0) -> Iterator[RunEvent]:
        return self._running.iterate(self._client.events(_own(run), after=after))

    def get(self, run: AnyRun) -> RunInfo:
        return self._call(lambda client: client.get(_own(run)))

    def cancel(self, run: AnyRun, *, reason: str | None = None) -> bool:
        return self._call(lambda client: client.cancel(_own(run), reason=reason))

    def suspend(self, run: AnyRun, *, reason: str | None = None) -> bool:
        return self._call(lambda client: client.suspend(_own(run), reason=reason))

    def continue_(self, run: AnyRun) -> bool:
        return self._call(lambda client: client.continue_(_own(run)))

    def retry(self, run: AnyRun) -> int:
        return self._call(lambda client: client.retry(_own(run)))

    def approvals(self, run: AnyRun | None = None) -> Questions:
        return self._call(lambda client: client.approvals(_own(run)))

    def approve(self, asked: PendingApproval | AnyRun, **options: Unpack[Answer]) -> None:
        return self._call(lambda client: client.approve(_own(asked), **options))

    def deny(
        self, asked: PendingApproval | AnyRun, *, reason: str, **options: Unpack[Meant]
    ) -> None:
        return self._call(lambda client: client.deny(_own(asked), reason=reason, **options))

    list = _waiting(Client.list)
    set_caps = _waiting(Client.set_caps)

    for _twin in (
        start, start_many, run, wait, events, get, cancel,
        suspend, continue_, retry, approvals, approve, deny,
    ):  # fmt: skip
        _twin.__doc__ = getattr(Client, _twin.__name__).__doc__
    del _twin

    @property
    def _running(self) -> _Loop:
        if self._loop is None:
            raise InvalidRequest("the client is not open: use it with `with`")
        return self._loop

    def _call(self, use: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return self._running.call(use(self._client))


class SyncRunHandle(Generic[R]):
    """A run of a `SyncClient`."""

    __slots__ = ("_client", "_handle")

    def __init__(self, client: SyncClient, handle: RunHandle[R]) -> None:
        self._client = client
        self._handle = handle

    def __repr__(self) -> str:
        return f"<SyncRunHandle {self.id}>"

    @property
    def id(self) -> int:
        """The run's number."""
        return self._handle.id

    @property
    def created(self) -> bool:
        """False if the idempotency key belongs to this run already."""
        return self._handle.created

    def wait(self, timeout: float | None = None) -> R:
        """Return the run's result; see `Client.wait`."""
        return self._client.wait(self, timeout=timeout)

    def events(self, *, after: int = 0) -> Iterator[RunEvent]:
        """Yield what happens to the run; see `Client.events`."""
        return self._client.events(self, after=after)

    def info(self) -> RunInfo:
        """Return how the run stands; see `Client.get`."""
        return self._client.get(self)

    def cancel(self, *, reason: str | None = None) -> bool:
        """End the run; see `Client.cancel`."""
        return self._client.cancel(self, reason=reason)

    def suspend(self, *, reason: str | None = None) -> bool:
        """Hold the run; see `Client.suspend`."""
        return self._client.suspend(self, reason=reason)

    def continue_(self) -> bool:
        """Let the run go on; see `Client.continue_`."""
        return self._client.continue_(self)

    def retry(self) -> int:
        """Start another attempt; see `Client.retry`."""
        return self._client.retry(self)


#: A run: its handle, its number, or its number as text.
AnyRun: TypeAlias = SyncRunHandle[Any] | RunHandle[Any] | int | str
SyncHandles: TypeAlias = list[SyncRunHandle[R]]


def _own(value: Any) -> Any:
    """Return the async handle behind a sync one, and anything else as it is."""
    return value._handle if isinstance(value, SyncRunHandle) else value
