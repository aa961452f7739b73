"""One dedicated connection to PostgreSQL that comes back by itself.

A pool would reset the session after each use, which doubles the transactions;
and the writer, the claimer and the beats each need a connection that nobody else can hold up.
Nothing that matters lives in the session, so a pooler in transaction mode may stand between.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import asyncpg

from rowlock.errors import DatabaseRefused, SchemaMissing, StoreUnavailable
from rowlock.store import dsn as urls
from rowlock.store import faults, pooler, queries
from rowlock.store.pooler import Line
from rowlock.store.versions import newest_pre

T = TypeVar("T")
if TYPE_CHECKING:
    _Raw: TypeAlias = asyncpg.Connection[asyncpg.Record]

CONNECT_SECONDS: Final = 5.0
COMMAND_SECONDS: Final = 30.0
OLDEST_SERVER: Final = 14

#: A fence's second statement needs a newer snapshot than its first, whatever the default is.
#: A process that dies or freezes inside a transaction must not hold its locks for longer.
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '10s'"
)


class Connection:
    """A connection, opened with `Connection.open`.

    It serves one statement at a time; others wait for their turn.
    After a loss the next call connects again; the call in flight raises `StoreUnavailable`.
    """

    def __init__(
        self, dsn: str, *, name: str, connect_timeout: float, command_timeout: float
    ) -> None:
        self._target = urls.parse(dsn)
        self._name = name
        self._connect_timeout = connect_timeout
        self._command_timeout = command_timeout
        self._raw: _Raw | None = None
        self._line = Line(pooled=False, prepares=True)
        self._turn = asyncio.Lock()
        self._owner: asyncio.Task[Any] | None = None
        self._closed = False
        self._listeners: dict[str, Callable[..., None]] = {}

    def __repr__(self) -> str:
        return f"<Connection {self._name} to {self._target.place}>"

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        name: str,
        check_schema: bool = True,
        connect_timeout: float = CONNECT_SECONDS,
        command_timeout: float = COMMAND_SECONDS,
    ) -> Connection:
        """Connect.

        Parameters
        ----------
        name
            What `pg_stat_activity` shows as the application.
        check_schema
            Refuse a database whose schema is missing or older than this code; newer is fine.
        connect_timeout, command_timeout
            Seconds, for a connection attempt and for one statement.

        Raises
        ------
        InvalidDatabaseURL, DatabaseRefused, SchemaMissing
            A person must change something.
        StoreUnavailable
            The server is out of reach.
        """
        connection = cls(
            dsn, name=name, connect_timeout=connect_timeout, command_timeout=command_timeout
        )
        try:
            connection._raw = await connection._connect(opening=True)
            if check_schema:
                await connection._check_schema()
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def closed(self) -> bool:
        """Whether `close` was called; a lost connection is not closed."""
        return self._closed

    @property
    def pooled(self) -> bool:
        """Whether a pooler stands between, as far as the last connecting could tell."""
        return self._line.pooled

    @property
    def prepares(self) -> bool:
        """Whether statements are prepared once and kept, which saves planning them each time."""
        return self._line.prepares

    async def close(self) -> None:
        """End the connection for good; a statement in flight fails with `StoreUnavailable`."""
        self._closed = True
        raw, self._raw = self._raw, None
        if raw is None or raw.is_closed():
            return
        if self._turn.locked():
            raw.terminate()
            return
        try:
            await raw.close(timeout=2)
        except faults.DRIVER:
            raw.terminate()

    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]:
        """Run the statement named `query` and return its rows."""
        text = queries.get(query)
        return await self._call(lambda raw: raw.fetch(text, *args, timeout=self._command_timeout))

    async def fetchrow(self, query: str, *args: Any) -> asyncpg.Record | None:
        """Run the statement named `query` and return its first row."""
        text = queries.get(query)
        return await self._call(
            lambda raw: raw.fetchrow(text, *args, timeout=self._command_timeout)
        )

    async def fetchone(self, query: str, *args: Any) -> asyncpg.Record:
        """Run the statement named `query`, which always gives one row, and return that."""
        row = await self.fetchrow(query, *args)
        if row is None:
            raise StoreUnavailable(f"the statement {query} gave no row")
        return row

    async def ask(self) -> None:
        """Return if the server answers."""
        await self.fetchone("schema_version")

    async def execute(self, query: str, *args: Any) -> str:
        """Run the statement named `query` and return its command tag, such as `DELETE 3`."""
        text = queries.get(query)
        return await self._call(lambda raw: raw.execute(text, *args, timeout=self._command_timeout))

    async def listen(self, channel: str, heard: Callable[[], None]) -> None:
        """Call `heard` at each notification on `channel`, in this session and in those to come.

        Between two sessions none is heard, and behind a pooler never any: only polling is sure.
        """
        self._listeners[channel] = lambda *_: heard()
        await self._call(self._attach)

    async def run_script(self, text: str, *, timeout: float | None = None) -> None:
        """Run the statements of a migration file, or a definition that another statement wrote.

        Parameters
        ----------
        timeout
            Seconds for all of it; None waits for ever.
        """
        await self._call(lambda raw: raw.execute(text, timeout=timeout))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Hold the connection for this task and commit its statements together."""
        async with self._turn:
            await self._guard(lambda raw: raw.execute(_BEGIN, timeout=self._command_timeout))
            self._owner = asyncio.current_task()
            try:
                yield
                await self._guard(lambda raw: raw.execute("COMMIT", timeout=self._command_timeout))
            except BaseException:
                await self._roll_back()
                raise
            finally:
                self._owner = None

    async def _call(self, use: Callable[[_Raw], Awaitable[T]]) -> T:
        if self._owner is not None and self._owner is asyncio.current_task():
            return await self._guard(use)
        async with self._turn:
            try:
                return await self._guard(use)
            except faults.MissingPartition:
                await self._guard(lambda raw: raw.fetch(queries.get("ensure_partitions"), 1))
                return await self._guard(use)

    async def _guard(self, use: Callable[[_Raw], Awaitable[T]]) -> T:
        """Run `use`, turning every error of the driver into one of ours."""
        try:
            raw = await self._live()
            return await use(raw)
        except faults.DRIVER as error:
            if faults.ends_session(error):
                self._drop()
            raise faults.translate(error, self._target.place) from None
        except asyncio.CancelledError:
            # The statement may still run over there; never wait for it, never reuse its connection.
            self._drop()
            raise

    async def _live(self) -> _Raw:
        if self._closed:
            raise StoreUnavailable("this database connection was closed by its owner")
        if self._raw is not None and not self._raw.is_closed():
            return self._raw
        if self._owner is not None:
            raise StoreUnavailable("the database connection was lost inside a transaction")
        self._raw = raw = await self._connect(opening=False)
        await self._attach(raw)
        return raw

    async def _connect(self, *, opening: bool) -> _Raw:
        try:
            raw, self._line = await pooler.connect(
                self._target.dsn, name=f"rowlock {self._name}", timeout=self._connect_timeout
            )
        except (*faults.DRIVER, ValueError) as error:
            raise faults.connect_error(error, self._target.place, opening=opening) from None
        version = raw.get_server_version().major
        if version < OLDEST_SERVER:
            raw.terminate()
            raise DatabaseRefused(
                f"PostgreSQL {version} is too old: Rowlock needs {OLDEST_SERVER} or newer"
            )
        return raw

    async def _attach(self, raw: _Raw) -> None:
        """Listen in this session; once more does no harm."""
        if not self._line.pooled:
            for channel, heard in self._listeners.items():
                await raw.add_listener(channel, heard)

    async def _check_schema(self) -> None:
        text, wanted = queries.get("schema_version"), newest_pre()
        raw = await self._live()
        try:
            found = await raw.fetchval(text, timeout=self._command_timeout)
        except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
            raise SchemaMissing from None
        except asyncpg.InsufficientPrivilegeError:
            raise DatabaseRefused(
                "this database role may not read Rowlock's schema: "
                "grant it rowlock_worker, rowlock_operator or rowlock_reader"
            ) from None
        except faults.DRIVER as error:
            raise faults.translate(error, self._target.place) from None
        if found < wanted:
            raise SchemaMissing(
                f"the database has version {found} of Rowlock's schema, "
                f"this program needs {wanted}: run `rowlock migrate`"
            )

    async def _roll_back(self) -> None:
        if self._raw is None or self._raw.is_closed():
            return
        try:
            await self._raw.execute("ROLLBACK", timeout=self._command_timeout)
        except faults.DRIVER:
            self._drop()
        except asyncio.CancelledError:
            self._drop()
            raise

    def _drop(self) -> None:
        if self._raw is not None and not self._raw.is_closed():
            self._raw.terminate()
