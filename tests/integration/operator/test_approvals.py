"""AgentRunApprovals beside their rows: one each, and none ever decides another question."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.states import Decision, FinalStatus
from rowlock.store import approvals, parking
from rowlock.store.questions import questions_of
from rowlock.store.types import Claimed, NewQuestion, RunId
from rowlock_operator import metrics as m
from rowlock_operator.approvals.approvals import Approvals
from rowlock_operator.approvals.manifest import manifest
from rowlock_operator.kube.resources import AGENT_RUN_APPROVALS, AGENT_RUNS
from rowlock_operator.mirror.announcer import Announcer
from tests.operators import (  # noqa: F401
    Stage,
    access,
    condition,
    eventually,
    stage_fixture,
    states,
)
from tests.questions import DIGEST, ask, question

pytestmark = pytest.mark.cluster


async def asking(stage: Stage, name: str = "asks", *asked: NewQuestion) -> Claimed:
    """Return a run of a new worker that is parked with questions."""
    await stage.run(name)
    worker = await stage.worker(f"worker-{name}")
    run = await worker.claim_one()
    await ask(stage, worker, run, *(asked or (question(),)))
    return run


async def objects(stage: Stage, count: int) -> list[dict[str, Any]]:
    """Wait until there are `count` objects with a status, the oldest first."""

    async def look() -> list[dict[str, Any]] | None:
        found = await stage.objects(AGENT_RUN_APPROVALS)
        shown = [it for it in found if it.get("status")]
        return sorted(shown, key=_made) if len(shown) == len(found) == count else None

    return await eventually(look, f"{count} approvals{stage._said()}")


def _made(item: dict[str, Any]) -> Any:
    return item["metadata"]["creationTimestamp"], item["metadata"]["name"]


async def shows(stage: Stage, item: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    """Wait until the object's status has these values."""
    return await stage.shows(item["metadata"]["name"], resource=AGENT_RUN_APPROVALS, **wanted)


def decide(stage: Stage, item: dict[str, Any], action: str = "Approve", **more: Any) -> None:
    """Decide with kubectl."""
    said = {"action": action, "decidedBy": "ada", "digest": item["spec"]["digest"], **more}
    stage.patch("aappr", item["metadata"]["name"], decision=said)


async def open_questions(stage: Stage, run: RunId) -> int:
    """Return how many questions of a run wait for an answer."""
    return len(await approvals.pending_approvals(stage.store, run))


async def decided_by_row(stage: Stage, run: Claimed, decision: Decision) -> None:
    """Decide as the command line does, past the cluster."""
    asked = question()
    await approvals.decide(
        stage.store,
        run.run_id,
        step_key=asked.step_key,
        digest=asked.digest,
        attempt=run.attempt,
        decision=decision,
        by="eve",
        reason="seen",
    )


async def test_a_question_has_one_object_whoever_makes_it(stage: Stage) -> None:
    await stage.basics()
    operators = [await stage.operator(wait=False) for _ in range(2)]
    for operator in operators:
        await operator.says("The operator runs")
    both = (question("refund:1.0"), question("refund:1.1", digest="another0"))
    run = await asking(stage, "asks", *both)
    made = {it["spec"]["callID"]: it["metadata"] for it in await objects(stage, 2)}
    assert sorted(made) == ["refund:1.0", "refund:1.1"]
    await stage.shows("asks", phase="AwaitingApproval")
    awaits = condition(await stage.status("asks"), "AwaitingApproval")
    assert awaits["message"].endswith(", and 1 more")

    for operator in operators:
        operator.kill()
    # As if an operator had died after a create whose answer it never got: no status, no Event.
    stage.kubectl("delete", "aappr", made["refund:1.1"]["name"])
    uid = (await stage.existing(AGENT_RUNS, "asks"))["metadata"]["uid"]
    cluster = await stage.sql.fetchval("SELECT cluster FROM rowlock.run_object")
    [_, second] = (await questions_of(stage.store, cluster=cluster, uids=[uid]))[uid]
    path = AGENT_RUN_APPROVALS.path(stage.namespace)
    half_made = await stage.client.create(path, manifest(second))
    await stage.operator()
    now = {it["spec"]["callID"]: it for it in await objects(stage, 2)}
    assert now["refund:1.0"]["metadata"]["uid"] == made["refund:1.0"]["uid"]
    assert now["refund:1.1"]["metadata"]["uid"] == half_made["metadata"]["uid"]
    decide(stage, now["refund:1.1"])
    await shows(stage, now["refund:1.1"], phase="Approved")
    assert await open_questions(stage, run.run_id) == 1


