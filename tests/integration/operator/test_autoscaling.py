"""A pool has as many workers as its work needs, within its bounds, and none is taken that runs."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.states import FinalStatus
from rowlock_operator.kube.resources import DEPLOYMENTS, PODS, WORKER_POOLS
from rowlock_operator.kube.specs.labels import POOL_LABEL
from tests.operators import (  # noqa: F401
    Stage,
    access,
    eventually,
    pool_spec,
    stage_fixture,
)
from tests.pool_nodes import (
    all_ready,
    announced,
    beat,
    make_ready,
    nodes,
    queue,
    replicas,
    says,
    try_claim,
    worker_in,
)
from tests.wire import wire_to

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def elastic(least: int = 0, most: int = 3, **more: Any) -> dict[str, Any]:
    """Return the spec of a pool of two slots a worker, which decides once a second."""
    scaling = {
        "minReplicas": least,
        "maxReplicas": most,
        "targetSlotUtilizationPercent": 100,
        "targetQueueWaitSeconds": 3600,
        "pollPeriodSeconds": 1,
        "scaleDown": {"stabilizationWindowSeconds": 0, "maxStepPercent": 100},
        **more.pop("scaling", {}),
    }
    return pool_spec(slotsPerWorker=2, autoscaling=scaling, **more)


async def test_a_pool_follows_its_work_from_zero_to_its_maximum_and_back(stage: Stage) -> None:
    await stage.create(WORKER_POOLS, "default", spec=elastic())
    operator = await stage.operator()
    await replicas(stage, 0)
    await says(stage, "ScalingActive", "True/SlotUtilization")
    async with nodes(stage):
        await queue(stage, 1)
        await replicas(stage, 1)
        status = await stage.shows("default", resource=WORKER_POOLS, desiredReplicas=1)
        last = status["lastScale"]
        assert (last["fromReplicas"], last["toReplicas"]) == (0, 1)
        assert last["reason"] == "SlotUtilization"
        note = (await announced(stage, "PoolScaled"))["note"]
        assert note == "from 0 to 1 workers: SlotUtilization"
        await queue(stage, 8)
        await replicas(stage, 3)
        assert "maxReplicas is 3" in await says(stage, "ScalingLimited", "True/AtMaximum")
        assert (await announced(stage, "PoolAtMaximum"))["type"] == "Warning"
        pods = await all_ready(stage, 3)
        await says(stage, "Available", "True/Available")
        worker = await worker_in(stage, pods[0])
        await worker.finish(*await worker.claim_all(9), status=FinalStatus.SUCCEEDED)
        await replicas(stage, 0)
        await all_ready(stage, 0)
        await says(stage, "ScalingLimited", "False/WithinLimits")
        # An edit by hand ends within the bounds, and new bounds hold at once.
        stage.kubectl("scale", "deployment/rowlock-default", "--replicas=9")
        await replicas(stage, 0)
        stage.patch("wpool", "default", autoscaling={"minReplicas": 2})
        await replicas(stage, 2)
    assert await operator.metric("pool_scalings_total", direction="up") >= 2
    assert await operator.metric("pool_scalings_total", direction="down") >= 1
    await stage.healthy()


async def test_the_worker_with_runs_is_the_one_that_stays(stage: Stage) -> None:
    fixed = elastic(scaling={"mode": "None"})
    await stage.create(WORKER_POOLS, "default", spec={**fixed, "replicas": 3})
    await stage.operator()
    async with nodes(stage):
        pods = await all_ready(stage, 3)
        pool = await queue(stage, 1)
        busy, *idle = [await worker_in(stage, pod) for pod in pods]
        await busy.claim_one()
        stage.kubectl("scale", "wpool/default", "--replicas=1")
        [left] = await all_ready(stage, 1)
        assert left["metadata"]["uid"] == pods[0]["metadata"]["uid"]
        rests = "SELECT worker_id FROM rowlock.worker WHERE rests_until > rowlock.now()"
        resting = {row["worker_id"] for row in await stage.sql.fetch(rests)}
        assert resting <= {it.worker_id for it in idle}
        await queue(stage, 1)
        assert await try_claim(stage, busy, pool), "who stays claims"
    assert "lastScale" in await stage.status("default", WORKER_POOLS)


async def test_a_worker_that_should_finish_rests_first_and_goes_when_it_is_idle(
    stage: Stage,
) -> None:
    spec = elastic(scaling={"mode": "None"}, drain={"mode": "Finish", "deadlineSeconds": 3600})
    await stage.create(WORKER_POOLS, "default", spec={**spec, "replicas": 2})
    await stage.operator()
    async with nodes(stage):
        pods = await all_ready(stage, 2)
        pool = await queue(stage, 2)
        first, second = [await worker_in(stage, pod) for pod in pods]
        one, other = await first.claim_one(), await second.claim_one()
        stage.kubectl("scale", "wpool/default", "--replicas=0")
        all_rest = "SELECT count(*) = 2 FROM rowlock.worker WHERE rests_until > rowlock.now()"
        await eventually(lambda: stage.sql.fetchval(all_rest), "both workers to rest")
        await queue(stage, 1)
        assert await try_claim(stage, first, pool) == []
        await first.finish(one)
        assert (await stage.existing(DEPLOYMENTS, "rowlock-default"))["spec"]["replicas"] == 2
        # A person changes their mind: who rested works on.
        stage.kubectl("scale", "wpool/default", "--replicas=2")
        none_rests = "SELECT count(*) = 0 FROM rowlock.worker WHERE rests_until > rowlock.now()"
        await eventually(lambda: stage.sql.fetchval(none_rests), "nobody to rest")
        await first.finish(*await try_claim(stage, first, pool))
        stage.kubectl("scale", "wpool/default", "--replicas=0")
        await second.finish(other)
        await replicas(stage, 0)
        await all_ready(stage, 0)
    await stage.healthy()


async def test_with_a_new_image_old_workers_claim_nothing_once_a_new_one_is_ready(
    stage: Stage,
) -> None:
    spec = elastic(scaling={"mode": "None"})
    await stage.create(WORKER_POOLS, "default", spec={**spec, "replicas": 2})
    await stage.operator()

    async def pods_of(image: str, count: int) -> list[dict[str, Any]] | None:
        found = [
            it for it in await stage.objects(PODS) if it["spec"]["containers"][0]["image"] == image
        ]
        return found if len(found) == count else None

    old = await eventually(lambda: pods_of(spec["image"], 2), "two Pods")
    for pod in old:
        await make_ready(stage, pod)
    await says(stage, "Available", "True/Available")
    workers = {pod["metadata"]["name"]: await worker_in(stage, pod) for pod in old}
    pool = await queue(stage, 3)
    for worker in workers.values():
        assert await try_claim(stage, worker, pool)
    image = "example.test/agents:2"
    stage.patch("wpool", "default", image=image)
    [first] = await eventually(lambda: pods_of(image, 1), "the first Pod of the new image")
    await make_ready(stage, first)
    [left] = await eventually(lambda: pods_of(spec["image"], 1), "one old Pod to go")
    uid = left["metadata"]["uid"]
    rests = "SELECT rests_until > rowlock.now() FROM rowlock.worker WHERE pod_uid = $1"
    await eventually(lambda: stage.sql.fetchval(rests, uid), "the old worker to rest")
    assert await try_claim(stage, workers[left["metadata"]["name"]], pool) == []
    assert await try_claim(stage, await worker_in(stage, first), pool)
    async with nodes(stage):
        await eventually(lambda: pods_of(image, 2), "the end of the rollout")
        await all_ready(stage, 2)


async def test_full_workers_are_joined_by_others_unless_what_is_behind_them_is_full(
    stage: Stage,
) -> None:
    for name in ("default", "late"):
        await stage.create(WORKER_POOLS, name, spec=elastic(least=1))
    operator = await stage.operator()
    async with nodes(stage):
        pods = {it["metadata"]["labels"][POOL_LABEL]: it for it in await all_ready(stage, 2)}
        worker = await worker_in(stage, pods["default"])
        await beat(stage, worker.worker_id, tries=40, refused=20)
        await queue(stage, 6)
        said = await says(stage, "ScalingLimited", "True/DownstreamSaturated")
        assert said == "20 of 40 tries of steps were told to come again later"
        assert (await announced(stage, "PoolScalingHeld"))["type"] == "Warning"
        await beat(stage, worker.worker_id, commit_ms=2500)
        # Slots of a worker that is late count as used.
        late = await worker_in(stage, pods["late"], pool="late")
        await queue(stage, 1, pool="late")
        await late.claim_one()
        await beat(stage, late.worker_id, slots=4, running=1, lag_ms=400)
        await replicas(stage, 2, name="late")
        labels = {"namespace": stage.namespace, "pool": "late", "state": "saturated"}
        assert await operator.metric("pool_slots", **labels) == 3
        assert (await stage.existing(DEPLOYMENTS, "rowlock-default"))["spec"]["replicas"] == 1
        await beat(stage, worker.worker_id)
        await replicas(stage, 3)


async def test_without_a_signal_the_pool_stays_as_it_is(stage: Stage) -> None:
    await stage.create(WORKER_POOLS, "default", spec=elastic(least=1))
    await queue(stage, 3)
    async with wire_to(stage.dsn) as wire:
        operator = await stage.operator(database_url=wire.url)
        await replicas(stage, 2)
        await wire.close()
        await says(stage, "ScalingActive", "False/SignalStale")
        assert (await announced(stage, "PoolScalingHeld"))["note"].startswith("SignalStale")
        await queue(stage, 3)
        assert (await stage.existing(DEPLOYMENTS, "rowlock-default"))["spec"]["replicas"] == 2
        await wire.open()
        await replicas(stage, 3)
        await says(stage, "ScalingActive", "True/SlotUtilization")
        labels = {"namespace": stage.namespace, "pool": "default"}
        assert await operator.metric("pool_signal_timestamp_seconds", **labels) > 0


async def test_troubles_of_pods_are_shown_and_announced(stage: Stage) -> None:
    await stage.create(WORKER_POOLS, "default", spec=elastic(least=1))
    await stage.operator()
    await says(stage, "Available", "False/Unschedulable")
    assert (await announced(stage, "PoolUnhealthy"))["note"].startswith("Unschedulable")
    [pod] = await eventually(lambda: stage.objects(PODS), "a Pod")
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    statuses = [
        {
            "name": "worker",
            "image": "x",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"waiting": waiting},
        }
    ]
    patch = [
        {"op": "add", "path": "/status/conditions", "value": []},
        {"op": "add", "path": "/status/containerStatuses", "value": statuses},
    ]
    path = PODS.path(stage.namespace, pod["metadata"]["name"], "status")
    await stage.client.json_patch(path, patch, manager="kubelet")
    assert "no such image" in await says(stage, "Available", "False/ImagePullBackOff")
