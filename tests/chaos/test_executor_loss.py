"""What is left of executors, and of what their tools have started, when a parent is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from rowlock.states import FinalStatus
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

AGENTS = "tests.blocking_for_tests"


def is_running(pid: int) -> bool:
    """Does the process exist, and not as a zombie?"""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def grown(bench: Bench) -> tuple[int, list[int]]:
    """Wait for a tool that has started a tree; return its executor and the tree."""
    tree = bench.folder / "tree"

    async def look() -> tuple[int, list[int]] | None:
        pids = [int(pid) for pid in tree.read_text().split()] if tree.exists() else []
        executor = [int(effect[-1]) for effect in bench.effects() if effect[0] == "tree"]
        return (executor[-1], pids) if len(pids) == 2 else None

    return await eventually(look, "a tree of processes")


async def all_gone(pids: list[int]) -> None:
    """Wait until none of the processes is left."""
    await eventually(
        lambda: asyncio.sleep(0, not any(map(is_running, pids))), f"the end of {pids}", within=10
    )


async def test_a_killed_loop_process_takes_its_executors_and_their_trees_along(
    bench: Bench,
) -> None:
    worker = bench.worker()
    await bench.enqueue(f"{AGENTS}:planter")
    executor, tree = await grown(bench)
    os.kill(worker.loops()[0], signal.SIGKILL)
    await all_gone([executor, *tree])


async def test_a_stalled_loop_process_takes_its_executors_and_their_trees_along(
    bench: Bench,
) -> None:
    worker = bench.worker("--stall-ceiling-seconds", "5")  # importing takes the loop, too
    await bench.enqueue(f"{AGENTS}:planter")
    executor, tree = await grown(bench)
    await bench.enqueue("hog")
    await worker.says("does not tick within its stallCeilingSeconds")
    await all_gone([executor, *tree])


async def test_executors_die_with_the_whole_worker(bench: Bench) -> None:
    worker = bench.worker()
    await bench.enqueue(f"{AGENTS}:spinner")

    async def spins() -> int | None:
        return next((int(effect[-1]) for effect in bench.effects()), None)

    executor = await eventually(spins, "a call that spins")
    os.kill(worker.pid, signal.SIGKILL)
    await all_gone([executor])


async def test_an_executor_killed_again_and_again_costs_tries_and_no_takeover(
    bench: Bench,
) -> None:
    worker = bench.worker()
    neighbours = await bench.enqueue("walker", count=20, steps=4)
    [run] = await bench.enqueue(f"{AGENTS}:caller")  # two tries

    killed: list[int] = []

    async def victim() -> int | None:
        pids = [int(effect[-1]) for effect in bench.effects() if effect[0] == "one"]
        return next((pid for pid in pids if pid not in killed), None)

    while len(killed) < 2:
        killed.append(await eventually(victim, "the next try"))
        os.kill(killed[-1], signal.SIGKILL)
    final = await bench.final(run)
    assert (final["status"], final["takeovers"]) == (FinalStatus.FAILED, 0)
    assert "failed after 2 tries: ExecutorLost" in final["message"]
    for other in neighbours:
        assert (await bench.final(other))["status"] == FinalStatus.SUCCEEDED
    assert len(worker.loops()) == 1
    await bench.healthy()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_the_workers_group_lets_a_call_finish(
    bench: Bench, number: signal.Signals
) -> None:
    leaving = bench.worker("--drain-seconds", "60")
    await bench.enqueue(f"{AGENTS}:caller")
    [[_, executor]] = await eventually(lambda: asyncio.sleep(0, bench.effects()), "a call")
    leaving.signal_group(number)  # as a terminal does
    await leaving.says("Draining")
    assert is_running(int(executor))
    bench.open_gate("one")
    assert await leaving.ends() == 0
    bench.open_gate("two")
    bench.worker()
    await eventually(
        lambda: bench.sql.fetchval("SELECT count(*) = 1 FROM rowlock.run_final WHERE status = 1"),
        "the end of the run",
    )
    assert [effect[0] for effect in bench.effects()] == ["one", "two"]
    await bench.healthy()
