"""A takeover can be seen: in conditions, counters, history and Events, within two seconds."""

from __future__ import annotations

import pytest

from rowlock.states import FenceReason
from tests.operators import (  # noqa: F401
    Stage,
    access,
    condition,
    eventually,
    stage_fixture,
    states,
)

pytestmark = pytest.mark.cluster


async def test_a_takeover_shows_everywhere_soon(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("moved")
    first = await stage.worker("worker-a", pod_uid="uid-a")
    second = await stage.worker("worker-b", pod_uid="uid-b")
    run = await first.claim_one()
    for _ in range(14):
        await first.step(run)
    await stage.shows("moved", phase="Running", worker="worker-a")
    await first.die()
    taken = await second.claim_one()
    await second.go_on(taken, steps=14)
    status = await stage.shows("moved", takeovers=1, reason="Resumed", within=10)
    resumed = condition(status, "Resumed")
    assert (resumed["status"], resumed["reason"]) == ("True", "LeaseExpired")
    assert resumed["message"] == ("takeover 1 of 5: from worker-a to worker-b, resumed at step 14")
    assert status["lastTakeover"] | {"time": ""} == {
        "time": "",
        "reason": "LeaseExpired",
        "fromWorker": "worker-a",
        "toWorker": "worker-b",
        "resumedFromStep": 14,
        "leaseEpoch": 2,
    }
    assert [(it["leaseEpoch"], it["worker"], it.get("outcome")) for it in status["history"]] == [
        (1, "worker-a", "LeaseExpired"),
        (2, "worker-b", None),
    ]
    stage.kubectl("wait", "--for=condition=Resumed", "agentrun/moved", "--timeout=5s")
    [*_, event] = await stage.announced("moved", "RunQueued", "RunStarted", "RunTakenOver")
    assert event["type"] == "Warning"
    assert event["action"] == "TakeOver"
    assert event["note"] == (
        "from worker-a to worker-b, resumed at step 14, takeover 1 of 5: LeaseExpired"
    )
    related = event["related"]
    assert (related["kind"], related["name"], related["uid"]) == ("Pod", "worker-b", "uid-b")
    assert "RunTakenOver" in stage.kubectl("describe", "agentrun", "moved")


async def test_resumed_is_sticky_and_the_second_takeover_replaces_the_first(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("moved")
    workers = [await stage.worker(f"worker-{name}") for name in "abc"]
    run = await workers[0].claim_one()
    for at, reason in ((0, FenceReason.WORKER_DIED), (1, FenceReason.NODE_LOST)):
        await workers[at].die(reason)
        # From the second loss on the run waits before it is given to the next worker.
        await stage.sql.execute("UPDATE rowlock.run_timer SET due_at = rowlock.now()")
        run = await workers[at + 1].claim_one()
        await workers[at + 1].go_on(run, steps=at)
        await stage.shows("moved", takeovers=at + 1, reason="Resumed")
    await workers[2].finish(run)
    done = await stage.shows("moved", phase="Succeeded")
    assert condition(done, "Resumed")["status"] == "True"
    assert condition(done, "Resumed")["reason"] == "NodeLost"
    assert done["takeovers"] == 2
    assert done["lastTakeover"]["fromWorker"] == "worker-b"
    reasons = [it["reason"] for it in await stage.events("moved")]
    assert reasons.count("RunTakenOver") == 2
    await stage.healthy()


async def test_a_hand_over_is_no_takeover(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("handed")
    first, second = await stage.worker("worker-a"), await stage.worker("worker-b")
    await first.claim_one()
    await first.die(FenceReason.LEFT)
    run = await second.claim_one()
    await second.go_on(run, steps=2)
    status = await stage.shows("handed", phase="Running", worker="worker-b")
    assert status["takeovers"] == 0
    assert states(status)["Resumed"] == "False/NotTakenOver"
    await stage.announced("handed", "RunQueued", "RunStarted", "RunHandedOver")


async def test_a_lost_run_that_nobody_holds_yet_says_so(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("orphan")
    first = await stage.worker("worker-a")
    await first.claim_one()
    await stage.shows("orphan", phase="Running")
    await first.die()
    waiting = await stage.shows("orphan", phase="Queued", reason="WaitingForWorker")
    assert waiting["takeovers"] == 1
    assert waiting["history"][-1]["outcome"] == "LeaseExpired"
    assert "worker" not in waiting


async def test_the_limit_of_takeovers_ends_the_run(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("fragile", maxTakeovers=0)
    first = await stage.worker("worker-a")
    await first.claim_one()
    await first.die()
    failed = await stage.shows("fragile", phase="Failed", reason="TakeoverLimitReached")
    assert states(failed)["Succeeded"] == "False/TakeoverLimitReached"


async def test_a_silent_worker_is_fenced_by_the_operator_alone(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("silent")
    worker = await stage.worker("worker-a")
    await worker.claim_one()
    await stage.sql.execute("UPDATE rowlock.worker SET lease_seconds = 0.5")
    await stage.shows("silent", takeovers=1, phase="Queued")
    assert await stage.count("rowlock.worker WHERE fence_reason = 'LeaseExpired'") == 1
    await eventually(lambda: stage.count("rowlock.run_ready"), "the run to wait again")
