"""AgentRuns go when their time is over, and no deletion hangs unless somebody asked for that."""

from __future__ import annotations

import json
import uuid

import pytest

from rowlock.states import FinalStatus
from rowlock_operator.api.names import HOLD
from rowlock_operator.kube.resources import AGENT_RUNS, AGENTS, WORKER_POOLS
from tests.operators import (  # noqa: F401
    Stage,
    access,
    eventually,
    pool_spec,
    stage_fixture,
    states,
)

pytestmark = pytest.mark.cluster


async def gone(stage: Stage, name: str) -> None:
    """Wait until there is no such AgentRun."""

    async def look() -> bool:
        return await stage.get(AGENT_RUNS, name) is None

    await eventually(look, f"{name} to be deleted{stage.operators[-1].log[-2000:]}")


async def test_a_run_goes_when_its_time_to_live_is_over(stage: Stage) -> None:
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    defaults = {"ttlSecondsAfterFinished": 0}
    spec = {"entrypoint": "agents:support", "runDefaults": defaults}
    await stage.create(AGENTS, "support", spec=spec)
    operator = await stage.operator()
    await stage.run("by-agent")
    await stage.run("own", ttlSecondsAfterFinished=1)
    await stage.run("kept", ttlSecondsAfterFinished=100_000)
    await stage.run("live", ttlSecondsAfterFinished=0)
    await stage.run("first", idempotencyKey="k", ttlSecondsAfterFinished=100_000)
    await stage.all_show(5, "Queued")
    await stage.run("refused", idempotencyKey="k", ttlSecondsAfterFinished=1)
    worker = await stage.worker()
    names = {str(row["run_id"]): row["name"] for row in await stage.rows()}
    held = {names[str(run.run_id)]: run for run in await worker.claim_all(5)}
    await worker.finish(*(held[name] for name in ("by-agent", "own", "kept")))
    for name in ("by-agent", "own", "refused"):
        await gone(stage, name)
    assert {item["metadata"]["name"] for item in await stage.objects()} == {"kept", "live", "first"}
    await stage.shows("kept", phase="Succeeded")
    stage.patch("arun", "kept", ttlSecondsAfterFinished=0)
    await gone(stage, "kept")

    async def let_go() -> bool:
        rows = await stage.rows()
        return {row["name"] for row in rows} == {"live", "first"} and not await stage.count(
            "rowlock.run_ttl WHERE delete_at IS NOT NULL"
        )

    await eventually(let_go, "the rows of deleted objects to be let go")
    assert await operator.metric("expired_total") == 4
    assert await stage.count("rowlock.run_final WHERE status = 1") == 3


