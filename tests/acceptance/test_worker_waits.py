"""What a real worker does with runs that wait: it gives the slot back, and nothing is lost."""

from __future__ import annotations

import json
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from rowlock.states import Decision, EventKind, FinalStatus
from rowlock.store import approvals, intake, parking, redrive
from rowlock.store.nudges import nudge
from rowlock.store.types import Approval, Decided, Deciding, Redriving, RunId
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

QUICK = {"ROWLOCK_PARK_SECONDS": "0.2"}
AGENTS = "tests.waiting_agents:"


async def parked(bench: Bench, run: RunId) -> asyncpg.Record:
    """Wait until the run is parked, and return its row."""
    return await eventually(
        lambda: bench.sql.fetchrow("SELECT * FROM rowlock.run_parked WHERE run_id = $1", run),
        f"run {run} parked; the workers said:\n" + "\n".join(w.log[-3000:] for w in bench.workers),
    )


async def questions(bench: Bench, run: RunId, count: int = 1) -> list[Approval]:
    """Wait until the run is parked with `count` open questions, and return them."""
    await parked(bench, run)
    pending = await approvals.pending_approvals(bench.store, run)
    assert len(pending) == count
    return pending


async def answer(bench: Bench, asked: Approval, decision: Decision, reason: str = "") -> Decided:
    """Answer a question."""
    return await approvals.decide(
        bench.store, asked.run_id, step_key=asked.step_key, digest=asked.digest,
        attempt=asked.attempt, decision=decision, by="ada", reason=reason,
    )  # fmt: skip


async def result(bench: Bench, run: RunId) -> Any:
    """Wait for the run's good end and return its result."""
    final = await bench.final(run)
    assert final["status"] == FinalStatus.SUCCEEDED, final["message"]
    return json.loads(final["result"])


def names(bench: Bench) -> list[str]:
    return [effect[1] for effect in bench.effects()]


# -------------------------------------------------------------------- sleep


async def test_a_sleeping_run_frees_its_slot_and_goes_on_when_it_is_due(bench: Bench) -> None:
    bench.worker("--slots", "1", environment=QUICK)
    [run] = await bench.enqueue(AGENTS + "sleeper", seconds=2.0)
    row = await parked(bench, run)
    assert list(row["reasons"]) == ["sleep"]
    [other] = await bench.enqueue("walker", steps=1)
    assert (await bench.final(other))["status"] == FinalStatus.SUCCEEDED
    assert await bench.sql.fetchval("SELECT count(*) FROM rowlock.run_parked") == 1
    assert await result(bench, run) == "after"
    final = await bench.final(run)
    assert final["takeovers"] == 0
    assert final["active_ms"] < 1500
    slept = await bench.sql.fetchval(
        "SELECT extract(epoch FROM max(at) - min(at))::float8 FROM rowlock.run_event"
        " WHERE run_id = $1 AND kind = 2",
        run,
    )
    assert slept >= 2.0
    assert names(bench).count("before") == names(bench).count("after") == 1
    await bench.healthy()


