"""`rowlock logs`: what a run has said, by its Pods' logs and by what the database keeps."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import AsyncIterator

import pytest

from rowlock_operator.kube.resources import AGENTS, WORKER_POOLS
from tests.kubelets import Kubelet
from tests.operators import Stage, access, eventually, pool_spec, stage_fixture  # noqa: F401
from tests.people import Person, kubeconfig_of, person_fixture  # noqa: F401

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(name="kubelet")
async def kubelet_fixture(stage: Stage, person: Person) -> AsyncIterator[Kubelet]:
    """A node of the cluster; it is gone at the end."""
    with Kubelet(person.folder, f"node-{uuid.uuid4().hex[:8]}") as kubelet:
        await kubelet.join(stage)
        yield kubelet
        stage.cluster.kubectl("delete", "node", kubelet.name)


async def test_logs_are_those_of_the_run_and_of_each_pod_that_held_it(
    stage: Stage, person: Person, kubelet: Kubelet
) -> None:
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    await stage.create(AGENTS, "talker", spec={"entrypoint": "tests.talking_agents:talker"})
    await stage.operator()
    first = person.worker("worker-a")
    await kubelet.runs(stage, "worker-a", person.folder / "worker-a.log")
    for name, gates in (("other", []), ("order-7", ["one", "two"])):
        given = person.task(gates=gates)
        done = await person.types("run", "talker", "--name", name, "-i", given)
        assert done.returncode == 0, done.stderr
    await stage.shows("other", phase="Succeeded", within=60)
    follows = person.begins("logs", "order-7", "-f", "-o", "json")
    await follows.tells("the kettle is on")
    (person.folder / "gate-one").touch()
    await follows.tells("gate one is passed")

    async def stands() -> bool:
        return (person.folder / "waiting-two").exists()

    await eventually(stands, "the run at its second gate")
    os.killpg(first.pid, signal.SIGKILL)
    await fenced(stage)
    person.worker("worker-b")
    await kubelet.runs(stage, "worker-b", person.folder / "worker-b.log")
    (person.folder / "gate-two").touch()
    await stage.shows("order-7", phase="Succeeded", takeovers=1, within=60)

    assert await follows.ends() == 0, follows.err
    said = [json.loads(line) for line in follows.out.splitlines()]
    told = [(line["worker"], line["message"]) for line in said if line["source"] == "shop.talker"]
    assert ("worker-a", "gate one is passed") in told
    assert told[-1] == ("worker-b", "gate two is passed")
    assert any(line["data"].get("line") == "counting 2 cups" for line in said)
    number = (await stage.status("order-7"))["runID"]
    assert all(number not in line["message"] for line in said)

    later = await person.types("logs", "order-7")
    assert "gate one is passed" in later.stdout
    assert later.stdout.count("\n") == len(said)
    stage.kubectl("delete", "pod", "worker-a", "--grace-period=0", "--force")
    gone = await person.types("logs", "order-7")
    assert "Pod worker-a is gone, and its log with it" in gone.stdout
    assert "gate two is passed" in gone.stdout

    kept = await person.types("logs", number, "--database-url", stage.dsn)
    lines = kept.stdout.splitlines()
    assert [line.split()[2:4] for line in lines] == [
        ["info", "progress:"], ["warning", "taken_over:"], ["info", "state:"],
    ]  # fmt: skip

    person.kubeconfig = kubeconfig_of(stage, "viewer", "rowlock-viewer")
    assert "gate two is passed" in (await person.types("logs", "order-7")).stdout
    stage.kubectl("patch", "role", "rowlock-viewer", "--type=json", "-p", WITHOUT_PODS)
    await person.says(1, "viewer) may not get pods", "logs", "order-7")
    await person.says(1, "viewer) may not get pods", "logs", "order-7", "-f")


WITHOUT_PODS = '[{"op": "remove", "path": "/rules/2"}]'


async def fenced(stage: Stage) -> None:
    """Fence the workers whose processes are gone, as the operator does when their Pod is."""
    await stage.sql.execute("UPDATE rowlock.worker SET lease_seconds = 0.5")
    await eventually(
        lambda: stage.count("rowlock.worker WHERE fence_reason IS NOT NULL"), "a fenced worker"
    )
