"""With a hundred thousand rows in each table, hot statements still go by index, and by partition.

Each is planned twice: with its parameters, and without them, as PostgreSQL does after five uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from rowlock.store import queries
from tests.integration.store.world import copied_database

#: Half of the runs are of today, half of yesterday; impossibly, each stands in every table.
_SEED = """
CREATE TEMP TABLE seed AS
  SELECT n, rowlock.id_floor(now() - (n % 2) * interval '1 day') + n AS run_id
  FROM generate_series(1, {rows}) n;
INSERT INTO rowlock.pool (name) VALUES ('default'), ('other');
INSERT INTO rowlock.agent (name) VALUES ('a');
INSERT INTO rowlock.agent_revision (agent_id, digest, entrypoint, spec) VALUES (1, 'd', 'm:a', '');
INSERT INTO rowlock.run SELECT run_id, 1, 1, 1, NULL, 0, true, now(), '1', '1' FROM seed;
INSERT INTO rowlock.run_ready
    (run_id, pool_id, agent_id, revision_id, priority, vft, epoch, attempt, takeovers,
     max_takeovers, active_ms, linked, revision, ready_at, queue_deadline)
  SELECT run_id, 1, 1, 1, n % 5, n, 0, 1, 0, 5, 0, true, n, now(),
         CASE n % 2 WHEN 0 THEN now() + interval '1 day' END
  FROM seed;
INSERT INTO rowlock.run_timer SELECT r.*, now() + interval '1 day', 1 FROM rowlock.run_ready r;
INSERT INTO rowlock.run_backlog SELECT * FROM rowlock.run_ready;
INSERT INTO rowlock.run_parked SELECT r.*, '{{approval}}', NULL FROM rowlock.run_ready r;
INSERT INTO rowlock.worker
    (pool_id, instance, name, pod_uid, pid, build, lease_seconds, fenced_at)
  SELECT 1, 'pod-' || n || '/main/0', 'pod', 'uid-' || n, 1, 'b', 15,
         CASE WHEN n > 200 THEN now() END
  FROM generate_series(1, 5000) n;
INSERT INTO rowlock.worker_beat SELECT worker_id, now(), 256, 1, 1, false FROM rowlock.worker;
INSERT INTO rowlock.run_lease SELECT r.*, 1 + r.run_id % 200, 1, now() FROM rowlock.run_ready r;
INSERT INTO rowlock.run_final (run_id, attempt, epoch, status, takeovers)
  SELECT run_id, 1, 1, 1, 0 FROM seed;
INSERT INTO rowlock.run_event (run_id, seq, epoch, attempt, kind, try, body)
  SELECT run_id, s, 1, 1, CASE s WHEN 1 THEN 64 ELSE 2 END, 1, 'x'
  FROM seed, generate_series(1, 2) s;
INSERT INTO rowlock.run_object SELECT 'c', 'uid-' || n, run_id, 'ns', 'run', 1 FROM seed;
INSERT INTO rowlock.run_dedup SELECT 1, 'key-' || n, run_id, '', now() FROM seed;
INSERT INTO rowlock.run_change (seq, run_id, kind, epoch)
  SELECT nextval('rowlock.revision_seq'), run_id, 1, 0 FROM seed;
INSERT INTO rowlock.wish (run_id, kind, asked_by) SELECT run_id, 1, 'a' FROM seed;
INSERT INTO rowlock.wish (run_id, kind, asked_by, settled)
  SELECT run_id, 2, 'a', n > 1000 FROM seed;
INSERT INTO rowlock.approval (run_id, step_key, digest, attempt, tool, question, expires_at)
  SELECT run_id, 's', 'd', 1, 't', 'x', now() + interval '1 day' FROM seed;
INSERT INTO rowlock.batch
    (cluster, uid, namespace, name, agent_id, revision_id, pool_id, priority, max_takeovers,
     options, max_failed_percent, materialize, sealed)
  VALUES ('c', 'batch', 'ns', 'batch', 1, 1, 1, 0, 5, '1', 100, 1, true),
         ('c', 'other', 'ns', 'other', 1, 1, 1, 0, 5, '1', 100, 1, true);
INSERT INTO rowlock.batch_item
    (batch_id, place, item, run_id, status, object_name, object_uid, input)
  SELECT 1 + n % 2, n, 'i-' || n, CASE WHEN n < 50000 THEN run_id END,
         CASE WHEN n < 1000 THEN 2 WHEN n < 49000 THEN 1 END,
         CASE WHEN n < 500 THEN 'object-' || n END,
         CASE WHEN n < 450 THEN 'object-uid-' || n END, '1'
  FROM seed;
