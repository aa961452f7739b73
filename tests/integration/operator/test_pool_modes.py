"""Who sets the number of workers, and what else a pool becomes."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
import yaml

from rowlock.store.connection import Connection
from rowlock_operator.kube.resources import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    SERVICES,
    WORKER_POOLS,
    Resource,
)
from tests.operators import (  # noqa: F401
    ROOT,
    Stage,
    access,
    eventually,
    pool_spec,
    stage_fixture,
    states,
)
from tests.pool_nodes import queue, replicas, says

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

MANIFESTS = ROOT / "examples" / "scaling"
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
COMPANIONS = (DISRUPTION_BUDGETS, NETWORK_POLICIES, SERVICES)


def manifest(name: str, number: int = 0) -> dict[str, Any]:
    """Return a manifest of the example."""
    documents = list(yaml.safe_load_all((MANIFESTS / name).read_text()))
    found: dict[str, Any] = documents[number]
    return found


async def given(stage: Stage) -> int | None:
    """Return the pool's `spec.replicas`."""
    found: int | None = (await stage.existing(WORKER_POOLS, "default"))["spec"].get("replicas")
    return found


async def test_another_autoscaler_sets_the_number_and_keeps_it(stage: Stage) -> None:
    path = str(MANIFESTS / "workerpool.yaml")
    stage.kubectl("apply", "-f", path)
    await stage.operator()
    await replicas(stage, 1)

    async def filled() -> bool:
        return await given(stage) == 1

    await eventually(filled, "spec.replicas to be filled with minReplicas")
    assert stage.kubectl("get", "wpool/default", "--subresource=scale", "-o", "name")
    await says(stage, "ScalingActive", "False/External")
    stage.kubectl("scale", "wpool/default", "--replicas=3")
    await replicas(stage, 3)
    await stage.shows("default", resource=WORKER_POOLS, desiredReplicas=3)
    stage.kubectl("apply", "-f", path)
    stage.kubectl("apply", "--server-side", "--force-conflicts", "-f", path)
    assert await given(stage) == 3
    # However much there is to do, it is for the other one to say.
    await queue(stage, 2000)
    stage.patch("wpool", "default", image="registry.example.com/agents:2")

    async def rolled() -> bool:
        found = await stage.existing(DEPLOYMENTS, "rowlock-default")
        image = found["spec"]["template"]["spec"]["containers"][0]["image"]
        return bool(image.endswith(":2") and found["spec"]["replicas"] == 3)

    await eventually(rolled, "the new image with three replicas")
    # The real controller of Kubernetes reads and writes our scale subresource.
    autoscaler = manifest("hpa.yaml")
    autoscaler["spec"] |= {"minReplicas": 5, "maxReplicas": 6}
    stage.cluster.kubectl(
        "-n", stage.namespace, "apply", "-f", "-", input=yaml.safe_dump(autoscaler)
    )
    await replicas(stage, 5)
    assert await given(stage) == 5

    async def reads_scale() -> bool:
        found = await stage.existing(AUTOSCALERS, "rowlock-default")
        status = found.get("status") or {}
        return states(status).get("AbleToScale", "").startswith("True/")

    await eventually(reads_scale, "the HPA to be able to scale", 60)
    stage.kubectl("delete", "hpa", "rowlock-default")
    # The pool comes home: from now on the operator decides.
    stage.patch("wpool", "default", autoscaling={"mode": "Internal", "maxReplicas": 7})
    await replicas(stage, 7)


async def test_the_manifests_of_others_name_our_kind_and_read_what_we_read(
    stage: Stage, store_url: str
) -> None:
    scaled, authentication = manifest("keda.yaml"), manifest("keda.yaml", 1)
    for spec in (scaled["spec"], manifest("hpa.yaml")["spec"]):
        assert spec["scaleTargetRef"] == {
            "apiVersion": WORKER_POOLS.api_version,
            "kind": WORKER_POOLS.kind,
            "name": manifest("workerpool.yaml")["metadata"]["name"],
        }
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    pool = manifest("workerpool.yaml")["spec"]
    full = pool["slotsPerWorker"] * 3 // 4
    assert trigger["metadata"]["targetQueryValue"] == str(full)
    await queue(stage, 3)
    query = trigger["metadata"]["query"].replace("team-a", stage.namespace)
    reader = await asyncpg.connect(store_url)
    try:
        await reader.execute("SET ROLE rowlock_reader")
        assert await reader.fetchval(query) == 3.0
        # A pool without rows is a number, too: NULL would be an error.
        assert await reader.fetchval(query.replace("'default'", "'other'")) == 0.0
    finally:
        await reader.close()


@pytest.fixture(name="store_url")
def store_url_fixture(dsn: str, stage: Stage) -> str:
    """URL of the stage's database."""
    assert isinstance(stage.store, Connection)
    return dsn


async def test_a_pool_has_companions_that_go_with_it(stage: Stage) -> None:
    sidecar = {"name": "proxy", "image": "x", "ports": [{"containerPort": 8443}]}
    template = {"spec": {"containers": [sidecar]}}
    created = await stage.create(WORKER_POOLS, "default", spec=pool_spec(podTemplate=template))
    stage.kubectl("create", "service", "clusterip", "rowlock-second", "--tcp=80")
    await stage.create(WORKER_POOLS, "second", spec=pool_spec())
    await stage.operator()
    await replicas(stage, 0)
    for resource in COMPANIONS:
        found = await eventually(lambda r=resource: stage.get(r, "rowlock-default"), resource.kind)
        [owner] = found["metadata"]["ownerReferences"]
        assert owner["uid"] == created["metadata"]["uid"]
        assert owner["controller"] is True
    policy = await stage.existing(NETWORK_POLICIES, "rowlock-default")
    assert [it["port"] for it in policy["spec"]["ingress"][0]["ports"]] == [9464, 8443]
    service = await stage.existing(SERVICES, "rowlock-default")
    assert service["spec"]["clusterIP"] == "None"
    # What belongs to somebody else is not touched, and then nothing else is written either.
    await says(stage, "Ready", "False/ServiceNotOwned", name="second")
    assert await stage.get(DEPLOYMENTS, "rowlock-second") is None
    foreign = await stage.existing(SERVICES, "rowlock-second")
    assert "ownerReferences" not in foreign["metadata"]
    stage.kubectl("delete", "wpool", "default")

    async def gone() -> bool:
        left = [await stage.get(it, "rowlock-default") for it in (DEPLOYMENTS, *COMPANIONS)]
        return not any(left)

    await eventually(gone, "everything of the deleted pool to go", 60)


async def test_a_template_that_the_server_refuses_changes_nothing_at_all(stage: Stage) -> None:
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    await stage.operator()
    before = (await replicas(stage, 0))["spec"]["template"]
    port = {"name": "proxy", "image": "x", "ports": [{"containerPort": 99999}]}
    stage.patch("wpool", "default", podTemplate={"spec": {"containers": [port]}})
    assert "99999" in await says(stage, "Ready", "False/InvalidPodTemplate")
    policy = await stage.existing(NETWORK_POLICIES, "rowlock-default")
    assert [it["port"] for it in policy["spec"]["ingress"][0]["ports"]] == [9464]
    after = await stage.existing(DEPLOYMENTS, "rowlock-default")
    assert after["spec"]["template"] == before
