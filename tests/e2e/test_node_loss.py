"""A node that is drained, and one that is lost: its runs go on on the other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from localcluster.node import Node
from tests.e2e.installation import Installation, eventually, fresh

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]


@pytest.fixture(name="second")
def second_fixture(installed: Installation) -> Iterator[Node]:
    """A second node with one of the pool's two workers on it; gone afterwards."""
    node = installed.cluster.add_node(within=180)
    node.load(f"{installed.images}/rowlock-worker:{installed.tag}")
    # The emptier node is the scheduler's choice, once the first one takes no more.
    installed.cluster.kubectl("cordon", installed.first_node)
    try:
        (pod, *_) = installed.pods("rowlock.dev/pool=e2e")
        installed.kubectl("delete", "pod", pod["metadata"]["name"])
        installed.pool_ready("e2e", 2)
    finally:
        installed.cluster.kubectl("uncordon", installed.first_node)
    yield node
    if node in installed.cluster.nodes:
        installed.cluster.destroy_node(node)
    installed.cluster.kubectl("delete", "node", node.name)
    for each in installed.pods("rowlock.dev/pool=e2e"):
        if each["spec"].get("nodeName") == node.name:
            name = each["metadata"]["name"]
            installed.kubectl("delete", "pod", name, "--grace-period=0", "--force")
    installed.pool_ready("e2e", 2)


def on(installed: Installation, node: Node) -> str:
    """Return the name of the pool's Pod on a node."""
    (name,) = [
        each["metadata"]["name"]
        for each in installed.pods("rowlock.dev/pool=e2e")
        if each["spec"]["nodeName"] == node.name and "deletionTimestamp" not in each["metadata"]
    ]
    return str(name)


def worker_of(installed: Installation, run: str) -> str:
    """Return the worker that a run's status names; empty for none."""
    return str(installed.status(run).get("worker", ""))


def run_there(installed: Installation, pod: str, **walk: Any) -> str:
    """Return a run that this Pod works on; start as many as it takes."""
    for _ in range(20):
        run = installed.run("walker", fresh("there"), **walk)
        installed.ledger.wait(run, "step-1")
        worker = eventually(partial(worker_of, installed, run), f"worker of {run}")
        if worker.startswith(pod):
            return run
    raise AssertionError(f"{pod} took none of 20 runs")


def test_a_drained_node_s_runs_are_handed_over(installed: Installation, second: Node) -> None:
    run = run_there(installed, on(installed, second), steps=30, seconds=0.5)
    drain = ("drain", second.name, "--ignore-daemonsets", "--delete-emptydir-data")
    installed.cluster.kubectl(*drain, "--timeout=110s")
    status = installed.finish(run)
    assert status["takeovers"] == 0, installed.story(run)
    assert set(installed.ledger.count(run).values()) == {1}


def test_a_lost_node_s_runs_are_taken_over(installed: Installation, second: Node) -> None:
    run = run_there(installed, on(installed, second), gates=[1])
    installed.cluster.destroy_node(second)
    installed.ledger.wait(run, "step-1", times=2)
    installed.ledger.open(f"{run}-1")
    assert installed.finish(run)["takeovers"] == 1
    assert installed.ledger.count(run) == {"step-0": 1, "step-1": 2, "step-2": 1}
