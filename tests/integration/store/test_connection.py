"""A connection says what is wrong without saying the password, and comes back by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from urllib.parse import quote, urlsplit, urlunsplit

import pytest

from rowlock.embedded import EmbeddedPostgres
from rowlock.errors import DatabaseRefused, InvalidDatabaseURL, RowlockError, StoreUnavailable
from rowlock.store import dsn as urls
from rowlock.store import intake
from rowlock.store.connection import Connection
from tests.integration.store.world import World, pid, raw_of

PASSWORD = "s3cr/t?#[@]: %&=ü'\""


def with_parts(url: str, **parts: str) -> str:
    """Return `url` with its user, password, host or path replaced."""
    split = urlsplit(url)
    user = parts.get("user", split.username)
    password = parts.get("password", split.password)
    host = parts.get("host", f"{split.hostname}:{split.port}")
    return urlunsplit(
        split._replace(netloc=f"{user}:{password}@{host}", path=parts.get("path", split.path))
    )


def whole_chain(error: BaseException) -> str:
    seen, text = error, ""
    while seen is not None:
        text += f"{seen!r} {seen} "
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)  # type: ignore[assignment]
    return text


# -------------------------------------------------------------------- URLs


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost",
        "mysql://u:geheim@host/db",
        "http://geheim",
        "postgresql://u:geheim/rest@host/db",
        "postgresql://u:geheim#rest@host/db",
        "postgresql://u:geheim?rest@host/db",
        "postgresql://u:geheim@rest@host/db",
        "postgresql://u:geheim@host:port/db",
        "postgresql://u:[geheim@host/db",
        "postgresql://u:geheim@host/db#fragment",
    ],
)
async def test_unusable_url_is_refused_with_advice_and_without_its_text(url: str) -> None:
    with pytest.raises(InvalidDatabaseURL) as caught:
        await Connection.open(url, name="test")
    assert "geheim" not in whole_chain(caught.value)
    assert "postgresql://user:password@" in str(caught.value)
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u:p@db.example:5432/name", "db.example:5432"),
        ("postgres://u:p%40@db/name?sslmode=require", "db"),
        ("postgresql:///name?host=/run/postgresql", "its default place"),
        ("postgresql://u@a:1,b:2/name?target_session_attrs=primary", "a:1,b:2"),
    ],
)
def test_usable_url_shows_only_its_host(url: str, place: str) -> None:
    target = urls.parse(url)
    assert target.place == place
    assert url not in repr(target)


async def test_password_with_any_character_works_and_never_shows(world: World) -> None:
    quoted = PASSWORD.replace("'", "''")
    await world.sql(f"CREATE ROLE special LOGIN PASSWORD '{quoted}' IN ROLE rowlock_worker")
    try:
        url = with_parts(world.dsn, user="special", password=quote(PASSWORD, safe=""))
        connection = await Connection.open(url, name="test")
        assert PASSWORD not in repr(connection)
        assert quote(PASSWORD, safe="") not in repr(connection)
        await connection.close()
    finally:
        await world.sql("DROP ROLE special")


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ({"password": "geheim"}, DatabaseRefused),
        ({"user": "nobody_here", "password": "geheim"}, DatabaseRefused),
        ({"path": "/no_such_database"}, DatabaseRefused),
        ({"password": "geheim", "host": "127.0.0.1:1"}, StoreUnavailable),
        ({"password": "geheim", "host": "no-such-host.invalid:5432"}, StoreUnavailable),
    ],
)
async def test_login_that_fails_says_why_and_keeps_the_password(
    world: World, parts: dict[str, str], error: type[RowlockError]
) -> None:
    url = with_parts(world.dsn, **parts)
    with pytest.raises(error) as caught:
        await Connection.open(url, name="test")
    said = whole_chain(caught.value)
    assert (urlsplit(url).password or "") not in said
    assert (urlsplit(url).netloc.rpartition("@")[2]) in said


async def test_server_that_gives_no_answer_is_unavailable_in_bounded_time() -> None:
    gone = asyncio.Event()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(StoreUnavailable, match="in time"):
        await Connection.open(
            f"postgresql://u:geheim@127.0.0.1:{port}/db", name="test", connect_timeout=0.2
        )
    await gone.wait()
    server.close()
    await server.wait_closed()


async def test_server_that_is_too_old_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.store.connection.OLDEST_SERVER", 1000)
    with pytest.raises(DatabaseRefused, match="too old"):
        await Connection.open(world.dsn, name="test")


# -------------------------------------------------------------------- one connection


async def test_application_is_named(world: World) -> None:
    name = "SELECT application_name FROM pg_stat_activity WHERE pid = $1"
    assert await world.value(name, pid(world.store)) == "rowlock test"


async def test_statements_take_turns(world: World) -> None:
    answers = await asyncio.gather(*(world.store.fetch("pool_demand") for _ in range(20)))
    assert all(len(answer) == 1 for answer in answers)


async def test_others_wait_for_a_transaction_to_end(world: World) -> None:
    async with world.store.transaction():
        [made] = await intake.enqueue(world.store, world.new(1))
        other = asyncio.create_task(world.store.fetch("finished", [made.run_id]))
        await intake.enqueue(world.store, world.new(1))
        assert not other.done()
    await other
    assert await world.count("run") == 2


async def test_transaction_that_fails_leaves_nothing(world: World) -> None:
    async def fail() -> None:
        async with world.store.transaction():
            await world.enqueue()
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await fail()
    assert await world.count("run") == 0
    await world.enqueue()


async def test_transaction_that_loses_its_connection_does_not_go_on_with_another(
    world: World,
) -> None:
    connection = await world.connect()

    async def go_on() -> None:
        async with connection.transaction():
            await intake.enqueue(connection, world.new(1))
            await world.value("SELECT pg_terminate_backend($1)", pid(connection))
            with pytest.raises(StoreUnavailable):
                await intake.enqueue(connection, world.new(1))
            await intake.enqueue(connection, world.new(1))

    with pytest.raises(StoreUnavailable):
        await go_on()
    assert await world.count("run") == 0
    await intake.enqueue(connection, world.new(1))
    assert await world.count("run") == 1


async def test_transaction_takes_a_snapshot_a_statement_whatever_the_default(world: World) -> None:
    await world.sql("SET default_transaction_isolation = 'repeatable read'")
    async with world.store.transaction():
        assert await world.value("SHOW transaction_isolation") == "read committed"


async def test_transaction_that_hangs_is_ended_by_the_server(world: World) -> None:
    async with world.store.transaction():
        limit = await world.value("SHOW idle_in_transaction_session_timeout")
    assert limit == "10s"
    assert await world.value("SHOW idle_in_transaction_session_timeout") == "0"


async def test_next_call_after_a_loss_connects_again(world: World) -> None:
    connection = await world.connect()
    before = pid(connection)
    await world.value("SELECT pg_terminate_backend($1)", before)
    # Whether the first call still meets the old session depends on when its end is noticed.
    with contextlib.suppress(StoreUnavailable):
        while pid(connection) == before:
            await connection.fetch("pool_demand")
    assert await connection.fetch("pool_demand")
    assert pid(connection) != before
    assert not connection.closed


async def test_statement_that_takes_too_long_is_given_up_and_the_next_one_works(
    world: World,
) -> None:
    connection = await Connection.open(world.dsn, name="test", command_timeout=0.2)
    async with world.holding("LOCK TABLE rowlock.pool"):
        with pytest.raises(StoreUnavailable, match="in time"):
            await intake.ensure_pool(connection, namespace="n", name="p")
    assert await intake.ensure_pool(connection, namespace="n", name="p")
    await connection.close()


async def test_cancelled_call_leaves_a_working_connection(world: World) -> None:
    connection = await world.connect()
    async with world.holding("LOCK TABLE rowlock.pool"):
        calling = asyncio.create_task(intake.ensure_pool(connection, namespace="n", name="p"))
        await world.blocked(connection)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert await intake.ensure_pool(connection, namespace="n", name="p")


async def test_closing_does_not_wait_for_a_statement_in_flight(world: World) -> None:
    connection = await world.connect()
    async with world.holding("LOCK TABLE rowlock.pool"):
        calling = asyncio.create_task(intake.ensure_pool(connection, namespace="n", name="p"))
        await world.blocked(connection)
        await connection.close()
        with pytest.raises(StoreUnavailable):
            await calling


async def test_closed_connection_stays_closed(world: World) -> None:
    connection = await world.connect()
    await connection.close()
    await connection.close()
    assert connection.closed
    with pytest.raises(StoreUnavailable, match="closed"):
        await connection.fetch("pool_demand")


async def test_plan_made_before_a_migration_is_made_again(own_world: World) -> None:
    world = own_world
    other = await world.connect()
    await intake.run_ids_by_object(other, cluster="c", uids=["u"])
    await world.sql("ALTER TABLE rowlock.run_object ALTER COLUMN uid TYPE varchar(80)")
    for _ in range(2):
        assert await intake.run_ids_by_object(other, cluster="c", uids=["u"]) == {}


# -------------------------------------------------------------------- a server that goes away


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    """A server that tests may stop."""
    with EmbeddedPostgres() as running:
        yield running


async def test_server_that_restarts_is_found_again(server: EmbeddedPostgres) -> None:
    connection = await Connection.open(server.url(), name="test", check_schema=False)
    await asyncio.to_thread(server.stop)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await connection.fetchone("has_migration_table")
    await asyncio.to_thread(server.start)
    assert not (await connection.fetchone("has_migration_table"))["there"]
    await connection.close()


async def test_server_that_only_reads_is_unavailable_not_a_bad_row(world: World) -> None:
    connection = await world.connect()
    await raw_of(connection).execute("SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match="25006"):
        await intake.enqueue(connection, world.new(1))
    # The session is not trusted any more: the next one may be with another server.
    assert await intake.enqueue(connection, world.new(1))


async def test_too_many_connections_is_unavailable(world: World) -> None:
    await world.sql("CREATE ROLE crowded LOGIN PASSWORD 'geheim' CONNECTION LIMIT 0")
    try:
        with pytest.raises(StoreUnavailable, match="53300"):
            await Connection.open(
                with_parts(world.dsn, user="crowded", password="geheim"), name="test"
            )
    finally:
        await world.sql("DROP ROLE crowded")
