"""What the watch missed is found again, and a mistake cancels nothing."""

from __future__ import annotations

import uuid

import pytest

from rowlock_operator.kube.resources import AGENT_RUNS
from tests.operators import (  # noqa: F401
    Stage,
    access,
    eventually,
    stage_fixture,
    states,
)

pytestmark = pytest.mark.cluster


async def test_runs_created_while_the_operator_was_down_are_taken_in(stage: Stage) -> None:
    await stage.basics()
    await stage.runs([f"early-{number}" for number in range(5)])
    await stage.operator()
    await stage.all_show(5, "Queued")
    assert await stage.count("rowlock.run") == 5


async def test_runs_deleted_while_the_operator_was_down_are_cancelled(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    await stage.runs(["stays", "goes"])
    await stage.all_show(2, "Queued")
    assert await operator.stop() == 0
    stage.kubectl("delete", "arun", "goes")
    await stage.operator()
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 1 FROM rowlock.run_final WHERE status = 3"),
        "the deleted run to be cancelled",
    )

    async def let_go() -> bool:
        return [(row["name"], row["place"]) for row in await stage.rows()] == [("stays", "ready")]

    await eventually(let_go, "the deleted run to be let go")
    await stage.healthy()


async def test_a_finished_run_whose_object_is_gone_is_let_go(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    await stage.run("old")
    worker = await stage.worker()
    await worker.finish(await worker.claim_one())
    await stage.shows("old", phase="Succeeded")
    await operator.stop()
    stage.kubectl("delete", "arun", "old")
    await stage.operator()
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 0 FROM rowlock.run_object"), "unlinked"
    )
    assert await stage.count("rowlock.run_final WHERE status = 1") == 1


async def test_a_status_that_fell_behind_is_mirrored_again(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("behind")
    worker = await stage.worker()
    run = await worker.claim_one()
    await stage.shows("behind", phase="Running")
    await worker.finish(run)
    await stage.shows("behind", phase="Succeeded")
    item = await stage.existing(AGENT_RUNS, "behind")
    old = {**item["status"], "phase": "Running", "revision": 1}
    await stage.client.json_patch(
        AGENT_RUNS.path(stage.namespace, "behind", "status"),
        [{"op": "replace", "path": "/status", "value": old}],
        manager="test",
    )
    await stage.shows("behind", phase="Succeeded")
    assert len(await stage.events("behind")) == 3


async def test_a_run_whose_row_is_missing_ends_and_never_runs_again(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    await stage.run("restored")
    await stage.shows("restored", reason="WaitingForWorker")
    await operator.stop()
    for table in ("run_object", "run_ready", "run_change", "run"):
        await stage.sql.execute(f"DELETE FROM rowlock.{table}")  # noqa: S608
    await stage.operator()
    ended = await stage.shows("restored", phase="Failed", reason="RowMissing")
    assert states(ended)["Accepted"] == "False/RowMissing"
    assert states(ended)["Finished"] == "True/RowMissing"
    assert ended["runID"]
    assert await stage.count("rowlock.run") == 0


async def test_a_cancel_that_the_watch_missed_is_asked_again(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    await stage.run("doomed")
    await stage.shows("doomed", reason="WaitingForWorker")
    await operator.stop()
    stage.patch("arun", "doomed", desiredState="Cancel")
    await stage.operator()
    await stage.shows("doomed", phase="Cancelled", observedGeneration=2)


async def test_rows_of_another_cluster_and_namespace_are_left_alone(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    await stage.runs(["mine", "elsewhere", "foreign"])
    await stage.all_show(3, "Queued")
    await operator.stop()
    await stage.sql.execute(
        "UPDATE rowlock.run_object SET namespace = 'not-watched' WHERE name = 'elsewhere'"
    )
    await stage.sql.execute(
        "UPDATE rowlock.run_object SET cluster = $1 WHERE name = 'foreign'", str(uuid.uuid4())
    )
    stage.kubectl("delete", "arun", "--all")
    await stage.operator()

    async def let_go() -> bool:
        return sorted(row["name"] for row in await stage.rows()) == ["elsewhere", "foreign"]

    await eventually(let_go, "our own run to be let go, and no other")
    assert await stage.count("rowlock.run_final WHERE status = 3") == 1


async def test_a_mass_deletion_is_held_until_a_person_agrees(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    await stage.runs([f"run-{number}" for number in range(30)])
    await stage.all_show(30, "Queued")
    await operator.stop()
    stage.kubectl("delete", "arun", "--all")
    held = await stage.operator()
    await held.says("The sweep holds")
    assert await held.metric("sweep_held") == 1
    assert await stage.count("rowlock.run_ready") == 30
    await held.stop()
    await stage.operator(max_vanished_percent="100")
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 30 FROM rowlock.run_final"), "all cancelled"
    )
    await stage.healthy()
