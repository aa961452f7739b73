"""WorkerPools become Deployments; Agents and pools show how they stand."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.states import FinalStatus
from rowlock_operator.kube.resources import (
    AGENTS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    WORKER_POOLS,
)
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


async def made(stage: Stage, name: str = "rowlock-default", **spec: Any) -> dict[str, Any]:
    """Wait for a Deployment whose spec has these values."""

    async def look() -> dict[str, Any] | None:
        found = await stage.get(DEPLOYMENTS, name)
        if found and all(found["spec"].get(key) == value for key, value in spec.items()):
            return found
        return None

    return await eventually(look, f"Deployment {name} with {spec}")


async def test_a_pool_becomes_a_deployment_and_a_disruption_budget(stage: Stage) -> None:
    created = await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    await stage.operator()
    deployment = await made(stage, replicas=0)
    [owner] = deployment["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("WorkerPool", created["metadata"]["uid"])
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    pod = deployment["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 330
    assert pod["securityContext"]["runAsNonRoot"] is True
    [worker] = pod["containers"]
    env = {it["name"]: it for it in worker["env"]}
    assert env["ROWLOCK_DATABASE_URL"]["valueFrom"]["secretKeyRef"] == {
        "name": "database",
        "key": "url",
    }
    assert env["ROWLOCK_SLOTS"]["value"] == "256"
    assert env["ROWLOCK_POD_UID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"
    await eventually(lambda: stage.get(DISRUPTION_BUDGETS, "rowlock-default"), "the budget")
    wanted = {
        "Ready": "True/WorkersReady",
        "Available": "True/Available",
        "DatabaseReachable": "Unknown/NoWorkers",
        "ScalingActive": "True/SlotUtilization",
        "ScalingLimited": "False/WithinLimits",
        "OldBuildsKept": "False/NoneNeeded",
    }

    async def settled() -> bool:
        return states(await stage.status("default", WORKER_POOLS)) == wanted

    await eventually(settled, f"the conditions {wanted}")
    status = await stage.shows(
        "default", resource=WORKER_POOLS, desiredReplicas=0, observedGeneration=1
    )
    assert status["selector"] == "app.kubernetes.io/name=rowlock-worker,rowlock.dev/pool=default"


async def test_a_changed_pool_changes_its_deployment(stage: Stage) -> None:
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    await stage.operator()
    await made(stage)
    image = "example.test/agents:2"
    stage.patch("wpool", "default", image=image, autoscaling={"mode": "None"}, replicas=2)
    deployment = await made(stage, replicas=2)
    [worker] = deployment["spec"]["template"]["spec"]["containers"]
    assert worker["image"] == "example.test/agents:2"
    stage.kubectl("scale", "wpool/default", "--replicas=1")
    await made(stage, replicas=1)


async def test_an_edit_by_hand_is_undone(stage: Stage) -> None:
    fixed = pool_spec(autoscaling={"mode": "None", "minReplicas": 0}, replicas=0)
    await stage.create(WORKER_POOLS, "default", spec=fixed)
    await stage.operator()
    await made(stage, replicas=0)
    stage.kubectl("scale", "deployment/rowlock-default", "--replicas=5")
    await made(stage, replicas=0)
    stage.kubectl("set", "image", "deployment/rowlock-default", "worker=example.test/other:1")

    async def undone() -> bool:
        found = await made(stage)
        image = found["spec"]["template"]["spec"]["containers"][0]["image"]
        return bool(image == fixed["image"])

    await eventually(undone, "the image of the pool")


async def test_a_foreign_deployment_is_not_touched(stage: Stage) -> None:
    stage.kubectl("create", "deployment", "rowlock-default", "--image=theirs", "--replicas=0")
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    await stage.operator()

    async def refused() -> bool:
        status = await stage.status("default", WORKER_POOLS)
        return states(status).get("Ready") == "False/DeploymentNotOwned"

    await eventually(refused, "Ready=False/DeploymentNotOwned")
    found = await stage.existing(DEPLOYMENTS, "rowlock-default")
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "theirs"
    assert "ownerReferences" not in found["metadata"]
    stage.kubectl("delete", "deployment", "rowlock-default")
    deployment = await made(stage, replicas=0)
    assert deployment["metadata"]["ownerReferences"]


async def test_a_pool_without_a_database_says_so(stage: Stage) -> None:
    spec = pool_spec()
    del spec["databaseSecretRef"]
    await stage.create(WORKER_POOLS, "default", spec=spec)
    await stage.operator()
    status = await eventually(lambda: stage.status("default", WORKER_POOLS), "a status")
    assert states(status)["Ready"] == "False/NoDatabase"
    assert await stage.get(DEPLOYMENTS, "rowlock-default") is None


async def test_the_installation_can_name_the_secret(stage: Stage) -> None:
    spec = pool_spec()
    del spec["databaseSecretRef"]
    await stage.create(WORKER_POOLS, "default", spec=spec)
    await stage.operator(worker_database_secret="shared/uri")
    deployment = await made(stage, replicas=0)
    [worker] = deployment["spec"]["template"]["spec"]["containers"]
    [database] = [it for it in worker["env"] if it["name"] == "ROWLOCK_DATABASE_URL"]
    assert database["valueFrom"]["secretKeyRef"] == {"name": "shared", "key": "uri"}


async def test_a_pod_template_is_merged_and_a_wrong_one_is_named(stage: Stage) -> None:
    template = {
        "metadata": {"annotations": {"team": "a"}},
        "spec": {
            "nodeSelector": {"disk": "fast"},
            "containers": [
                {
                    "name": "worker",
                    "resources": {"requests": {"cpu": "1"}},
                    "env": [
                        {"name": "EXTRA", "value": "1"},
                        {"name": "ROWLOCK_SLOTS", "value": "7"},
                    ],
                },
                {"name": "sidecar", "image": "example.test/sidecar:1"},
            ],
        },
    }
    await stage.create(WORKER_POOLS, "default", spec=pool_spec(podTemplate=template))
    await stage.operator()
    deployment = await made(stage, replicas=0)
    pod = deployment["spec"]["template"]["spec"]
    worker, sidecar = pod["containers"]
    assert (worker["name"], sidecar["name"]) == ("worker", "sidecar")
    assert worker["resources"] == {"requests": {"cpu": "1"}}
    env = {it["name"]: it.get("value") for it in worker["env"]}
    assert (env["EXTRA"], env["ROWLOCK_SLOTS"], env["ROWLOCK_POOL"]) == ("1", "7", "default")
    assert pod["nodeSelector"] == {"disk": "fast"}
    wrong = {"spec": {"containers": [{"name": "worker", "image": ""}]}}
    stage.patch("wpool", "default", podTemplate=wrong)

    async def named() -> str:
        status = await stage.status("default", WORKER_POOLS)
        ready = condition(status, "Ready")
        return ready["message"] if ready["reason"] == "InvalidPodTemplate" else ""

    assert "image" in await eventually(named, "Ready=False/InvalidPodTemplate")


async def test_pods_that_cannot_be_scheduled_are_named(stage: Stage) -> None:
    scaling = {"minReplicas": 1, "maxReplicas": 3}
    await stage.create(WORKER_POOLS, "default", spec=pool_spec(autoscaling=scaling))
    await stage.operator()

    async def named() -> bool:
        status = await stage.status("default", WORKER_POOLS)
        return states(status).get("Available") == "False/Unschedulable"

    await eventually(named, "Available=False/Unschedulable")


async def test_a_pool_shows_its_queue(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.runs(["one", "two", "three"])
    await stage.all_show(3, "Queued")
    worker = await stage.worker()
    await worker.claim(1)

    async def shown() -> bool:
        queue = (await stage.status("default", WORKER_POOLS)).get("queue") or {}
        return (queue.get("queuedRuns"), queue.get("runningRuns")) == (2, 1)

    await eventually(shown, "two queued, one running")


async def test_an_agent_shows_whether_it_is_ready(stage: Stage) -> None:
    await stage.operator()
    await stage.create(AGENTS, "support", spec={"entrypoint": "agents:support"})
    status = await stage.shows("support", resource=AGENTS, observedGeneration=1)
    assert states(status) == {"Accepted": "True/Valid", "Ready": "False/PoolNotFound"}
    revision = status["revision"]
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())

    async def ready() -> bool:
        return states(await stage.status("support", AGENTS)).get("Ready") == "True/PoolFound"

    await eventually(ready, "Ready=True")
    stage.patch("agent", "support", entrypoint="b:c")
    status = await stage.shows("support", resource=AGENTS, observedGeneration=2)
    assert status["revision"] != revision


async def test_runs_keep_the_revision_that_they_were_accepted_with(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("old")
    old = await stage.shows("old", reason="WaitingForWorker")
    stage.patch("agent", "support", entrypoint="b:c")
    await stage.shows("support", resource=AGENTS, observedGeneration=2)
    await stage.run("new")
    new = await stage.shows("new", reason="WaitingForWorker")
    assert new["agentRevision"] != old["agentRevision"]
    worker = await stage.worker()
    await worker.finish(*await worker.claim_all(2), status=FinalStatus.SUCCEEDED)
    kept = await stage.shows("old", phase="Succeeded")
    assert kept["agentRevision"] == old["agentRevision"]
