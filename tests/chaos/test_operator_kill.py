"""An operator that is killed in the middle of its work loses nothing and doubles nothing."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.operators import Stage, access, eventually, stage_fixture  # noqa: F401

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

RUNS = 200


async def test_an_operator_killed_in_mid_flush_loses_and_doubles_nothing(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    names = [f"run-{number:03}" for number in range(RUNS)]
    creating = asyncio.create_task(stage.runs(names))
    await eventually(lambda: stage.count("rowlock.run"), "the first runs to be taken in")
    operator.kill()
    await creating
    assert await stage.count("rowlock.run") < RUNS, "it was killed too late"

    operator = await stage.operator()
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) > $1 FROM rowlock.run", RUNS // 2),
        "the second operator to be under way",
    )
    operator.kill()

    operator = await stage.operator()
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
    await stage.operator()
    await stage.all_show(RUNS, "Succeeded", within=60)

    assert await stage.count("rowlock.run") == RUNS
    assert await stage.count("rowlock.run_final") == RUNS
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 0 FROM rowlock.run_change"), "all shown"
    )
    # Events that waited in a killed operator are gone with it; none may be there twice.
    await eventually(lambda: _announced(stage, names), "the last operator's Events")
    for name in names[:20]:
        reasons = Counter(item["reason"] for item in await stage.events(name))
        assert set(reasons.values()) <= {1}, reasons
    await stage.healthy()


async def _announced(stage: Stage, names: list[str]) -> bool:
    """Tell whether the end of a run was announced that ended after the last kill."""
    for name in reversed(names):
        if any(item["reason"] == "RunSucceeded" for item in await stage.events(name)):
            return True
    return False
