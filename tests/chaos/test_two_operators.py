"""Two operators at once, without any election, do no harm: only the work is doubled."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from rowlock.states import FinalStatus
from tests.operators import (  # noqa: F401
    Stage,
    access,
    condition,
    eventually,
    stage_fixture,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

RUNS = 60


async def test_two_operators_double_no_run_and_no_event(stage: Stage) -> None:
    await stage.basics()
    _, frozen = await asyncio.gather(*(stage.operator(events_per_second="1000") for _ in range(2)))
    names = [f"run-{number:03}" for number in range(RUNS)]
    await stage.runs(names)
    await stage.all_show(RUNS, "Queued")
    assert await stage.count("rowlock.run") == RUNS

    for name in names[:5]:
        stage.patch("arun", name, desiredState="Cancel")
    stage.kubectl("delete", "arun", *names[5:10])
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 10 FROM rowlock.run_final WHERE status = 3"),
        "five cancelled and five deleted runs to end",
    )

    worker, other = await stage.worker("worker-a"), await stage.worker("worker-b")
    held = await worker.claim_all(RUNS - 10)
    named = {row["run_id"]: row["name"] for row in await stage.rows()}
    await worker.finish(*held[10:])
    # One of them freezes in the middle of its work, and goes on when all that it knows is old.
    os.kill(frozen.process.pid, signal.SIGSTOP)
    await worker.die()
    taken = await other.claim_all(10)
    for run in taken:
        await other.go_on(run, steps=0)
    await other.finish(*taken[5:])
    await other.finish(*taken[:5], status=FinalStatus.FAILED, reason="AgentError", message="no")

    async def all_ended() -> bool:
        phases = [run.get("status", {}).get("phase") for run in await stage.objects()]
        return (phases.count("Succeeded"), phases.count("Failed"), phases.count("Cancelled")) == (
            RUNS - 15,
            5,
            5,
        )

    await eventually(all_ended, "every run to show its end", 60)
    os.kill(frozen.process.pid, signal.SIGCONT)
    swept = await frozen.metric("sweeps_total", outcome="done")

    async def swept_again() -> bool:
        return await frozen.metric("sweeps_total", outcome="done") > swept + 1

    await eventually(swept_again, "the frozen one to go on", 60)
    assert await all_ended()
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 0 FROM rowlock.run_change"), "all shown"
    )
    rows = {str(row["run_id"]): row for row in await stage.rows()}
    for item in await stage.objects():
        status = item["status"]
        row = rows[status["runID"]]
        assert row["uid"] == item["metadata"]["uid"]
        assert condition(status, "Finished")["status"] == "True"
        if status["takeovers"]:
            assert condition(status, "Resumed")["status"] == "True"
    ended = ("RunQueued", "RunStarted", "RunSucceeded")
    await stage.each_announced(
        dict.fromkeys(names[:5], ("RunQueued", "RunCancelled"))
        | {named[run.run_id]: ended for run in held[10:]}
        | {named[run.run_id]: (*ended, "RunTakenOver") for run in taken[5:]}
        | {named[run.run_id]: (*ended[:2], "RunTakenOver", "RunFailed") for run in taken[:5]}
    )
    for operator in stage.operators:
        assert operator.process.poll() is None
    await stage.healthy()
