"""An operator that is killed in the middle of its work loses nothing and doubles nothing."""

from __future__ import annotations

import asyncio

import pytest

from rowlock_operator.kube.resources import EVENTS
from tests.operators import Stage, access, eventually, stage_fixture  # noqa: F401

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

RUNS = 200
SLOW_EVENTS = {"events_per_second": "1"}


async def test_an_operator_killed_in_mid_flush_loses_and_doubles_nothing(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator(**SLOW_EVENTS)
    names = [f"run-{number:03}" for number in range(RUNS)]
    creating = asyncio.create_task(stage.runs(names))
    await eventually(lambda: stage.count("rowlock.run"), "the first runs to be taken in")
    operator.kill()
    await creating
    assert await stage.count("rowlock.run") < RUNS, "it was killed too late"

    operator = await stage.operator(**SLOW_EVENTS)
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) > $1 FROM rowlock.run", RUNS // 2),
        "the second operator to be under way",
    )
    operator.kill()

    operator = await stage.operator(**SLOW_EVENTS)
    await stage.all_show(RUNS, "Queued", within=60)
    worker = await stage.worker()
    held = await worker.claim_all(RUNS)
    assert len({run.run_id for run in held}) == RUNS
    await worker.finish(*held)

    async def some_shown() -> bool:
        phases = [run.get("status", {}).get("phase") for run in await stage.objects()]
        return 0 < phases.count("Succeeded") < RUNS

    await eventually(some_shown, "the ends to be under way")
    operator.kill()
    assert len(await stage.objects(EVENTS)) < RUNS, "Events did not have to wait"
    await stage.operator(events_per_second="1000")
    await stage.all_show(RUNS, "Succeeded", within=60)

    assert await stage.count("rowlock.run") == RUNS
    assert await stage.count("rowlock.run_final") == RUNS
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 0 FROM rowlock.run_change"), "all shown"
    )
    # What waited in the three that were killed was announced by the last, and nothing twice.
    await stage.each_announced(dict.fromkeys(names, ("RunQueued", "RunStarted", "RunSucceeded")))
    await stage.healthy()
