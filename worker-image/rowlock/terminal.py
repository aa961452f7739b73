"""What all commands share: how they fail, and where their database is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import NoReturn

import typer

from rowlock.errors import ConfigurationError, RowlockError
from rowlock.settings import DatabaseSettings


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn our errors into one line and an exit code."""
    try:
        yield
    except ConfigurationError as error:
        _fail(error, code=2)
    except RowlockError as error:
        _fail(error, code=1)


def _fail(error: RowlockError, *, code: int) -> NoReturn:
    text = " ".join(str(error).split())
    sys.stderr.write(f"rowlock: {text}\n")
    raise typer.Exit(code)


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
