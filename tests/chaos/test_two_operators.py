"""Two operators at once, without any election, do no harm: only the work is doubled."""

from __future__ import annotations

import asyncio

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
    await asyncio.gather(stage.operator(), stage.operator())
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
    await worker.finish(*held[10:])
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
    for name in names[10:30]:
        reasons = [event["reason"] for event in await stage.events(name)]
        assert len(reasons) == len(set(reasons)), reasons
    for operator in stage.operators:
        assert operator.process.poll() is None
    await stage.healthy()
