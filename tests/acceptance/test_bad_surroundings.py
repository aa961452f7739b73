"""What operator and worker say of a database or a cluster that cannot be used: one line each."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from aiohttp import web

from rowlock.store.versions import newest_pre
from tests.conftest import on_database, run_cli
from tests.faults import FaultyApi
from tests.operators import Stage, access, stage_fixture  # noqa: F401

pytestmark = pytest.mark.cluster

SECRET = "s3cret-Pa55"
PROGRAMS = ("operator", "worker")


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    said: list[str]

    def assert_one_line(self, program: str, *words: str) -> None:
        """Assert exit code 2 and one line with these words, without a secret."""
        assert self.code == 2, self.said
        [line] = self.said
        assert line.startswith("rowlock-operator: " if program == "operator" else "rowlock: ")
        assert SECRET not in line
        for word in words:
            assert word in line


async def run(program: str, stage: Stage, url: str, *flags: str) -> Ended:
    """Run operator or worker on `url` to its end."""
    if program == "operator":
        flags = ("--kubeconfig", str(stage.cluster.kubeconfig), "--no-election", *flags)
        command = [sys.executable, "-m", "rowlock_operator", "--http-port", "0", *flags]
    else:
        command = [sys.executable, "-m", "rowlock.cli", "worker", "--processes", "1", *flags]
    environment = {
        "ROWLOCK_DATABASE_URL": url,
        "ROWLOCK_NAMESPACES": stage.namespace,
        "ROWLOCK_START_TIMEOUT_SECONDS": "2",
        "ROWLOCK_CONNECT_TIMEOUT_SECONDS": "2",
    }
    done = await asyncio.to_thread(run_cli, *command, env=environment)
    assert "Traceback" not in done.stderr
    return Ended(done.returncode, (done.stdout + done.stderr).splitlines())


def with_password(url: str, password: str) -> str:
    """Return the URL with another password."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"postgres:{password}@{place}"))


@pytest.fixture(name="empty")
async def empty_fixture(postgres_url: str) -> AsyncIterator[str]:
    """URL of a database without our schema."""
    name = f"empty_{uuid.uuid4().hex[:12]}"
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(f'CREATE DATABASE "{name}"')
    yield on_database(postgres_url, name)
    await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await admin.close()


@contextlib.asynccontextmanager
async def renamed(url: str, version: str) -> AsyncIterator[str]:
    """Yield the URL of a real server that greets with another version of the same length.

    That is all that a driver learns of a server's age.
    """
    admin = await asyncpg.connect(url)
    [real] = [str(admin.get_settings().server_version).split()[0]]
    await admin.close()
    fake = version.ljust(len(real), "0").encode()
    place = urlsplit(url)

    async def carry(
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        change: Callable[[bytes], bytes],
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(change(data))
                await writer.drain()
        writer.close()

    def greeting(data: bytes) -> bytes:
        return data.replace(b"server_version\0" + real.encode(), b"server_version\0" + fake)

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(place.hostname, place.port)
        await asyncio.gather(carry(reader, back, lambda data: data), carry(there, writer, greeting))

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield urlunsplit(place._replace(netloc=f"{place.netloc.rpartition(':')[0]}:{port}"))


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_refused_login_is_one_line(program: str, stage: Stage) -> None:
    """It ends instead of trying again, for only a new process reads a Secret anew."""
    ended = await run(program, stage, with_password(stage.dsn, SECRET))
    ended.assert_one_line(program, "refuses this login")
    ended = await run(program, stage, on_database(stage.dsn, "nowhere"))
    ended.assert_one_line(program, "refuses this login", "nowhere")


@pytest.mark.parametrize("program", PROGRAMS)
async def test_an_old_postgresql_is_one_line(program: str, stage: Stage) -> None:
    async with renamed(stage.dsn, "13.") as url:
        ended = await run(program, stage, url)
    ended.assert_one_line(program, "PostgreSQL 13 is too old", "14 or newer")


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_host_out_of_reach_is_waited_for(program: str, stage: Stage) -> None:
    url = f"postgresql://u:{SECRET}@127.0.0.1:1/db"
    ended = await run(program, stage, url)
    assert ended.code == 1
    assert len([line for line in ended.said if "Waiting" in line]) >= 1
    assert "127.0.0.1:1 is out of reach" in ended.said[-1]
    assert SECRET not in "".join(ended.said)


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_missing_or_older_schema_is_one_line(
    program: str, stage: Stage, empty: str
) -> None:
    ended = await run(program, stage, empty)
    ended.assert_one_line(program, "rowlock migrate")

    newest = newest_pre()
    await stage.sql.execute("DELETE FROM rowlock.migration WHERE number = $1", newest)
    ended = await run(program, stage, stage.dsn)
    ended.assert_one_line(program, "has version", f"needs {newest}", "rowlock migrate")


async def test_a_newer_schema_is_fine(stage: Stage) -> None:
    """A rollback keeps the schema: old code runs on it."""
    await stage.sql.execute(
        "INSERT INTO rowlock.migration (number, name, phase) VALUES ($1, $2, 'pre')",
        newest_pre() + 1,
        "9999_pre_of_the_future.sql",
    )
    operator = await stage.operator()
    assert operator.process.poll() is None


def version(minor: str) -> Callable[[web.Request], web.Response | None]:
    """Let the API server say that it is of another release."""

    def fault(request: web.Request) -> web.Response | None:
        if request.path != "/version":
            return None
        return web.json_response({"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"})

    return fault


def without_kinds(request: web.Request) -> web.Response | None:
    """Answer as an API server without our definitions does."""
    if not request.path.startswith("/apis/rowlock.dev/"):
        return None
    return web.Response(status=404, text="404 page not found\n")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (version("31"), ("Kubernetes 1.31 is too old", "1.32 or newer")),
        (version("29+"), ("Kubernetes 1.29+ is too old", "1.32 or newer")),
        (without_kinds, ("agentruns.rowlock.dev", "rowlock-crds")),
    ],
)
async def test_a_cluster_that_cannot_be_used_is_one_line(
    stage: Stage,
    access: object,  # noqa: F811
    fault: Callable[[web.Request], web.Response | None],
    words: tuple[str, ...],
) -> None:
    api = FaultyApi(access)  # type: ignore[arg-type]
    api.fault = fault
    async with api.serving():
        config = api.kubeconfig(stage.cluster.kubeconfig, stage.folder)
        ended = await run("operator", stage, stage.dsn, "--kubeconfig", str(config))
    ended.assert_one_line("operator", *words)
