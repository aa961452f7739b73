"""AgentRuns through a real API server: what the operator costs per run, from apply to Succeeded.

    python -m bench kubernetes [--runs 1000] [--worker stub|real] [--operators 1] [-o FILE]

It starts a control plane, a PostgreSQL and the operator of its own, creates the runs as fast as
the API server takes them, and waits until every one shows Succeeded.
`stub` claims and ends runs straight through the store, so that the operator is what is measured;
`real` is a `rowlock worker` that runs `bench.agents.instant:agent`.
KUBECONFIG is not used: a load never lands in a cluster by accident. Name one with --kubeconfig.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localcluster import Cluster, start
from rowlock.embedded import EmbeddedPostgres
from rowlock.states import FinalStatus
from rowlock.store import intake, work, workers
from rowlock.store.connection import Connection
from rowlock.store.invariants import violations
from rowlock.store.migrate import migrate
from rowlock.store.types import Final, NewWorker
from rowlock_operator.kube.client import KubeClient, Rates
from rowlock_operator.kube.kubeconfig import load
from rowlock_operator.kube.limiter import Limiter
from rowlock_operator.kube.resources import AGENT_RUNS, AGENTS, WORKER_POOLS, Resource

ROOT = Path(__file__).parent.parent
NAMESPACE = "bench"
CREATORS = 16
IDLE_SECONDS = 3
#: RunQueued, RunStarted, RunSucceeded.
EVENTS_A_RUN = 3


@dataclass(frozen=True)
class Figures:
    """What one load cost.

    Parameters
    ----------
    create_seconds, wall_seconds
        Until the last create was answered, and until the last run showed Succeeded.
    cpu_seconds, cpu_ms_per_run
        Of all operator processes, user and system, from the first create to the last status.
    rss_mb
        Largest resident memory of one operator process.
    writes_per_run, events_per_run, watch_events_per_run
        Status writes and Events that the API server took, and objects that the watch reported.
    """

    runs: int
    worker: str
    hold_seconds: float
    operators: int
    create_seconds: float
    wall_seconds: float
    runs_per_second: float
    cpu_seconds: float
    cpu_ms_per_run: float
    idle_cpu_percent: float
    rss_mb: float
    writes_per_run: float
    events_per_run: float
    watch_events_per_run: float


class OperatorProcess:
    """One operator, watched from outside."""

    def __init__(self, dsn: str, kubeconfig: Path, options: argparse.Namespace) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        flags = ["--kubeconfig", str(kubeconfig), "--namespaces", NAMESPACE]
        flags += ["--http-port", str(self.port), "--log-format", "json"]
        flags += ["--status-writes-per-second", str(options.status_rate)]
        flags += [] if options.normal_events else ["--no-normal-events"]
        environment = {"ROWLOCK_DATABASE_URL": dsn, "ROWLOCK_EVENTS_PER_SECOND": "500"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rowlock_operator", *flags],
            env={**os.environ, **environment},
            cwd=ROOT,
            stderr=subprocess.DEVNULL if not options.verbose else None,
        )

    async def ready(self) -> None:
        """Wait until it takes runs in."""
        await eventually(lambda: self._answers("/readyz"), "the operator")

    def cpu(self) -> float:
        """CPU seconds so far, user and system."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        """Largest resident memory so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else 0.0

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric over all labels but these."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics").read().decode()
        total = 0.0
        for line in text.splitlines():
            if line.startswith(f"rowlock_operator_{name}") and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


async def eventually(probe: Any, what: str, within: float = 900) -> None:
    """Ask `probe` until it says yes."""
    deadline = time.monotonic() + within
    while not probe():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come within {within:g} s")
        await asyncio.sleep(0.1)


async def stub_worker(dsn: str, hold: float, stop: asyncio.Event) -> None:
    """Claim whatever waits, and end each run after it was held for a while."""
    store = await Connection.open(dsn, name="bench worker")
    pool = await intake.ensure_pool(store, namespace=NAMESPACE, name="default")
    new = NewWorker(pool, "bench/0", "bench-worker", os.getpid(), "bench", lease_seconds=3600)
    [worker] = await workers.register(store, [new])
    held: deque[tuple[float, Final]] = deque()
    while not stop.is_set():
        token, now = time.monotonic_ns(), time.monotonic()
        for run in await work.claim(store, worker=worker, pool=pool, token=token, limit=64) or ():
            end = Final(run.run_id, run.epoch, FinalStatus.SUCCEEDED, outcome="ok", result=b"1")
            held.append((now + hold, end))
        finals: list[Final] = []
        while held and held[0][0] <= now and len(finals) < 500:
            finals.append(held.popleft()[1])
        if finals:
            await work.finish(store, worker=worker, events=[], finals=finals)
        await asyncio.sleep(0.02)
    await store.close()


@contextlib.asynccontextmanager
async def working(options: argparse.Namespace, dsn: str) -> AsyncIterator[None]:
    """Have a worker of the wanted kind inside the block."""
    if options.worker == "stub":
        stop = asyncio.Event()
        task = asyncio.create_task(stub_worker(dsn, options.hold, stop))
        yield
        stop.set()
        await task
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rowlock.cli", "worker", "--namespace", NAMESPACE),
        env={**os.environ, "ROWLOCK_DATABASE_URL": dsn, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stderr=asyncio.subprocess.DEVNULL,
    )
    yield
    process.send_signal(signal.SIGTERM)
    await process.wait()


