"""A person approves with kubectl: one object a question, and each decision counts once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rowlock.states import Decision
from rowlock.store import approvals
from rowlock_operator.kube.resources import AGENT_RUN_APPROVALS, AGENTS, WORKER_POOLS
from tests.operators import (  # noqa: F401
    LocalOperator,
    Stage,
    access,
    condition,
    eventually,
    pool_spec,
    stage_fixture,
    states,
)
from tests.workers import LONG, LocalWorker

pytestmark = pytest.mark.cluster


class Counter:
    """Real agents that ask, a real worker that runs them, and people with kubectl."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.workers: list[LocalWorker] = []

    async def open(self, *names: str, **approval: Any) -> None:
        """Create the pool, and Agents of `waiting_agents`."""
        await self.stage.create(WORKER_POOLS, "default", spec=pool_spec())
        for name in names:
            await self.open_agent(name, **approval)

    async def open_agent(self, name: str, **approval: Any) -> None:
        """Create an Agent of `waiting_agents`."""
        spec: dict[str, Any] = {"entrypoint": f"tests.waiting_agents:{name}"}
        if approval:
            spec["approval"] = approval
        await self.stage.create(AGENTS, name.replace("_", "-"), spec=spec)

    def worker(self) -> LocalWorker:
        """Start a worker."""
        number = len(self.workers)
        flags = (*LONG, "--namespace", self.stage.namespace, "--processes", "1")
        log = self.stage.folder / f"worker-{number}.log"
        self.workers.append(LocalWorker(self.stage.dsn, log, *flags))
        return self.workers[-1]

    async def run(self, name: str, agent: str, **spec: Any) -> None:
        """Create an AgentRun of an Agent."""
        text = json.dumps({"folder": str(self.folder(name))})
        await self.stage.run(name, agentRef={"name": agent}, input={"text": text}, **spec)

    def folder(self, name: str) -> Path:
        """Return where a run's tools leave their traces."""
        folder = self.stage.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def effects(self, name: str) -> list[str]:
        """Return what a run's tools did, in order."""
        file = self.folder(name) / "effects"
        return [line.split()[1] for line in file.read_text().splitlines()] if file.exists() else []

    async def asked(self, run: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until a run's objects are there and pending, `count` of them, by their summary."""

        async def look() -> list[dict[str, Any]] | None:
            found = [it for it in await self.objects(run) if _phase(it) == "Pending"]
            return found if len(found) == count else None

        return await eventually(look, f"{count} pending approvals of {run}{self.said()}")

    async def objects(self, run: str) -> list[dict[str, Any]]:
        """Return a run's objects by their summary."""
        found = await self.stage.objects(AGENT_RUN_APPROVALS)
        ours = [it for it in found if it["spec"]["runRef"]["name"] == run]
        return sorted(ours, key=lambda it: str(it["spec"].get("summary")))

    def decide(self, asked: dict[str, Any], action: str, **more: Any) -> None:
        """Decide as the how-to says."""
        decision = {"action": action, "decidedBy": "ada", "digest": asked["spec"]["digest"]}
        self.stage.patch("aappr", asked["metadata"]["name"], decision={**decision, **more})

    async def phase(self, asked: dict[str, Any], phase: str) -> dict[str, Any]:
        """Wait until an object shows a phase, and return its status."""
        name = asked["metadata"]["name"]
        return await self.stage.shows(name, resource=AGENT_RUN_APPROVALS, phase=phase)

    def said(self) -> str:
        """Return the last that each worker said."""
        return "".join(f"\nworker said:\n{it.log[-2500:]}" for it in self.workers)


def _phase(item: dict[str, Any]) -> Any:
    return item.get("status", {}).get("phase")


@pytest.fixture(name="counter")
def counter_fixture(stage: Stage) -> Iterator[Counter]:
    """A namespace where runs can ask."""
    counter = Counter(stage)
    yield counter
    for worker in counter.workers:
        worker.destroy()


async def test_a_call_happens_once_after_a_yes_and_never_after_a_no(counter: Counter) -> None:
    stage = counter.stage
    await counter.open("refunder", "twice")
    operator = await stage.operator()
    counter.worker()
    await counter.run("good", "refunder")
    await counter.run("bad", "refunder")
    await counter.run("both", "twice")

    [asked] = await counter.asked("good")
    name = asked["metadata"]["name"]
    assert name.startswith("good-")
    assert asked["spec"]["tool"] == "refund"
    assert asked["spec"]["summary"].endswith(", cents=100)")
    [owner] = asked["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("AgentRun", "good")
    waits = await stage.shows("good", phase="AwaitingApproval")
    pending = waits["pendingApproval"]
    assert (pending["name"], pending["tool"]) == (name, "refund")
    assert pending["digest"] == asked["spec"]["digest"]
    assert pending["expirationTime"] == asked["spec"]["expirationTime"]
    assert states(waits)["AwaitingApproval"] == "True/OpenQuestion"
    assert name in condition(waits, "AwaitingApproval")["message"]

    counter.decide(asked, "Approve", reason="as agreed")
    shown = await counter.phase(asked, "Approved")
    assert states(shown) == {"Decided": "True/Approved", "DecisionAccepted": "True/Counted"}
    assert condition(shown, "Decided")["message"] == "approved by ada: as agreed"
    done = await stage.shows("good", phase="Succeeded")
    assert "pendingApproval" not in done
    assert "refunded 100" in done["result"]["preview"]
    assert counter.effects("good") == ["refund-100"]

    [asked] = await counter.asked("bad")
    counter.decide(asked, "Deny", reason="the parcel came back")
    shown = await counter.phase(asked, "Denied")
    assert states(shown) == {"Decided": "True/Denied", "DecisionAccepted": "True/Counted"}
    done = await stage.shows("bad", phase="Succeeded")
    assert "Denied by ada: the parcel came back" in done["result"]["preview"]
    assert counter.effects("bad") == []

    one, two = await counter.asked("both", 2)
    assert (await stage.shows("both", phase="AwaitingApproval"))["pendingApproval"]["name"] in (
        one["metadata"]["name"],
        two["metadata"]["name"],
    )
    counter.decide(two, "Approve")
    await counter.phase(two, "Approved")
    await counter.asked("both")
    counter.decide(one, "Deny")
    done = await stage.shows("both", phase="Succeeded")
    assert counter.effects("both") == ["refund-200"]
    assert len(await counter.objects("both")) == 2

    async def announced(name: str, *reasons: str) -> None:
        async def look() -> bool:
            found = sorted(it["reason"] for it in await stage.events(name))
            return [it for it in found if it.startswith("Approval")] == sorted(reasons)

        await eventually(look, f"Events {reasons} of {name}")

    await announced("good", "ApprovalRequested", "ApprovalDecided")
    await announced("both", *["ApprovalRequested", "ApprovalDecided"] * 2)
    [event] = [it for it in await stage.events("bad") if it["reason"] == "ApprovalDecided"]
    assert event["note"].endswith(": denied by ada: the parcel came back")
    assert event["related"]["kind"] == "AgentRunApproval"
    assert await operator.metric("approvals_total", state="Approved") == 2
    assert await operator.metric("approval_decisions_total", outcome="decided") == 4
    await eventually(lambda: _is_zero(operator, "approvals_waiting"), "no question waits")
    await stage.healthy()


async def test_what_happens_while_the_operator_is_down_counts_on_its_return(
    counter: Counter,
) -> None:
    stage = counter.stage
    await counter.open("refunder")
    operator = await stage.operator()
    await counter.run("left", "refunder")
    await counter.run("told", "refunder")
    await stage.all_show(2, "Queued")
    operator.kill()
    counter.worker()
    await eventually(lambda: _are_parked(stage, 2), f"both runs ask{counter.said()}")
    assert await counter.objects("left") == []

    first, second = await stage.operator(wait=False), await stage.operator()
    await first.says("The operator runs")
    [left] = await counter.asked("left")
    [told] = await counter.asked("told")
    first.kill()
    second.kill()
    counter.decide(left, "Approve")
    [question] = [
        it for it in await approvals.pending_approvals(stage.store) if it.digest == _digest(told)
    ]
    decided = await approvals.decide(
        stage.store,
        question.run_id,
        step_key=question.step_key,
        digest=question.digest,
        attempt=question.attempt,
        decision=Decision.DENIED,
        by="eve",
    )
    assert decided.answer is not None
    counter.decide(told, "Approve")
    await stage.operator()

    shown = await counter.phase(left, "Approved")
    assert states(shown)["DecisionAccepted"] == "True/Counted"
    await stage.shows("left", phase="Succeeded")
    assert counter.effects("left") == ["refund-100"]
    shown = await counter.phase(told, "Denied")
    assert states(shown) == {"Decided": "True/Denied", "DecisionAccepted": "False/AlreadyDecided"}
    assert condition(shown, "DecisionAccepted")["message"] == "denied by eve"
    await stage.shows("told", phase="Succeeded")
    assert counter.effects("told") == []
    assert [len(await counter.objects(name)) for name in ("left", "told")] == [1, 1]
    await stage.healthy()


async def test_silence_is_a_no_unless_the_agent_says_otherwise(counter: Counter) -> None:
    stage = counter.stage
    await counter.open("blocking_refunder", timeoutSeconds=1)
    approves = {"timeoutSeconds": 1, "onTimeout": "Approve"}
    entrypoint = "tests.waiting_agents:blocking_refunder"
    await stage.create(AGENTS, "trusting", spec={"entrypoint": entrypoint, "approval": approves})
    await stage.operator()
    counter.worker()
    await counter.run("denied", "blocking-refunder")
    await counter.run("approved", "trusting")
    await counter.run("patient", "trusting", approval={"timeoutSeconds": 3600})

    for name, counts in (("denied", "denied"), ("approved", "approved")):
        await stage.shows(name, phase="Succeeded")

        async def expired(name: str = name) -> dict[str, Any] | None:
            found = [it for it in await counter.objects(name) if _phase(it) == "Expired"]
            return found[0]["status"] if found else None

        shown = await eventually(expired, f"the expiry of {name}{counter.said()}")
        assert states(shown) == {
            "Decided": "True/Expired",
            "DecisionAccepted": "Unknown/NoDecision",
        }
        assert condition(shown, "Decided")["message"] == (
            f"nobody decided in time, which counts as {counts}"
        )
        reasons = [it["reason"] for it in await stage.events(name)]
        await eventually(lambda name=name: _announced(stage, name, "ApprovalExpired"), str(reasons))
    assert counter.effects("denied") == []
    assert counter.effects("approved") == ["refund-100"]
    # Where silence is a yes, only more time can be asked for, never less.
    await counter.asked("patient")
    await stage.healthy()


async def _announced(stage: Stage, name: str, reason: str) -> bool:
    return reason in [it["reason"] for it in await stage.events(name)]


async def _are_parked(stage: Stage, count: int) -> bool:
    return await stage.count("rowlock.run_parked") == count


def _digest(asked: dict[str, Any]) -> Any:
    return asked["spec"]["digest"]


async def _is_zero(operator: LocalOperator, name: str) -> bool:
    return await operator.metric(name) == 0


async def test_an_agent_object_makes_a_tool_ask_and_cannot_make_it_looser(counter: Counter) -> None:
    stage = counter.stage
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    for name, tool in (
        ("strict", {"name": "pay", "approval": "Always"}),
        ("loose", {"name": "pay", "sideEffects": "None"}),
        ("typo", {"name": "pya", "approval": "Always"}),
    ):
        spec = {"entrypoint": "tests.waiting_agents:payer", "tools": [tool]}
        await stage.create(AGENTS, name, spec=spec)
    await counter.open_agent("payer")
    await stage.operator()
    counter.worker()
    for agent in ("payer", "strict", "loose", "typo"):
        await counter.run(agent, agent)

    [asked] = await counter.asked("strict")
    assert asked["spec"]["tool"] == "pay"
    assert counter.effects("strict") == []
    counter.decide(asked, "Approve")
    await stage.shows("strict", phase="Succeeded")
    await stage.shows("payer", phase="Succeeded")
    assert counter.effects("strict") == counter.effects("payer") == ["pay-100"]
    assert await counter.objects("payer") == []
    for agent, said in (
        ("loose", "spec.tools[pay].sideEffects: None is weaker than Idempotent"),
        ("typo", "spec.tools[pya]: the code of agent 'payer' has no tool of that name"),
    ):
        failed = await stage.shows(agent, phase="Failed")
        assert states(failed)["Succeeded"] == "False/InvalidSpec"
        assert said in failed["failure"]["message"]
        assert counter.effects(agent) == []
