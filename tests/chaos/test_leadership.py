"""Replicas of the operator under load: whatever happens to the leader, another goes on from there.

Each replica reaches the API server through a proxy of its own. Leases here are shorter than the
default, and longer than any pause of a busy machine.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from rowlock_operator.kube.credentials import Access
from rowlock_operator.kube.resources import WORKER_POOLS
from tests.faults import FaultyApi
from tests.operators import (  # noqa: F401
    LocalOperator,
    Stage,
    StubWorker,
    access,
    eventually,
    pool_spec,
    stage_fixture,
)
from tests.wire import wire_to

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

LEASE = {"lease_seconds": "10", "lease_renew_seconds": "8", "lease_retry_seconds": "1"}
#: Seconds; a machine that does much else takes its time to start processes.
LONG = 90.0
ORDINARY = ("RunQueued", "RunStarted", "RunSucceeded")


class Replicas:
    """Starts replicas that stand for election, each behind a proxy."""

    def __init__(self, stage: Stage, access: Access, stack: AsyncExitStack) -> None:  # noqa: F811
        self._stage = stage
        self._access = access
        self._stack = stack
        self._proxies: dict[LocalOperator, FaultyApi] = {}

    async def start(self, **variables: str) -> LocalOperator:
        """Start one, and wait until it is a candidate."""
        proxy = await self._stack.enter_async_context(FaultyApi(self._access).serving())
        folder = self._stage.folder / f"replica-{len(self._proxies)}"
        folder.mkdir()
        started = await self._stage.operator(
            "--election",
            "--kubeconfig",
            str(proxy.kubeconfig(self._stage.cluster.kubeconfig, folder)),
            wait=False,
            **{**LEASE, "events_per_second": "1000", **variables},
        )
        self._proxies[started] = proxy
        await started.says("Waiting to lead", within=LONG)
        return started

    def cut_off(self, replica: LocalOperator) -> None:
        """Let nothing pass between a replica and the API server."""
        self._proxies[replica].fault = lambda _request: ConnectionError()
        self._proxies[replica].drop_streams()


class Traffic:
    """AgentRuns that come all the time, and a worker that ends them."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._over = False
        self.names: list[str] = []
        self.ended = 0

    async def create(self) -> None:
        """Create runs until told to stop."""
        for number in itertools.count():
            if self._over:
                return
            self.names.append(f"run-{number:04}")
            await self._stage.run(self.names[-1])
            await asyncio.sleep(0.3)

    async def work(self, worker: StubWorker) -> None:
        """End what can be claimed, until no more comes."""
        while not self._over or self.ended < len(self.names):
            held = await worker.claim()
            await worker.finish(*held)
            self.ended += len(held)
            await asyncio.sleep(0.2)

    def stop(self) -> None:
        """Let no more runs come."""
        self._over = True


@pytest.fixture(name="replicas")
async def replicas_fixture(stage: Stage, access: Access) -> AsyncIterator[Replicas]:  # noqa: F811
    async with AsyncExitStack() as stack:
        yield Replicas(stage, access, stack)


@asynccontextmanager
async def traffic(stage: Stage) -> AsyncIterator[Traffic]:
    """Have runs come and go inside the block, and wait for the end of all."""
    flow = Traffic(stage)
    await stage.basics()
    worker = await stage.worker("worker-a")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(flow.create())
        tasks.create_task(flow.work(worker))
        try:
            yield flow
        finally:
            flow.stop()


