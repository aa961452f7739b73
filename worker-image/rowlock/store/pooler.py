"""Connecting, whether or not a pooler such as PgBouncer stands between.

A pooler in transaction mode gives each transaction another session. A statement that was prepared
in one session is missing in the next, or worse: there its name may stand for the statement
of another process, which would then run in its place. So before anything else is asked:

* Is there a pooler? It makes up the process id that it tells its clients,
  so the number differs from what `pg_backend_pid()` says.
* Does it keep track of prepared statements, as PgBouncer does from 1.21 on with
  `max_prepared_statements` above 0? It then renames them: the server knows ours by another name.

Without such a pooler, or with one that keeps track, statements are prepared once.
Else each is sent unnamed, parsed and run in one go, for which every pooler keeps one session;
the server plans it each time.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import asyncpg

from rowlock.store import queries

if TYPE_CHECKING:
    _Raw: TypeAlias = asyncpg.Connection[asyncpg.Record]


#: A statement is planned anew after this, in case its tables have grown out of its plan.
_PLAN_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class Line:
    """What stands between us and the server.

    Parameters
    ----------
    prepares
        Whether statements may be prepared under a name and used again.
    """

    pooled: bool
    prepares: bool


async def connect(dsn: str, *, name: str, timeout: float) -> tuple[_Raw, Line]:
    """Connect, and once more without prepared statements where they are not safe.

    Parameters
    ----------
    name
        What `pg_stat_activity` shows as the application.
    timeout
        Seconds, for all of it.

    Raises
    ------
    OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError
        As the driver raises them.
    """
    async with asyncio.timeout(timeout):
        raw = await _open(dsn, name, timeout)
        try:
            line = await _look(raw)
        except BaseException:
            raw.terminate()
            raise
        if line.prepares:
            return raw, line
        raw.terminate()
        return await _open(dsn, name, timeout, statement_cache_size=0), line


async def _open(dsn: str, name: str, timeout: float, **options: Any) -> _Raw:
    return await asyncpg.connect(
        dsn,
        timeout=timeout,
        max_cached_statement_lifetime=_PLAN_SECONDS,
        max_cacheable_statement_size=0,
        server_settings={"application_name": name},
        **options,
    )


async def _look(raw: _Raw) -> Line:
    told = raw.get_server_pid()
    unnamed = await raw.prepare(queries.get("backend_pid"), name="")
    if await unnamed.fetchval() == told:
        return Line(pooled=False, prepares=True)
    return Line(pooled=True, prepares=await _renames(raw))


async def _renames(raw: _Raw) -> bool:
    """Prepare a statement that asks the server whether it knows it by the name that we gave."""
    name = f"rowlock_{secrets.token_hex(8)}"
    async with raw.transaction():  # which holds one session of the server
        probe = await raw.prepare(queries.get("knows_prepared"), name=name)
        known = bool(await probe.fetchval(name))
        if known:
            await raw.execute(f"DEALLOCATE {name}")  # else it stays in a session of the pooler's
    return not known
