"""The lines that runs wait in: what people are told is what the claim then does."""

from __future__ import annotations

import re

import asyncpg
import pytest

from rowlock.states import Place
from rowlock.store import lines, queries
from rowlock.store.lines import Waiting
from tests.integration.store.world import World


async def test_the_place_in_line_is_the_order_of_the_claim(world: World) -> None:
    for priority, key in ((0, "a"), (0, "b"), (5, "a"), (-5, None), (0, "a")):
        await world.enqueue(3, priority=priority, key=key)
    told = await lines.waiting(world.store)

    assert [one.nth for one in told] == list(range(1, 16))
    worker = await world.worker()
    claimed = [(await world.claim(worker, limit=1))[0].run_id for _ in told]
    assert claimed == [one.run_id for one in told]


async def test_the_place_in_the_backlog_is_that_of_the_agent(world: World) -> None:
    await world.cap(max_running=1)
    await world.enqueue(2, key="a")
    await world.enqueue(2, key="b", priority=3)

    told = [one for one in await lines.waiting(world.store) if one.place is Place.BACKLOG]

    assert [(one.nth, one.priority) for one in told] == [(1, 3), (2, 3), (3, 0)]


async def test_one_run_is_told_the_same_as_the_whole_line(world: World) -> None:
    await world.cap(max_running_per_key=2)
    await world.enqueue(4, key="a")
    await world.enqueue(4)
    await world.enqueue(4, key="b", priority=2)
    told = await lines.waiting(world.store)
    assert {one.place for one in told} == {Place.READY, Place.BACKLOG}

    assert [await lines.place_of(world.store, one.run_id) for one in told] == told


async def test_a_limit_cuts_each_line_and_changes_no_place(world: World) -> None:
    await world.cap(max_running=3)
    await world.enqueue(8)
    every = await lines.waiting(world.store)

    cut = await lines.waiting(world.store, limit=2)

    assert cut == [one for one in every if one.nth is not None and one.nth <= 2]
    assert len(cut) == 4


async def test_a_place_beyond_what_is_counted_is_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "COUNTED", 2)
    runs = await world.enqueue(4)

    found = [await lines.place_of(world.store, run) for run in runs]

    assert [one.nth if isinstance(one, Waiting) else "" for one in found] == [1, 2, None, None]


async def test_a_long_line_is_read_from_its_front_only(world: World) -> None:
    """Twenty of ten thousand: an index gives them, and nothing else is looked at."""
    await world.enqueue(1000)
    fill = """
    INSERT INTO rowlock.run_ready SELECT (q).* FROM (
      SELECT jsonb_populate_record(
        q, jsonb_build_object('run_id', q.run_id + n * 1000000, 'vft', q.vft + n)) AS q
      FROM rowlock.run_ready q, generate_series(1, 9) n) x
    """
    raw: asyncpg.Connection = await world.raw()
    await raw.execute(fill)
    await raw.execute("ANALYZE rowlock.run_ready")
    plan = await raw.fetch(
        f"EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) {queries.get('waiting_lines')}",
        None,
        None,
        20,
    )
    text = "\n".join(row[0] for row in plan)
    assert "run_ready_claim" in text
    [scan] = [line for line in text.splitlines() if "run_ready_claim" in line]
    read = re.search(r"actual rows=([\d.]+)", scan)
    assert read is not None
    assert 20 <= float(read[1]) <= 21
