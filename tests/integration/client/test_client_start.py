"""Starting runs: by name, by object, many at once, once for a key; and what is refused."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from rowlock import (
    Client,
    IdempotencyConflict,
    InvalidInput,
    InvalidRequest,
    UnknownAgent,
    UnknownPool,
)
from rowlock.errors import (
    AgentLoadError,
    ConfigurationError,
    SchemaMissing,
    StoreUnavailable,
    TooLarge,
)
from rowlock.states import Phase
from rowlock.store import caps, intake
from rowlock.store.bodies import decode
from rowlock.store.caps import Caps
from rowlock.store.connection import Connection
from tests.client_agents import Question, parrot, shouter
from tests.integration.client.conftest import Played, count_runs
from tests.integration.store.world import raw_of

SECRET = "s3cret-pass"


async def test_an_object_is_registered_and_its_result_has_its_type(
    client: Client, played: Played, sql: asyncpg.Connection[Any]
) -> None:
    run = await client.start(shouter, Question(text="hi"), key="customer-7", priority=3)
    [claimed] = await played.claim()
    await played.finish(claimed, {"text": "HI"})

    result = await run.wait(timeout=10)

    assert type(result).__name__ == "Shout"
    assert result.text == "HI"
    entry = await sql.fetchval("SELECT entrypoint FROM rowlock.agent_revision")
    assert entry == "tests.client_agents:shouter"
    row = await sql.fetchrow("SELECT input, key, priority FROM rowlock.run")
    assert row is not None
    assert (decode(row["input"]), row["key"], row["priority"]) == (
        {"text": "hi", "times": 1},
        "customer-7",
        3,
    )


async def test_a_chat_agent_and_an_entry_point_are_found_too(
    client: Client, played: Played, sql: asyncpg.Connection[Any]
) -> None:
    by_object = await client.start(parrot, "hello")
    by_entry = await client.start("tests.client_agents:parrot", "hello")
    for claimed in await played.claim(2):
        await played.finish(claimed, "Hello to you too.")

    assert [await by_object.wait(10), await by_entry.wait(10)] == ["Hello to you too."] * 2
    assert await sql.fetchval("SELECT count(*) FROM rowlock.agent_revision") == 1


async def test_a_registered_agent_is_known_by_its_name_with_its_defaults(
    client: Client, store: Connection, sql: asyncpg.Connection[Any]
) -> None:
    for name in ("default", "gpu"):
        await intake.ensure_pool(store, namespace="", name=name)
    await intake.ensure_agent(
        store,
        namespace="",
        name="support",
        entrypoint="m:a",
        digest="1",
        spec=b'{"entrypoint":"m:a","runDefaults":{"workerPoolRef":{"name":"gpu"},"maxTakeovers":2,'
        b'"maxAttempts":3,"queueDeadlineSeconds":60}}',
    )

    run = await client.start("support", {"order": 7}, max_takeovers=1)

    row = await sql.fetchrow(
        "SELECT p.name, q.max_takeovers, q.queue_deadline IS NOT NULL AS due, r.options "
        "FROM rowlock.run_ready q JOIN rowlock.pool p USING (pool_id) "
        "JOIN rowlock.run r USING (run_id) WHERE run_id = $1",
        run.id,
    )
    assert row is not None
    assert (row["name"], row["max_takeovers"], row["due"]) == ("gpu", 1, True)
    assert decode(row["options"])["max_attempts"] == 3


async def test_a_paused_agent_takes_in_nothing(client: Client, store: Connection) -> None:
    await intake.ensure_agent(
        store, namespace="", name="a", entrypoint="m:a", digest="1", spec=b'{"intake":"Paused"}'
    )

    with pytest.raises(InvalidRequest, match="Paused"):
        await client.start("a")


async def test_registering_leaves_the_caps_of_an_agent_alone(
    client: Client, store: Connection, sql: asyncpg.Connection[Any]
) -> None:
    await client.start(shouter, {"text": "first"})
    agent = await sql.fetchval("SELECT agent_id FROM rowlock.agent")
    await caps.set_caps(store, agent, Caps(1, None, None))

    async with Client(client._dsn) as other:
        await other.start(shouter, {"text": "second"})

    assert await sql.fetchval("SELECT max_running FROM rowlock.agent") == 1
    assert await sql.fetchval("SELECT count(*) FROM rowlock.run_backlog") == 1


async def test_a_key_and_its_input_give_one_run(
    client: Client, sql: asyncpg.Connection[Any]
) -> None:
    first = await client.start(shouter, {"text": "pay"}, idempotency_key="order-1")
    again = await client.start(shouter, {"text": "pay"}, idempotency_key="order-1")

    assert (first.id, first.created, again.created) == (again.id, True, False)
    assert await count_runs(sql) == 1


async def test_a_key_with_another_input_is_a_conflict_that_names_the_run(client: Client) -> None:
    first = await client.start(shouter, {"text": "pay 10"}, idempotency_key="order-1")

    with pytest.raises(IdempotencyConflict, match=f"'order-1' belongs to run {first.id}") as raised:
        await client.start(shouter, {"text": "pay 20"}, idempotency_key="order-1")

    assert raised.value.runs == {"order-1": first.id}


async def test_ten_thousand_runs_in_one_call(client: Client, sql: asyncpg.Connection[Any]) -> None:
    """A few statements, not ten thousand; the order is that of the inputs."""
    await client.start(shouter, {"text": "warm"})
    before = await sql.fetchval("SELECT count(*) FROM rowlock.run")

    runs = await client.start_many(shouter, [{"text": str(n)} for n in range(10_000)])

    assert await count_runs(sql) - before == len({run.id for run in runs}) == 10_000
    for place in (0, 999, 1000, 9_999):
        body = await sql.fetchval("SELECT input FROM rowlock.run WHERE run_id = $1", runs[place].id)
        assert decode(body)["text"] == str(place)


async def test_many_with_keys_can_be_repeated(client: Client, sql: asyncpg.Connection[Any]) -> None:
    inputs = [{"text": str(n)} for n in range(1_500)]
    keys = [f"key-{n}" for n in range(1_500)]
    await client.start_many(shouter, inputs[:700], idempotency_keys=keys[:700])

    runs = await client.start_many(shouter, inputs, idempotency_keys=keys)

    assert [run.created for run in runs] == [False] * 700 + [True] * 800
    assert await count_runs(sql) == 1_500


async def test_a_conflict_among_many_names_each_and_accepts_the_others(
    client: Client, sql: asyncpg.Connection[Any]
) -> None:
    held = await client.start(shouter, {"text": "x"}, idempotency_key="b")

    with pytest.raises(IdempotencyConflict) as raised:
        await client.start_many(
            shouter, [{"text": t} for t in "abc"], idempotency_keys=["a", "b", "c"]
        )

    assert raised.value.runs == {"b": held.id}
    assert await count_runs(sql) == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"priority": 1001}, "priority: must be a whole number from -1000 to 1000, not 1001"),
        ({"priority": True}, "priority"),
        ({"queue_deadline": 0}, "queue_deadline: must be seconds above 0"),
        ({"active_deadline": float("nan")}, "active_deadline"),
        ({"max_attempts": 0}, "max_attempts: must be a whole number from 1 to 20"),
        ({"max_takeovers": 101}, "max_takeovers"),
        ({"key": ""}, "key: must be text of 1 to 128 characters"),
        ({"idempotency_key": "x" * 129}, "idempotency_key: must be text of 1 to 128"),
        ({"key": "a\0b"}, "key: holds characters that PostgreSQL cannot store"),
        ({"key": "\ud800"}, "key: holds characters"),
    ],
)
async def test_a_wrong_parameter_is_named_and_nothing_is_written(
    client: Client, sql: asyncpg.Connection[Any], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        await client.start(shouter, {"text": "x"}, **options)

    assert await count_runs(sql) == 0


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"times": 2}, "input: The input does not fit agent 'shouter': text: is required"),
        ({"text": "x", "times": "often"}, "times: Input should be a valid integer"),
        (object(), "input: cannot be written as JSON"),
        ("just text", "input"),
    ],
)
async def test_an_input_that_does_not_fit_is_refused_before_anything_is_written(
    client: Client, sql: asyncpg.Connection[Any], value: object, says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        await client.start(shouter, value)

    assert await count_runs(sql) == 0


async def test_one_wrong_input_among_many_is_named_by_its_place(
    client: Client, sql: asyncpg.Connection[Any]
) -> None:
    with pytest.raises(InvalidInput, match=r"inputs\[2\]: .*text: is required"):
        await client.start_many(shouter, [{"text": "a"}, {"text": "b"}, {}])
    with pytest.raises(InvalidRequest, match="keys: must be a list with one for each of 2"):
        await client.start_many(shouter, [{"text": "a"}, {"text": "b"}], keys=["one"])

    assert await count_runs(sql) == 0


async def test_an_input_over_a_mebibyte_is_too_large(client: Client) -> None:
    with pytest.raises(TooLarge, match="at most 1048576 are allowed"):
        await client.start(shouter, {"text": "x" * 1024 * 1024})


async def test_an_unknown_agent_is_answered_with_those_that_are_known(client: Client) -> None:
    with pytest.raises(UnknownAgent, match="none is registered yet"):
        await client.start("suport")
    await client.start(shouter, {"text": "x"})
    await client.start(parrot, "x")

    with pytest.raises(UnknownAgent, match="no 'suport'; those known are parrot, shouter"):
        await client.start("suport")


async def test_an_unknown_pool_is_answered_with_those_that_are_known(client: Client) -> None:
    await client.start(shouter, {"text": "x"})

    with pytest.raises(UnknownPool, match="pool: there is no 'gpu'; those known are default"):
        await client.start(shouter, {"text": "x"}, pool="gpu")


async def test_what_is_no_agent_is_refused(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="agent: a dict is no agent"):
        await client.start({}, "x")  # type: ignore[call-overload]
    with pytest.raises(AgentLoadError, match="No module named 'no_such_module'"):
        await client.start("no_such_module:agent", "x")


async def test_the_role_of_a_worker_starts_by_name_and_only_the_operators_registers(
    client: Client, played: Played
) -> None:
    """What the how-to page says of roles."""
    await client.start(parrot, "x")
    await raw_of(client._store).execute("SET ROLE rowlock_worker")
    for claimed in await played.claim(1):
        await played.finish(claimed, "x")

    run = await client.start("parrot", "x", idempotency_key="k")
    [waiting] = await client.list(phase="Queued")
    assert (waiting.id, await client.approvals()) == (run.id, [])
    assert await run.suspend()
    assert await run.continue_()
    assert await run.cancel()
    assert await run.retry() == 2
    with pytest.raises(StoreUnavailable, match="permission denied for table agent"):
        await client.start(shouter, {"text": "x"})

    await raw_of(client._store).execute("RESET ROLE; SET ROLE rowlock_operator")
    assert (await client.start(shouter, {"text": "x"})).created


async def test_a_namespace_keeps_agents_apart(client: Client, dsn: str) -> None:
    run = await client.start(shouter, {"text": "x"})

    async with Client(dsn, namespace="team") as team:
        with pytest.raises(UnknownAgent, match="in namespace 'team'"):
            await team.start("shouter", {"text": "x"})
        assert await team.list() == []
    assert (await client.get(run)).phase is Phase.QUEUED


async def test_no_credential_is_ever_shown(
    dsn: str, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    place = dsn.rpartition("@")[2]
    wrong = f"postgresql://postgres:{SECRET}@{place}"
    client = Client(wrong)

    assert SECRET not in repr(client)
    assert place.partition("/")[0] in repr(client)
    with pytest.raises(ConfigurationError) as raised:
        await client.__aenter__()
    assert SECRET not in str(raised.value)
    with pytest.raises(ConfigurationError, match="ROWLOCK_DATABASE_URL"):
        Client()
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", dsn)
    async with Client() as found:
        assert await found.list() == []


async def test_a_database_without_the_schema_says_what_to_do(postgres_url: str) -> None:
    with pytest.raises(SchemaMissing, match="rowlock migrate"):
        await Client(postgres_url.rpartition("/")[0] + "/template1").__aenter__()


async def test_a_client_that_is_not_open_says_so(dsn: str) -> None:
    with pytest.raises(InvalidRequest, match="async with"):
        await Client(dsn).start("x")
