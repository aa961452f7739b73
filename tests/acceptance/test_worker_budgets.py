"""What real workers make of budgets, of doubt, and of results that are not so good."""

from __future__ import annotations

import asyncio
import json
import os
import signal

from rowlock.states import EventKind, FinalStatus
from tests.acceptance.test_worker_runs import fetch_if, free_port
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

AGENTS = "tests.spending_agents:"


def names(bench: Bench) -> list[str]:
    """Return what has happened in the world."""
    return [effect[1] for effect in bench.effects()]


async def test_a_run_over_its_budget_fails_at_its_next_step(bench: Bench) -> None:
    """Without another attempt, and its end says what it used."""
    bench.worker()
    limits = {"max_total_tokens": 15, "max_attempts": 3}
    [run] = await bench.enqueue(AGENTS + "spender", steps=5, options=limits)

    final = await bench.final(run)

    assert (final["status"], final["reason"]) == (FinalStatus.FAILED, "BudgetExceeded")
    assert "used 20 tokens, more than its maxTotalTokens of 15" in final["message"]
    assert (final["attempt"], final["step"]) == (1, 2)
    assert (final["tokens_in"], final["tokens_out"], final["cost_micro"]) == (18, 2, 2_000)
    assert names(bench) == ["spend-0", "spend-1"]
    await bench.healthy()


async def test_what_a_dead_worker_used_counts(bench: Bench) -> None:
    """Two steps before the crash, one after it: that is too much for a fourth."""
    worker = bench.worker()
    [run] = await bench.enqueue(
        AGENTS + "spender", steps=5, gates=[2], options={"max_total_tokens": 25}
    )
    await bench.waiting("2")
    os.kill(worker.loops()[0], signal.SIGKILL)
    await bench.lease(run, epoch=2)
    bench.open_gate("2")

    final = await bench.final(run)

    assert (final["reason"], final["takeovers"]) == ("BudgetExceeded", 1)
    assert (final["tokens_in"], final["tokens_out"], final["cost_micro"]) == (27, 3, 3_000)
    assert names(bench) == ["spend-0", "spend-1", "spend-2", "spend-2"]
    await bench.healthy()


async def test_what_failed_attempts_used_counts(bench: Bench) -> None:
    """The third attempt begins nothing."""
    bench.worker()
    limits = {"max_total_tokens": 15, "max_attempts": 5, "retry_backoff_seconds": 0.01}
    [run] = await bench.enqueue(AGENTS + "wasteful", options=limits)

    await eventually(
        lambda: bench.sql.fetchval(
            "SELECT true FROM rowlock.run_final WHERE run_id = $1 AND reason = 'BudgetExceeded'",
            run,
        ),
        "the end of the budget",
    )

    final = await bench.sql.fetchrow(
        "SELECT * FROM rowlock.run_final WHERE run_id = $1 ORDER BY attempt DESC LIMIT 1", run
    )
    assert final is not None
    assert (final["attempt"], final["tokens_in"], final["tokens_out"]) == (3, 18, 2)
    assert names(bench) == ["waste-1", "waste-2"]
    await bench.healthy()


async def test_a_degraded_result_is_one_to_the_end(bench: Bench) -> None:
    """Also when a takeover replays the step that said so; metrics tell it from a good one."""
    port = free_port()
    worker = bench.worker("--metrics-port", str(port))
    [run] = await bench.enqueue(AGENTS + "modest")
    await bench.waiting("wait")
    os.kill(worker.loops()[0], signal.SIGKILL)
    await bench.lease(run, epoch=2)
    bench.open_gate("wait")

    final = await bench.final(run)

    assert (final["status"], final["outcome"]) == (FinalStatus.SUCCEEDED, "degraded")
    assert final["message"] == "the index is a day old; two pages were missing"
    assert json.loads(final["result"]) == "found"
    shown = 'rowlock_runs_finished_total{reason="Degraded",status="Succeeded"} 1.0'
    await eventually(
        lambda: asyncio.to_thread(fetch_if, f"http://127.0.0.1:{port}/metrics", shown), shown
    )
    await bench.healthy()


async def test_a_key_that_the_provider_forgot_is_not_used_again(bench: Bench) -> None:
    """The intent's age is the database's: here it is made two hours older."""
    worker = bench.worker()
    [run] = await bench.enqueue(AGENTS + "payer")
    await bench.waiting("pay")
    worker.signal_group(signal.SIGSTOP)
    await bench.sql.execute(
        "UPDATE rowlock.run_event SET at = at - interval '2 hours' WHERE run_id = $1 AND kind = $2",
        run,
        EventKind.STEP_INTENT,
    )
    worker.signal_group(signal.SIGCONT)
    os.kill(worker.loops()[0], signal.SIGKILL)

    final = await bench.final(run)

    assert (final["status"], final["reason"]) == (FinalStatus.FAILED, "AgentError")
    assert "may or may not have happened" in final["message"]
    assert names(bench) == ["pay"]
    await bench.healthy()


async def test_a_key_that_the_provider_knows_is_used_again(bench: Bench) -> None:
    """The same crash, at once."""
    worker = bench.worker()
    [run] = await bench.enqueue(AGENTS + "payer")
    await bench.waiting("pay")
    os.kill(worker.loops()[0], signal.SIGKILL)
    await bench.lease(run, epoch=2)
    bench.open_gate("pay")

    assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED
    [first, second] = bench.effects()
    assert first[:3] == second[:3]
