"""What all commands share: how they fail, who asks, and where their database is."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NoReturn, TypeVar

import typer

from rowlock.errors import (
    AgentLoadError,
    ConfigurationError,
    IdempotencyConflict,
    InvalidInput,
    InvalidRequest,
    RowlockError,
    TooLarge,
    UnknownAgent,
    UnknownPool,
)
from rowlock.settings import DatabaseSettings
from rowlock.store.connection import Connection

T = TypeVar("T")

#: What only another command line, or another configuration, would mend: nothing was done.
WRONG: Final = (
    AgentLoadError,
    ConfigurationError,
    IdempotencyConflict,
    InvalidInput,
    InvalidRequest,
    TooLarge,
    UnknownAgent,
    UnknownPool,
)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn our errors into one line and an exit code."""
    try:
        yield
    except WRONG as error:
        _fail(error, code=2)
    except RowlockError as error:
        _fail(error, code=1)


def _fail(error: Exception, *, code: int) -> NoReturn:
    text = " ".join(str(error).split())
    sys.stderr.write(f"rowlock: {text}\n")
    raise typer.Exit(code)


def me() -> str:
    """Return who asks, for what is kept with a run."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return f"uid {os.getuid()}"


async def with_store(use: Callable[[Connection], Awaitable[T]], url: str) -> T:
    """Use a connection to a database.

    Raises
    ------
    ConfigurationError, StoreUnavailable
        It refuses us, or is away.
    """
    connection = await Connection.open(url, name="cli")
    try:
        return await use(connection)
    finally:
        await connection.close()


def database_url(settings: DatabaseSettings) -> str:
    """Return the URL.

    Raises
    ------
    ConfigurationError
        It is not set.
    """
    url = settings.database_url.get_secret_value()
    if not url:
        raise ConfigurationError(
            "ROWLOCK_DATABASE_URL is not set: postgresql://user:password@host:5432/name"
        )
    return url
