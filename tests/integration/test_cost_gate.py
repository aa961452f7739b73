"""A gate that counts: what a durable support run may cost, whatever the machine does meanwhile.

Times differ from machine to machine, counts hardly do. Each bound stands 10 to 15 % above what was
measured when it was set, but for statements: those hang on how much meets in a batch.
A change that goes over one either mends that or moves the bound in the same commit and says why;
a change that brings a count down moves its bound down, too.
Run this file with `-s` to see the counts; docs/scaling.md says more.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import asyncpg
import msgspec
import pytest

from rowlock.store import queries
from rowlock.store.connection import Connection
from rowlock.store.invariants import violations
from tests.hosts import enqueue_at_once, finish, host_on

RUNS = 200
#: Four turns of the model and three calls of tools.
STEPS = 7 * RUNS

#: Statements of the host, each a transaction of its own, so these are the commits, too.
#: How many rows meet in a batch depends on how quick PostgreSQL is beside the loop: measured
#: 27 to 46 for 200 runs on a disk, 56 in memory on a busy machine; a batch for every row would be
#: 1,600, and one for every run 200.
#: `claim` holds the idle polls of the wait for the end; what is not named may not be asked at all.
MOST_STATEMENTS = {"append": 130, "finish": 40, "bodies": 20, "claim": 300}
#: Exact: run 1, ready 2 and lease 2 (in and out), history 8, final 1; 0.1 for the worker itself.
MOST_ROWS = 14.2
#: Measured 6,578 to 6,587.
MOST_WAL_BYTES = 7_400
#: Measured 71.5 to 73, and 108 to 118: more where batches are small.
MOST_OUR_CALLS = 80
MOST_CALLS = 130

ENTRYPOINT = "bench.agents.support:agent"
_PAGE_BYTES = 8192
_PACKAGE = f"{Path(queries.__file__).parents[1]}/"


@dataclass
class Counts:
    """What the load did.

    Parameters
    ----------
    statements
        By name, those of the host alone.
    our_calls, all_calls
        Calls of Python functions: in this package, and in all code, libraries and agents included.
    wal_bytes
        Without images of whole pages, which depend on when the last checkpoint was.
    """

    statements: Counter[str] = field(default_factory=Counter)
    our_calls: int = 0
    all_calls: int = 0
    rows: int = 0
    updates: int = 0
    wal_bytes: int = 0

    def show(self) -> str:
        """Return all counts, each for one run or one step."""
        named = ", ".join(f"{name} {n / RUNS:.3f}" for name, n in self.statements.most_common())
        return (
            f"a run: {self.statements.total() / RUNS:.3f} statements ({named}), "
            f"{self.rows / RUNS:.2f} rows, {self.wal_bytes / RUNS:.0f} bytes of WAL; "
            f"a step: {self.our_calls / STEPS:.2f} calls of ours, "
            f"{self.all_calls / STEPS:.2f} in all"
        )

    def problems(self) -> list[str]:
        """Return what is over its bound."""
        measured: dict[str, tuple[float, float]] = {
            "rows a run": (self.rows / RUNS, MOST_ROWS),
            "updates": (self.updates, 0),
            "WAL bytes a run": (self.wal_bytes / RUNS, MOST_WAL_BYTES),
            "our calls a step": (self.our_calls / STEPS, MOST_OUR_CALLS),
            "all calls a step": (self.all_calls / STEPS, MOST_CALLS),
        }
        for name, asked in self.statements.items():
            measured[f"statements {name}"] = (asked, MOST_STATEMENTS.get(name, 0))
        return [
            f"{what}: {is_:.2f} > {most}" for what, (is_, most) in measured.items() if is_ > most
        ]


@pytest.fixture
async def sql(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection for reading statistics."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.fixture
def support(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The support agent of the bench, loaded anew with a ledger of this test."""
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(str(root / "examples"))
    monkeypatch.setenv("SUPPORT_MODEL_PACE", "instant")
    monkeypatch.setenv("BENCH_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.delitem(sys.modules, "bench.agents.support", raising=False)
    yield
    sys.modules.pop("bench.agents.support", None)


def tickets(runs: int) -> list[bytes]:
    """Return the same inputs every time."""
    return [msgspec.json.encode({"order_id": str(1000 + number)}) for number in range(runs)]


@contextmanager
def counting_calls(counts: Counts) -> Iterator[None]:
    """Count calls of Python functions."""

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            counts.all_calls += 1
            counts.our_calls += frame.f_code.co_filename.startswith(_PACKAGE)

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


@contextmanager
def counting_statements(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count statements by their name."""

    def get(name: str) -> str:
        counts.statements[name] += 1
        return queries.load()[name]

    with monkeypatch.context() as patch:
        patch.setattr(queries, "get", get)
        yield


async def statistics(sql: asyncpg.Connection) -> asyncpg.Record:
    """Return the database's counters; those of sessions that have ended are all in it."""
    await sql.execute("SELECT pg_stat_force_next_flush()")
    row = await sql.fetchrow(
        "SELECT (SELECT wal_fpi FROM pg_stat_wal) AS images,"
        " pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint AS wal,"
        " sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint AS rows, sum(n_tup_upd)::bigint AS updates"
        " FROM pg_stat_user_tables WHERE schemaname = 'rowlock'"
    )
    assert row is not None
    return row


async def measured(dsn: str, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Run the load once, after a run that loads the agent, and count."""
    store = await Connection.open(dsn, name="test")
    counts = Counts()
    async with host_on(dsn, store, slots=RUNS) as host:
        await enqueue_at_once(store, ENTRYPOINT, tickets(1))
        await finish(host, 1)
        before = await statistics(sql)
        await enqueue_at_once(store, ENTRYPOINT, tickets(RUNS))
        with counting_statements(counts, monkeypatch), counting_calls(counts):
            await finish(host, RUNS)
        wal = (await statistics(sql))["wal"]
    assert await violations(store) == []
    await store.close()
    after = await statistics(sql)
    counts.rows = after["rows"] - before["rows"]
    counts.updates = after["updates"] - before["updates"]
    counts.wal_bytes = wal - before["wal"] - (after["images"] - before["images"]) * _PAGE_BYTES
    return counts


async def test_a_run_costs_no_more_than_it_did(
    dsn: str, sql: asyncpg.Connection, support: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 instant runs at once, 8 rows of history each."""
    counts = await measured(dsn, sql, monkeypatch)

    sys.stdout.write(counts.show())
    assert counts.problems() == [], counts.show()


async def test_a_run_leaves_nothing_for_the_cycle_collector(dsn: str, support: None) -> None:
    """Collections are rare because of that: each would look through all live runs."""
    store = await Connection.open(dsn, name="test")
    async with host_on(dsn, store, slots=RUNS) as host:
        await enqueue_at_once(store, ENTRYPOINT, tickets(1))
        await finish(host, 1)
        gc.collect()
        gc.disable()
        try:
            await enqueue_at_once(store, ENTRYPOINT, tickets(RUNS))
            await finish(host, RUNS)
            unreachable = gc.collect()
        finally:
            gc.enable()
    await store.close()

    assert unreachable < RUNS / 2
