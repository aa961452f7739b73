"""Items become runs once each, and never more at a time than their batch allows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rowlock.errors import StoreUnavailable
from rowlock.states import BatchStop, FinalStatus, Materialize
from rowlock.store import batch_objects, batch_rounds, batches, caps, work
from rowlock.store.batch_objects import Made
from rowlock.store.batches import BatchId, BatchStatus, NewBatch, NewItem
from rowlock.store.connection import Connection
from tests.integration.store.world import World, end, together


def items(count: int, *, first: int = 1) -> list[NewItem]:
    """Return items named by their places."""
    return [NewItem(n, f"i-{n}", b'"x"') for n in range(first, first + count)]


def new(world: World, uid: str = "uid", **fields: Any) -> NewBatch:
    """Return a batch of the world's agent."""
    [run] = world.new()
    return NewBatch("cluster", uid, "team", f"batch-{uid}", run, **fields)


async def accept(world: World, count: int, **fields: Any) -> BatchId:
    """Accept a batch with items."""
    return await batches.accept(world.store, new(world, **fields), items(count))


async def status(world: World, batch: BatchId) -> BatchStatus:
    """Return how a batch stands."""
    [found] = await batches.statuses(world.store, [batch], failures=20)
    return found


async def go(world: World, batch: BatchId) -> None:
    """Move a batch on, whoever did so a moment ago."""
    await batch_rounds.advance_one(world.store, batch, period=0)


async def test_parallelism_holds_under_many_rounds_and_claimers_at_once(world: World) -> None:
    batch = await accept(world, 60, parallelism=7)
    done = asyncio.Event()
    watcher = await world.connect()
    most = 0

    async def watch() -> None:
        nonlocal most
        while not done.is_set():
            open_ = len(await watcher.fetch("open_items", batch))
            most = max(most, open_)

    async def move(conn: Connection) -> None:
        while not done.is_set():
            if (await batch_rounds.round_of(conn, batch, period=0)).finished:
                done.set()

    async def carry(conn: Connection) -> None:
        worker = await world.worker()
        while not done.is_set():
            claimed = await world.claim(worker, 3, conn=conn)
            finals = [end(run) for run in claimed]
            await work.finish(conn, worker=worker, events=[], finals=finals)

    connections = [await world.connect() for _ in range(5)]
    async with asyncio.timeout(120):
        await asyncio.gather(watch(), *map(move, connections[:3]), *map(carry, connections[3:]))
    found = await status(world, batch)
    assert (found.succeeded, found.fed, found.total) == (60, 60, 60)
    assert 1 <= most <= 7
    assert await world.count("run") == 60
    await world.sound()


async def test_a_round_that_breaks_off_leaves_nothing_half_done(world: World) -> None:
    batch = await accept(world, 40, parallelism=40)
    for turn in range(40):
        conn = await world.connect()
        task = asyncio.create_task(batch_rounds.round_of(conn, batch, period=0))
        await asyncio.wait([task], timeout=turn / 4000)
        task.cancel()
        await together(task)
        await conn.close()
    # Sessions that were given up may hold the batch for a moment.
    async with asyncio.timeout(60):
        while (await status(world, batch)).fed < 40:
            await go(world, batch)
    runs = await world.sql("SELECT run_id FROM rowlock.batch_item")
    assert await world.count("run") == 40 == len({row["run_id"] for row in runs})
    await world.sound()


async def test_a_batch_is_accepted_once(world: World) -> None:
    first, again = await together(
        batches.accept(world.store, new(world), items(3)),
        batches.accept(await world.connect(), new(world), items(3)),
    )
    assert first == again
    assert (await status(world, first)).total == 3
    assert await batches.find(world.store, cluster="cluster", uid="uid") == first


async def test_items_added_again_change_nothing_and_doubles_are_named(world: World) -> None:
    reader = batches.Reader("team", "rowlock/read-items", "m:a", "d", world.pool, b"{}")
    batch = await batches.accept_unread(
        world.store, new(world), reader, lambda number: str(number).encode()
    )
    again = await batches.accept_unread(
        world.store, new(world), reader, lambda number: str(number).encode()
    )
    assert batch == again
    assert await world.count("run") == 1
    for _ in range(2):
        added = await batches.add_items(world.store, batch, items(5))
        assert added == batches.Added(open=True)
    await go(world, batch)
    assert (await status(world, batch)).fed == 0  # nothing starts before all are known
    added = await batches.add_items(world.store, batch, [NewItem(6, "i-2", b"1")])
    assert added.doubled == (6, 2)
    added = await batches.add_items(
        world.store, batch, [NewItem(6, "new", b"1"), NewItem(7, "new", b"1")]
    )
    assert added.doubled == (7, 6)
    await batches.seal(world.store, batch)
    assert not (await batches.add_items(world.store, batch, items(1, first=9))).open
    await go(world, batch)
    assert (await status(world, batch)).fed == 6


