"""A rollout keeps workers of the old build for the runs that are pinned to it, and no longer."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.states import FenceReason
from rowlock.store import workers
from rowlock.store.types import NewWorker
from rowlock_operator.kube.resources import AGENTS, DEPLOYMENTS, PODS, WORKER_POOLS
from rowlock_operator.kube.specs.keeper import build_of, keeper_name
from rowlock_operator.kube.specs.labels import KEPT_LABEL
from tests.operators import (  # noqa: F401
    Stage,
    StubWorker,
    access,
    condition,
    eventually,
    pool_spec,
    stage_fixture,
)
from tests.pool_nodes import announced, nodes, ready, says, try_claim

pytestmark = pytest.mark.cluster

OLD, NEW = "example.test/agents:1", "example.test/agents:2"
KEEPER = keeper_name("default", OLD)


async def a_pod(stage: Stage, build: str, *, kept: bool = False) -> dict[str, Any]:
    """Wait for a ready Pod of a build."""

    async def look() -> dict[str, Any] | None:
        for item in await stage.objects(PODS):
            right = item["spec"]["containers"][0]["image"] == build
            if right and ready(item) and (KEPT_LABEL in item["metadata"]["labels"]) == kept:
                return item
        return None

    return await eventually(look, f"a ready Pod of {build}")


async def worker(stage: Stage, pod: dict[str, Any], build: str, *, kept: bool) -> StubWorker:
    """Register the worker of a Pod."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    query = "SELECT pool_id FROM rowlock.pool WHERE namespace = $1 AND name = 'default'"
    pool = await stage.sql.fetchval(query, stage.namespace)
    new = NewWorker(pool, f"{name}/0", name, 1, build, 3600, pod_uid=uid, reserved=kept)
    [worker_id] = await workers.register(stage.store, [new])
    return StubWorker(stage.store, worker_id, pool, name)


async def test_old_workers_stay_for_pinned_runs_and_go_with_the_last(stage: Stage) -> None:
    scaling = {"minReplicas": 1, "maxReplicas": 3}
    await stage.create(WORKER_POOLS, "default", spec=pool_spec(image=OLD, autoscaling=scaling))
    spec = {"entrypoint": "agents:support", "versionPolicy": "Pinned"}
    await stage.create(AGENTS, "support", spec=spec)
    await stage.operator()
    async with nodes(stage):
        await stage.run("one")
        await stage.shows("one", reason="WaitingForWorker")
        old = await worker(stage, await a_pod(stage, OLD), OLD, kept=False)
        run = await old.claim_one()
        stage.patch("wpool", "default", image=NEW)

        said = await says(stage, "OldBuildsKept", "True/PinnedRuns")
        assert said == f"{OLD} (1 pinned runs)"
        await announced(stage, "PoolKeepsBuild")
        keeper = await stage.existing(DEPLOYMENTS, KEEPER)
        assert (keeper["spec"]["replicas"], build_of(keeper)) == (1, OLD)
        [owner] = keeper["metadata"]["ownerReferences"]
        assert owner["kind"] == "WorkerPool"
        main = await stage.existing(DEPLOYMENTS, "rowlock-default")
        assert build_of(main) == NEW
        pod = await a_pod(stage, OLD, kept=True)
        variables = {it["name"]: it.get("value") for it in pod["spec"]["containers"][0]["env"]}
        assert variables["ROWLOCK_RESERVED"] == "true"

        reserved = await worker(stage, pod, OLD, kept=True)
        new = await worker(stage, await a_pod(stage, NEW), NEW, kept=False)
        await old.die(FenceReason.LEFT)  # its Pod is replaced: what it held goes back

        async def waits() -> bool:
            said = condition(await stage.status("one"), "Running")["message"]
            return bool(said == f"only a worker of the build {OLD} goes on with it")

        await eventually(waits, "the build that the run waits for")
        await stage.run("two")
        await stage.shows("two", reason="WaitingForWorker")
        [second] = await new.claim_all(1)
        assert second.run_id != run.run_id
        assert await try_claim(stage, new, new.pool) == []
        again = await reserved.claim_one()
        assert (again.run_id, again.takeovers) == (run.run_id, 0)
        await stage.run("three")
        await stage.shows("three", reason="WaitingForWorker")
        assert await try_claim(stage, reserved, new.pool) == []  # it begins nothing
        await reserved.finish(again)

        async def gone() -> bool:
            return await stage.get(DEPLOYMENTS, KEEPER) is None

        await eventually(gone, "the end of the old build's Deployment")
        await says(stage, "OldBuildsKept", "False/NoneNeeded")


async def test_a_build_comes_back_from_the_replica_sets_and_one_that_is_lost_is_named(
    stage: Stage,
) -> None:
    """A run may begin on an old worker while the rollout is under way, or while nobody looks."""
    fixed = {"mode": "None", "minReplicas": 0}
    spec = pool_spec(image=OLD, autoscaling=fixed, replicas=0)
    await stage.create(WORKER_POOLS, "default", spec=spec)
    agent = {"entrypoint": "agents:support", "versionPolicy": "Pinned"}
    await stage.create(AGENTS, "support", spec=agent)
    await stage.operator()
    await stage.run("late")
    await stage.run("lost")
    await stage.shows("late", reason="WaitingForWorker")
    await stage.shows("lost", reason="WaitingForWorker")
    stage.patch("wpool", "default", image=NEW)

    async def rolled() -> bool:
        found = await stage.get(DEPLOYMENTS, "rowlock-default")
        return found is not None and build_of(found) == NEW

    await eventually(rolled, "the new image")
    pod = {"metadata": {"name": "gone", "uid": "gone"}}
    old = await worker(stage, pod, OLD, kept=False)
    stranger = await worker(stage, pod, "example.test/agents:0", kept=False)
    [first] = await old.claim_all(1)
    said = await says(stage, "OldBuildsKept", "True/PinnedRuns")
    assert said == f"{OLD} (1 pinned runs)"
    assert build_of(await stage.existing(DEPLOYMENTS, KEEPER)) == OLD
    await stranger.claim_one()
    said = await says(stage, "OldBuildsKept", "False/TemplateLost")
    assert "example.test/agents:0 (1 pinned runs)" in said
    await announced(stage, "PoolLacksBuild")
    await old.finish(first)
