"""Real operators for tests: started as people start them, on a real API server and PostgreSQL.

The worker here drives the store directly, so that a test decides when each step happens.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import asyncpg
import msgspec
import pytest

from localcluster import Cluster
from rowlock.engine.carry import lifecycle
from rowlock.states import EventKind, FenceReason, FinalStatus
from rowlock.store import intake, work, workers
from rowlock.store.connection import Connection
from rowlock.store.invariants import violations
from rowlock.store.types import Claimed, Event, Final, NewWorker, PoolId, RunId, WorkerId
from rowlock_operator.api.names import API_VERSION
from rowlock_operator.kube.client import KubeClient, Rates
from rowlock_operator.kube.credentials import Access
from rowlock_operator.kube.errors import NotFound
from rowlock_operator.kube.kubeconfig import load
from rowlock_operator.kube.resources import (
    AGENT_RUNS,
    AGENTS,
    EVENTS,
    WORKER_POOLS,
    Resource,
)

T = TypeVar("T")

ROOT = Path(__file__).parent.parent
WITHIN = 60.0
CONDITIONS = {
    "Accepted",
    "Running",
    "Suspended",
    "AwaitingApproval",
    "Resumed",
    "Finished",
    "Succeeded",
}
_tokens = itertools.count(time.monotonic_ns())


async def eventually(
    probe: Callable[[], Awaitable[T | None]], what: str, within: float = WITHIN
) -> T:
    """Ask `probe` until it answers something true; fail with `what` after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        answer = await probe()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}; last {answer!r}"
        await asyncio.sleep(0.05)