async def test_a_short_sleep_stays_in_the_process(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue(AGENTS + "sleeper", seconds=0.1)
    assert await result(bench, run) == "after"
    kinds = [row["kind"] for row in await bench.history(run)]
    assert kinds == [EventKind.STEP_DONE, EventKind.SLEEP, EventKind.STEP_DONE]


async def test_a_run_parks_only_when_all_of_its_branches_wait(bench: Bench) -> None:
    bench.worker(environment=QUICK)
    [run] = await bench.enqueue(AGENTS + "busy_sleeper", seconds=4.0)
    await bench.waiting("0")
    await eventually(
        lambda: bench.sql.fetchval("SELECT true FROM rowlock.run_event WHERE kind = 5"),
        "the sleep in history",
    )
    assert await bench.sql.fetchval("SELECT count(*) FROM rowlock.run_parked") == 0
    bench.open_gate("0")
    await parked(bench, run)
    assert await result(bench, run) == "slept worked"
    assert names(bench) == ["work"]
    await bench.healthy()


async def test_a_worker_killed_while_a_run_is_parked_costs_nothing(bench: Bench) -> None:
    first = bench.worker(environment=QUICK)
    [run] = await bench.enqueue(AGENTS + "sleeper", seconds=1.5)
    await parked(bench, run)
    first.destroy()
    bench.worker(environment=QUICK)
    assert await result(bench, run) == "after"
    final = await bench.final(run)
    assert (final["takeovers"], final["epoch"]) == (0, 2)
    assert names(bench) == ["before", "after"]
    await bench.healthy()


async def test_a_long_wait_between_two_tries_parks_and_counts_on(bench: Bench) -> None:
    bench.worker(environment=QUICK)
    [run] = await bench.enqueue(AGENTS + "patient")
    for tries in (1, 2):
        row = await parked(bench, run)
        assert list(row["reasons"]) == ["retry"]
        assert len(bench.effects()) == tries
        if tries == 2:
            bench.open_gate("provider")
        await an_hour_passes(bench, run)
    assert await result(bench, run) == "done"
    assert len({effect[2] for effect in bench.effects()}) == 1
    [done] = [row for row in await bench.history(run) if row["kind"] == EventKind.STEP_DONE]
    assert done["try"] == 3
    await bench.healthy()


async def test_tries_of_a_step_are_counted_over_parks(bench: Bench) -> None:
    bench.worker(environment=QUICK)
    [run] = await bench.enqueue(AGENTS + "patient")
    for _ in range(2):
        await parked(bench, run)
        await an_hour_passes(bench, run)
    final = await bench.final(run)
    assert (final["status"], final["reason"]) == (FinalStatus.FAILED, "AgentError")
    assert "after 3 tries" in final["message"]
    assert len(bench.effects()) == 3


async def an_hour_passes(bench: Bench, run: RunId) -> None:
    """Move what the run waits for an hour back, and wait until it is claimed again."""
    epoch = (await parked(bench, run))["epoch"]
    await bench.sql.execute(
        "UPDATE rowlock.run_event SET at = at - interval '1 hour' WHERE run_id = $1", run
    )
    await bench.sql.execute(
        "UPDATE rowlock.run_parked SET wake_at = rowlock.now() WHERE run_id = $1", run
    )
    await eventually(
        lambda: bench.sql.fetchval(
            "SELECT max(epoch) > $2 FROM (SELECT epoch FROM rowlock.run_live WHERE run_id = $1"
            " UNION ALL SELECT epoch FROM rowlock.run_final WHERE run_id = $1) e",
            run,
            epoch,
        ),
        "the next claim",
    )


# -------------------------------------------------------------------- approvals


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (Decision.APPROVED, "refunded 100"),
        (Decision.DENIED, "Denied by ada: not this one"),
    ],
)
async def test_an_answer_lets_the_call_happen_or_is_told_to_the_model(
    bench: Bench, decision: Decision, expected: str
) -> None:
    bench.worker("--slots", "1", environment=QUICK)
    [run] = await bench.enqueue(AGENTS + "refunder")
    [asked] = await questions(bench, run)
    assert json.loads(asked.question)["arguments"]["cents"] == 100
    assert bench.effects() == []
    [other] = await bench.enqueue("walker", steps=1)  # the slot is free
    await bench.final(other)
    told = await answer(bench, asked, decision, "not this one")
    assert told.outcome is Deciding.DECIDED
    assert await result(bench, run) == expected
    assert names(bench).count("refund-100") == (decision is Decision.APPROVED)
    kinds = [row["kind"] for row in await bench.history(run)]
    assert kinds.count(EventKind.DECIDED) == 1
    await bench.healthy()


