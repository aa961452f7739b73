"""Statements whose commit nobody heard of: on a real database, in a real loop process's parts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from rowlock.engine.board import Board
from rowlock.engine.host import Host
from rowlock.engine.messages import EXIT_LEFT, Boot
from rowlock.errors import StoreUnavailable
from rowlock.states import EventKind, FinalStatus
from rowlock.store import intake, parking, work, workers
from rowlock.store.types import NewWorker
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

Call = Callable[..., Awaitable[Any]]


def losing_answers(call: Call, lost: list[int]) -> Call:
    """Return `call` as it looks when the connection breaks after its first `lost` commits."""

    async def commit_and_lose(*arguments: Any, **named: Any) -> Any:
        answer = await call(*arguments, **named)
        if lost[0]:
            lost[0] -= 1
            raise StoreUnavailable("the connection was lost after the commit")
        return answer

    return commit_and_lose


@pytest.fixture
async def host(bench: Bench) -> AsyncIterator[Host]:
    """The parts of a loop process, in this process."""
    pool = await intake.ensure_pool(bench.store, namespace="", name="default")
    [worker] = await workers.register(bench.store, [NewWorker(pool, "i/0", "w", 1, "b", 3600)])
    board = Board.create()
    board.accepted(time.monotonic_ns() + 10**12)
    boot = Boot(bench.dsn, worker, pool, 0, "w", 16, 3600, 1 << 20, "json", "WARNING")
    host = Host(boot, board)
    running = asyncio.create_task(host.run())
    yield host
    host.drain()
    assert await running == EXIT_LEFT
    assert await bench.sql.fetchval("SELECT count(*) FROM rowlock.run_lease") == 0
    await bench.healthy()


@pytest.mark.parametrize("statement", ["claim", "append", "finish"])
async def test_a_commit_whose_answer_was_lost_is_neither_lost_nor_done_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, host: Host, statement: str
) -> None:
    lost = [3]
    monkeypatch.setattr(work, statement, losing_answers(getattr(work, statement), lost))
    runs = await bench.enqueue("walker", count=20, steps=3)
    for run in runs:
        final = await bench.final(run)
        assert (final["status"], final["epoch"]) == (FinalStatus.SUCCEEDED, 1)
        assert [row["seq"] for row in await bench.history(run)] == [1, 2, 3]
    assert len(bench.effects()) == 60
    assert lost == [0]
    counters = dict(host.report().counters)
    assert ("rowlock_lost_runs_total",) not in counters
    if statement == "claim":
        assert counters[("rowlock_runs_adopted_total",)] > 0


async def test_a_release_whose_answer_was_lost_is_a_hand_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, host: Host
) -> None:
    monkeypatch.setattr(work, "release", losing_answers(work.release, [2]))
    [run] = await bench.enqueue("walker", steps=3, gates=[1])
    await bench.waiting("1")
    host.drain()
    bench.open_gate("1")
    ready = await eventually(
        lambda: bench.sql.fetchrow("SELECT * FROM rowlock.run_ready WHERE run_id = $1", run),
        "the run back in the queue",
    )
    assert ready["takeovers"] == 0
    assert [effect[1] for effect in bench.effects()] == ["step-0", "step-1"]


async def test_a_park_whose_answer_was_lost_is_no_loss(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, host: Host
) -> None:
    lost = [2]
    monkeypatch.setattr(parking, "park", losing_answers(parking.park, lost))
    runs = await bench.enqueue("tests.waiting_agents:sleeper", count=5, seconds=3600)
    for run in runs:
        parked = await eventually(
            lambda run=run: bench.sql.fetchrow(  # type: ignore[misc]
                "SELECT * FROM rowlock.run_parked WHERE run_id = $1", run
            ),
            "the run parked",
        )
        assert (parked["epoch"], list(parked["reasons"])) == (1, ["sleep"])
        kinds = [row["kind"] for row in await bench.history(run)]
        assert kinds == [EventKind.STEP_DONE, EventKind.SLEEP, EventKind.PARKED]

    counted: dict[tuple[str, ...], float] = {}

    async def settled() -> bool:
        report = host.report()
        counted.update(report.counters)
        return report.gauges[0] == ("rowlock_runs_running", 0)

    await eventually(settled, "the runs gone from the process")
    assert lost == [0]
    assert ("rowlock_runs_parked_total", "sleep") in counted
    assert ("rowlock_lost_runs_total",) not in counted