CREATE TABLE public.sample AS
  SELECT array_agg(run_id) AS today
  FROM (SELECT run_id FROM seed WHERE n % 2 = 0 ORDER BY n LIMIT 200) s;
"""

_LARGE = """
SELECT relname FROM pg_class
WHERE relnamespace = 'rowlock'::regnamespace AND relkind = 'r' AND reltuples >= 5000
"""


@pytest.fixture(scope="session")
def seeded_dsn(postgres_url: str, template: str) -> Iterator[str]:
    """URL of a database with a hundred thousand rows in every large table."""
    with copied_database(postgres_url, template, _SEED.format(rows=100_000), "ANALYZE") as url:
        yield url


@pytest.fixture
async def raw(seeded_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A session whose changes are undone."""
    connection = await asyncpg.connect(seeded_dsn)
    transaction = connection.transaction()
    await transaction.start()
    yield connection
    await transaction.rollback()
    await connection.close()


def arguments(today: list[int]) -> dict[str, list[Any]]:
    """Return what each hot statement is given."""
    n = len(today)
    events = [today, [9] * n, [1] * n, [1] * n, [2] * n, ["k"] * n, [1] * n, [1] * n, [b"x"] * n]
    ends = [today, [1] * n, [1] * n, *([None] * n for _ in range(3)), *([0] * n for _ in range(5))]
    ends += [[None] * n, [None] * n]
    new = [
        [1] * n,
        [1] * n,
        [1] * n,
        [b"1"] * n,
        [b"1"] * n,
        [None] * n,
        [0] * n,
        [5] * n,
        [None] * n,
    ]
    new += [[f"new-{i}" for i in today], [b"1"] * n, ["c"] * n, [f"new-{i}" for i in today]]
    new += [["ns"] * n, ["r"] * n, [1] * n, [False] * n]
    workers = list(range(1, 9))
    parks = [today, [1] * n, [9] * n, [0] * n, ["sleep,approval"] * n, [60.0] * n, [b"1"] * n]
    parks += [today, ["s"] * n, ["d"] * n, ["t"] * n, [b"1"] * n, [None] * n]
    return {
        "park": [1, *parks],
        "already_parked": [1, today, [1] * n],
        "wake_parked": [500],
        "ask_suspend": [today, "a", None],
        "waiting_suspensions": [1000],
        "suspend_waiting": [today],
        "suspended": [today],
        "take_suspend_back": [today, None],
        "continue_suspended": [today],
        "decide": [today[0], "s", "d", 1, 1, "a", None],
        "approval": [today[0], "s"],
        "expire_approvals": [500],
        "wake_decided": [today],
        "show_answered": [today],
        "answers": [today[0]],
        "questions_of": ["c", [f"uid-{i}" for i in range(n)]],
        "last_attempt": [today[0]],
        "redrive": [today[0], 2, "a"],
        "enqueue": new,
        "find_submitted": [["c"] * n, ["uid-7"] * n, [1] * n, ["key-7"] * n, [b""] * n],
        "run_ids_by_object": ["c", [f"uid-{i}" for i in range(n)]],
        "ask_cancel": [today, "a", None],
        "waiting_wishes": [1000],
        "cancel_waiting": [today],
        "drop_done_wishes": [today],
        "finished": [today],
        "expire_queued": [1000],
        "wake_due": [500],
        "capped_agents": [],
        "agents_waiting": [],
        "settle_starts": [1],
        "backlog_front": [1, 1000],
        "backlog_heads": [1, 1000, ["a"], [0], [0], 5, 5],
        "promote": [1, today, True],
        "claim": [1, 1, 1, 64],
        "claim_alone": [1, 1, 1],
        "alone_waiting": [1],
        "unknown_leases": [1, today],
        "bodies": [today],
        "history": [today[0]],
        "append": [1, *events],
        "finish": [1, *events, *ends],
        "already_finished": [1, today, [1] * n],
        "release": [1, today, [1] * n, [0] * n, [None] * n, [None] * n],
        "unbind": [500],
        "bound_runs": [],
        "build_lives": [1, "b"],
        "already_released": [today, [1] * n],
        "beat": [workers, *([1] * 8 for _ in range(3)), [False] * 8, *([1] * 8 for _ in range(4))],
        "wishes": [workers],
        "fence": [workers, "Stalled", workers],
        "workers_of_instance": ["pod-7/main", []],
        "workers_of_pods": [["uid-7"]],
        "move_leases": [workers],
        "fence_silent": [workers],
        "stranded": [],
        "unshown": [0, 500],
        "shown": [workers],
        "snapshots": [today, 65536],
        "objects": ["c", None, "uid-5", 1000],
        "recreate_changes": [today],
        "unlink": [today],
        "existing_runs": [today],
        "run_infos": [today, ""],
        "newest_runs": ["", None, None, None, 2**62, 100, "2026-05-07"],
        "waiting_lines": ["", "default", 20],
        "waiting_place": [today[0], 10_000],
        "run_ends": [today, 500, 65536],
        "run_result": [today[0], 1],
        "add_items": [1, list(range(n)), [f"new-{i}" for i in today], [b"1"] * n],
        "item_places": [1, [f"i-{i}" for i in range(n)]],
        "take_batch": [1, 0.0],
        "settle_items": [1],
        "next_items": [1, 500, False, 60_000],
        "feed_items": [1, [f"i-{60_001 + 2 * i}" for i in range(n)], today, 7],
        "unasked_items": [1, True],
        "unheld_items": [1],
        "open_items": [1],
        "batch_statuses": [[1], 20],
        "unnamed_items": [1, 20, False],
        "name_objects": [1, [f"i-{501 + 2 * i}" for i in range(20)], [f"o-{i}" for i in range(20)]],
        "unmade_objects": [1, 20, ["item-1"]],
        "link_objects": ["c", ["ns"], ["object-451"], ["new"], [1]],
        "objects_wanted": [[1]],
        "watched_runs": [today, [0] * n, 200, 65536],
    }