async def test_a_run_that_goes_on_is_not_deleted(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await stage.run("again", ttlSecondsAfterFinished=100_000)
    worker = await stage.worker()
    await worker.finish(await worker.claim_one())
    await stage.shows("again", phase="Succeeded")
    stage.patch("arun", "again", redrive=1, ttlSecondsAfterFinished=0)
    await stage.shows("again", phase="Queued", redrive=1)
    run = await worker.claim_one()
    await stage.run("later", ttlSecondsAfterFinished=0)
    await worker.finish(await worker.claim_one())
    await gone(stage, "later")
    await stage.shows("again", phase="Running")
    await worker.finish(run)
    await gone(stage, "again")


async def test_what_may_change_later_counts_and_nothing_is_held_by_default(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    await stage.run("first")
    await stage.shows("first", phase="Queued")
    await stage.run("second")
    await stage.shows("second", phase="Queued")
    stage.patch("arun", "second", priority=500)
    await eventually(
        lambda: stage.sql.fetchval(
            "SELECT count(*) = 1 FROM rowlock.run_ready WHERE priority = 500"
        ),
        "the new priority",
    )
    await stage.shows("second", observedGeneration=2)
    worker = await stage.worker()
    [run] = await worker.claim(1)
    assert str(run.run_id) == (await stage.status("second"))["runID"]
    await stage.shows("second", phase="Running")
    patch = json.dumps({"spec": {"priority": 1}})
    refused = stage.cluster.kubectl(
        *("-n", stage.namespace, "patch", "arun", "second", "--type=merge", "-p", patch),
        check=False,
    )
    assert "priority is fixed once the run has started" in refused.stderr
    await worker.finish(run)
    await refuse_redrive(stage, "second")
    assert await stage.existing(AGENT_RUNS, "first")
    operator.kill()
    stage.kubectl("delete", "arun", "first", "--timeout=20s")
    assert await stage.get(AGENT_RUNS, "first") is None, "nothing holds a deletion by default"


async def refuse_redrive(stage: Stage, name: str) -> None:
    """Ask for a further attempt of a run whose history is gone."""
    await stage.shows(name, phase="Succeeded")
    await stage.sql.execute("UPDATE rowlock.history_floor SET run_id = 9223372036854775807")
    stage.patch("arun", name, redrive=1)
    refused = await stage.shows(name, reason="HistoryExpired", observedGeneration=3)
    assert states(refused)["Accepted"] == "False/HistoryExpired"
    assert states(refused)["Finished"] == "True/Completed"
    assert states(refused)["Succeeded"] == "True/Completed"
    assert (refused["phase"], refused["redrive"]) == ("Succeeded", 0)
    stage.kubectl("wait", "--for=condition=Finished", f"arun/{name}", "--timeout=5s")


async def test_a_held_deletion_waits_for_the_end_of_its_run(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator(deletion_hold="true")
    await stage.run("held")

    async def finalizers() -> list[str]:
        found = await stage.existing(AGENT_RUNS, "held")
        return list(found["metadata"].get("finalizers") or ())

    await eventually(finalizers, "the hold")
    assert await finalizers() == [HOLD]
    worker = await stage.worker()
    run = await worker.claim_one()
    await stage.shows("held", phase="Running")
    stage.kubectl("delete", "arun", "held", "--wait=false")
    await stage.shows("held", reason="Cancelling")
    assert await finalizers() == [HOLD]
    operator.kill()
    await stage.operator(deletion_hold="true")
    await worker.finish(run, status=FinalStatus.CANCELLED, reason="Cancelled")
    await gone(stage, "held")


async def test_a_hold_has_a_limit_and_is_taken_back_when_it_is_switched_off(stage: Stage) -> None:
    await stage.basics()
    first = await stage.operator(deletion_hold="true", deletion_hold_seconds="1")
    await stage.runs(["stuck", "other"])
    await stage.all_show(2, "Queued")

    async def held() -> bool:
        runs = await stage.objects()
        return bool(runs) and all(it["metadata"].get("finalizers") == [HOLD] for it in runs)

    await eventually(held, "both holds")
    worker = await stage.worker()
    await worker.claim_all(2)
    stage.kubectl("delete", "arun", "stuck", "--wait=false")
    await gone(stage, "stuck")
    assert await first.metric("holds_total", kind="give_up") == 1
    assert await stage.count("rowlock.run_lease") == 2
    await first.stop()
    await stage.operator()

    async def released() -> bool:
        return not (await stage.existing(AGENT_RUNS, "other"))["metadata"].get("finalizers")

    await eventually(released, "the hold to be taken back")


async def test_a_namespace_goes_while_the_operator_is_away(stage: Stage) -> None:
    await stage.basics()
    other = f"gone-{uuid.uuid4().hex[:8]}"
    kubectl = stage.cluster.kubectl
    kubectl("create", "namespace", other)
    both = ("--namespaces", f"{stage.namespace},{other}")
    operator = await stage.operator(*both)
    await stage.run("stays")
    for kind, name, spec in (
        (WORKER_POOLS, "default", pool_spec()),
        (AGENTS, "support", {"entrypoint": "agents:support"}),
        (AGENT_RUNS, "goes", {"agentRef": {"name": "support"}}),
    ):
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        await stage.client.create(kind.path(other), {**body, "spec": spec})
    both_ready = "SELECT count(*) = 2 FROM rowlock.run_ready"
    await eventually(lambda: stage.sql.fetchval(both_ready), "both runs")
    operator.kill()
    kubectl("delete", "namespace", other, "--timeout=60s")
    await stage.operator(*both)

    async def let_go() -> bool:
        return [(row["name"], row["place"]) for row in await stage.rows()] == [("stays", "ready")]

    await eventually(let_go, "the run of the namespace that is gone to be let go")
    assert await stage.count("rowlock.run_final WHERE status = 3") == 1
    await stage.healthy()