async def test_leaders_come_and_go_and_no_run_no_takeover_and_no_event_is_lost_or_doubled(
    stage: Stage, replicas: Replicas
) -> None:
    first = await replicas.start()
    await first.says("The operator runs", within=LONG)
    second = await replicas.start()
    await _stands_by(second)
    async with traffic(stage) as flow:
        await eventually(lambda: asyncio.sleep(0, flow.ended > 5), "traffic")

        # A rollout: the leader gives the Lease back.
        assert await first.stop() == 0
        await second.says("it was released.*This operator leads", within=LONG)
        await second.says("The operator runs", within=LONG)
        third = await replicas.start()

        # A kill, while runs are taken over.
        taken, dead = await _held_elsewhere(stage)
        second.kill()
        await _take_over(stage, dead, len(taken))
        fourth = await replicas.start()
        winner, loser = await _leader_of(third, fourth)
        assert re.search("gave no sign of life.*This operator leads", winner.log)
        await winner.says("The operator runs", within=LONG)

        # A freeze: the old leader wakes up beside the new one.
        os.kill(winner.process.pid, signal.SIGSTOP)
        await loser.says("The operator runs", within=LONG)
        os.kill(winner.process.pid, signal.SIGCONT)
        assert await winner.ends(LONG) == 1
        assert "does not lead any more" in winner.log

        # A partition: the leader alone does not reach the API server.
        fifth = await replicas.start()
        replicas.cut_off(loser)
        assert await loser.ends(LONG) == 1
        assert "was not renewed" in loser.log
        await fifth.says("The operator runs", within=LONG)
        assert await fifth.metric("leader") == 1
        assert await fifth.metric("leader_changes") >= 5

    await stage.all_show(len(flow.names) + len(taken), "Succeeded", within=LONG)
    assert await stage.count("rowlock.run") == len(flow.names) + len(taken)
    await stage.each_announced(
        dict.fromkeys(flow.names, ORDINARY) | dict.fromkeys(taken, (*ORDINARY, "RunTakenOver"))
    )
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 0 FROM rowlock.run_change"), "all shown"
    )
    await stage.healthy()


async def test_a_leader_without_postgresql_makes_room_for_one_that_has_it(
    stage: Stage, replicas: Replicas
) -> None:
    await stage.basics()
    async with wire_to(stage.dsn) as wire:
        # A leader gives way after two Leases.
        term = {"lease_seconds": "6", "lease_renew_seconds": "5"}
        lonely = await replicas.start(database_url=wire.url, **term)
        await lonely.says("The operator runs", within=LONG)
        other = await replicas.start(**term)
        await _stands_by(other)
        wire.cut()
        await stage.run("meanwhile")
        await _answers(lonely, "/readyz", 503, "PostgreSQL does not answer")
        assert await lonely.probe("/livez") == (200, "ok\n")
        assert await other.probe("/readyz") == (200, "standby\n")
        await stage.shows("meanwhile", reason="WaitingForWorker", within=LONG)
        assert re.search("without PostgreSQL.*This operator leads", other.log)
        assert await lonely.ends(LONG) == 1
    await stage.healthy()


async def _stands_by(replica: LocalOperator) -> None:
    """Assert that a replica is ready and connected, and does and exports none of the work."""
    await _answers(replica, "/readyz", 200, "standby")
    await eventually(lambda: replica.metric("database_up"), "its connection to PostgreSQL")
    assert await replica.probe("/livez") == (200, "standby\n")
    _, text = await replica.probe("/metrics")
    assert "rowlock_operator_leader 0.0" in text
    assert set(re.findall(r'rounds_total\{loop="(\w+)"', text)) <= {"beat", "ping"}
    assert not re.search(r"^rowlock_operator_(pool|mirror|sweep)_\w+[{ ].* [1-9]", text, re.M)
    assert "rowlock_operator_mirror_backlog_changes" not in text
    assert 'watch_events_total{kind="AgentRun"}' not in text


async def _answers(replica: LocalOperator, path: str, code: int, text: str) -> None:
    async def look() -> bool:
        return await replica.probe(path) == (code, f"{text}\n")

    await eventually(look, f"{path} to say {text}", LONG)


async def _leader_of(*replicas: LocalOperator) -> tuple[LocalOperator, LocalOperator]:
    async def look() -> list[LocalOperator] | None:
        leaders = [it for it in replicas if "This operator leads" in it.log]
        return leaders or None

    [leader] = await eventually(look, "a leader", LONG)
    [other] = [it for it in replicas if it is not leader]
    return leader, other


async def _held_elsewhere(stage: Stage) -> tuple[list[str], StubWorker]:
    """Have three runs claimed by a worker of another pool."""
    names = [f"held-{number}" for number in range(3)]
    await stage.create(WORKER_POOLS, "held", spec=pool_spec())
    await stage.runs(names, workerPoolRef={"name": "held"})
    worker = await stage.worker("worker-b", pool="held")
    await worker.claim_all(len(names))
    for name in names:
        await stage.shows(name, phase="Running")
    return names, worker


async def _take_over(stage: Stage, dead: StubWorker, count: int) -> None:
    """Let the worker die, and another one end what it held."""
    await dead.die()
    heir = await stage.worker("worker-c", pool="held")
    for run in await heir.claim_all(count):
        await heir.go_on(run, steps=0)
        await heir.finish(run)
