"""The rights that the docs name are enough, and no right is missed silently."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rowlock_operator.kube.resources import (
    AGENT_RUN_APPROVALS,
    AGENT_RUN_BATCHES,
    AGENT_RUNS,
    CONFIG_MAPS,
)
from tests.operators import ROOT, Stage, access, eventually, stage_fixture  # noqa: F401
from tests.questions import ask, question

pytestmark = pytest.mark.cluster

PAGE = ROOT / "docs" / "how-to" / "run-the-operator.md"


def documented() -> list[dict[str, Any]]:
    """Return the manifests of the page."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [yaml.safe_load(block) for block in blocks]


@pytest.fixture(name="limited")
def limited_fixture(stage: Stage) -> Iterator[Path]:
    """Kubeconfig of a service account with the documented rights."""
    role, cluster_role, leader = documented()
    name = cluster_role["metadata"]["name"] = f"rowlock-{uuid.uuid4().hex[:8]}"
    subject = f"--serviceaccount={stage.namespace}:operator"
    stage.kubectl("create", "serviceaccount", "operator")
    for manifest in (role, cluster_role, leader):
        text = yaml.safe_dump(manifest)
        stage.cluster.kubectl("-n", stage.namespace, "apply", "-f", "-", input=text)
    stage.kubectl("create", "rolebinding", "operator", "--role=rowlock-operator", subject)
    stage.kubectl("create", "rolebinding", "leader", "--role=rowlock-operator-leader", subject)
    stage.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", subject)
    config = yaml.safe_load(stage.cluster.kubeconfig.read_text())
    token = stage.kubectl("create", "token", "operator").strip()
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path = stage.folder / "limited.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    yield path
    stage.kubectl("delete", "clusterrolebinding,clusterrole", name)


async def test_the_documented_rights_are_enough(stage: Stage, limited: Path) -> None:
    await stage.basics()
    operator = await stage.operator("--kubeconfig", str(limited), "--election")
    await stage.create(CONFIG_MAPS, "tasks", data={"one": "1"})
    await stage.run("limited", input={"configMapKeyRef": {"name": "tasks", "key": "one"}})
    first, second = await stage.worker("worker-a"), await stage.worker("worker-b")
    await first.claim_one()
    await first.die()
    run = await second.claim_one()
    await second.go_on(run, steps=1)
    await second.finish(run)
    await stage.shows("limited", phase="Succeeded")

    async def taken_over() -> bool:
        return "RunTakenOver" in {event["reason"] for event in await stage.events("limited")}

    await eventually(taken_over, "the Event of the takeover")
    await stage.run("asks")
    await ask(stage, second, await second.claim_one(), question())
    pending = (await stage.shows("asks", phase="AwaitingApproval"))["pendingApproval"]
    await stage.shows(pending["name"], resource=AGENT_RUN_APPROVALS, phase="Pending")
    said = {"action": "Approve", "decidedBy": "ada", "digest": pending["digest"]}
    stage.patch("aappr", pending["name"], decision=said)
    await stage.shows(pending["name"], resource=AGENT_RUN_APPROVALS, phase="Approved")
    stage.patch("arun", "limited", ttlSecondsAfterFinished=0)

    async def expired() -> bool:
        return await stage.get(AGENT_RUNS, "limited") is None

    await eventually(expired, "the run to be deleted")
    spec = {"runTemplate": {"agentRef": {"name": "support"}}, "materialize": "All"}
    items = [{"id": "one", "text": "1"}]
    more = {"items": items, "ttlSecondsAfterFinished": 0}
    await stage.create(AGENT_RUN_BATCHES, "limited", spec=spec | more)
    # The item, and the run whose question was answered.
    await second.finish(*await second.claim_all(2))

    async def deleted() -> bool:
        return await stage.get(AGENT_RUN_BATCHES, "limited") is None

    await eventually(deleted, "the deletion of the batch that ended")
    stage.patch("wpool", "default", autoscaling={"mode": "None"}, replicas=1)

    async def unschedulable() -> bool:
        return "Unschedulable" in stage.kubectl("get", "wpool", "default", "-o", "yaml")

    await eventually(unschedulable, "the Pods to be read")
    # To have fewer workers, Pods are marked; another autoscaler's number is filled once.
    stage.patch("wpool", "default", autoscaling={"mode": "External", "minReplicas": 0}, replicas=0)

    async def marked_and_gone() -> bool:
        return stage.kubectl("get", "pods", "-o", "name") == ""

    await eventually(marked_and_gone, "no Pods")
    stage.kubectl("patch", "wpool", "default", "--type=json", "-p",
                  '[{"op": "remove", "path": "/spec/replicas"}]')  # fmt: skip

    async def filled() -> bool:
        return stage.kubectl("get", "wpool", "default", "-o", "jsonpath={.spec.replicas}") == "0"

    await eventually(filled, "spec.replicas to be filled")
    _, text = await operator.probe("/metrics")
    assert not re.search(r'requests_total{code="403"[^}]*} [1-9]', text)
    assert await operator.stop() == 0
    assert "The Lease is released" in operator.log


async def test_a_missing_right_to_one_input_holds_up_nobody_else(
    stage: Stage, limited: Path
) -> None:
    rules = json.loads(stage.kubectl("get", "role", "rowlock-operator", "-o", "json"))["rules"]
    [at] = [n for n, rule in enumerate(rules) if rule["resources"] == ["configmaps"]]
    remove = json.dumps([{"op": "remove", "path": f"/rules/{at}"}])
    stage.kubectl("patch", "role", "rowlock-operator", "--type=json", "-p", remove)
    await stage.basics()
    await stage.operator("--kubeconfig", str(limited))
    await stage.run("needy", input={"configMapKeyRef": {"name": "tasks", "key": "one"}})
    await stage.run("modest")
    await stage.shows("modest", reason="WaitingForWorker")
    await stage.shows("needy", reason="InputNotFound")
