"""An operator that is killed in the middle of its work loses nothing and doubles nothing."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from rowlock_operator.kube.credentials import Access
from rowlock_operator.kube.resources import EVENTS
from tests.faults import FaultyApi
from tests.operators import Stage, access, condition, eventually, stage_fixture  # noqa: F401

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


async def test_a_takeover_that_was_shown_is_still_announced_after_a_kill(
    stage: Stage,
    access: Access,  # noqa: F811
) -> None:
    await stage.basics()
    async with FaultyApi(access).serving() as api:
        # Statuses can be written, Events cannot yet.
        api.fault = lambda it: web.Response(status=503) if it.path.endswith("/events") else None
        config = api.kubeconfig(stage.cluster.kubeconfig, stage.folder)
        operator = await stage.operator("--kubeconfig", str(config))
        await stage.run("taken")
        first, second = await stage.worker("worker-a"), await stage.worker("worker-b")
        await first.claim_one()
        await first.die()
        run = await second.claim_one()
        await second.go_on(run, steps=0)
        await second.finish(run)
        status = await stage.shows("taken", phase="Succeeded", takeovers=1)
        assert condition(status, "Resumed")["status"] == "True"
        assert await stage.events("taken") == []
        operator.kill()
    await stage.operator()
    events = await stage.announced(
        "taken", "RunQueued", "RunStarted", "RunTakenOver", "RunSucceeded"
    )
    assert events[2]["note"].startswith("from worker-a to worker-b")
    assert await stage.status("taken") == status  # nothing was written a second time
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 0 FROM rowlock.run_change"), "all announced"
    )
