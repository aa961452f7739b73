"""What a type checker tells the users of the client; `make check` reads this, nothing runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

from rowlock import Client, RunEvent, RunHandle, RunInfo, SyncClient, SyncRunHandle
from tests.client_agents import Shout, parrot, shouter


async def results_have_the_type_of_the_agents_function(client: Client) -> None:
    """Of its return annotation; whatever else an agent is, `Any`."""
    run = await client.start(shouter, {"text": "x"}, key="k", priority=3)
    assert_type(run, RunHandle[Shout])
    assert_type(await run.wait(), Shout)
    assert_type(await client.wait(run, timeout=3), Shout)
    assert_type(await client.start_many(shouter, [], keys=["a"]), list[RunHandle[Shout]])
    assert_type(await client.start(parrot, "x"), RunHandle[Any])
    assert_type(await client.start("shouter", {}), RunHandle[Any])
    assert_type(client.run(7), RunHandle[Any])
    assert_type(client.events(run), AsyncIterator[RunEvent])
    assert_type(await client.get("7"), RunInfo)
    assert_type(await client.list(agent="a"), list[RunInfo])
    await client.set_caps(shouter, max_running=3)
    await client.set_caps(shouter, max_runing=3)  # type: ignore[call-arg]


def the_sync_twin_has_the_same_types(client: SyncClient) -> None:
    """Without `await`."""
    run = client.start(shouter, {"text": "x"}, idempotency_key="k")
    assert_type(run, SyncRunHandle[Shout])
    assert_type(run.wait(), Shout)
    assert_type(client.wait(run), Shout)
    assert_type(client.start_many(shouter, [], keys=["a"]), list[SyncRunHandle[Shout]])
    assert_type(client.events(run), Iterator[RunEvent])
    assert_type(client.get(run), RunInfo)
    assert_type(client.list(limit=3), list[RunInfo])
    assert_type(client.cancel(run, reason="x"), bool)
    client.set_caps("shouter", max_running_per_key=2)
    client.start(shouter, {}, priority="high")  # type: ignore[call-overload]
    client.list(agnet="a")  # type: ignore[call-arg]
