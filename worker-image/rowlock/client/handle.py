"""One run, in the hand of whoever started it or looks after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Generic, TypeVar

from rowlock.client.happenings import RunEvent
from rowlock.store.reading import RunInfo
from rowlock.store.types import RunId

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowlock.client.client import Client

R = TypeVar("R")


class RunHandle(Generic[R]):
    """A run of a client.

    Attributes
    ----------
    id
        The run's number.
    created
        False if the idempotency key belongs to this run already.
    """

    __slots__ = ("_client", "created", "id", "read")

    def __init__(
        self, client: Client, run_id: RunId, read: Callable[[bytes], R], *, created: bool = False
    ) -> None:
        self._client = client
        self.id = run_id
        self.created = created
        #: Returns the result from its JSON.
        self.read = read

    def __repr__(self) -> str:
        return f"<RunHandle {self.id}>"

    async def wait(self, timeout: float | None = None) -> R:
        """Return the run's result; see `Client.wait`."""
        return await self._client.wait(self, timeout=timeout)

    def events(self, *, after: int = 0) -> AsyncIterator[RunEvent]:
        """Yield what happens to the run; see `Client.events`."""
        return self._client.events(self, after=after)

    async def info(self) -> RunInfo:
        """Return how the run stands; see `Client.get`."""
        return await self._client.get(self)

    async def cancel(self, *, reason: str | None = None) -> bool:
        """End the run; see `Client.cancel`."""
        return await self._client.cancel(self, reason=reason)

    async def suspend(self, *, reason: str | None = None) -> bool:
        """Hold the run; see `Client.suspend`."""
        return await self._client.suspend(self, reason=reason)

    async def continue_(self) -> bool:
        """Let the run go on; see `Client.continue_`."""
        return await self._client.continue_(self)

    async def retry(self) -> int:
        """Start another attempt; see `Client.retry`."""
        return await self._client.retry(self)
