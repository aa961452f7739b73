"""Every phase, condition and reason of an AgentRun is reached here, on a real API server.

One operator, one real worker in the pool `default`, and workers without a process in the pool
`staged`, where a test needs to say when each thing happens. What no step reaches fails the test.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rowlock.states import (
    KUBERNETES_EVENTS,
    ConditionReason,
    ConditionType,
    FailureReason,
    FenceReason,
    FinalStatus,
    Outcome,
    Phase,
    WaitReason,
)
from rowlock_operator.kube.resources import AGENTS, EVENTS, WORKER_POOLS
from tests.operators import (  # noqa: F401
    Stage,
    StubWorker,
    access,
    eventually,
    pool_spec,
    stage_fixture,
)
from tests.wire import Wire, wire_to
from tests.workers import LocalWorker

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

WORDS = {
    str(word)
    for table in (Phase, ConditionType, ConditionReason, WaitReason, FailureReason, FenceReason)
    for word in table
} | {str(word) for word in Outcome}
#: Words that only a broken database shows, and where they are reached instead.
ELSEWHERE = {
    "TakenOver": "an unreadable event of history: tests/unit/test_operator_mirror.py",
}
#: Events that other parts write, and their tests.
EVENTS_ELSEWHERE = {
    "ApprovalDecided": "tests/integration/operator: the tests of approvals",
    "ApprovalExpired": "tests/integration/operator: the tests of approvals",
    **dict.fromkeys(
        ("BatchAccepted", "BatchRefused", "BatchSucceeded"), "tests/acceptance/test_batches.py"
    ),
    **dict.fromkeys(
        ("BatchStopped", "BatchFailed", "BatchCancelled"), "tests/unit/test_batch_decisions.py"
    ),
    "ItemRefused": "tests/acceptance/test_batch_refusals.py",
    **dict.fromkeys(
        ("PoolScaled", "PoolScalingHeld", "PoolAtMaximum", "PoolUnhealthy"),
        "tests/integration/operator/test_autoscaling.py",
    ),
    **dict.fromkeys(
        ("PoolKeepsBuild", "PoolLacksBuild"), "tests/integration/operator/test_old_builds.py"
    ),
}
LOSSES = [reason for reason in FenceReason if reason is not FenceReason.LEFT]


class Walk:
    """Remembers every word that any status showed."""

    def __init__(self, stage: Stage, folder: Path, wire: Wire) -> None:
        self.stage = stage
        self.folder = folder
        self.wire = wire
        self.words: set[str] = set()

    async def run(self, name: str, agent: str = "staged", **spec: Any) -> None:
        """Create an AgentRun."""
        await self.stage.run(name, **{"agentRef": {"name": agent}, **spec})

    async def shows(self, name: str, **wanted: Any) -> dict[str, Any]:
        """Wait for a status, and note its words."""
        status = await self.stage.shows(name, within=60, **wanted)
        self.note(status)
        return status

    def note(self, status: dict[str, Any]) -> None:
        """Take the words of a status."""
        self.words |= {status["phase"], status["reason"], status.get("outcome", "")}
        for condition in status["conditions"]:
            self.words |= {condition["type"], condition["reason"]}
        for lease in status.get("history", ()):
            self.words.add(lease.get("outcome", ""))

    def task(self, name: str, **more: Any) -> dict[str, Any]:
        """Return the input of an agent that speaks through a folder of its own."""
        folder = self.folder / name
        folder.mkdir()
        return {"text": json.dumps({"folder": str(folder), **more})}


@pytest.fixture(name="walk")
async def walk_fixture(stage: Stage, tmp_path: Path) -> AsyncIterator[Walk]:
    """One operator behind a wire to its database, one worker, all the Agents."""
    for name in ("default", "staged", "empty"):
        await stage.create(WORKER_POOLS, name, spec=pool_spec())
    staged = {"workerPoolRef": {"name": "staged"}}
    agents = {
        "walker": "agents_for_tests:walker",
        "failing": "agents_for_tests:failing",
        "refunder": "waiting_agents:refunder",
        "modest": "spending_agents:modest",
        "spender": "spending_agents:spender",
        "liar": "walking_agents:liar",
        "fickle": "walking_agents:fickle",
        "lost": "nowhere:agent",
    }
    for name, place in agents.items():
        await stage.create(AGENTS, name, spec={"entrypoint": f"tests.{place}"})
    spec = {"entrypoint": "tests.agents_for_tests:walker", "runDefaults": staged}
    await stage.create(AGENTS, "staged", spec=spec)
    await stage.create(AGENTS, "single", spec={**spec, "maxConcurrentRuns": 1})
    await stage.create(AGENTS, "paused", spec={**spec, "intake": "Paused"})
    async with wire_to(stage.dsn) as wire:
        environment = {
            "ROWLOCK_NAMESPACE": stage.namespace,
            "ROWLOCK_PROCESSES": "1",
            "ROWLOCK_PARK_SECONDS": "0.1",
            "ROWLOCK_LEASE_SECONDS": "60",
        }
        worker = LocalWorker(stage.dsn, tmp_path / "worker.log", environment=environment)
        try:
            await stage.operator(database_url=wire.url)
            await worker.says("Worker started")
            yield Walk(stage, tmp_path, wire)
        finally:
            worker.destroy()


async def test_every_word_of_the_tables_is_reached(walk: Walk) -> None:
    await begin_real_runs(walk)
    await wait_for_what_is_missing(walk)
    await be_refused(walk)
    await be_lost_in_every_way(walk)
    await be_steered(walk)
    await be_quarantined(walk)
    await end_real_runs(walk)
    await lose_rows_and_history(walk)
    await be_without_database(walk)
    missing = WORDS - walk.words - ELSEWHERE.keys()
    assert not missing, f"no step reaches {sorted(missing)}"
    assert not walk.words & ELSEWHERE.keys(), "reached after all: take it off the list"
    written = {item["reason"] for item in await walk.stage.objects(EVENTS)}
    assert not KUBERNETES_EVENTS.keys() - written - EVENTS_ELSEWHERE.keys()
    await walk.stage.healthy()


async def begin_real_runs(walk: Walk) -> None:
    """Start what the real worker does meanwhile."""
    await walk.run("succeeds", "walker", input=walk.task("succeeds"))
    await walk.run(
        "fails", "failing", input=walk.task("fails", steps=9), maxAttempts=2, retryBackoffSeconds=2
    )
    await walk.run("unloadable", "lost")
    await walk.run("bad-input", "walker", input={"text": "no JSON"})
    await walk.run("bad-output", "liar", input=walk.task("bad-output"))
    await walk.run("fickle", "fickle", input=walk.task("fickle"))
    await walk.run("spends", "spender", input=walk.task("spends"), budget={"maxTotalTokens": 10})
    slow = walk.task("slow", gates=[0])
    await walk.run("slow", "walker", input=slow, activeDeadlineSeconds=1)
    await walk.run("modest", "modest", input=walk.task("modest"))
    (walk.folder / "modest" / "gate-wait").touch()
    await walk.run("asks", "refunder", input=walk.task("asks"))
    await walk.run("waits-long", "staged", workerPoolRef={"name": "empty"}, queueDeadlineSeconds=1)
    await walk.shows("fails", phase="Retrying", reason="RetryBackoff")
    await walk.shows("fickle", phase="Running", reason="Sleeping")


async def end_real_runs(walk: Walk) -> None:
    """See how they ended."""
    await walk.shows("succeeds", phase="Succeeded", reason="Completed", outcome="ok")
    await walk.shows("fails", phase="Failed", reason="AgentError")
    await walk.shows("unloadable", phase="Failed", reason="AgentLoadError")
    await walk.shows("bad-input", phase="Failed", reason="InvalidInput")
    await walk.shows("bad-output", phase="Failed", reason="InvalidOutput")
    await walk.shows("fickle", phase="Failed", reason="NonDeterministic")
    spent = await walk.shows("spends", phase="Failed", reason="BudgetExceeded")
    assert spent["usage"]["inputTokens"] >= 9
    await walk.shows("slow", phase="Failed", reason="ActiveDeadlineExceeded")
    await walk.shows("modest", phase="Succeeded", reason="Degraded", outcome="degraded")
    await walk.shows("asks", phase="AwaitingApproval", reason="AwaitingApproval")
    await walk.shows("waits-long", phase="Failed", reason="QueueDeadlineExceeded")


async def wait_for_what_is_missing(walk: Walk) -> None:
    """Wait for an Agent, a pool, an input, an open intake and a free place."""
    entry = {"configMapKeyRef": {"name": "tasks", "key": "one"}}
    await walk.run("no-agent", "nobody")
    await walk.run("no-pool", workerPoolRef={"name": "nowhere"})
    await walk.run("no-input", input=entry)
    await walk.run("paused", "paused")
    await walk.run("one", "single", workerPoolRef={"name": "empty"})
    await walk.shows("one", phase="Queued", reason="WaitingForWorker")
    await walk.run("two", "single", workerPoolRef={"name": "empty"})
    await walk.shows("no-agent", phase="Queued", reason="AgentNotFound")
    await walk.shows("no-pool", phase="Queued", reason="PoolNotFound")
    await walk.shows("no-input", phase="Queued", reason="InputNotFound")
    await walk.shows("paused", phase="Queued", reason="IntakePaused")
    await walk.shows("two", phase="Queued", reason="ConcurrencyLimit")


async def be_refused(walk: Walk) -> None:
    """End without a row."""
    await walk.run("spec", input={"uri": "s3://bucket/key"})
    await walk.run("large", input={"text": "€" * 30_000})
    await walk.run("key-1", idempotencyKey="k", workerPoolRef={"name": "empty"})
    await walk.shows("key-1", reason="WaitingForWorker")
    await walk.run("key-2", idempotencyKey="k", workerPoolRef={"name": "empty"})
    await walk.shows("spec", phase="Failed", reason="InvalidSpec")
    await walk.shows("large", phase="Failed", reason="TooLarge")
    await walk.shows("key-2", phase="Failed", reason="DuplicateIdempotencyKey")


async def staged(walk: Walk, name: str) -> StubWorker:
    """Register a worker without a process in the pool `staged`."""
    return await walk.stage.worker(name, pool="staged", pod_uid=f"uid-{name}")


async def be_lost_in_every_way(walk: Walk) -> None:
    """Go on after each kind of loss, after a hand-over, and end at the limit of losses."""
    for reason in LOSSES:
        name = f"lost-{reason.lower()}"
        await walk.run(name, maxTakeovers=0 if reason is FenceReason.STALLED else 5)
        first, second = await staged(walk, f"{name}-a"), await staged(walk, f"{name}-b")
        await first.claim_one()
        await walk.shows(name, phase="Running", reason="LeaseHeld")
        await first.die(reason)
        if reason is FenceReason.STALLED:
            await walk.shows(name, phase="Failed", reason="TakeoverLimitReached")
            continue
        run = await second.claim_one()
        await second.go_on(run, steps=0)
        resumed = await walk.shows(name, phase="Running", reason="Resumed")
        assert resumed["lastTakeover"]["reason"] == reason
        await second.die(reason)
        await walk.shows(name, phase="Retrying", reason="TakeoverBackoff")
        await cancel(walk, name)
    await walk.run("handed")
    first, second = await staged(walk, "handed-a"), await staged(walk, "handed-b")
    await first.claim_one()
    await first.die(FenceReason.LEFT)
    run = await second.claim_one()
    await second.go_on(run, steps=0)
    await walk.shows("handed", phase="Running", reason="LeaseHeld", takeovers=0)
    await second.finish(run)


async def cancel(walk: Walk, name: str) -> None:
    """End a run by one line."""
    walk.stage.patch("arun", name, desiredState="Cancel")
    await walk.shows(name, phase="Cancelled", reason="Cancelled")


async def be_steered(walk: Walk) -> None:
    """Be suspended, continued, cancelled, each by a patch of one line."""
    worker = await staged(walk, "steered")
    await walk.run("steered", desiredState="Suspend")
    await walk.shows("steered", phase="Suspended", reason="Suspended")
    walk.stage.patch("arun", "steered", desiredState="Run")
    run = await worker.claim_one()
    await walk.shows("steered", phase="Running")
    walk.stage.patch("arun", "steered", desiredState="Suspend")

    async def suspending() -> bool:
        status = await walk.stage.status("steered")
        walk.note(status)
        return ConditionReason.SUSPENDING in walk.words

    await eventually(suspending, "the running run to be told to stop")
    walk.stage.patch("arun", "steered", desiredState="Cancel")
    await walk.shows("steered", phase="Running", reason="Cancelling")
    await worker.finish(run, status=FinalStatus.CANCELLED, reason="Cancelled")
    await walk.shows("steered", phase="Cancelled")
    await walk.run("too-early", "nobody")
    await walk.shows("too-early", reason="AgentNotFound")
    await cancel(walk, "too-early")


async def be_quarantined(walk: Walk) -> None:
    """Be one of two that may have killed a process, twice."""
    for name in ("suspect-1", "suspect-2"):
        await walk.run(name)
    for number in range(2):
        worker = await staged(walk, f"victim-{number}")
        await worker.claim_all(2)
        await worker.die(FenceReason.WORKER_DIED)
    await walk.shows("suspect-1", phase="Queued", reason="Quarantined")
    for name in ("suspect-1", "suspect-2"):
        await cancel(walk, name)


async def lose_rows_and_history(walk: Walk) -> None:
    """Find no row, and ask for a further attempt of a run whose steps are gone."""
    sql = walk.stage.sql
    await walk.run("restored", workerPoolRef={"name": "empty"})
    run_id = int((await walk.shows("restored", reason="WaitingForWorker"))["runID"])
    for table in ("run_object", "run_ready", "run_change", "run"):
        await sql.execute(f"DELETE FROM rowlock.{table} WHERE run_id = $1", run_id)  # noqa: S608
    await walk.shows("restored", phase="Failed", reason="RowMissing")
    await sql.execute("UPDATE rowlock.history_floor SET run_id = 9223372036854775807")
    walk.stage.patch("arun", "handed", redrive=1)
    await walk.shows("handed", phase="Succeeded", reason="HistoryExpired")


async def be_without_database(walk: Walk) -> None:
    """Say so, while PostgreSQL does not answer."""
    await walk.wire.close()
    await walk.run("patient", workerPoolRef={"name": "empty"})
    await walk.shows("patient", phase="Pending", reason="DatabaseUnavailable")
    await walk.wire.reopen()
    await walk.shows("patient", phase="Queued", reason="WaitingForWorker")
