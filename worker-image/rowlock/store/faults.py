"""What the driver raises, and which of our errors it becomes.

What can go wrong, and what becomes of it:

============================================  ==========================================
the URL cannot be parsed                      `InvalidDatabaseURL`
wrong password, role or database; too old     `DatabaseRefused`, while opening only
no schema, or an older one                    `SchemaMissing`, while opening only
SQLSTATE class 22, 23, 54                     `RowRejected`: this row can never be stored
no partition for the row's day                made, and tried once more
anything else                                 `StoreUnavailable`: the commit is unknown
============================================  ==========================================

What is about the database, not about the row, is retried and fails no run.
No message holds anything of the URL but host and port.
"""

from __future__ import annotations

from typing import Final

import asyncpg

from rowlock.errors import DatabaseRefused, RowlockError, RowRejected, StoreError, StoreUnavailable
from rowlock.store import dsn as urls

#: All that a call of the driver raises. The internal error is what a session answers with
#: when the server ended it while nothing was asked.
DRIVER: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
#: Classes of data exceptions, broken constraints and exceeded program limits.
_REJECTED: Final = ("22", "23", "54")
_REFUSED: Final = ("28", "3D", "42501")
#: Classes after which the session is not to be trusted, nor perhaps the server behind it:
#: lost, ended, read-only, without its prepared statements, or broken.
_ENDED: Final = ("08", "57", "25", "26", "0A", "XX")
#: Characters of the server's message that we keep: it may quote a whole value.
_LONGEST: Final = 500


class MissingPartition(StoreUnavailable):
    """The partition of the row's day is missing."""


def translate(error: Exception, place: str) -> StoreError:
    """Return our error for one of the driver's, without anything of the URL but host and port."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state == "23514" and "no partition of relation" in str(error):
            return MissingPartition("the database has no partition for this row's day")
        if state[:2] in _REJECTED:
            said = str(error)[:_LONGEST]
            return RowRejected(f"PostgreSQL refuses the row ({state}): {said}", sqlstate=state)
        return StoreUnavailable(f"PostgreSQL said {state or 'nothing'}: {error}")
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"PostgreSQL at {place} gave no answer in time")
    return StoreUnavailable(
        f"the connection to PostgreSQL at {place} is lost ({type(error).__name__})"
    )


def ends_session(error: Exception) -> bool:
    """Say whether the session's state is unknown after this error."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "")[:2] in _ENDED
    return True


def connect_error(error: Exception, place: str, *, opening: bool) -> RowlockError:
    """Return our error for a failed connection attempt; later attempts never stop a process."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if opening and state.startswith(_REFUSED):
            return DatabaseRefused(f"PostgreSQL at {place} refuses this login: {error}")
        return StoreUnavailable(f"PostgreSQL at {place} takes no connection ({state}): {error}")
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"PostgreSQL at {place} gave no answer in time")
    if isinstance(error, OSError):
        return StoreUnavailable(f"PostgreSQL at {place} is out of reach ({type(error).__name__})")
    return urls.invalid() if opening else StoreUnavailable(f"PostgreSQL at {place} is out of reach")