@contextlib.contextmanager
def cluster_for(kubeconfig: Path | None) -> Iterator[Cluster]:
    """Use the named cluster, or one of our own."""
    with Cluster.from_kubeconfig(kubeconfig) if kubeconfig else start(name="bench") as cluster:
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        cluster.kubectl("create", "namespace", NAMESPACE)
        yield cluster


async def create(client: KubeClient, resource: Resource, name: str, spec: dict[str, Any]) -> None:
    """Create one object."""
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    await client.create(resource.path(NAMESPACE), body)


async def create_runs(client: KubeClient, count: int, *, rate: float) -> None:
    """Create AgentRuns at most at this rate, or as fast as the API server takes them."""
    names, pace = iter(range(count)), Limiter(rate, burst=1)
    spec = {"agentRef": {"name": "instant"}, "input": {"text": json.dumps({"text": "x" * 300})}}

    async def creator() -> None:
        for number in names:
            await pace.acquire()
            await create(client, AGENT_RUNS, f"run-{number:06}", spec)

    await asyncio.gather(*(creator() for _ in range(CREATORS)))


async def check_statuses(client: KubeClient, count: int) -> None:
    """Stop with an error unless every run shows Succeeded on the API server."""
    succeeded = 0
    params = {"fieldSelector": "status.phase=Succeeded"}
    async for page in client.pages(AGENT_RUNS.path(NAMESPACE), params=params):
        succeeded += len(page["items"])
    if succeeded != count:
        raise SystemExit(f"{succeeded} of {count} runs show Succeeded")


async def measure(options: argparse.Namespace, dsn: str, cluster: Cluster) -> Figures:
    """Run the load once."""
    await migrate(dsn)
    operators = [
        OperatorProcess(dsn, cluster.kubeconfig, options) for _ in range(options.operators)
    ]
    rates = Rates(read=5000, status=5000, event=5000, apply=5000)
    access = load([cluster.kubeconfig])
    try:
        async with KubeClient(access, rates=rates) as client, working(options, dsn):
            pool = {"image": "bench:1", "databaseSecretRef": {"name": "db"}}
            await create(
                client, WORKER_POOLS, "default", pool | {"autoscaling": {"minReplicas": 0}}
            )
            await create(client, AGENTS, "instant", {"entrypoint": "bench.agents.instant:agent"})
            for operator in operators:
                await operator.ready()
            return await load_once(options, operators, client)
    finally:
        for operator in operators:
            operator.process.kill()
            operator.process.wait()


async def load_once(
    options: argparse.Namespace, operators: list[OperatorProcess], client: KubeClient
) -> Figures:
    """Create the runs, wait for their ends, and add up."""

    def total(name: str, **labels: str) -> float:
        return sum(operator.metric(name, **labels) for operator in operators)

    def cpu() -> float:
        return sum(operator.cpu() for operator in operators)

    idle = cpu()
    await asyncio.sleep(IDLE_SECONDS)
    before, began = cpu(), time.monotonic()
    await create_runs(client, options.runs, rate=options.rate)
    created = time.monotonic() - began
    await eventually(lambda: total("runs_finished_total") >= options.runs, "the end of the runs")
    wall = time.monotonic() - began
    if options.normal_events:
        said = options.runs * EVENTS_A_RUN
        await eventually(lambda: total("events_total") >= said, "the Events of the runs")
    used = cpu() - before
    await check_statuses(client, options.runs)
    return Figures(
        runs=options.runs,
        worker=options.worker,
        hold_seconds=options.hold,
        operators=options.operators,
        create_seconds=round(created, 2),
        wall_seconds=round(wall, 2),
        runs_per_second=round(options.runs / wall, 1),
        cpu_seconds=round(used, 2),
        cpu_ms_per_run=round(used / options.runs * 1000, 2),
        idle_cpu_percent=round((before - idle) / IDLE_SECONDS * 100, 1),
        rss_mb=round(max(operator.peak_mb() for operator in operators), 1),
        writes_per_run=round(total("status_writes_total", outcome="written") / options.runs, 2),
        events_per_run=round(total("events_total", outcome="written") / options.runs, 2),
        watch_events_per_run=round(total("watch_events_total", kind="AgentRun") / options.runs, 2),
    )


async def check(dsn: str) -> None:
    """Stop with an error if the load broke an invariant of the database."""
    store = await Connection.open(dsn, name="bench check")
    found = await violations(store)
    await store.close()
    if found:
        raise SystemExit(f"broken invariants: {found[:5]}")


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench kubernetes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--worker", choices=("stub", "real"), default="stub")
    parser.add_argument("--rate", type=float, default=5000, help="runs created a second at most")
    parser.add_argument("--hold", type=float, default=0, help="seconds a stub holds each run")
    parser.add_argument("--operators", type=int, default=1)
    parser.add_argument("--status-rate", type=float, default=1000)
    parser.add_argument("--no-normal-events", dest="normal_events", action="store_false")
    parser.add_argument("--kubeconfig", type=Path, help="a cluster to use; else one is started")
    parser.add_argument("--verbose", action="store_true", help="show the operator's log")
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON, too")
    options = parser.parse_args()
    with EmbeddedPostgres() as server:
        with cluster_for(options.kubeconfig) as cluster:
            figures = asyncio.run(measure(options, server.url(), cluster))
        asyncio.run(check(server.url()))
    for name, value in asdict(figures).items():
        print(f"{name:24}{value}")
    if options.output:
        options.output.write_text(json.dumps(asdict(figures), indent=2) + "\n")


if __name__ == "__main__":
    main()
