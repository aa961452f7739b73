"""What a worker promises about blocking functions: they run elsewhere, and they can be ended."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from rowlock.states import EventKind, FinalStatus
from rowlock.store import intake
from tests.acceptance.test_worker_runs import free_port
from tests.workers import Bench, LocalWorker, bench_fixture, eventually  # noqa: F401

AGENTS = "tests.blocking_for_tests"


def executors(worker: LocalWorker) -> list[int]:
    """Process ids of the executors of a worker."""
    return [pid for loop in worker.loops() for pid in children(loop)]


def children(pid: int) -> list[int]:
    """Process ids of a process's children."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """Does the process exist, and not as a zombie?"""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def begun(bench: Bench, what: str) -> int:
    """Wait for an effect and return the process that had it."""

    async def look() -> int | None:
        return next((int(effect[-1]) for effect in bench.effects() if effect[0] == what), None)

    return await eventually(look, f"effect {what}")


async def test_blocking_steps_run_in_an_executor_that_is_used_again(bench: Bench) -> None:
    worker = bench.worker()
    bench.open_gate("one")
    bench.open_gate("two")
    [run] = await bench.enqueue(f"{AGENTS}:caller")
    final = await bench.final(run)
    assert final["status"] == FinalStatus.SUCCEEDED
    pids = {int(effect[-1]) for effect in bench.effects()}
    assert pids == {json.loads(final["result"])} == set(executors(worker))
    await bench.healthy()


async def test_an_executor_has_no_way_into_the_database(bench: Bench) -> None:
    worker = bench.worker()
    [run] = await bench.enqueue(f"{AGENTS}:looker")
    seen = json.loads((await bench.final(run))["result"])
    assert [thing for thing in seen if not re.fullmatch(r"socket:\[\d+\]", thing)] == []
    assert len(seen) == 1  # its channel
    [executor] = executors(worker)
    for page in ("environ", "cmdline"):
        assert "postgres" not in told(executor, page)
    mine = re.findall(r"\d+", seen[0])
    [channel] = [line for line in unix_sockets() if line.split()[6] in mine]
    assert len(channel.split()) == 7  # a pair without a name: nobody else can connect to it


def told(pid: int, page: str) -> str:
    """Return what the kernel tells of a process."""
    return Path(f"/proc/{pid}/{page}").read_text()


def unix_sockets() -> list[str]:
    """Return all Unix sockets of the machine; a socket that is not among them is TCP."""
    return Path("/proc/net/unix").read_text().splitlines()[1:]


@pytest.mark.public_bug("temporalio/sdk-python#700")
@pytest.mark.parametrize(("agent", "effect"), [("spinner", "spin"), ("grinder", "grind")])
async def test_a_cancel_ends_a_call_that_nothing_else_can_end(
    bench: Bench, agent: str, effect: str
) -> None:
    bench.worker("--slots", "1")
    [run] = await bench.enqueue(f"{AGENTS}:{agent}")
    executor = await begun(bench, effect)
    asked = await bench.sql.fetchval("SELECT rowlock.now()")
    await intake.request_cancel(bench.store, [run], by="ada")
    final = await bench.final(run)
    assert (final["status"], final["reason"]) == (FinalStatus.CANCELLED, "Cancelled")
    assert (final["finished_at"] - asked).total_seconds() < 5  # 0.5 s of polling; a busy machine
    [next_run] = await bench.enqueue("walker")  # the only slot is free
    assert (await bench.final(next_run))["status"] == FinalStatus.SUCCEEDED
    await eventually(lambda: asyncio.sleep(0, not is_running(executor)), "its end", within=5)
    await bench.healthy()


