"""The sync twin: the same calls, the same words, from any thread."""

from __future__ import annotations

import asyncio
import gc
import inspect
from concurrent.futures import ThreadPoolExecutor

import pytest

from rowlock import Client, InvalidInput, RunHandle, SyncClient, SyncRunHandle, UnknownRun
from rowlock.errors import SchemaMissing, StoreUnavailable
from tests.client_agents import shouter
from tests.integration.client.conftest import Played


async def test_a_run_from_start_to_result(dsn: str, played: Played) -> None:
    def use() -> list[str]:
        with SyncClient(dsn) as client:
            run = client.start(shouter, {"text": "hi"}, key="k")
            work.set_result(None)
            kinds = [event.kind for event in client.events(run)]
            assert run.wait(20).text == client.wait(run, timeout=20).text == "HI"
            assert client.get(run) == run.info() == client.list(key="k")[0]
            assert run.cancel()
            assert [one.created for one in client.start_many(shouter, [{"text": "a"}])] == [True]
            assert client.run(run.id).id == run.id
            return kinds

    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    class work:  # noqa: N801
        set_result = staticmethod(lambda _: loop.call_soon_threadsafe(ready.set_result, None))

    using = asyncio.create_task(asyncio.to_thread(use))
    await ready
    [claimed] = await played.claim()
    await played.step(claimed, 1)
    await played.finish(claimed, {"text": "HI"})

    kinds = await using
    assert kinds.count("step_done") == 1
    assert kinds[-1] == "state"


def test_threads_share_one_client(dsn: str) -> None:
    with SyncClient(dsn) as client, ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda n: client.start(shouter, {"text": str(n)}), range(40)))

        assert len({run.id for run in runs}) == len(client.list()) == 40


def test_who_stops_following_leaves_nothing_behind(dsn: str) -> None:
    """Warnings are errors here: an iterator that its loop outlived would be one."""
    with SyncClient(dsn) as client:
        run = client.start(shouter, {"text": "x"})
        for event in run.events():
            assert event.data is not None
            assert event.data["phase"] == "Queued"
            break
        kept = run.events()
        assert next(kept).kind == "state"
    del kept
    gc.collect()


def test_errors_are_those_of_the_client(dsn: str, postgres_url: str) -> None:
    with SyncClient(dsn) as client:
        with pytest.raises(InvalidInput):
            client.start(shouter, {})
        with pytest.raises(UnknownRun):
            client.wait(7, timeout=20)
        with pytest.raises(TimeoutError):
            client.start(shouter, {"text": "x"}).wait(0.05)
    with pytest.raises(StoreUnavailable, match="closed"):
        client.list()
    with pytest.raises(SchemaMissing):
        SyncClient(postgres_url.rpartition("/")[0] + "/template1").__enter__()


@pytest.mark.parametrize(("twin", "own"), [(SyncClient, Client), (SyncRunHandle, RunHandle)])
def test_the_twins_have_the_same_calls_with_the_same_documentation(twin: type, own: type) -> None:
    def public(kind: type) -> dict[str, str | None]:
        return {
            name: inspect.getdoc(value)
            for name, value in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert public(twin) == public(own)
    assert "read" not in public(own)
