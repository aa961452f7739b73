"""A pool follows its queue: from zero workers, and back."""

from __future__ import annotations

import pytest

from tests.e2e.installation import Installation, eventually, fresh, pool

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]


def test_a_pool_comes_from_zero_and_goes_back(installed: Installation) -> None:
    # Nothing of the pool runs before: the first run alone brings a worker.
    scaling = {
        "mode": "Internal",
        "minReplicas": 0,
        "maxReplicas": 2,
        "pollPeriodSeconds": 1,
        "scaleDown": {"stabilizationWindowSeconds": 1, "maxStepPercent": 100},
    }
    secret = {"name": "rowlock-database", "key": "url"}
    image = f"{installed.images}/rowlock-worker:{installed.tag}"
    spec = pool(autoscaling=scaling, image=image, databaseSecretRef=secret, slotsPerWorker=2)
    del spec["replicas"]
    name = fresh("tide")
    head = {"apiVersion": "rowlock.dev/v1alpha1", "kind": "WorkerPool"}
    installed.apply({**head, "metadata": {"name": name, "namespace": installed.name}, "spec": spec})
    deployment = f"rowlock-{name}"
    eventually(lambda: installed.get("deployment", deployment), deployment)
    assert installed.get("deployment", deployment)["spec"]["replicas"] == 0

    runs = [installed.run("walker", fresh("tide"), pool=name, gates=[1]) for _ in range(4)]
    for run in runs:
        installed.ledger.wait(run, "step-1")
    # A worker claims at once; that its Pod is ready shows a moment later.
    eventually(
        lambda: installed.get("deployment", deployment)["status"].get("readyReplicas", 0) == 2,
        "two ready workers",
    )
    for run in runs:
        installed.ledger.open(f"{run}-1")
        assert installed.finish(run)["takeovers"] == 0
    eventually(
        lambda: installed.get("deployment", deployment)["status"].get("replicas", 0) == 0,
        "no worker without work",
    )
    installed.kubectl("delete", "workerpool", name)
    eventually(lambda: not installed.get("deployment", deployment), "end of its Deployment")
