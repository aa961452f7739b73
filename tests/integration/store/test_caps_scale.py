"""One key with a hundred thousand waiting runs costs the others nothing.

Run with `-s` for the latencies; they depend on the machine, so they are measured and not asserted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from rowlock.store import queries
from tests.conftest import on_database
from tests.integration.store.test_plans import explained, literals, nodes
from tests.integration.store.world import World, raw_of

WAITING = 100_000
SMALL_KEYS = 200

_SEED = """
INSERT INTO rowlock.run
  SELECT rowlock.new_run_id(), $1::int, $2::int, $3::int,
         CASE WHEN n > $4::int THEN 'small-' || n - $4::int ELSE 'big' END,
         0, false, rowlock.now(), '1', '{}'
  FROM generate_series(1, $4::int + $5::int) n
"""
_QUEUE = """
INSERT INTO rowlock.run_backlog
    (run_id, pool_id, agent_id, revision_id, key, priority, vft, epoch, attempt, takeovers,
     max_takeovers, active_ms, linked, revision, ready_at)
  SELECT r.run_id, r.pool_id, r.agent_id, r.revision_id, r.key, 0,
         CASE r.key WHEN 'big' THEN 0 ELSE $1::float8 END
           + row_number() OVER (PARTITION BY r.key ORDER BY r.run_id),
         0, 1, 0, 5, 0, false, 0, r.created_at
  FROM rowlock.run r
"""


@pytest.fixture(scope="session")
def crowded(postgres_url: str, template: str) -> Iterator[str]:
    """Name of a database where a key has 100,000 runs in the backlog, ahead of all others."""
    name = f"crowd_{uuid.uuid4().hex[:12]}"

    async def server(statement: str) -> None:
        admin = await asyncpg.connect(postgres_url)
        await admin.execute(statement)
        await admin.close()

    async def seed() -> None:
        await server(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        world = await World.create(on_database(postgres_url, name))
        await world.sql(_SEED, world.agent, world.revision, world.pool, WAITING, SMALL_KEYS)
        await world.sql(_QUEUE, WAITING)
        await raw_of(world.store).execute("VACUUM ANALYZE")
        await world.close()

    asyncio.run(seed())
    yield name
    asyncio.run(server(f'DROP DATABASE "{name}" WITH (FORCE)'))


@pytest.fixture
async def crowd(postgres_url: str, crowded: str) -> AsyncIterator[World]:
    """A world in a copy of that database."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{crowded}"')
    world = await World.create(on_database(postgres_url, name))
    try:
        yield world
    finally:
        await world.close()
        await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        await admin.close()


async def timed(world: World, times: list[float]) -> int:
    began = time.perf_counter()
    promoted = await world.promote()
    times.append(time.perf_counter() - began)
    return promoted


def show(what: str, times: list[float]) -> None:
    ms = sorted(1000 * seconds for seconds in times)
    text = f"{what}: median {ms[len(ms) // 2]:.1f} ms, worst {ms[-1]:.1f} ms of {len(ms)}"
    sys.stderr.write(f"\n{text}\n")


@pytest.mark.public_bug("dbos-inc/dbos-transact-ts#1302")
async def test_blocked_key_with_all_places_in_front_delays_nobody(crowd: World) -> None:
    """Both caps: the big key is at its own, the agent has a slot left for the 200 others."""
    await crowd.cap(max_running=2, max_running_per_key=1)
    worker, times = await crowd.worker(), list[float]()
    running = await crowd.claim(worker)
    assert sorted(run.key or "" for run in running)[0] == "big"
    [other] = [run for run in running if run.key != "big"]
    for _ in range(50):
        await crowd.finish(worker, [other])
        assert await timed(crowd, times) == 1
        [other] = await crowd.claim(worker)
        assert other.key != "big"
    show("promotion beside 100,000 waiting runs of a key at its cap", times)
    await crowd.sound()


async def test_key_that_comes_late_has_its_turn_at_once(crowd: World) -> None:
    """Only the agent is capped: 100,000 runs of one key stand ahead of a newcomer's one."""
    await crowd.cap(max_running=1)
    [late] = await crowd.enqueue(1, key="late")
    worker, times = await crowd.worker(), list[float]()
    for _turn in range(3):
        [run] = await crowd.claim(worker)
        if run.run_id == late:
            break
        await crowd.finish(worker, [run])
        assert await timed(crowd, times) == 1
    assert run.run_id == late
    show("promotion of the first of 100,000", times)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_promotion_steps_through_the_index_from_key_to_key(crowd: World, mode: str) -> None:
    given = [crowd.agent, 10, ["big"], [0], [0], 1, 1]
    plan = await explained_in(crowd, mode, "backlog_heads", given)
    scans = [node for node in nodes(plan) if node.get("Relation Name") == "run_backlog"]
    assert {node.get("Index Name") for node in scans} == {"run_backlog_key", "run_backlog_again"}
    read = sum(node["Actual Rows"] * node["Actual Loops"] for node in scans)
    assert read <= 3 * (SMALL_KEYS + 1), json.dumps(plan, indent=1)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_front_of_the_backlog_is_read_in_its_order(crowd: World, mode: str) -> None:
    plan = await explained_in(crowd, mode, "backlog_front", [crowd.agent, 1000])
    [scan] = [node for node in nodes(plan) if node.get("Relation Name") == "run_backlog"]
    assert scan["Index Name"] == "run_backlog_front"
    assert scan["Actual Rows"] == 1000
    assert not [node for node in nodes(plan) if "Sort" in node["Node Type"]]


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_end_of_a_line_is_found_without_reading_the_line(crowd: World, mode: str) -> None:
    """One key has 100,000 runs in the shared queue, too: enqueueing reads one of them."""
    await crowd.sql("INSERT INTO rowlock.run_ready SELECT * FROM rowlock.run_backlog")
    await raw_of(crowd.store).execute("VACUUM ANALYZE rowlock.run_ready")
    raw = raw_of(crowd.store)
    await raw.execute(f"SET plan_cache_mode = {mode}")
    asked = f"1::int, 0::smallint, {crowd.agent}::int, 'big'"
    before = await buffers(crowd)
    await raw.fetchval(f"SELECT rowlock.ready_line({asked})")
    await raw.fetchval(f"SELECT rowlock.backlog_line(0::smallint, {crowd.agent}::int, 'big')")
    assert await buffers(crowd) - before < 100


async def buffers(world: World) -> int:
    """Return how many pages of the two queues the server has read so far."""
    await world.sql("SELECT pg_stat_force_next_flush()")
    found = await world.value(
        "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read) "
        "FROM pg_statio_user_tables WHERE relname IN ('run_ready', 'run_backlog')"
    )
    return int(found)


async def explained_in(world: World, mode: str, name: str, given: list[Any]) -> dict[str, Any]:
    raw = raw_of(world.store)
    await raw.execute(f"SET plan_cache_mode = {mode}")
    await raw.execute(f"PREPARE stmt AS {queries.get(name)}")
    return await explained(raw, f"EXECUTE stmt ({literals(given)})", run=True)
