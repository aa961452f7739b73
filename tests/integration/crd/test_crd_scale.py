"""A WorkerPool can be scaled by whatever knows `/scale`."""

from __future__ import annotations

import json

import pytest

from localcluster import Cluster

from .server import Objects

pytestmark = pytest.mark.cluster


def test_scale_shows_what_an_autoscaler_reads(pools: Objects) -> None:
    """The wish, the present number and the selector of the Pods are all there."""
    name = pools.make({"replicas": 4}, {"replicas": 3, "selector": "rowlock.dev/pool=default"})

    scale = pools.get(name, sub="/scale").body

    assert scale["kind"] == "Scale"
    assert scale["spec"] == {"replicas": 4}
    assert scale["status"] == {"replicas": 3, "selector": "rowlock.dev/pool=default"}


def test_scale_can_be_put(pools: Objects) -> None:
    """What an autoscaler writes arrives in the spec, and nowhere else."""
    name = pools.make({"replicas": 1})
    scale = pools.get(name, sub="/scale").body
    scale["spec"]["replicas"] = 7

    written = pools.api.call("PUT", f"{pools.path}/{name}/scale", scale)

    assert written.message == ""
    assert pools.get(name).body["spec"]["replicas"] == 7


def test_kubectl_scales_a_pool(cluster: Cluster, pools: Objects) -> None:
    """People can do it by hand."""
    name = pools.make({"replicas": 1})

    cluster.kubectl("scale", f"wpool/{name}", "--replicas=0", "-n", pools.namespace)

    assert pools.get(name).body["spec"]["replicas"] == 0


@pytest.mark.parametrize(
    ("replicas", "message"),
    [(-1, "greater than or equal to 0"), (1001, "less than or equal to 1000")],
)
def test_scale_keeps_the_bounds(pools: Objects, replicas: int, message: str) -> None:
    """What is refused in the spec is refused here."""
    name = pools.make({"replicas": 1})

    refused = pools.patch(name, {"spec": {"replicas": replicas}}, sub="/scale")

    assert message in refused.message
    assert pools.get(name).body["spec"]["replicas"] == 1


def test_scale_of_a_pool_without_replicas_can_be_set(pools: Objects) -> None:
    """A pool that scales itself has no replicas; the first writer gives it some."""
    name = pools.make()

    read = pools.get(name, sub="/scale")
    written = pools.patch(name, {"spec": {"replicas": 2}}, sub="/scale")

    assert 'the spec replicas field ".spec.replicas" does not exist' in read.message
    assert written.message == ""
    assert pools.get(name, sub="/scale").body["spec"]["replicas"] == 2


def test_applying_the_manifest_again_keeps_the_number_of_an_autoscaler(
    cluster: Cluster, pools: Objects
) -> None:
    """A manifest that does not mention replicas does not reset them."""
    manifest = pools.manifest({"autoscaling": {"mode": "External"}})
    name = manifest["metadata"]["name"]
    apply = ("apply", "--server-side", "-n", pools.namespace, "-f", "-")
    cluster.kubectl(*apply, input=json.dumps(manifest))
    pools.change(name, {"replicas": 5}, dry=False)

    cluster.kubectl(*apply, input=json.dumps(manifest))

    assert pools.get(name).body["spec"]["replicas"] == 5