class LocalOperator:
    """One `rowlock-operator` in a process of its own."""

    def __init__(self, log: Path, *flags: str, environment: dict[str, str]) -> None:
        self._log = log
        self.port = free_port()
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "rowlock_operator"),
                    *("--log-format", "json", "--http-port", str(self.port)),
                    *flags,
                ],
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                cwd=ROOT,
            )

    @property
    def log(self) -> str:
        """All that it has said."""
        return self._log.read_text(errors="replace")

    async def says(self, pattern: str, *, times: int = 1, within: float = WITHIN) -> None:
        """Wait for lines that match."""

        async def look() -> bool:
            assert self.process.poll() is None, self.log[-4000:]
            return len(re.findall(pattern, self.log)) >= times

        await eventually(look, f"log line {pattern!r} in\n{self.log[-4000:]}", within)

    async def probe(self, path: str) -> tuple[int, str]:
        """Ask one of its HTTP paths, and return status and text."""
        url = f"http://127.0.0.1:{self.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    async def metric(self, name: str, **labels: str) -> float:
        """Return the value of one of its metrics, 0 if it has none of these labels."""
        _, text = await self.probe("/metrics")
        wanted = ",".join(f'{key}="{value}"' for key, value in labels.items())
        line = f"rowlock_operator_{name}" + (f"{{{wanted}}}" if wanted else "")
        found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    async def ends(self, within: float = WITHIN) -> int:
        """Wait for its end and return its exit code."""

        async def ended() -> tuple[int] | None:
            code = self.process.poll()
            return None if code is None else (code,)

        return (await eventually(ended, f"end of the operator:\n{self.log[-4000:]}", within))[0]

    async def stop(self) -> int:
        """End it as the kubelet does, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await self.ends()

    def kill(self) -> None:
        """End it without a warning."""
        self.process.kill()
        self.process.wait()


class StubWorker:
    """One worker of the store, whose every move a test makes."""

    def __init__(self, store: Connection, worker_id: WorkerId, pool: PoolId, name: str) -> None:
        self._store = store
        self.worker_id = worker_id
        self.name = name
        self.pool = pool
        self._seqs: dict[RunId, int] = {}

    async def claim(self, limit: int = 100) -> list[Claimed]:
        """Claim what waits."""
        claimed = await work.claim(
            self._store, worker=self.worker_id, pool=self.pool, token=next(_tokens), limit=limit
        )
        assert claimed is not None, "this worker is fenced"
        return claimed

    async def claim_all(self, count: int) -> list[Claimed]:
        """Claim until `count` runs are held."""
        held: list[Claimed] = []

        async def look() -> bool:
            held.extend(await self.claim(count))
            return len(held) >= count

        await eventually(look, f"{count} runs to claim")
        return held

    async def claim_one(self) -> Claimed:
        """Wait for one run and claim it."""
        return (await self.claim_all(1))[0]

    async def step(self, run: Claimed, *, key: str = "step") -> None:
        """Finish one step."""
        await self._append(run, EventKind.STEP_DONE, f"{key}:{next(_tokens)}", b"1")

    async def go_on(self, run: Claimed, *, steps: int) -> None:
        """Write down what others left, as a worker does that takes a run over."""
        history = await work.history(self._store, run.run_id)
        self._seqs[run.run_id] = history[-1].seq if history else 0
        for carry in run.carry:
            entry = lifecycle(carry, run, to=self.name, steps=steps)
            await self._append(run, entry.kind, entry.key, entry.body)

    async def finish(
        self,
        *runs: Claimed,
        result: Any = "done",
        status: FinalStatus = FinalStatus.SUCCEEDED,
        reason: str | None = None,
        message: str | None = None,
        retry_in: float | None = None,
    ) -> None:
        """End runs."""
        body = msgspec.json.encode(result) if status is FinalStatus.SUCCEEDED else None
        finals = [
            Final(
                run.run_id,
                run.epoch,
                status,
                reason=reason,
                message=message,
                outcome="ok" if status is FinalStatus.SUCCEEDED else None,
                step=3,
                tokens_in=11,
                tokens_out=7,
                cost_micro=42,
                result=body,
                retry_in_seconds=retry_in,
            )
            for run in runs
        ]
        await work.finish(self._store, worker=self.worker_id, events=[], finals=finals)

    async def die(self, reason: FenceReason = FenceReason.LEASE_EXPIRED) -> None:
        """Be fenced as a dead worker is: its runs go back."""
        await workers.fence(self._store, [self.worker_id], reason=reason)

    async def _append(self, run: Claimed, kind: EventKind, key: str, body: bytes) -> None:
        self._seqs[run.run_id] = self._seqs.get(run.run_id, 0) + 1
        seq = self._seqs[run.run_id]
        event = Event(run.run_id, seq, run.epoch, run.attempt, kind, key, 1, 1, body)
        await work.append(self._store, worker=self.worker_id, events=[event])


@dataclass
class Stage:
    """A namespace and a database of one test, and the operators that join them."""

    cluster: Cluster
    namespace: str
    dsn: str
    folder: Path
    store: Connection
    sql: asyncpg.Connection[Any]
    client: KubeClient
    operators: list[LocalOperator] = field(default_factory=list)

    async def operator(self, *flags: str, wait: bool = True, **variables: str) -> LocalOperator:
        """Start an operator for this namespace, without an election, and wait until it runs."""
        environment = {
            "ROWLOCK_DATABASE_URL": self.dsn,
            "ROWLOCK_ELECTION": "false",
            "ROWLOCK_LEASE_NAMESPACE": self.namespace,
            "ROWLOCK_SWEEP_SECONDS": "5",
            "ROWLOCK_POOL_PERIOD_SECONDS": "0.5",
            **{f"ROWLOCK_{name.upper()}": value for name, value in variables.items()},
        }
        started = LocalOperator(
            self.folder / f"operator-{len(self.operators)}.log",
            "--kubeconfig",
            str(self.cluster.kubeconfig),
            "--namespaces",
            self.namespace,
            *flags,
            environment=environment,
        )
        self.operators.append(started)
        if wait:
            await started.says("The operator runs", within=90)
        return started

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        """Run kubectl in the test's namespace and return what it printed."""
        return self.cluster.kubectl("-n", self.namespace, *arguments, check=check).stdout

    def patch(self, kind: str, name: str, **spec: Any) -> None:
        """Change fields of an object's spec with kubectl."""
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def apply(self, kind: str, name: str, **spec: Any) -> None:
        """Apply one of our objects with kubectl."""
        item = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.cluster.kubectl("-n", self.namespace, "apply", "-f", "-", input=json.dumps(item))

    async def create(self, resource: Resource, name: str, **content: Any) -> dict[str, Any]:
        """Create an object of any kind."""
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            **content,
        }
        created: dict[str, Any] = await self.client.create(resource.path(self.namespace), body)
        return created

    async def basics(self) -> None:
        """Create the Agent `support` and the WorkerPool `default`."""
        await self.create(WORKER_POOLS, "default", spec=pool_spec())
        await self.create(AGENTS, "support", spec={"entrypoint": "agents:support"})

    async def run(self, name: str, **spec: Any) -> dict[str, Any]:
        """Create an AgentRun of the Agent `support`."""
        return await self.create(AGENT_RUNS, name, spec={"agentRef": {"name": "support"}, **spec})

    async def runs(self, names: Sequence[str], **spec: Any) -> None:
        """Create many AgentRuns at once."""
        await asyncio.gather(*(self.run(name, **spec) for name in names))

    async def get(self, resource: Resource, name: str) -> dict[str, Any] | None:
        """Return an object, None if there is none."""
        try:
            found: dict[str, Any] = await self.client.get(resource.path(self.namespace, name))
        except NotFound:
            return None
        return found

    async def existing(self, resource: Resource, name: str) -> dict[str, Any]:
        """Return an object that must be there."""
        found = await self.get(resource, name)
        assert found is not None, f"there is no {resource.kind} {name}"
        return found

    async def status(self, name: str, resource: Resource = AGENT_RUNS) -> dict[str, Any]:
        """Return the status of an object, empty if it has none."""
        found = await self.get(resource, name)
        return (found or {}).get("status") or {}

    async def objects(self, resource: Resource = AGENT_RUNS) -> list[dict[str, Any]]:
        """Return all objects of a kind in the namespace."""
        pages = self.client.pages(resource.path(self.namespace))
        return [item async for page in pages for item in page["items"]]

    async def shows(
        self, name: str, *, within: float = WITHIN, resource: Resource = AGENT_RUNS, **wanted: Any
    ) -> dict[str, Any]:
        """Wait until fields of a status have these values, and return the status."""

        async def look() -> dict[str, Any] | None:
            status = await self.status(name, resource)
            return status if all(status.get(key) == it for key, it in wanted.items()) else None

        return await eventually(look, f"{name} shows {wanted}{self._said()}", within)

    async def all_show(self, count: int, phase: str, within: float = WITHIN) -> None:
        """Wait until `count` AgentRuns, and no others, are in a phase."""

        found: Counter[str | None] = Counter()

        async def look() -> bool:
            found.clear()
            found.update(run.get("status", {}).get("phase") for run in await self.objects())
            return found == {phase: count}

        try:
            await eventually(look, f"{count} runs in phase {phase}{self._said()}", within)
        except AssertionError as error:
            error.add_note(f"they were in {dict(found)}")
            raise

    async def events(self, name: str) -> list[dict[str, Any]]:
        """Return our Events about an AgentRun, in the order of their changes."""
        found = [
            item
            for item in await self.objects(EVENTS)
            if item["regarding"].get("name") == name and item["regarding"]["kind"] == "AgentRun"
        ]
        return sorted(found, key=lambda item: int(item["metadata"]["name"].rsplit(".", 1)[1]))

    async def each_announced(self, wanted: Mapping[str, Sequence[str]]) -> None:
        """Wait until each of these AgentRuns has an Event of each reason, none of them twice."""
        expected = sorted((name, reason) for name, reasons in wanted.items() for reason in reasons)

        async def look() -> bool:
            found = sorted(
                (item["regarding"]["name"], item["reason"])
                for item in await self.objects(EVENTS)
                if item["regarding"].get("name") in wanted
            )
            return found == expected

        await eventually(look, f"{len(expected)} Events{self._said()}", 60)

    async def announced(self, name: str, *reasons: str) -> list[dict[str, Any]]:
        """Wait until the Events about an AgentRun have these reasons, and no others."""

        async def look() -> list[dict[str, Any]] | None:
            found = await self.events(name)
            return found if [item["reason"] for item in found] == list(reasons) else None

        return await eventually(look, f"Events {reasons} of {name}{self._said()}")

    async def worker(
        self, name: str = "worker-a", *, pool: str = "default", **more: Any
    ) -> StubWorker:
        """Register a worker of a pool."""
        pool_id = await intake.ensure_pool(self.store, namespace=self.namespace, name=pool)
        new = NewWorker(pool_id, f"{name}/0", name, 1, "test", **{"lease_seconds": 3600.0, **more})
        [worker_id] = await workers.register(self.store, [new])
        return StubWorker(self.store, worker_id, pool_id, name)

    async def rows(self) -> list[asyncpg.Record]:
        """Return all linked runs of the database, with their place."""
        return await self.sql.fetch(
            "SELECT o.name, o.uid, o.run_id, coalesce(l.place, 'final') AS place, f.status "
            "FROM rowlock.run_object o "
            "LEFT JOIN rowlock.run_live l USING (run_id) "
            "LEFT JOIN rowlock.run_final f ON f.run_id = o.run_id ORDER BY o.name"
        )

    async def count(self, what: str) -> int:
        """Return the number of rows of a table or condition."""
        return int(await self.sql.fetchval(f"SELECT count(*) FROM {what}"))  # noqa: S608

    async def healthy(self) -> None:
        """Assert that no invariant of the database is broken."""
        assert await violations(self.store) == []

    async def close(self) -> None:
        """End everything that the test started."""
        for operator in self.operators:
            operator.process.kill()
            operator.process.wait()
        await self.store.close()
        await self.sql.close(timeout=5)

    def _said(self) -> str:
        tails = [f"\noperator {at} said:\n{it.log[-2500:]}" for at, it in enumerate(self.operators)]
        return "".join(tails)