async def test_a_batch_is_there_with_its_reader_or_not_at_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would look for the reader of a batch that is there."""
    reader = batches.Reader("team", "rowlock/read-items", "m:a", "d", world.pool, b"{}")
    execute = world.store.execute

    async def break_off(name: str, *values: Any) -> Any:
        if name == "read_by":
            raise StoreUnavailable("the connection is gone")
        return await execute(name, *values)

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "execute", break_off)
        with pytest.raises(StoreUnavailable):
            await batches.accept_unread(world.store, new(world), reader, lambda _: b"1")
    assert (await world.count("batch"), await world.count("run")) == (0, 0)

    await batches.accept_unread(world.store, new(world), reader, lambda _: b"1")
    assert (await world.count("batch"), await world.count("run")) == (1, 1)


async def test_a_reader_that_fails_ends_its_batch(world: World) -> None:
    reader = batches.Reader("team", "rowlock/read-items", "m:a", "d", world.pool, b"{}")
    batch = await batches.accept_unread(world.store, new(world), reader, lambda _: b"1")
    worker = await world.worker()
    [run] = await world.claim(worker)
    failed = end(run, FinalStatus.FAILED, reason="AgentError", message="files.test answers 404")
    await work.finish(world.store, worker=worker, events=[], finals=[failed])
    await go(world, batch)
    found = await status(world, batch)
    assert found.stopped is BatchStop.ITEMS_UNREADABLE
    assert found.stop_message == "the items could not be read: files.test answers 404"
    assert found.finished_at is not None


@pytest.mark.parametrize("held", [True, False], ids=["waiting", "running"])
async def test_failures_stop_what_waits_and_spare_what_runs(world: World, held: bool) -> None:
    batch = await accept(world, 10, parallelism=4, max_failed_percent=0)
    await go(world, batch)
    worker = await world.worker()
    first, *rest = await world.claim(worker, 1 if held else 4)
    failed = end(first, FinalStatus.FAILED, reason="AgentError")
    await work.finish(world.store, worker=worker, events=[], finals=[failed])
    await go(world, batch)
    assert (await status(world, batch)).stopped is BatchStop.TOO_MANY_FAILED
    assert await world.places(run.run_id for run in rest) == ({"lease"} if rest else set())
    await world.finish(worker, rest)
    await go(world, batch)
    found = await status(world, batch)
    assert found.finished_at is not None
    assert (found.failed, found.succeeded, found.cancelled) == (1, len(rest), 3 - len(rest))
    assert found.failures == (("i-1", "AgentError"),)


async def test_items_of_a_capped_agent_wait_for_its_cap_too(world: World) -> None:
    await world.cap(max_running=2)
    batch = await accept(world, 9, parallelism=5)
    worker = await world.worker()
    async with asyncio.timeout(60):
        while (await status(world, batch)).finished_at is None:
            await go(world, batch)
            await caps.promote_waiting(world.store)
            claimed = await world.claim(worker)
            assert len(claimed) <= 2
            await world.finish(worker, claimed)
    assert (await status(world, batch)).succeeded == 9


async def test_a_name_is_linked_to_one_object_whoever_sees_it_first(world: World) -> None:
    batch = await accept(world, 1, materialize=Materialize.FAILED)
    await go(world, batch)
    worker = await world.worker()
    [run] = await world.claim(worker)
    failed = end(run, FinalStatus.FAILED, reason="AgentError")
    await work.finish(world.store, worker=worker, events=[], finals=[failed])
    await go(world, batch)
    [wanted] = await batch_objects.wanted(world.store, [batch], at_once=20)
    assert await batch_objects.name_items(world.store, wanted) == 1
    [unmade] = await batch_objects.unmade(world.store, batch, limit=20)
    assert batch_objects.may_be_ours(unmade.name)
    ours, other = (Made("team", unmade.name, uid, 1) for uid in ("one", "two"))
    foreign = Made("elsewhere", unmade.name, "three", 1)
    connections = [await world.connect() for _ in range(3)]
    answers = await together(
        *(
            batch_objects.link(conn, [made], cluster="cluster")
            for conn, made in zip(connections, (ours, ours, foreign), strict=True)
        )
    )
    assert sorted(len(answer) for answer in answers) == [0, 1, 1]
    assert await batch_objects.link(world.store, [other], cluster="cluster") == {}
    assert await batch_objects.link(world.store, [ours], cluster="other") == {}
    [linked] = await world.sql("SELECT * FROM rowlock.run_object")
    assert (linked["uid"], linked["run_id"]) == ("one", run.run_id)
    assert await batch_objects.unmade(world.store, batch, limit=20) == []
    [wanted] = await batch_objects.wanted(world.store, [batch], at_once=20)
    assert await batch_objects.name_items(world.store, wanted) == 0


async def test_rows_of_a_departed_batch_go_in_pieces(world: World) -> None:
    batch = await accept(world, 10)
    await go(world, batch)
    await batches.depart(world.store, batch)
    await go(world, batch)
    await go(world, batch)
    found = await status(world, batch)
    assert (found.stopped, found.cancelled) == (BatchStop.DELETED, 10)
    assert found.finished_at is not None
    assert [await batches.purge(world.store, batch, limit=4) for _ in range(3)] == [
        True, True, False,
    ]  # fmt: skip
    assert await world.count("batch_item") == await world.count("batch") == 0


async def test_batches_that_had_to_wait_are_the_first_of_the_next_round(world: World) -> None:
    first = await accept(world, 1, uid="one")
    second = await accept(world, 1, uid="two")
    for _ in range(2):
        await batch_rounds.advance(world.store, within=0)
        assert await world.count("run") == 0
    await go(world, first)
    order = [row["batch_id"] for row in await world.store.fetch("active_batches", None, 0.0)]
    assert order == [second, first]
