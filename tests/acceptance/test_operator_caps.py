"""The limits of an Agent reach the database, and a run shows that it waits for one."""

from __future__ import annotations

import pytest

from rowlock_operator.kube.resources import AGENTS, WORKER_POOLS
from tests.operators import (  # noqa: F401
    Stage,
    access,
    condition,
    eventually,
    pool_spec,
    stage_fixture,
    states,
)

pytestmark = pytest.mark.cluster


async def limited(stage: Stage, **limits: int) -> None:
    """Create an Agent with limits and its pool, and start an operator."""
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    await stage.create(AGENTS, "support", spec={"entrypoint": "agents:support", **limits})
    await stage.operator()


async def test_a_run_over_the_limit_says_so_until_the_slot_is_free(stage: Stage) -> None:
    await limited(stage, maxConcurrentRuns=1)
    await stage.run("first")
    await stage.shows("first", phase="Queued", reason="WaitingForWorker")
    await stage.run("second")
    waiting = await stage.shows("second", phase="Queued", reason="ConcurrencyLimit")
    assert states(waiting)["Running"] == "False/ConcurrencyLimit"
    assert "a limit of the Agent" in condition(waiting, "Running")["message"]
    worker = await stage.worker()
    run = await worker.claim_one()
    await worker.finish(run, result="done")
    # No worker promotes here: the operator's own rounds do.
    promoted = await stage.shows("second", phase="Queued", reason="WaitingForWorker")
    assert states(promoted)["Running"] == "False/WaitingForWorker"
    await worker.claim_one()
    await stage.shows("second", phase="Running")
    await stage.announced("second", "RunQueued", "RunStarted")
    await stage.healthy()


async def test_a_limit_for_each_key_holds_back_only_its_key(stage: Stage) -> None:
    await limited(stage, maxConcurrentRunsPerKey=1, startsPerMinutePerKey=5)
    await stage.run("a-1", concurrencyKey="a")
    await stage.shows("a-1", reason="WaitingForWorker")
    await stage.run("a-2", concurrencyKey="a")
    await stage.run("b-1", concurrencyKey="b")
    await stage.run("none")
    await stage.shows("a-2", reason="ConcurrencyLimit")
    await stage.shows("b-1", reason="WaitingForWorker")
    await stage.shows("none", reason="WaitingForWorker")
    await stage.healthy()


async def test_a_changed_limit_holds_for_runs_that_wait_already(stage: Stage) -> None:
    """And without any new run: the database learns of the change by itself."""
    await limited(stage)
    names = ("one", "two", "three")
    for name in names:
        await stage.run(name)
        await stage.shows(name, reason="WaitingForWorker")

    async def held_back(count: int) -> None:
        async def look() -> bool:
            shown = [(await stage.status(name)).get("reason") for name in names]
            return shown.count("ConcurrencyLimit") == count

        await eventually(look, f"{count} runs that show ConcurrencyLimit")

    for limit, count in ((1, 2), (2, 1), (1, 2), (None, 0)):
        stage.patch("agent", "support", maxConcurrentRuns=limit)
        await held_back(count)
    await stage.healthy()