@pytest.mark.parametrize("decision", [Decision.APPROVED, Decision.DENIED])
async def test_a_blocking_tool_asks_before_an_executor_hears_of_it(
    bench: Bench, decision: Decision
) -> None:
    worker = bench.worker(environment=QUICK)
    [run] = await bench.enqueue(AGENTS + "blocking_refunder")
    [asked] = await questions(bench, run)
    assert bench.effects() == []
    [loop] = worker.loops()
    assert _children(loop) == []
    await answer(bench, asked, decision, "not this one")
    approved = decision is Decision.APPROVED
    assert await result(bench, run) == (
        "refunded 100" if approved else "Denied by ada: not this one"
    )
    assert [effect[1] for effect in bench.effects()] == ["refund-100"] * approved
    assert all(int(effect[3]) != loop for effect in bench.effects())
    assert len(_children(loop)) == approved
    await bench.healthy()


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


async def test_a_question_that_nobody_answers_counts_as_denied(bench: Bench) -> None:
    bench.worker(environment=QUICK)
    [run] = await bench.enqueue(AGENTS + "refunder")
    [asked] = await questions(bench, run)
    assert asked.expires_at is not None
    await bench.sql.execute("UPDATE rowlock.approval SET expires_at = rowlock.now()")
    assert await result(bench, run) == "Denied: nobody approved this call in time."
    assert bench.effects() == []
    await bench.healthy()


async def test_questions_of_one_turn_are_asked_at_once_and_answered_one_by_one(
    bench: Bench,
) -> None:
    bench.worker(environment=QUICK)
    [run] = await bench.enqueue(AGENTS + "twice")
    first, second = await questions(bench, run, count=2)
    assert len([r for r in await bench.history(run) if r["kind"] == EventKind.PARKED]) == 1
    await answer(bench, second, Decision.DENIED, "enough")
    await eventually(
        lambda: bench.sql.fetchval("SELECT true FROM rowlock.run_parked WHERE epoch = 2"),
        "the run parked again",
    )
    assert [one.step_key for one in await questions(bench, run)] == [first.step_key]
    await answer(bench, first, Decision.APPROVED)
    assert await result(bench, run) == "refunded 100 | Denied by ada: enough"
    assert names(bench) == ["refund-100"]
    await bench.healthy()


async def test_a_worker_killed_right_after_asking_leaves_the_question_once(bench: Bench) -> None:
    first = bench.worker(environment=QUICK)
    [run] = await bench.enqueue(AGENTS + "refunder")
    [asked] = await questions(bench, run)
    first.destroy()
    # Woken by whatever: the next worker asks the same again.
    bench.worker(environment=QUICK)
    await bench.sql.execute("UPDATE rowlock.run_parked SET wake_at = rowlock.now()")
    await eventually(
        lambda: bench.sql.fetchval("SELECT true FROM rowlock.run_parked WHERE epoch = 2"),
        "the run parked again",
    )
    assert await questions(bench, run) == [asked]
    await answer(bench, asked, Decision.APPROVED)
    assert await result(bench, run) == "refunded 100"
    assert names(bench) == ["refund-100"]
    await bench.healthy()


# -------------------------------------------------------------------- suspend and continue


async def test_a_suspended_run_leaves_at_its_next_step_and_goes_on_when_continued(
    bench: Bench,
) -> None:
    bench.worker("--slots", "1")
    [run] = await bench.enqueue("ambler", steps=150)
    await bench.lease(run)
    assert await parking.request_suspend(bench.store, [run], by="ada") == []
    row = await parked(bench, run)
    assert list(row["reasons"]) == ["suspended"]
    done = [event for event in await bench.history(run) if event["kind"] == EventKind.STEP_DONE]
    assert len(done) == len(names(bench)) < 150  # nothing was cut off in the middle
    [other] = await bench.enqueue("walker", steps=1)
    await bench.final(other)
    assert await parking.request_continue(bench.store, [run]) == [run]
    assert await result(bench, run) == sum(range(150))
    ours = [effect[1] for effect in bench.effects() if effect[0] == str(run)]
    assert ours == [f"step-{number}" for number in range(150)]
    assert (await bench.final(run))["takeovers"] == 0
    await bench.healthy()


