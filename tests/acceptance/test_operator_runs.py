"""What a user of AgentRuns is promised, seen with kubectl and through the API."""

from __future__ import annotations

import json

import pytest

from rowlock.states import FinalStatus
from rowlock.store import redrive
from rowlock_operator.kube.resources import AGENTS, CONFIG_MAPS, WORKER_POOLS
from tests.operators import (  # noqa: F401
    CONDITIONS,
    Stage,
    access,
    condition,
    eventually,
    pool_spec,
    stage_fixture,
    states,
)

pytestmark = pytest.mark.cluster


async def test_a_run_goes_from_apply_to_succeeded(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("hello", input={"text": '{"order": 7}'})
    queued = await stage.shows("hello", phase="Queued", reason="WaitingForWorker")
    assert states(queued) == {
        "Accepted": "True/Enqueued",
        "Running": "False/WaitingForWorker",
        "Suspended": "False/NotSuspended",
        "AwaitingApproval": "False/NoOpenQuestion",
        "Resumed": "False/NotTakenOver",
        "Finished": "False/InProgress",
        "Succeeded": "Unknown/InProgress",
    }
    worker = await stage.worker("worker-a")
    run = await worker.claim_one()
    running = await stage.shows("hello", phase="Running")
    assert running["runID"] == str(run.run_id)
    assert (running["worker"], running["leaseEpoch"], running["attempt"]) == ("worker-a", 1, 1)
    assert condition(running, "Running")["message"] == "held by worker-a, epoch 1"
    await worker.finish(run, result={"answer": "42"})
    done = await stage.shows("hello", phase="Succeeded")
    assert states(done)["Finished"] == "True/Completed"
    assert states(done)["Succeeded"] == "True/Completed"
    assert states(done)["Running"] == "False/Finished"
    assert set(states(done)) == CONDITIONS
    assert json.loads(done["result"]["preview"]) == {"answer": "42"}
    assert done["usage"] == {"inputTokens": 11, "outputTokens": 7, "costMicroUSD": 42}
    assert done["outcome"] == "ok"
    assert done["history"][-1]["outcome"] == "Succeeded"
    assert {"queueTime", "startTime", "completionTime", "agentRevision"} <= done.keys()
    assert all(it["observedGeneration"] == 1 for it in done["conditions"])
    await stage.announced("hello", "RunQueued", "RunStarted", "RunSucceeded")
    stage.kubectl("wait", "--for=condition=Finished", "agentrun/hello", "--timeout=5s")
    columns = stage.kubectl("get", "arun", "hello", "--no-headers").split()
    assert columns[:5] == ["hello", "support", "Succeeded", "Completed", "1"]
    await stage.healthy()


async def test_the_input_of_a_run_is_json_or_text(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.create(CONFIG_MAPS, "tasks", data={"one": '{"from": "map"}'})
    inputs = {
        "json": {"text": '{"a": [1, 2]}'},
        "text": {"text": "hello there"},
        "map": {"configMapKeyRef": {"name": "tasks", "key": "one"}},
    }
    for name, given in inputs.items():
        await stage.run(name, input=given)
    await stage.run("none")
    await stage.all_show(4, "Queued")
    rows = await stage.sql.fetch(
        "SELECT o.name, convert_from(r.input, 'UTF8') AS input "
        "FROM rowlock.run r JOIN rowlock.run_object o USING (run_id)"
    )
    assert {row["name"]: row["input"] for row in rows} == {
        "json": '{"a": [1, 2]}',
        "text": '"hello there"',
        "map": '{"from": "map"}',
        "none": "null",
    }


async def test_what_is_missing_is_waited_for(stage: Stage) -> None:
    await stage.operator()
    await stage.run("early")
    waiting = await stage.shows("early", phase="Queued", reason="AgentNotFound")
    assert set(states(waiting)) == CONDITIONS
    assert states(waiting)["Running"] == "False/AgentNotFound"
    await stage.create(AGENTS, "support", spec={"entrypoint": "agents:support"})
    await stage.shows("early", phase="Queued", reason="PoolNotFound")
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    queued = await stage.shows("early", reason="WaitingForWorker")
    assert states(queued)["Accepted"] == "True/Enqueued"
    worker = await stage.worker()
    await worker.finish(await worker.claim_one())
    await stage.shows("early", phase="Succeeded")


async def test_a_missing_input_is_waited_for(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("fed", input={"configMapKeyRef": {"name": "tasks", "key": "one"}})
    waiting = await stage.shows("fed", reason="InputNotFound")
    assert condition(waiting, "Running")["message"] == "ConfigMap tasks has no key one"
    await stage.create(CONFIG_MAPS, "tasks", data={"one": "1"})
    await stage.shows("fed", reason="WaitingForWorker")


async def test_a_paused_agent_takes_in_no_runs(stage: Stage) -> None:
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    await stage.create(AGENTS, "support", spec={"entrypoint": "a:b", "intake": "Paused"})
    await stage.operator()
    await stage.run("patient")
    await stage.shows("patient", reason="IntakePaused")
    stage.patch("agent", "support", intake="Open")
    await stage.shows("patient", reason="WaitingForWorker")


async def test_a_second_run_with_an_idempotency_key_ends_and_names_the_first(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("first", idempotencyKey="order-7")
    await stage.shows("first", reason="WaitingForWorker")
    await stage.run("second", idempotencyKey="order-7")
    refused = await stage.shows("second", phase="Failed", reason="DuplicateIdempotencyKey")
    assert states(refused)["Accepted"] == "False/DuplicateIdempotencyKey"
    assert states(refused)["Finished"] == "True/DuplicateIdempotencyKey"
    assert states(refused)["Succeeded"] == "False/DuplicateIdempotencyKey"
    assert f"{stage.namespace}/first" in refused["failure"]["message"]
    assert "completionTime" in refused
    stage.kubectl("wait", "--for=condition=Finished", "agentrun/second", "--timeout=5s")
    assert await stage.count("rowlock.run") == 1


async def test_a_uri_input_is_refused_clearly(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("remote", input={"uri": "s3://bucket/key"})
    refused = await stage.shows("remote", phase="Failed", reason="InvalidSpec")
    assert "input.uri is not supported" in refused["failure"]["message"]


async def test_a_key_that_postgresql_cannot_store_fails_its_own_run_alone(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("bad", concurrencyKey="a\x00b")
    await stage.run("good", concurrencyKey="ab")
    await stage.shows("bad", phase="Failed", reason="InvalidSpec")
    await stage.shows("good", reason="WaitingForWorker")


async def test_a_queued_run_is_cancelled_at_once(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("doomed")
    await stage.shows("doomed", reason="WaitingForWorker")
    stage.patch("arun", "doomed", desiredState="Cancel", desiredStateReason="not needed")
    ended = await stage.shows("doomed", phase="Cancelled")
    assert states(ended)["Succeeded"] == "False/Cancelled"
    assert "not needed" in condition(ended, "Finished")["message"]
    assert ended["observedGeneration"] == 2
    stage.kubectl("wait", "--for=condition=Finished", "arun/doomed", "--timeout=5s")
    await stage.announced("doomed", "RunQueued", "RunCancelled")


async def test_a_running_run_is_told_to_cancel(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("busy")
    worker = await stage.worker()
    run = await worker.claim_one()
    await stage.shows("busy", phase="Running")
    stage.patch("arun", "busy", desiredState="Cancel")
    cancelling = await stage.shows("busy", reason="Cancelling", observedGeneration=2)
    assert states(cancelling)["Running"] == "True/Cancelling"
    await worker.finish(run, status=FinalStatus.CANCELLED, reason="Cancelled")
    await stage.shows("busy", phase="Cancelled")


async def test_a_run_cancelled_before_it_was_taken_in_ends(stage: Stage) -> None:
    await stage.operator()
    await stage.run("unwanted")
    await stage.shows("unwanted", reason="AgentNotFound")
    stage.patch("arun", "unwanted", desiredState="Cancel")
    ended = await stage.shows("unwanted", phase="Cancelled")
    assert states(ended)["Finished"] == "True/Cancelled"
    await stage.basics()
    await stage.run("next")
    await stage.shows("next", reason="WaitingForWorker")
    assert await stage.count("rowlock.run") == 1


async def test_a_deleted_run_is_cancelled(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("gone")
    await stage.shows("gone", reason="WaitingForWorker")
    stage.kubectl("delete", "arun", "gone")
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 1 FROM rowlock.run_final WHERE status = 3"),
        "the run to be cancelled",
    )
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 0 FROM rowlock.run_object"), "unlinked"
    )
    await stage.healthy()


async def test_a_ttl_patch_after_the_end_keeps_kubectl_wait_working(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("kept")
    worker = await stage.worker()
    await worker.finish(await worker.claim_one())
    before = await stage.shows("kept", phase="Succeeded")
    stage.patch("arun", "kept", ttlSecondsAfterFinished=3600)
    after = await stage.shows("kept", observedGeneration=2)
    stage.kubectl("wait", "--for=condition=Finished", "arun/kept", "--timeout=5s")
    assert [it["lastTransitionTime"] for it in after["conditions"]] == [
        it["lastTransitionTime"] for it in before["conditions"]
    ]
    await stage.announced("kept", "RunQueued", "RunStarted", "RunSucceeded")


async def test_a_failed_run_says_why(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("broken")
    worker = await stage.worker()
    run = await worker.claim_one()
    await worker.finish(
        run, status=FinalStatus.FAILED, reason="AgentError", message="ValueError: no such order"
    )
    failed = await stage.shows("broken", phase="Failed", reason="AgentError")
    assert failed["failure"] == {
        "reason": "AgentError",
        "message": "ValueError: no such order",
        "step": 3,
    }
    [*_, event] = await stage.announced("broken", "RunQueued", "RunStarted", "RunFailed")
    assert (event["type"], event["note"]) == ("Warning", "AgentError: ValueError: no such order")


async def test_a_retry_shows_as_retrying_and_then_runs_again(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("again", maxAttempts=2)
    worker = await stage.worker()
    run = await worker.claim_one()
    await worker.finish(
        run, status=FinalStatus.FAILED, reason="AgentError", message="boom", retry_in=1.5
    )
    retrying = await stage.shows("again", phase="Retrying", reason="RetryBackoff")
    assert (retrying["attempt"], retrying["failure"]["message"]) == (2, "boom")
    second = await worker.claim_one()
    assert second.attempt == 2
    await worker.go_on(second, steps=0)
    await worker.finish(second)
    done = await stage.shows("again", phase="Succeeded")
    assert [it["outcome"] for it in done["history"]] == ["AgentError", "Succeeded"]


async def test_a_run_is_held_and_let_go_by_its_field(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("held", desiredState="Suspend", desiredStateReason="not today")
    held = await stage.shows("held", phase="Suspended", reason="Suspended")
    assert states(held)["Suspended"] == "True/Suspended"
    assert states(held)["Running"] == "False/Suspended"
    assert condition(held, "Suspended")["message"] == "asked by spec.desiredState: not today"
    worker = await stage.worker("worker-a")
    assert await worker.claim() == []
    stage.patch("agentrun", "held", desiredState="Run")
    free = await stage.shows("held", phase="Queued")
    assert states(free)["Suspended"] == "False/NotSuspended"
    await worker.finish(await worker.claim_one())
    await stage.shows("held", phase="Succeeded")
    await stage.announced(
        "held", "RunQueued", "RunSuspended", "RunContinued", "RunStarted", "RunSucceeded"
    )
    await stage.healthy()


async def test_a_finished_run_is_run_again_once_for_each_rise_of_redrive(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("again")
    worker = await stage.worker("worker-a")
    await worker.finish(await worker.claim_one())
    first = await stage.shows("again", phase="Succeeded")
    assert (first["redrive"], first["attempt"]) == (0, 1)
    stage.patch("agentrun", "again", redrive=1)
    second = await stage.shows("again", phase="Queued")
    assert (second["redrive"], second["attempt"]) == (1, 2)
    assert states(second)["Finished"] == "False/InProgress"
    run = await worker.claim_one()
    assert (run.attempt, run.epoch) == (2, 2)
    await worker.finish(run)
    await stage.shows("again", phase="Succeeded", attempt=2)
    stage.patch("agentrun", "again", desiredStateReason="looked at")
    await stage.shows("again", observedGeneration=3)
    assert await worker.claim() == []
    assert await stage.sql.fetchval("SELECT count(*) FROM rowlock.run_attempt") == 1
    await stage.healthy()


async def test_a_cancelled_run_is_run_again_when_both_fields_change(stage: Stage) -> None:
    """Raised alone, redrive gets its answer too: one more attempt, cancelled like the first."""
    await stage.basics()
    await stage.operator()
    await stage.run("stopped")
    await stage.shows("stopped", reason="WaitingForWorker")
    stage.patch("agentrun", "stopped", desiredState="Cancel")
    await stage.shows("stopped", phase="Cancelled", redrive=0)
    stage.patch("agentrun", "stopped", redrive=1)
    await stage.shows("stopped", phase="Cancelled", redrive=1, attempt=2)
    stage.patch("agentrun", "stopped", redrive=2, desiredState="Run")
    await stage.shows("stopped", phase="Queued", redrive=2, attempt=3)
    worker = await stage.worker("worker-a")
    await worker.finish(await worker.claim_one())
    await stage.shows("stopped", phase="Succeeded", redrive=2, attempt=3)
    await stage.healthy()


async def test_a_run_that_was_retried_by_hand_may_still_be_re_driven_by_its_field(
    stage: Stage,
) -> None:
    """`rowlock retry` makes an attempt, and answers no spec.redrive."""
    await stage.basics()
    await stage.operator()
    await stage.run("again")
    worker = await stage.worker("worker-a")
    run = await worker.claim_one()
    await worker.finish(run)
    await stage.shows("again", phase="Succeeded")
    await redrive.redrive(stage.store, run.run_id, by="ada")
    await worker.finish(await worker.claim_one())
    await stage.shows("again", phase="Succeeded", attempt=2, redrive=0)
    stage.patch("agentrun", "again", redrive=1)
    await stage.shows("again", phase="Queued", attempt=3, redrive=1)
    await worker.finish(await worker.claim_one())
    await stage.shows("again", phase="Succeeded", attempt=3)
    await stage.healthy()


async def test_bad_objects_say_what_is_wrong_and_hurt_nobody_else(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("good")
    worker = await stage.worker()
    good = await worker.claim_one()
    before = (await stage.shows("good", phase="Running"))["agentRevision"]
    refused = {"spec": {"containers": [{"name": "worker", "image": "", "ports": [{"name": "x"}]}]}}
    await stage.create(WORKER_POOLS, "broken", spec=pool_spec(podTemplate=refused))
    await stage.run("in-broken-pool", workerPoolRef={"name": "broken"})
    await stage.run("in-no-pool", workerPoolRef={"name": "nowhere"})
    await stage.run("no-agent", agentRef={"name": "nobody"})
    entry = {"configMapKeyRef": {"name": "tasks", "key": "one"}}
    await stage.create(CONFIG_MAPS, "tasks", data={"two": "2"})
    await stage.run("no-key", input=entry)
    stage.patch("agent", "support", entrypoint="agents:edited")
    said = {
        "in-no-pool": "WorkerPool nowhere does not exist",
        "no-agent": "Agent nobody does not exist",
        "no-key": "ConfigMap tasks has no key one",
    }
    for name, why in said.items():
        status = await stage.shows(name, phase="Queued")
        assert condition(status, "Running")["message"] == why
        assert condition(status, "Accepted")["status"] == "Unknown"
    await stage.shows("in-broken-pool", phase="Queued", reason="WaitingForWorker")

    async def broken() -> bool:
        pool = await stage.status("broken", WORKER_POOLS)
        return bool(pool) and condition(pool, "Ready")["reason"] == "InvalidPodTemplate"

    await eventually(broken, "the pool to say what the API server refuses")
    await stage.run("after-the-edit")
    await stage.shows("after-the-edit", reason="WaitingForWorker")
    await worker.finish(good)
    assert (await stage.shows("good", phase="Succeeded"))["agentRevision"] == before
    edited = await worker.claim_one()
    await worker.finish(edited)
    assert (await stage.shows("after-the-edit", phase="Succeeded"))["agentRevision"] != before
