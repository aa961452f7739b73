"""Workers whose pods end lose their runs at once, and no others do.

There is no kubelet: pods are made here and their status is what a kubelet would write.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rowlock_operator.kube.resources import AGENTS, WORKER_POOLS
from tests.operators import (  # noqa: F401
    ROOT,
    Stage,
    StubWorker,
    access,
    condition,
    eventually,
    pool_spec,
    stage_fixture,
)
from tests.pods import Pods

pytestmark = pytest.mark.cluster

RECORDING = ROOT / "docs" / "explanation" / "takeover.md"
COMMAND = "$ kubectl get agentruns -w\n"


@pytest.fixture(name="pods")
async def pods_fixture(stage: Stage) -> AsyncIterator[Pods]:
    """Pods and nodes; all of them are gone at the end."""
    pods = Pods(stage)
    try:
        yield pods
    finally:
        await pods.close()


async def stub(pods: Pods, name: str, node: str) -> tuple[StubWorker, str]:
    """Make a pod and register a worker in it whose lease outlives the test."""
    uid = await pods.pod(name, node=node)
    more = {"pod_uid": uid, "cluster": await pods.cluster(), "node": node}
    return await pods.stage.worker(name, **more), uid


async def fenced(stage: Stage, worker: StubWorker, reason: str) -> None:
    """Wait until a worker is fenced, and check why."""

    async def look() -> str | None:
        found: str | None = await reason_of(stage, worker)
        return found

    assert await eventually(look, f"{worker.name} to be fenced") == reason


async def reason_of(stage: Stage, worker: StubWorker) -> str | None:
    """Return why a worker was fenced, None if it was not."""
    found: str | None = await stage.sql.fetchval(
        "SELECT fence_reason FROM rowlock.worker WHERE worker_id = $1", worker.worker_id
    )
    return found


async def test_the_runs_of_a_pod_that_is_gone_go_on_in_another(stage: Stage, pods: Pods) -> None:
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    entrypoint = "tests.agents_for_tests:walker"
    await stage.create(AGENTS, "support", spec={"entrypoint": entrypoint})
    operator = await stage.operator()
    node = await pods.node()
    old_uid = await pods.pod("pod-old", node=node)
    old = await pods.worker("pod-old", old_uid)
    watched = pods.watch_runs()
    task = {"folder": str(stage.folder), "steps": 3, "gates": [1]}
    await stage.run("moved", input={"text": json.dumps(task)})
    await stage.shows("moved", phase="Running")

    async def at_gate() -> bool:
        return (stage.folder / "waiting-1").exists()

    await eventually(at_gate, "the run at its second step")
    new_uid = await pods.pod("pod-new", node=node)
    await pods.worker("pod-new", new_uid)
    old.signal_group(signal.SIGKILL)
    await old.ends()
    pods.remove("pod-old")
    status = await stage.shows("moved", takeovers=1, reason="Resumed", worker="pod-new/0")
    assert condition(status, "Resumed")["reason"] == "WorkerDeleted"
    assert status["lastTakeover"]["fromWorker"] == "pod-old/0"
    assert status["lastTakeover"]["toWorker"] == "pod-new/0"
    view = await stage.sql.fetchrow("SELECT takeovers, worker FROM rowlock.run_status")
    assert tuple(view) == (1, "pod-new/0")
    (stage.folder / "gate-1").touch()
    done = await stage.shows("moved", phase="Succeeded")
    assert json.loads(done["result"]["preview"]) == 3
    [_, _, event, _] = await stage.announced(
        "moved", "RunQueued", "RunStarted", "RunTakenOver", "RunSucceeded"
    )
    assert event["related"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": stage.namespace,
        "name": "pod-new",
        "uid": new_uid,
    }
    assert "from pod-old/0 to pod-new/0, resumed at step 1" in event["note"]
    assert await operator.metric("takeovers_total", reason="WorkerDeleted") == 1
    assert await operator.metric("pod_fenced_workers_total", reason="WorkerDeleted") >= 1
    assert "Run taken over from a worker that stopped responding" in pods.workers[-1].log
    compare_recording(await recorded(watched))
    await stage.healthy()


async def recorded(watched: Path) -> str:
    """Wait until kubectl has shown the end, and return all that it showed."""

    async def over() -> str:
        text = watched.read_text()  # noqa: ASYNC240  the test is all that runs here
        return text if " Succeeded " in text else ""

    return await eventually(over, "kubectl to show the end")


def compare_recording(text: str) -> None:
    """Check that the page shows what `kubectl get agentruns -w` does; WRITE_RECORDING writes it."""
    page = RECORDING.read_text()
    if os.environ.get("WRITE_RECORDING"):
        head, tail = page[: page.index(COMMAND)], page[page.rindex("```") :]
        page = f"{head}{COMMAND}{text}{tail}"
        RECORDING.write_text(page)
    shown = page.split(COMMAND)[1]
    for told in (text, shown):
        rows = [line.split()[1:6] for line in told.splitlines() if line.startswith("moved ")]
        assert ["support", "Running", "Resumed", "1", "1"] in rows
        assert rows[-1] == ["support", "Succeeded", "Completed", "1", "1"]
    assert text.split("STARTED", maxsplit=1)[0].split() == shown.split("STARTED")[0].split()


async def test_each_end_of_a_pod_fences_with_its_own_reason(stage: Stage, pods: Pods) -> None:
    await stage.basics()
    await stage.operator()
    node = await pods.node()
    names = ("draining", "relabelled", "starting", "evicted", "ended", "gone")
    made = {name: (await stub(pods, name, node))[0] for name in names}
    stage.kubectl("delete", "pod", "draining", "--wait=false")
    stage.kubectl("label", "pod", "relabelled", "rowlock.dev/pool-")
    pods.mark("starting", phase="Running", ready=False)
    pods.mark("evicted", phase="Failed", reason="Evicted")
    pods.mark("ended", phase="Succeeded")
    await fenced(stage, made["evicted"], "WorkerEvicted")
    await fenced(stage, made["ended"], "WorkerDied")
    pods.remove("gone")
    await fenced(stage, made["gone"], "WorkerDeleted")
    for name in ("draining", "relabelled", "starting"):
        assert await reason_of(stage, made[name]) is None, name
    pods.remove("draining")
    await fenced(stage, made["draining"], "WorkerDeleted")


async def test_a_lost_node_costs_nothing_while_its_pods_beat(stage: Stage, pods: Pods) -> None:
    await stage.basics()
    await stage.operator()
    node = await pods.node()
    worker, _ = await stub(pods, "far-away", node)
    await stage.run("steady")
    run = await worker.claim_one()

    def marked(*, lost: bool) -> object:
        query = "SELECT node_lost = $1 FROM rowlock.worker WHERE worker_id = $2"
        return stage.sql.fetchval(query, lost, worker.worker_id)

    pods.mark_node(node, ready="Unknown")
    pods.mark_lost("far-away")
    await eventually(lambda: marked(lost=True), "the node to be found lost")  # type: ignore[arg-type,return-value]
    await worker.step(run)
    pods.mark_node(node, ready="True")
    pods.mark("far-away", phase="Running", ready=True)
    await eventually(lambda: marked(lost=False), "the node to be found back")  # type: ignore[arg-type,return-value]
    pods.mark_node(node, ready="Unknown")
    pods.mark_lost("far-away")
    await eventually(lambda: marked(lost=True), "the node to be lost again")  # type: ignore[arg-type,return-value]
    assert await reason_of(stage, worker) is None
    await stage.sql.execute("UPDATE rowlock.worker SET lease_seconds = 0.5")
    await fenced(stage, worker, "NodeLost")
    await stage.shows("steady", takeovers=1, phase="Queued")


async def test_a_pod_that_went_while_nobody_looked_is_found(stage: Stage, pods: Pods) -> None:
    await stage.basics()
    operator = await stage.operator()
    node = await pods.node()
    worker, _ = await stub(pods, "unlucky", node)
    await stage.run("orphan")
    await worker.claim_one()
    await stage.shows("orphan", phase="Running")
    operator.kill()
    pods.remove("unlucky")
    await stage.operator()
    await fenced(stage, worker, "WorkerDeleted")
    await stage.shows("orphan", takeovers=1, reason="WaitingForWorker")


async def test_workers_that_are_none_of_its_own_are_left_alone(stage: Stage, pods: Pods) -> None:
    await stage.basics()
    cluster = await pods.cluster()
    node = await pods.node()
    mine, _ = await stub(pods, "mine", node)
    others = [
        await stage.worker("laptop"),
        await stage.worker("no-cluster", pod_uid="uid-1"),
        await stage.worker("other-cluster", pod_uid="uid-2", cluster="elsewhere"),
    ]
    unwatched = await stage.worker("unwatched", pod_uid="uid-3", cluster=cluster, pool="apart")
    await stage.sql.execute("UPDATE rowlock.pool SET namespace = 'apart' WHERE name = 'apart'")
    pods.remove("mine")
    await stage.operator()
    await fenced(stage, mine, "WorkerDeleted")
    for worker in (*others, unwatched):
        assert await reason_of(stage, worker) is None, worker.name
