"""How statuses are written: never to a namesake, never too large, never too often."""

from __future__ import annotations

import json
import os

import pytest

from rowlock.states import FinalStatus
from rowlock.store import changes
from rowlock_operator import metrics as m
from rowlock_operator.api.agentrun_status import AgentRunStatus
from rowlock_operator.kube.resources import AGENT_RUNS, ObjectKey
from rowlock_operator.mirror.desk import Build, Shown, StatusDesk
from rowlock_operator.mirror.fit import MAX_STATUS_BYTES
from tests.operators import (  # noqa: F401
    Stage,
    access,
    eventually,
    stage_fixture,
)

pytestmark = pytest.mark.cluster


async def test_a_namesake_never_gets_the_status_of_its_forerunner(stage: Stage) -> None:
    desk = StatusDesk(stage.client, m.Metrics())
    await stage.run("same")
    old = (await stage.existing(AGENT_RUNS, "same"))["metadata"]
    key = ObjectKey(stage.namespace, "same", old["uid"])
    desk.note(key, generation=1, version=old["resourceVersion"], status={})
    stage.kubectl("delete", "arun", "same")
    await stage.run("same")
    assert await desk.show(key, lambda _before: {"phase": "Succeeded"}) is Shown.GONE
    assert await stage.status("same") == {}


async def test_a_deleted_and_recreated_run_is_a_new_run(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("same")
    first = await stage.shows("same", reason="WaitingForWorker")
    worker = await stage.worker()
    run = await worker.claim_one()
    stage.kubectl("delete", "arun", "same")
    await stage.run("same")
    second = await stage.shows("same", reason="WaitingForWorker")
    assert second["runID"] != first["runID"]
    await worker.finish(run, result="of the first")
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 0 FROM rowlock.run_change"), "all shown"
    )
    assert (await stage.status("same"))["phase"] == "Queued"


async def test_two_desks_never_overwrite_what_the_other_wrote_later(stage: Stage) -> None:
    await stage.run("shared")
    meta = (await stage.existing(AGENT_RUNS, "shared"))["metadata"]
    key = ObjectKey(stage.namespace, "shared", meta["uid"])
    slow, quick = (StatusDesk(stage.client, m.Metrics()) for _ in range(2))
    for desk in (slow, quick):
        desk.note(key, generation=1, version=meta["resourceVersion"], status={})

    def newer_wins(revision: int) -> Build:
        return lambda before: (
            None if before.get("revision", 0) > revision else {"revision": revision}
        )

    assert await quick.show(key, newer_wins(9)) is Shown.WRITTEN
    assert await slow.show(key, newer_wins(5)) is Shown.SUPERSEDED
    assert (await stage.status("shared"))["revision"] == 9
    # A patch by somebody else in between costs a read, no more.
    stage.kubectl("label", "arun", "shared", "colour=blue")
    assert await quick.show(key, newer_wins(10)) is Shown.WRITTEN


async def test_a_status_that_breaks_the_schema_is_parked(stage: Stage) -> None:
    desk = StatusDesk(stage.client, m.Metrics())
    await stage.run("odd")
    meta = (await stage.existing(AGENT_RUNS, "odd"))["metadata"]
    key = ObjectKey(stage.namespace, "odd", meta["uid"])
    assert await desk.show(key, lambda _before: {"phase": "Dancing"}) is Shown.PARKED
    assert await stage.status("odd") == {}


async def test_an_ordinary_run_costs_at_most_three_status_writes(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    await stage.runs([f"run-{number}" for number in range(20)])
    await stage.all_show(20, "Queued")
    worker = await stage.worker()
    runs = await worker.claim_all(20)
    await stage.all_show(20, "Running")
    await worker.finish(*runs)
    await stage.all_show(20, "Succeeded")
    assert await operator.metric("status_writes_total", outcome="written") == 60
    assert await operator.metric("watch_echoes_total", kind="AgentRun") >= 59


async def test_a_quick_run_costs_one_status_write(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator(show_delay_seconds="2")
    await stage.run("quick")
    worker = await stage.worker()
    await worker.finish(await worker.claim_one())
    await stage.shows("quick", phase="Succeeded")
    assert await operator.metric("status_writes_total", outcome="written") == 1
    await stage.announced("quick", "RunQueued", "RunStarted", "RunSucceeded")


async def test_the_largest_status_fits_and_is_taken(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("huge")
    reason = 'quote " and \\ and "\u20ac" ' * 400
    run = None
    for number in range(14):
        worker = await stage.worker(f"worker-{number}-" + "x" * 240)
        await stage.sql.execute("UPDATE rowlock.run_timer SET due_at = rowlock.now()")
        run = await worker.claim_one()
        await stage.sql.execute("UPDATE rowlock.run_lease SET max_takeovers = 100")
        await worker.go_on(run, steps=number)
        if number < 13:
            await worker.die()
    assert run is not None
    await worker.finish(run, status=FinalStatus.FAILED, reason="AgentError", message=reason)
    status = await stage.shows("huge", phase="Failed")
    stored = json.dumps(status, separators=(",", ":"), ensure_ascii=False)
    assert len(stored.encode()) <= MAX_STATUS_BYTES
    assert status["historyTruncated"] is True
    assert status["history"][-1]["leaseEpoch"] == 14
    AgentRunStatus.model_validate(status)


async def test_a_large_result_shows_its_size_alone(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("big")
    worker = await stage.worker()
    await worker.finish(await worker.claim_one(), result=os.urandom(100_000).hex())
    done = await stage.shows("big", phase="Succeeded")
    assert done["result"] == {"sizeBytes": 200_002}


async def test_what_the_sweep_shows_again_is_announced_once(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("twice")
    worker = await stage.worker()
    run = await worker.claim_one()
    await worker.finish(run)
    await stage.announced("twice", "RunQueued", "RunStarted", "RunSucceeded")
    assert await changes.recreate_changes(stage.store, [run.run_id]) == 1
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 0 FROM rowlock.run_change"), "all shown"
    )
    await stage.run("mark")
    await stage.announced("mark", "RunQueued")
    assert len(await stage.events("twice")) == 3


async def test_normal_events_can_be_switched_off(stage: Stage) -> None:
    await stage.basics()
    await stage.operator("--no-normal-events")
    await stage.run("quiet")
    worker = await stage.worker()
    await worker.finish(
        await worker.claim_one(), status=FinalStatus.FAILED, reason="AgentError", message="no"
    )
    await stage.announced("quiet", "RunFailed")