@pytest.mark.parametrize("how", ["sleep", "suspend"])
async def test_active_deadline_stands_still_while_a_run_waits(bench: Bench, how: str) -> None:
    bench.worker(environment=QUICK)
    options = {"active_deadline_seconds": 3}
    if how == "sleep":
        [run] = await bench.enqueue(AGENTS + "sleeper", options=options, seconds=4.0)
    else:
        [run] = await bench.enqueue(AGENTS + "sleeper", options=options, seconds=2.0)
        await parked(bench, run)
        await parking.request_suspend(bench.store, [run], by="ada")
        await eventually(
            lambda: bench.sql.fetchval(
                "SELECT true FROM rowlock.run_parked WHERE rowlock.now() > ready_at + $1",
                timedelta(seconds=3.5),
            ),
            "a suspension that is longer than the deadline",
        )
        await parking.request_continue(bench.store, [run])
    assert await result(bench, run) == "after"
    final = await bench.final(run)
    assert final["active_ms"] < 3000 < _ms(final["finished_at"] - final["started_at"])


def _ms(time_: timedelta) -> float:
    return time_ / timedelta(milliseconds=1)


async def test_a_suspended_run_may_be_cancelled(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue("ambler", steps=150)
    await bench.lease(run)
    await parking.request_suspend(bench.store, [run], by="ada")
    await parked(bench, run)
    assert await intake.request_cancel(bench.store, [run], by="ada") == [run]
    assert (await bench.final(run))["status"] == FinalStatus.CANCELLED
    await bench.healthy()


async def test_a_draining_worker_parks_a_run_that_waits_for_long(bench: Bench) -> None:
    """A wait below the threshold is handed over, a long one leaves as what it is."""
    worker = bench.worker(environment={"ROWLOCK_PARK_SECONDS": "60"})
    [run] = await bench.enqueue(AGENTS + "sleeper", seconds=50.0)
    await eventually(
        lambda: bench.sql.fetchval("SELECT true FROM rowlock.run_event WHERE kind = 5"),
        "the sleep in history",
    )
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ends() == 0
    assert await bench.sql.fetchval("SELECT place FROM rowlock.run_live") == "ready"
    bench.worker(environment=QUICK)
    row = await parked(bench, run)
    assert list(row["reasons"]) == ["sleep"]
    await bench.healthy()


# -------------------------------------------------------------------- re-drive


async def test_a_redrive_reads_finished_steps_back(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue(AGENTS + "pages", steps=40, failing=17)
    first = await bench.final(run)
    assert (first["status"], first["step"]) == (FinalStatus.FAILED, 16)
    assert len(bench.effects()) == 17
    bench.open_gate("provider")
    begun = time.monotonic()
    assert await redrive.redrive(bench.store, run, by="ada") is Redriving.QUEUED
    assert await result(bench, run) == list(range(1, 41))
    print(f"re-drive of 40 steps, 16 reused: {time.monotonic() - begun:.3f} s")  # noqa: T201
    assert len(bench.effects()) == 17 + 24
    calls = [effect[2] for effect in bench.effects() if effect[1] == "page-17"]
    assert len(set(calls)) == 1  # it had not succeeded, so it is the same call
    final = await bench.final(run)
    assert (final["attempt"], final["step"]) == (2, 40)
    assert await bench.sql.fetchval("SELECT count(*) FROM rowlock.run_final") == 2
    await bench.healthy()


async def test_an_idle_worker_looks_at_once_when_it_is_told_to(bench: Bench) -> None:
    """Polls alone are 175 ms apart at least, once nothing has come for a while."""
    bench.worker()
    [run] = await bench.enqueue(AGENTS + "pages", steps=1, failing=0)
    await bench.final(run)
    claim = (
        "SELECT query_start FROM pg_stat_activity "
        "WHERE application_name LIKE '%claimer' AND query LIKE '%claim_floor < %'"
    )
    for _ in range(10):
        await bench.moves_on(claim)
    begun = time.monotonic()
    for _ in range(20):
        before = await bench.sql.fetchval(claim)
        await nudge(bench.store)
        await bench.moves_on(claim, before)
    assert time.monotonic() - begun < 20 * 0.175 * 0.6
