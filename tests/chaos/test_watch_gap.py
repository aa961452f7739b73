"""Objects that come and go while nobody can watch are found by the sweep."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from localcluster import Cluster
from tests.operators import Stage, access, eventually, stage_fixture  # noqa: F401

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@contextmanager
def outage(cluster: Cluster) -> Iterator[None]:
    """Kill the API server for as long as the block takes."""
    if not cluster.components:
        pytest.skip("needs a cluster of its own: it restarts the API server")
    cluster.stop_apiserver()
    try:
        yield
    finally:
        cluster.start_apiserver()


async def test_what_happens_in_a_watch_gap_is_made_good(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    await stage.runs([f"old-{number}" for number in range(8)])
    await stage.all_show(8, "Queued")

    # The operator is blind, and the API server forgets the events that it has not sent.
    operator.process.send_signal(signal.SIGSTOP)
    with outage(stage.cluster):
        pass
    stage.kubectl("delete", "arun", "old-0", "old-1", "old-2")
    for number in range(4):
        stage.apply("AgentRun", f"new-{number}", agentRef={"name": "support"})
    stage.kubectl("delete", "arun", "new-3")
    stage.patch("arun", "old-7", desiredState="Cancel")
    operator.process.send_signal(signal.SIGCONT)

    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 4 FROM rowlock.run_final WHERE status = 3"),
        "the deleted runs and the cancelled one to end",
        60,
    )
    await stage.shows("old-7", phase="Cancelled", within=60)

    async def all_queued() -> bool:
        names = {row["name"] for row in await stage.rows() if row["place"] == "ready"}
        return names == {f"old-{n}" for n in range(3, 7)} | {f"new-{n}" for n in range(3)}

    await eventually(all_queued, "exactly the runs that exist to be queued", 60)
    assert operator.process.poll() is None
    await stage.healthy()


async def test_an_outage_of_the_api_server_is_survived(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    await stage.runs([f"run-{number}" for number in range(20)])
    await stage.all_show(20, "Queued")
    worker = await stage.worker()
    runs = await worker.claim_all(20)
    with outage(stage.cluster):
        await worker.finish(*runs)
        await operator.says("A status could not be shown yet")
    await stage.all_show(20, "Succeeded", within=60)
    await stage.run("after")
    await stage.shows("after", reason="WaitingForWorker", within=60)
    assert operator.process.poll() is None
    assert (await operator.probe("/livez"))[0] == 200
    await stage.healthy()
