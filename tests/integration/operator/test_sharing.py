"""Operators that share a database, or a cluster, keep to what is theirs."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests.operators import Stage, access, eventually, stage_fixture  # noqa: F401

pytestmark = pytest.mark.cluster


async def test_operators_of_two_namespaces_share_a_database(stage: Stage) -> None:
    name = f"op-{uuid.uuid4().hex[:10]}"
    stage.cluster.kubectl("create", "namespace", name)
    other = replace(stage, namespace=name, folder=stage.folder / "other", operators=[])
    other.folder.mkdir()
    try:
        for each in (stage, other):
            await each.basics()
            await each.operator()
            await each.runs([f"run-{number}" for number in range(10)])
        for each in (stage, other):
            await each.all_show(10, "Queued")
        for each in (stage, other):
            worker = await each.worker()
            await worker.finish(*await worker.claim_all(10))
        for each in (stage, other):
            await each.all_show(10, "Succeeded")
        await eventually(
            lambda: stage.sql.fetchval("SELECT count(*) = 0 FROM rowlock.run_change"), "all shown"
        )
        for each in (stage, other):
            [operator] = each.operators
            assert await operator.metric("runs_finished_total", status="Succeeded") == 10
            assert await operator.metric("departed_total") == 0
    finally:
        for operator in other.operators:
            operator.kill()
        stage.cluster.kubectl("delete", "namespace", name, "--wait=false")


async def test_changes_of_another_cluster_are_not_touched(stage: Stage) -> None:
    await stage.basics()
    await stage.operator(cluster_id="here")
    await stage.runs(["ours", "theirs"])
    await stage.all_show(2, "Queued")
    await stage.sql.execute(
        "UPDATE rowlock.run_object SET cluster = 'elsewhere' WHERE name = 'theirs'"
    )
    worker = await stage.worker()
    await worker.finish(*await worker.claim_all(2))
    await stage.shows("ours", phase="Succeeded")
    await stage.run("later")
    await stage.shows("later", phase="Queued")
    assert (await stage.status("theirs"))["phase"] == "Queued"

    async def only_theirs_is_left() -> bool:  # a change goes after its status was written
        left = await stage.sql.fetch(
            "SELECT o.name FROM rowlock.run_change JOIN rowlock.run_object o USING (run_id)"
        )
        return {row["name"] for row in left} == {"theirs"}

    await eventually(only_theirs_is_left, "only the other cluster's change is left")


async def test_the_whole_cluster_can_be_watched(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator("--namespaces", "")
    await stage.run("anywhere")
    await stage.shows("anywhere", reason="WaitingForWorker")
    assert (await operator.probe("/livez"))[0] == 200


async def test_many_namespaces_are_watched_each_with_its_own_streams(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator("--namespaces", f"{stage.namespace},default,not-there-yet")
    await stage.run("here")
    await stage.shows("here", reason="WaitingForWorker")

    async def alive() -> bool:
        return (await operator.probe("/livez"))[0] == 200

    await eventually(alive, "liveness")