async def test_a_step_over_its_timeout_fails_and_names_it(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue(f"{AGENTS}:impatient")
    final = await bench.final(run)
    assert (final["status"], final["reason"]) == (FinalStatus.FAILED, "AgentError")
    assert "TimeoutError: no result within its timeout of 0.5 s" in final["message"]
    assert not is_running(await begun(bench, "spin"))


async def test_the_active_deadline_ends_a_blocking_call_and_names_its_field(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue(f"{AGENTS}:spinner", options={"active_deadline_seconds": 3})
    executor = await begun(bench, "spin")
    final = await bench.final(run)
    assert final["reason"] == "ActiveDeadlineExceeded"
    assert "activeDeadlineSeconds (3)" in final["message"]
    await eventually(lambda: asyncio.sleep(0, not is_running(executor)), "its end", within=5)


async def test_a_killed_executor_interrupts_its_step_alone(bench: Bench) -> None:

    worker = bench.worker()
    [run] = await bench.enqueue(f"{AGENTS}:caller")
    os.kill(await begun(bench, "one"), signal.SIGKILL)
    bench.open_gate("one")
    bench.open_gate("two")
    final = await bench.final(run)
    assert (final["status"], final["takeovers"], final["attempt"]) == (FinalStatus.SUCCEEDED, 0, 1)
    assert [effect[0] for effect in bench.effects()] == ["one", "one", "two"]
    [first, *_] = [
        json.loads(row["body"])
        for row in await bench.history(run)
        if row["kind"] == EventKind.STEP_DONE
    ]
    assert "ExecutorLost: the executor process died in the call: SIGKILL" in first["error"]
    assert len(worker.loops()) == 1
    await bench.healthy()


async def test_a_call_that_may_not_be_repeated_is_unknown_when_its_executor_dies(
    bench: Bench,
) -> None:

    bench.worker()
    [run] = await bench.enqueue(f"{AGENTS}:once")
    os.kill(await begun(bench, "one"), signal.SIGKILL)
    final = await bench.final(run)
    assert final["status"] == FinalStatus.FAILED
    assert "may or may not have happened" in final["message"]
    assert "SIGKILL" in final["message"]
    assert len(bench.effects()) == 1


async def test_a_drain_waits_for_a_call_and_not_for_one_that_waits(bench: Bench) -> None:

    leaving = bench.worker("--executors", "1", "--drain-seconds", "60")
    [first] = await bench.enqueue(f"{AGENTS}:caller")
    await begun(bench, "one")
    [second] = await bench.enqueue(f"{AGENTS}:caller")
    await bench.lease(second)
    leaving.process.send_signal(signal.SIGTERM)
    await eventually(
        lambda: bench.sql.fetchval("SELECT true FROM rowlock.run_ready WHERE run_id = $1", second),
        "the hand-over of the run that waits for an executor",
    )
    assert leaving.process.poll() is None
    bench.open_gate("one")
    assert await leaving.ends() == 0
    assert [effect[0] for effect in bench.effects()] == ["one"]
    bench.worker()
    bench.open_gate("two")
    for run in (first, second):
        final = await bench.final(run)
        assert (final["status"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 0)
    assert sorted(effect[0] for effect in bench.effects()) == ["one", "one", "two", "two"]
    await bench.healthy()


async def test_after_the_drain_time_a_call_is_ended_and_repeated_elsewhere(bench: Bench) -> None:

    leaving = bench.worker("--drain-seconds", "0.5")
    [run] = await bench.enqueue(f"{AGENTS}:caller")
    executor = await begun(bench, "one")
    leaving.process.send_signal(signal.SIGTERM)
    assert await leaving.ends() == 0
    assert not is_running(executor)
    bench.open_gate("one")
    bench.open_gate("two")
    bench.worker()
    final = await bench.final(run)
    assert (final["status"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 0)
    assert [effect[0] for effect in bench.effects()] == ["one", "one", "two"]
    await bench.healthy()


async def test_two_hundred_runs_go_on_beside_calls_that_burn_cpu(bench: Bench) -> None:
    worker = bench.worker("--executors", "2", "--metrics-port", str(port := free_port()))
    burners = await bench.enqueue(f"{AGENTS}:burner", count=2, steps=600)
    await eventually(lambda: asyncio.sleep(0, len(executors(worker)) == 2), "two executors")
    runs = await bench.enqueue("ambler", count=200, steps=10)
    lags: list[float] = []
    for run in runs:
        assert (await bench.final(run, within=60))["status"] == FinalStatus.SUCCEEDED
        lags.append(await asyncio.to_thread(gauge, port, "rowlock_loop_lag_seconds"))
    sys.stdout.write(f"loop lag (p99 of 5 s): at most {max(lags) * 1000:.0f} ms\n")
    assert max(lags) < 1.0  # a call on the loop would hold it for its ten minutes
    assert await asyncio.to_thread(gauge, port, "rowlock_executors_busy") == 2
    await intake.request_cancel(bench.store, burners, by="ada")
    for run in burners:
        assert (await bench.final(run))["status"] == FinalStatus.CANCELLED
    await bench.healthy()


def gauge(port: int, name: str) -> float:
    """Return a gauge of the only loop process."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        page = response.read().decode()
    found = re.search(rf'^{name}{{process="0"}} (\S+)$', page, re.MULTILINE)
    return float(found[1]) if found else 0.0
