"""What all tests share: a PostgreSQL and an API server a session, a migrated database a test.

`ROWLOCK_DATABASE_URL` makes the session use that server instead of an embedded one;
its role must be allowed to create databases. `TEST_POSTGRES` names a folder with the programs
of another version, to be started instead.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from rowlock.embedded import EmbeddedPostgres
from rowlock.store.connection import Connection
from rowlock.store.migrate import migrate

pytest_plugins = ["localcluster.pytest_plugin"]

_TEMPLATE = "rowlock_template"

# A shell in the background hands SIGINT down as ignored, and processes of tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def on_database(url: str, name: str) -> str:
    """Return `url` with its database replaced by `name`."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of the session's server, with a role that may create databases.

    An embedded one stands in memory where there is room: each test makes and drops a database of
    500 files, which takes a disk a second and more. Tests that crash a server have their own.
    """
    given = os.environ.get("ROWLOCK_DATABASE_URL")
    if given:
        yield given
        return
    programs = Path(other) if (other := os.environ.get("TEST_POSTGRES")) else None
    with EmbeddedPostgres(parent=_in_memory(), programs=programs) as server:
        yield server.url()


def _in_memory() -> Path | None:
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK):
        return None
    return shm if shutil.disk_usage(shm).free > 4 * 1024**3 else None


@pytest.fixture(scope="session")
def template(postgres_url: str) -> str:
    """Name of a migrated database to copy from: a copy takes a tenth of a migration."""
    name = f"{_TEMPLATE}_{uuid.uuid4().hex[:8]}"

    async def prepare() -> None:
        admin = await asyncpg.connect(postgres_url)
        await admin.execute(f'CREATE DATABASE "{name}"')
        await admin.close()
        await migrate(on_database(postgres_url, name))

    asyncio.run(prepare())
    return name


@pytest.fixture
async def dsn(postgres_url: str, template: str) -> AsyncIterator[str]:
    """URL of a fresh, migrated database for this test alone."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    try:
        yield on_database(postgres_url, name)
    finally:
        await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        await admin.close()


@pytest.fixture
async def connect(dsn: str) -> AsyncIterator[Callable[[], object]]:
    """A function that opens store connections to the test's database and closes them at the end."""
    opened: list[Connection] = []

    async def open_one() -> Connection:
        opened.append(await Connection.open(dsn, name="test"))
        return opened[-1]

    yield open_one
    for connection in opened:
        await connection.close()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's shell reaches a test."""
    for name in list(os.environ):
        if name.startswith("ROWLOCK_"):
            monkeypatch.delenv(name)


def run_cli(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of our console scripts to its end and return what it printed."""
    return subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **(env or {})},
    )