def free_port() -> int:
    """Return a port of the loopback that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pool_spec(**more: Any) -> dict[str, Any]:
    """Return the spec of a WorkerPool whose Deployment makes no Pods."""
    scaling = {"minReplicas": 0, "maxReplicas": 3}
    return {
        "image": "example.test/agents:1",
        "databaseSecretRef": {"name": "database"},
        "autoscaling": scaling,
        **more,
    }


def condition(status: dict[str, Any], type_: str) -> dict[str, Any]:
    """Return a condition of a status."""
    return next(it for it in status["conditions"] if it["type"] == type_)


def states(status: dict[str, Any]) -> dict[str, str]:
    """Return status and reason of every condition, as `True/Reason`."""
    return {it["type"]: f"{it['status']}/{it['reason']}" for it in status.get("conditions", ())}


@pytest.fixture(scope="session")
def access(cluster: Cluster) -> Access:
    """Access to the session's API server, with our CRDs installed."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    return load([Path(cluster.kubeconfig)])


@pytest.fixture(name="stage")
async def stage_fixture(
    cluster: Cluster, access: Access, dsn: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    """A namespace and a database, and a way to start operators between them."""
    namespace = f"op-{uuid.uuid4().hex[:10]}"
    cluster.kubectl("create", "namespace", namespace)
    rates = Rates(read=2000, status=2000, event=2000, apply=2000)
    async with KubeClient(access, rates=rates) as client:
        store = await Connection.open(dsn, name="test")
        sql = await asyncpg.connect(dsn)
        stage = Stage(cluster, namespace, dsn, tmp_path, store, sql, client)
        try:
            yield stage
        finally:
            await stage.close()
            cluster.kubectl("delete", "namespace", namespace, "--wait=false")