async def test_an_object_deleted_by_a_person_is_made_again(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    run = await asking(stage)
    [first] = await objects(stage, 1)
    name = first["metadata"]["name"]
    stage.kubectl("delete", "aappr", name)

    async def made_again() -> dict[str, Any] | None:
        found = await stage.get(AGENT_RUN_APPROVALS, name)
        other = found is not None and found["metadata"]["uid"] != first["metadata"]["uid"]
        return found if other else None

    again = await eventually(made_again, "another object of the same name")
    assert again["spec"] == first["spec"]
    decide(stage, again)
    await shows(stage, again, phase="Approved")
    assert await open_questions(stage, run.run_id) == 0
    # Nobody waits for a decision any more, so nothing takes its place.
    stage.kubectl("delete", "aappr", name)
    worker = await stage.worker("worker-again")
    await worker.finish(await worker.claim_one())
    await asking(stage, "mark")
    [mark] = await objects(stage, 1)
    assert mark["spec"]["runRef"]["name"] == "mark"


async def test_a_sweep_alone_makes_good_what_no_watch_has_shown(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    run = await asking(stage)
    [first] = await objects(stage, 1)
    operator.kill()
    cluster = await stage.sql.fetchval("SELECT cluster FROM rowlock.run_object")
    metrics = m.Metrics()
    blind = Approvals(
        stage.client,
        stage.store,
        Announcer(stage.client, metrics),
        metrics,
        cluster=cluster,
        namespaces=[stage.namespace],
    )

    async def sweep() -> dict[str, Any]:
        blind.mark_all()
        while (await blind.run_once()).looked_at:
            pass
        [item] = await stage.objects(AGENT_RUN_APPROVALS)
        return item

    assert (await sweep())["metadata"]["uid"] == first["metadata"]["uid"]
    assert metrics.value(m.APPROVALS_WAITING) == 1
    stage.kubectl("delete", "aappr", "--all")
    again = await sweep()
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    assert again["status"]["phase"] == "Pending"
    decide(stage, again)
    assert (await sweep())["status"]["phase"] == "Approved"
    assert await open_questions(stage, run.run_id) == 0
    assert metrics.value(m.APPROVALS_WAITING) == 0


async def test_an_answer_from_elsewhere_is_shown(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    run, held = await asking(stage, "woken"), await asking(stage, "held")
    found = {it["spec"]["runRef"]["name"]: it for it in await objects(stage, 2)}
    await decided_by_row(stage, run, Decision.DENIED)
    shown = await shows(stage, found["woken"], phase="Denied")
    assert condition(shown, "Decided")["message"] == "denied by eve: seen"
    assert states(shown)["DecisionAccepted"] == "Unknown/NoDecision"
    assert "decidedTime" in shown

    # A suspended run is not woken by its answer.
    stage.patch("arun", "held", desiredState="Suspend")
    await stage.shows("held", phase="Suspended")
    assert (await shows(stage, found["held"]))["phase"] == "Pending"
    await decided_by_row(stage, held, Decision.APPROVED)
    await shows(stage, found["held"], phase="Approved")

    async def answered() -> bool:
        return states(await stage.status("held"))["AwaitingApproval"] == "False/NoOpenQuestion"

    await eventually(answered, "the run to wait for nobody")
    assert "pendingApproval" not in await stage.status("held")


async def test_a_question_expires_without_any_worker(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    run = await asking(stage, "asks", question(expires_in=0.5))

    async def expired() -> dict[str, Any] | None:
        found = await stage.objects(AGENT_RUN_APPROVALS)
        return found[0] if found and found[0].get("status", {}).get("phase") == "Expired" else None

    item = await eventually(expired, f"the expiry{stage._said()}")
    decide(stage, item)
    late = await shows(stage, item, observedGeneration=2)
    assert states(late) == {"Decided": "True/Expired", "DecisionAccepted": "False/Expired"}
    assert await stage.sql.fetchval("SELECT decision FROM rowlock.approval") == Decision.EXPIRED
    await stage.shows("asks", reason="WaitingForWorker")
    assert await open_questions(stage, run.run_id) == 0
    assert await operator.metric("approval_decisions_total", outcome="decided") == 0


async def test_a_withdrawn_question_shows_why_and_never_decides_a_later_one(
    stage: Stage,
) -> None:
    await stage.basics()
    await stage.operator()
    run = await asking(stage)
    [old] = await objects(stage, 1)
    stage.patch("arun", "asks", desiredState="Cancel")
    shown = await shows(stage, old, phase="Withdrawn")
    assert states(shown) == {
        "Decided": "False/RunFinished",
        "DecisionAccepted": "Unknown/NoDecision",
    }
    await stage.shows("asks", phase="Cancelled")
    stage.patch("arun", "asks", desiredState="Run", redrive=1)
    worker = await stage.worker("worker-again")
    again = await worker.claim_one()
    assert again.attempt == run.attempt + 1
    await ask(stage, worker, again, question())
    both = await objects(stage, 2)
    [new] = [it for it in both if it["metadata"]["name"] != old["metadata"]["name"]]
    assert new["spec"] == old["spec"]

    decide(stage, old)
    late = await shows(stage, old, observedGeneration=2)
    assert states(late) == {"Decided": "False/NewAttempt", "DecisionAccepted": "False/NewAttempt"}
    assert await open_questions(stage, run.run_id) == 1
    assert (await shows(stage, new))["phase"] == "Pending"
    decide(stage, new, "Deny")
    await shows(stage, new, phase="Denied")
    assert await open_questions(stage, run.run_id) == 0
    await stage.healthy()


async def test_a_stale_digest_is_said_on_the_object_and_hurts_nobody(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    run = await asking(stage)
    [stale] = await objects(stage, 1)
    await stage.sql.execute("UPDATE rowlock.run_parked SET wake_at = rowlock.now()")
    await parking.wake_parked(stage.store, 10)
    worker = await stage.worker("worker-again")
    await ask(stage, worker, await worker.claim_one(), question(digest="f" * 16, cents=9_900))
    both = await objects(stage, 2)
    [fresh] = [it for it in both if it["spec"]["digest"] != DIGEST]
    await shows(stage, stale, phase="Withdrawn")
    decide(stage, stale)
    shown = await shows(stage, stale, observedGeneration=2)
    assert states(shown) == {
        "Decided": "False/StaleDigest",
        "DecisionAccepted": "False/StaleDigest",
    }
    assert await open_questions(stage, run.run_id) == 2
    decide(stage, fresh)
    await shows(stage, fresh, phase="Approved")
    assert (
        await stage.sql.fetchval(
            "SELECT decided_by FROM rowlock.approval WHERE digest = $1", "f" * 16
        )
        == "ada"
    )
    assert await operator.metric("approval_decisions_total", outcome="decided") == 1
    assert operator.process.poll() is None


async def test_an_object_that_somebody_made_decides_nothing(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator()
    run = await asking(stage)
    [ours] = await objects(stage, 1)
    operator.kill()
    name = ours["metadata"]["name"]
    stage.kubectl("delete", "aappr", name)
    harmless = {**ours["spec"], "summary": "refund(cents=1)"}
    owners = ours["metadata"]["ownerReferences"]
    body = {
        "apiVersion": AGENT_RUN_APPROVALS.api_version,
        "kind": "AgentRunApproval",
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": harmless,
    }
    await stage.client.create(AGENT_RUN_APPROVALS.path(stage.namespace), body)
    await stage.create(AGENT_RUN_APPROVALS, "stranger", spec=ours["spec"])
    for made in (ours, {"metadata": {"name": "stranger"}, "spec": ours["spec"]}):
        decide(stage, made)
    await stage.operator()
    for made in (ours, {"metadata": {"name": "stranger"}}):
        shown = await shows(stage, made, phase="Withdrawn")
        assert states(shown) == {"Decided": "False/NotAsked", "DecisionAccepted": "False/NotAsked"}
    assert await open_questions(stage, run.run_id) == 1
    stage.kubectl("delete", "aappr", name)
    await shows(stage, ours, phase="Pending")
    assert (await stage.existing(AGENT_RUN_APPROVALS, name))["spec"] == ours["spec"]


async def test_objects_go_with_their_run(stage: Stage) -> None:
    await stage.basics()
    await stage.operator()
    await asking(stage)
    [asked] = await objects(stage, 1)
    run = await stage.existing(AGENT_RUNS, "asks")
    [owner] = asked["metadata"]["ownerReferences"]
    assert owner["uid"] == run["metadata"]["uid"]
    assert "finalizers" not in asked["metadata"]
    stage.kubectl("delete", "arun", "asks")

    async def collected() -> bool:
        return await stage.objects(AGENT_RUN_APPROVALS) == []

    await eventually(collected, "the approval to be collected with its run")
    await eventually(
        lambda: stage.sql.fetchval(
            "SELECT count(*) = 1 FROM rowlock.run_final WHERE status = $1", FinalStatus.CANCELLED
        ),
        "the run to be cancelled",
    )
    await asking(stage, "mark")
    [mark] = await objects(stage, 1)
    assert mark["spec"]["runRef"]["name"] == "mark"
