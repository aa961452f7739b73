"""What every part of a client needs: its connections, and runs by whatever names them."""

from __future__ import annotations

import getpass
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

import msgspec

from rowlock.client.handle import RunHandle
from rowlock.client.starting import Starter
from rowlock.client.watcher import Watcher
from rowlock.errors import ConfigurationError, InvalidRequest, UnknownRun
from rowlock.settings import DatabaseSettings, load
from rowlock.store import reading
from rowlock.store.connection import Connection
from rowlock.store.dsn import parse
from rowlock.store.reading import RunInfo
from rowlock.store.types import RunId

if TYPE_CHECKING:
    from rowlock.client.client import Client

#: A run: its handle, its number, or its number as text.
AnyRun: TypeAlias = RunHandle[Any] | int | str


class Connected:
    """A client that is connected, or will be."""

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

    def run(self, run: AnyRun) -> RunHandle[Any]:
        """Return a handle of a run that was started before; nothing is read yet."""
        if isinstance(run, RunHandle):
            return run
        return RunHandle(cast("Client", self), _run_id(run), msgspec.json.decode)

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

    @property
    def _store(self) -> Connection:
        if self._connection is None:
            raise InvalidRequest("the client is not open: use it with `async with`")
        return self._connection

    async def _open(self) -> Connection:
        return await Connection.open(self._dsn, name="client")


def _run_id(run: int | str) -> RunId:
    text = str(run)
    if isinstance(run, bool) or not text.isascii() or not text.isdigit() or int(text) >= 2**63:
        raise InvalidRequest(f"run: {text[:40]!r} is no run's number")
    return RunId(int(text))


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return f"uid {os.getuid()}"
