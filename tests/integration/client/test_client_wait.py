"""Waiting, following, looking and ending: what a client learns of runs."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from rowlock import Client, InvalidOutput, InvalidRequest, RunCancelled, RunFailed, UnknownRun
from rowlock.client import RunEvent
from rowlock.errors import StoreUnavailable
from rowlock.states import Phase
from tests.client_agents import shouter
from tests.integration.client.conftest import Played
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

WITHIN = 20.0


async def test_a_failure_says_why(client: Client, played: Played) -> None:
    run = await client.start(shouter, {"text": "x"})
    [claimed] = await played.claim()
    await played.finish(claimed, reason="AgentError", message="ValueError: no such order")

    with pytest.raises(RunFailed, match="AgentError: ValueError: no such order") as raised:
        await run.wait(WITHIN)

    error = raised.value
    assert (error.run_id, error.reason, error.detail) == (
        run.id,
        "AgentError",
        "ValueError: no such order",
    )


async def test_a_cancelled_run_says_by_whom(client: Client) -> None:
    run = await client.start(shouter, {"text": "x"})

    assert await run.cancel(reason="changed my mind")

    with pytest.raises(RunCancelled, match="cancelled by tester: changed my mind"):
        await run.wait(WITHIN)
    assert (await run.info()).phase is Phase.CANCELLED


async def test_a_wish_stands_while_a_worker_holds_the_run(
    client: Client, played: Played, sql: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.client.wishes.PATIENCE_SECONDS", 0.0)
    run = await client.start(shouter, {"text": "x"})
    await played.claim()

    assert not await run.cancel()

    assert await sql.fetchval("SELECT asked_by FROM rowlock.wish WHERE run_id = $1", run.id)


async def test_a_result_beats_a_later_cancel(client: Client, played: Played) -> None:
    run = await client.start(shouter, {"text": "x"})
    [claimed] = await played.claim()
    await played.finish(claimed, {"text": "X"})

    assert await run.cancel()

    assert (await run.wait(WITHIN)).text == "X"


async def test_a_wait_ends_with_its_timeout_and_the_run_goes_on(
    client: Client, played: Played
) -> None:
    run = await client.start(shouter, {"text": "x"})

    with pytest.raises(TimeoutError, match=f"run {run.id} has not ended within 0.1 s"):
        await run.wait(0.1)

    [claimed] = await played.claim()
    await played.finish(claimed, {"text": "X"})
    assert (await run.wait(WITHIN)).text == "X"


async def test_a_result_of_other_code_is_an_error_that_says_so(
    client: Client, played: Played
) -> None:
    run = await client.start(shouter, {"text": "x"})
    [claimed] = await played.claim()
    await played.finish(claimed, {"words": "X"})

    with pytest.raises(InvalidOutput, match="written by other code: text: is required"):
        await run.wait(WITHIN)


async def test_a_large_result_arrives_whole(client: Client, played: Played) -> None:
    run = await client.start(shouter, {"text": "x"})
    [claimed] = await played.claim()
    await played.finish(claimed, {"text": "long " * 100_000})

    assert len((await run.wait(WITHIN)).text) == 500_000


async def test_a_thousand_waiters_are_one_poller(client: Client, played: Played) -> None:
    """So many looks as there would be for one of them."""
    runs = await client.start_many(shouter, [{"text": str(n)} for n in range(1_000)])
    waiting = [asyncio.create_task(run.wait(WITHIN)) for run in runs]
    claimed = await played.claim(1_000)
    for one in claimed:
        await played.finish(one, {"text": str(one.run_id)})

    results = await asyncio.gather(*waiting)

    assert [result.text for result in results] == [str(run.id) for run in runs]
    assert client._watcher.looks < 500


async def test_unknown_runs_are_refused_wherever_they_are_named(client: Client) -> None:
    with pytest.raises(UnknownRun, match="there is no run 7"):
        await client.wait(7, timeout=WITHIN)
    with pytest.raises(UnknownRun):
        await client.get("7")
    with pytest.raises(UnknownRun):
        await client.cancel(7)
    with pytest.raises(UnknownRun):
        await anext(client.events(7))
    with pytest.raises(InvalidRequest, match="'seven' is no run's number"):
        await client.get("seven")
    with pytest.raises(InvalidRequest, match="after"):
        client.events(7, after=-1)


async def test_runs_are_listed_newest_first_in_pages(client: Client, played: Played) -> None:
    runs = await client.start_many(
        shouter, [{"text": str(n)} for n in range(5)], keys=list("aabab")
    )
    [claimed] = await played.claim()
    await played.finish(claimed, {"text": "X"})

    ids = [info.id for info in await client.list()]

    assert ids == [run.id for run in reversed(runs)]
    first = await client.list(limit=2)
    assert [info.id for info in await client.list(limit=2, before=first[-1].id)] == ids[2:4]
    assert [info.id for info in await client.list(phase="Succeeded")] == [claimed.run_id]
    assert len(await client.list(phase=Phase.QUEUED)) == 4
    assert len(await client.list(key="b")) == 2
    assert await client.list(agent="other") == []
    made = (await client.get(runs[3])).created_at
    assert len(await client.list(since=made - timedelta(minutes=1))) == 5
    for year, there in ((1, 5), (1969, 5), (2093, 0), (2999, 0)):
        assert len(await client.list(since=datetime(year, 1, 1, tzinfo=UTC))) == there
    with pytest.raises(InvalidRequest, match="since: needs a time zone"):
        await client.list(since=datetime(2026, 5, 7))
    with pytest.raises(InvalidRequest, match="phase: 'Sad' is not one of Queued"):
        await client.list(phase="Sad")
    with pytest.raises(InvalidRequest, match="limit"):
        await client.list(limit=0)


async def collect(client: Client, run: int, after: int = 0) -> list[RunEvent]:
    """Return all that happens to a run."""
    async with asyncio.timeout(WITHIN):
        return [event async for event in client.events(run, after=after)]


def told(events: list[RunEvent]) -> list[str]:
    """Return each as one word."""
    return [
        e.data["phase"] if e.kind == "state" and e.data else f"{e.kind} {e.seq}" for e in events
    ]


async def test_history_comes_first_then_what_happens_then_the_end(
    client: Client, played: Played
) -> None:
    run = await client.start(shouter, {"text": "x"})
    [claimed] = await played.claim()
    await played.step(claimed, 1, "first", b'{"result":1}')
    events = client.events(run)

    first = await anext(events)
    assert (first.kind, first.step, first.duration_ms) == ("step_done", "first", 7)
    assert first.data == {"result": 1}
    assert (await anext(events)).data == {"phase": "Running", "worker": "played", "takeovers": 0}
    following = asyncio.create_task(anext(events))
    await played.step(claimed, 2, "second")
    assert (await following).step == "second"
    await played.finish(claimed, {"text": "X"})
    last = await anext(events)
    assert (last.seq, last.data and last.data["phase"]) == (2, "Succeeded")
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_a_long_history_comes_in_pages_and_large_bodies_stay_away(
    client: Client, played: Played
) -> None:
    run = await client.start(shouter, {"text": "x"})
    [claimed] = await played.claim()
    for seq in range(1, 452):
        await played.step(claimed, seq, f"s{seq}", b'{"a":"' + b"x" * (70_000 * (seq == 7)) + b'"}')
    await played.finish(claimed, {"text": "X"})

    events = await collect(client, run.id)
    late = await collect(client, run.id, after=440)

    assert [e.seq for e in events if e.kind != "state"] == list(range(1, 452))
    assert (events[6].data, events[7].data) == (None, {"a": ""})
    assert told(events)[-1] == told(late)[-1] == "Succeeded"
    assert [e.seq for e in late if e.kind != "state"] == list(range(441, 452))


async def test_followers_at_different_places_each_get_their_own(
    client: Client, played: Played
) -> None:
    run = await client.start(shouter, {"text": "x"})
    [claimed] = await played.claim()
    for seq in (1, 2, 3):
        await played.step(claimed, seq, f"s{seq}")
    following = [asyncio.create_task(collect(client, run.id, after)) for after in (0, 1, 3)]
    await eventually(lambda: _all_wait(client, 3), "three followers")
    await played.step(claimed, 4, "s4")
    await played.finish(claimed, {"text": "X"})

    seqs = [[e.seq for e in one if e.kind != "state"] for one in await asyncio.gather(*following)]

    assert seqs == [[1, 2, 3, 4], [2, 3, 4], [4]]


async def _all_wait(client: Client, count: int) -> bool:
    return len(client._watcher._news) == count


async def test_following_over_a_takeover_from_a_number_misses_and_repeats_nothing(
    bench: Bench,
) -> None:
    """A reader leaves in the middle and comes back behind what it has read, while a worker dies."""
    async with Client(bench.dsn) as client:
        [run] = await bench.enqueue("walker", steps=4, gates=[2])
        worker = bench.worker()
        before = []
        async for event in client.events(run):
            if event.kind != "state":
                before.append(event)
            if len(before) == 2:
                break
        await bench.waiting("2")
        [loop] = worker.loops()
        following = asyncio.create_task(collect(client, run, before[-1].seq))
        os.kill(loop, signal.SIGKILL)
        bench.open_gate("2")
        after = await following

        seqs = [e.seq for e in (*before, *after) if e.kind != "state"]
        assert seqs == list(range(1, len(seqs) + 1))
        [taken] = [e for e in after if e.kind == "taken_over"]
        assert taken.data
        assert taken.data["reason"] == "WorkerDied"
        assert [e.step and e.step[:6] for e in after if e.kind == "step_done"] == [
            "step-2",
            "step-3",
        ]
        assert told(after)[-1] == "Succeeded"
        assert len({e.epoch for e in after}) == 2
        assert (await client.get(run)).takeovers == 1
        await bench.healthy()


async def test_waiting_outlives_a_lost_connection(
    client: Client, played: Played, sql: asyncpg.Connection[Any]
) -> None:
    run = await client.start(shouter, {"text": "x"})
    waiting = asyncio.create_task(run.wait(WITHIN))
    await eventually(lambda: _looked(client), "a first look")
    await sql.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'rowlock client'"
    )
    [claimed] = await played.claim()
    await played.finish(claimed, {"text": "X"})

    assert (await waiting).text == "X"


async def _looked(client: Client) -> bool:
    return client._watcher.looks > 0


async def test_who_waits_when_the_client_closes_is_told(dsn: str) -> None:
    async with Client(dsn) as client:
        run = await client.start(shouter, {"text": "x"})
        waiting = asyncio.create_task(run.wait(WITHIN))
        await eventually(lambda: _looked(client), "a first look")

    with pytest.raises(StoreUnavailable, match="closed"):
        await waiting
