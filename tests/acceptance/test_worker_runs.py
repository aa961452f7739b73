"""What a worker promises while no process and no database dies."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import urllib.request

import pytest

from rowlock.states import EventKind, FinalStatus
from rowlock.store import intake
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401


async def test_a_worker_runs_a_run_to_its_end(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue("walker", steps=3)
    final = await bench.final(run)
    assert (final["status"], final["reason"], final["outcome"]) == (
        FinalStatus.SUCCEEDED,
        None,
        "ok",
    )
    assert json.loads(final["result"]) == 3
    assert final["step"] == 3
    history = await bench.history(run)
    assert [(row["seq"], row["kind"]) for row in history] == [
        (seq, EventKind.STEP_DONE) for seq in (1, 2, 3)
    ]
    assert [effect[1] for effect in bench.effects()] == ["step-0", "step-1", "step-2"]
    await bench.healthy()


async def test_two_workers_with_two_processes_each_share_a_pool(bench: Bench) -> None:
    for _ in range(2):
        bench.worker("--processes", "2", "--slots", "8")
    await eventually(
        lambda: bench.sql.fetchval("SELECT count(*) = 4 FROM rowlock.worker_live WHERE slots > 0"),
        "four processes that beat with their slots",
    )
    runs = await bench.enqueue("walker", count=200, steps=4)
    for run in runs:
        assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED
    shares = await bench.sql.fetch("SELECT worker, count(*) FROM rowlock.run_final GROUP BY worker")
    assert len(shares) == 4
    assert len(bench.effects()) == 200 * 4
    await bench.healthy()


async def test_a_cancel_ends_a_running_run_within_a_second(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue("walker", steps=2, gates=[0])
    await bench.waiting("0")
    asked = await bench.sql.fetchval("SELECT rowlock.now()")
    await intake.request_cancel(bench.store, [run], by="ada", reason="not needed")
    final = await bench.final(run)
    assert (final["status"], final["reason"]) == (FinalStatus.CANCELLED, "Cancelled")
    assert "not needed" in final["message"]
    assert (final["finished_at"] - asked).total_seconds() < 5  # 0.5 s of polling; a busy machine
    assert [effect[1] for effect in bench.effects()] == ["step-0"]
    await bench.healthy()


async def test_a_cancel_of_a_queued_run_needs_no_worker(bench: Bench) -> None:
    [run] = await bench.enqueue("walker")
    assert await intake.request_cancel(bench.store, [run], by="ada") == [run]
    assert (await bench.final(run))["status"] == FinalStatus.CANCELLED


async def test_a_cancel_reaches_a_run_that_waits_for_its_next_attempt(bench: Bench) -> None:
    bench.worker()
    slow = {"max_attempts": 2, "retry_backoff_seconds": 3600, "max_retry_backoff_seconds": 3600}
    [run] = await bench.enqueue("failing", steps=2, options=slow)
    await eventually(
        lambda: bench.sql.fetchval("SELECT count(*) FROM rowlock.run_timer WHERE run_id = $1", run),
        "the timer of the next attempt",
    )
    await intake.request_cancel(bench.store, [run], by="ada")
    assert (await bench.final(run))["status"] == FinalStatus.CANCELLED
    await bench.healthy()


async def test_code_that_swallows_its_cancel_does_not_keep_its_run(bench: Bench) -> None:
    worker = bench.worker()
    [run] = await bench.enqueue("stubborn")
    await bench.waiting("stubborn")
    await intake.request_cancel(bench.store, [run], by="ada")
    assert (await bench.final(run))["status"] == FinalStatus.CANCELLED
    await worker.says("ignores its cancellation")
    [other] = await bench.enqueue("walker")
    assert (await bench.final(other))["status"] == FinalStatus.SUCCEEDED
    bench.open_gate("stubborn")
    await bench.healthy()


async def test_an_entry_point_that_cannot_be_imported_fails_its_runs_alone(bench: Bench) -> None:
    bench.worker()
    broken = [*await bench.enqueue("tests.no_such_module:agent"), *await bench.enqueue("os:path")]
    reasons = {(await bench.final(run))["reason"] for run in broken}
    assert reasons == {"AgentLoadError"}
    message = (await bench.final(broken[0]))["message"]
    assert "ModuleNotFoundError: No module named 'tests.no_such_module'" in message
    [run] = await bench.enqueue("walker")
    assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED


async def test_a_wrong_input_fails_before_any_step_and_names_the_field(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue("walker", steps="many", options={"max_attempts": 3})
    final = await bench.final(run)
    assert (final["reason"], final["attempt"]) == ("InvalidInput", 1)
    assert "steps" in final["message"]
    assert await bench.history(run) == []


async def test_an_error_of_the_agent_ends_the_run_with_its_causes(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue("failing", steps=9)
    final = await bench.final(run)
    assert (final["status"], final["reason"]) == (FinalStatus.FAILED, "AgentError")
    assert final["message"] == "ValueError: the order is not there <- KeyError: 'order 1001'"


async def test_a_failed_attempt_is_followed_by_the_next_until_one_succeeds(bench: Bench) -> None:
    bench.worker()
    quick = {"max_attempts": 3, "retry_backoff_seconds": 0.1}
    [run] = await bench.enqueue("failing", steps=3, options=quick)

    final = await bench.final(run)
    assert (final["status"], final["attempt"]) == (FinalStatus.SUCCEEDED, 3)
    finals = await bench.sql.fetch("SELECT status FROM rowlock.run_final ORDER BY attempt")
    assert [row["status"] for row in finals] == [2, 2, 1]
    kinds = [row["kind"] for row in await bench.history(run)]
    assert kinds == [EventKind.ATTEMPT_FAILED, EventKind.ATTEMPT_FAILED]
    await bench.healthy()


async def test_an_agent_that_leaves_the_interpreter_fails_its_run_alone(bench: Bench) -> None:
    worker = bench.worker()
    [run] = await bench.enqueue("quitter")
    assert (await bench.final(run))["reason"] == "AgentError"
    loops = worker.loops()
    [other] = await bench.enqueue("walker")
    assert (await bench.final(other))["status"] == FinalStatus.SUCCEEDED
    assert worker.loops() == loops


async def test_a_row_that_can_never_be_stored_fails_its_run_alone(bench: Bench) -> None:
    bench.worker()
    good = await bench.enqueue("walker", count=20, steps=5)
    [bad] = await bench.enqueue("forbidden")
    good += await bench.enqueue("walker", count=20, steps=5)
    final = await bench.final(bad)
    assert (final["status"], final["reason"]) == (FinalStatus.FAILED, "AgentError")
    assert "can never be stored" in final["message"]
    for run in good:
        assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED
    await bench.healthy()  # its number in history holds a tombstone


async def test_a_label_that_can_never_be_stored_costs_the_run_nothing(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue("labelled")
    assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED
    assert [(row["seq"], row["body"]) for row in await bench.history(run)] == [(1, None), (2, b"1")]
    await bench.healthy()


async def test_a_run_that_is_active_for_too_long_fails(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue("walker", gates=[0], options={"active_deadline_seconds": 1})
    final = await bench.final(run)
    assert (final["status"], final["reason"]) == (FinalStatus.FAILED, "ActiveDeadlineExceeded")
    assert "activeDeadlineSeconds (1)" in final["message"]


async def test_customers_code_cannot_read_the_way_into_the_database(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue("snooper")
    assert json.loads((await bench.final(run))["result"]) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_with_nothing_to_do_leaves_with_code_0(
    bench: Bench, number: signal.Signals
) -> None:
    worker = bench.worker()
    [run] = await bench.enqueue("walker", steps=1)
    await bench.final(run)
    worker.signal_group(number)  # a terminal sends it to all processes
    assert await worker.ends() == 0
    assert await bench.sql.fetchval("SELECT count(*) FROM rowlock.worker_live") == 0
    reasons = await bench.sql.fetch("SELECT fence_reason FROM rowlock.worker")
    assert [row["fence_reason"] for row in reasons] == ["Left"]


async def test_metrics_tell_what_the_loops_did_and_the_probe_answers(bench: Bench) -> None:
    worker = bench.worker("--metrics-port", str(port := free_port()))
    runs = await bench.enqueue("walker", count=3, steps=2)
    for run in runs:
        await bench.final(run)
    page = await eventually(
        lambda: asyncio.to_thread(
            fetch_if, f"http://127.0.0.1:{port}/metrics", "rowlock_steps_total 6.0"
        ),
        "the loop's report in /metrics",
    )
    for line in (
        'rowlock_runs_finished_total{reason="",status="Succeeded"} 3.0',
        "rowlock_runs_claimed_total 3.0",
        'rowlock_slots{process="0"} 256.0',
        "rowlock_partition_days_ahead 7.0",
        'rowlock_takeovers_total{reason="WorkerDied"} 0.0',
    ):
        assert line in page
    assert await asyncio.to_thread(fetch_if, f"http://127.0.0.1:{port}/livez", "ok")
    assert worker.process.poll() is None


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch_if(url: str, expected: str) -> str | None:
    """Return the page at `url` if it holds `expected`."""
    with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310  our own port
        text = response.read().decode()
    return text if expected in text else None