HOT = sorted(arguments([1]))
#: These read all workers, or every wish: small tables, whose index would not pay.
MAY_READ_ALL = {
    "waiting_wishes": {"wish"},
    "wishes": {"wish"},
    "fence_silent": {"worker", "worker_beat"},
    "stranded": {"worker"},
}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", HOT)
async def test_hot_statement_reads_no_large_table_from_end_to_end(
    raw: asyncpg.Connection, name: str, mode: str
) -> None:
    plan = await explain(raw, name, mode)
    found = {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"}
    found &= {row["relname"] for row in await raw.fetch(_LARGE)}
    assert found <= MAY_READ_ALL.get(name, set()), json.dumps(plan, indent=1)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(
    "name",
    [
        "bodies",
        "history",
        "already_finished",
        "snapshots",
        "existing_runs",
        "run_infos",
        "watched_runs",
    ],
)
async def test_history_is_read_only_in_the_partitions_of_its_runs(
    raw: asyncpg.Connection, name: str, mode: str
) -> None:
    plan = await explain(raw, name, mode, run=True)
    today = await raw.fetchval("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
    read = {
        node["Relation Name"][-8:]
        for node in nodes(plan)
        if re.search(r"_\d{8}$", node.get("Relation Name", "")) and node["Actual Loops"]
    }
    assert read == {today}


async def test_claim_reads_no_more_rows_than_it_takes(raw: asyncpg.Connection) -> None:
    await raw.execute("DELETE FROM rowlock.run_lease")
    plan = await explain(raw, "claim", "force_generic_plan", run=True)
    scans = [n for n in nodes(plan) if n.get("Index Name") == "run_ready_claim"]
    assert [scan["Actual Rows"] * scan["Actual Loops"] for scan in scans] == [64]
    assert not [n for n in nodes(plan) if n["Node Type"] in ("Sort", "Incremental Sort")]


async def test_a_claim_meets_only_the_runs_of_its_own_build(raw: asyncpg.Connection) -> None:
    """However many are bound to others, and wherever they stand in the order of the queue."""
    await raw.execute("DELETE FROM rowlock.run_lease")
    await raw.execute(
        "UPDATE rowlock.run_ready SET priority = 9, pinned = true, "
        "build = CASE WHEN vft < 40 THEN 'b' ELSE 'other' END WHERE vft < 20000"
    )
    plan = await explain(raw, "claim", "force_generic_plan", run=True)
    lines = ("run_ready_build", "run_ready_claim")
    scans = [n for n in nodes(plan) if n.get("Index Name") in lines]
    rows = {n["Index Name"]: n["Actual Rows"] * n["Actual Loops"] for n in scans}
    assert rows == {"run_ready_build": 39, "run_ready_claim": 25}
    assert not [n for n in nodes(plan) if n["Node Type"] in ("Sort", "Incremental Sort")]


@pytest.mark.parametrize(
    ("name", "index", "taken"),
    [("claim", "run_ready_claim", 64), ("claim_alone", "run_ready_quarantine", 1)],
)
async def test_neither_claim_reads_a_row_of_the_other(
    raw: asyncpg.Connection, name: str, index: str, taken: int
) -> None:
    """Whatever stands before its own in the order of the queue."""
    await raw.execute("DELETE FROM rowlock.run_lease")
    await raw.execute("UPDATE rowlock.worker SET quarantine = true WHERE worker_id = 1")
    first = "<" if name == "claim" else ">="
    await raw.execute(f"UPDATE rowlock.run_ready SET quarantined = true WHERE vft {first} 20000")  # noqa: S608
    await raw.execute("UPDATE rowlock.run_ready SET priority = 9 WHERE vft < 20000")
    plan = await explain(raw, name, "force_generic_plan", run=True)
    lines = ("run_ready_claim", "run_ready_quarantine")
    scans = [n for n in nodes(plan) if n.get("Index Name") in lines]
    assert [n["Index Name"] for n in scans] == [index]
    assert [n["Actual Rows"] * n["Actual Loops"] for n in scans] == [taken]
    assert not [n for n in nodes(plan) if n["Node Type"] in ("Sort", "Incremental Sort")]


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", ["append", "finish", "release", "park"])
async def test_write_reads_only_the_leases_that_it_writes_for(
    raw: asyncpg.Connection, name: str, mode: str
) -> None:
    assert "run_lease_worker" not in json.dumps(await explain(raw, name, mode))


@pytest.mark.parametrize("first", ["SELECT 1", "VACUUM ANALYZE"])
async def test_plan_made_on_an_empty_database_is_still_good_on_a_full_one(
    dsn: str, first: str
) -> None:
    """A worker's statements are planned when it starts, maybe on the first day."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(first)
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    given = arguments([1, 2])
    lasting = [name for name in HOT if name not in MAY_READ_ALL]
    for name in lasting:
        await connection.execute(f"PREPARE {name} AS {queries.get(name)}")
        await explained(connection, _call(name, given[name]))
    await connection.execute(_SEED.format(rows=5_000))
    for name in lasting:
        plan = await explained(connection, _call(name, given[name]))
        scanned = {n["Relation Name"] for n in nodes(plan) if n["Node Type"] == "Seq Scan"}
        large = re.compile(r"run_[a-z]+|wish|approval|batch_item")
        assert not {table for table in scanned if large.fullmatch(table)}, name
        if name in ("append", "finish", "release"):
            assert "run_lease_worker" not in json.dumps(plan), name
    await connection.close()


async def explain(
    raw: asyncpg.Connection, name: str, mode: str, *, run: bool = False
) -> dict[str, Any]:
    """Return the plan of a statement; `run` also runs it, for what really happened."""
    today = await raw.fetchval("SELECT today FROM public.sample")
    given = arguments(today)[name]
    await raw.execute(f"SET LOCAL plan_cache_mode = {mode}")
    await raw.execute(f"PREPARE stmt AS {queries.get(name)}")
    try:
        return await explained(raw, _call("stmt", given), run=run)
    finally:
        await raw.execute("DEALLOCATE stmt")


async def explained(raw: asyncpg.Connection, call: str, *, run: bool = False) -> dict[str, Any]:
    options = "FORMAT JSON, ANALYZE, TIMING OFF" if run else "FORMAT JSON"
    text = await raw.fetchval(f"EXPLAIN ({options}) {call}")
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


def _call(name: str, given: list[Any]) -> str:
    return f"EXECUTE {name} ({literals(given)})" if given else f"EXECUTE {name}"


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from nodes(inner)


def literals(values: list[Any]) -> str:
    return ", ".join(_literal(value) for value in values)


def _literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool() | int() | float():
            return str(value)
        case list():
            return "'{" + ",".join(_element(item) for item in value) + "}'"
        case _:
            return f"'{value}'"


def _element(value: Any) -> str:
    if isinstance(value, bytes):
        return '"\\\\x' + value.hex() + '"'
    return "NULL" if value is None else str(value)
