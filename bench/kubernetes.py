"""AgentRuns through a real API server: what the operator costs per run, from apply to Succeeded.

    python -m bench kubernetes [--runs 1000] [--worker stub|real] [--operators 1] [-o FILE]

It starts a control plane, a PostgreSQL and the operator of its own, creates the runs as fast as
the API server takes them, and waits until every one shows Succeeded.
`stub` claims and ends runs straight through the store, so that the operator is what is measured;
`real` is a `rowlock worker` that runs `bench.agents.instant:agent`.
Afterwards the same number of objects is created and given the same statuses in a namespace that
nobody watches: what the API server takes for the writes alone is the ceiling of any operator.
With `--kill-leader` the first of two operators is killed when half of the runs are created.
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
from collections.abc import AsyncIterator, Callable, Iterator
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
#: Where the ceiling is measured.
UNWATCHED = "bench-bare"
CREATORS = 16
#: As many requests at once as an operator makes.
WRITERS = 32
RUN_SPEC = {"agentRef": {"name": "instant"}, "input": {"text": json.dumps({"text": "x" * 300})}}
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
        Status writes and Events that the API server took, and objects that the watch reported,
        without those of an operator that was killed.
    bare_seconds, times_bare
        What creates and status writes take without an operator, and how often that goes into
        the whole load; 0 where it was not measured.
    show_lag_p50, show_lag_p95
        From a change in the database to its status, the deliberate delay included; from the
        buckets of a histogram.
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
    bare_seconds: float
    times_bare: float
    show_lag_p50: float
    show_lag_p95: float


class OperatorProcess:
    """One operator, watched from outside."""

    def __init__(self, dsn: str, kubeconfig: Path, options: argparse.Namespace) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        flags = ["--kubeconfig", str(kubeconfig), "--namespaces", NAMESPACE]
        flags += ["--http-port", str(self.port), "--log-format", "json", "--no-election"]
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

    def buckets(self, name: str) -> dict[float, float]:
        """Return how many values of a histogram were at most so large."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics").read().decode()
        found = re.findall(rf'^rowlock_operator_{name}_bucket{{le="(\S+)"}} (\S+)$', text, re.M)
        return {float(le): float(count) for le, count in found}

    def kill(self) -> None:
        """End it without a warning."""
        self.process.kill()
        self.process.wait()

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
        for namespace in (NAMESPACE, UNWATCHED):
            cluster.kubectl("create", "namespace", namespace)
        yield cluster


async def create(
    client: KubeClient,
    resource: Resource,
    name: str,
    spec: dict[str, Any],
    *,
    namespace: str = NAMESPACE,
) -> None:
    """Create one object."""
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    await client.create(resource.path(namespace), body)


async def create_runs(
    client: KubeClient, count: int, *, rate: float, half_way: Callable[[], None]
) -> None:
    """Create AgentRuns at most at this rate, or as fast as the API server takes them."""
    names, pace = iter(range(count)), Limiter(rate, burst=1)

    async def creator() -> None:
        for number in names:
            await pace.acquire()
            await create(client, AGENT_RUNS, f"run-{number:06}", RUN_SPEC)
            if number == count // 2:
                half_way()

    await asyncio.gather(*(creator() for _ in range(CREATORS)))


async def bare_writes(client: KubeClient, count: int, *, writes: int) -> float:
    """Return how long as many creates and status writes take with nobody but us.

    Parameters
    ----------
    writes
        Status writes for each object; each is the status of a run that has ended.
    """
    path = AGENT_RUNS.path(NAMESPACE, "run-000000")
    status = (await client.get(path))["status"]
    names = iter(range(count))

    async def writer() -> None:
        for number in names:
            name = f"run-{number:06}"
            await create(client, AGENT_RUNS, name, RUN_SPEC, namespace=UNWATCHED)
            for revision in range(1, writes + 1):
                value = {**status, "revision": revision}
                patch = [{"op": "add", "path": "/status", "value": value}]
                target = AGENT_RUNS.path(UNWATCHED, name, "status")
                await client.json_patch(target, patch, manager="bench")

    began = time.monotonic()
    await asyncio.gather(*(writer() for _ in range(WRITERS)))
    return time.monotonic() - began


def quantile(buckets: dict[float, float], share: float) -> float:
    """Return below what value so many of a histogram lie, as Prometheus reckons it."""
    wanted, below, start = share * max(buckets.values(), default=0), 0.0, 0.0
    for limit, count in sorted(buckets.items()):
        if count >= wanted and count > below:
            within = 0.0 if limit == float("inf") else limit - start
            return start + within * (wanted - below) / (count - below)
        below, start = count, limit
    return start


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
            operator.kill()


async def load_once(
    options: argparse.Namespace, operators: list[OperatorProcess], client: KubeClient
) -> Figures:
    """Create the runs, wait for their ends, and add up."""
    lost: list[float] = []  # CPU of the operator that was killed

    def living() -> list[OperatorProcess]:
        return [operator for operator in operators if operator.process.poll() is None]

    def total(name: str, **labels: str) -> float:
        return sum(operator.metric(name, **labels) for operator in living())

    def cpu() -> float:
        return sum(lost) + sum(operator.cpu() for operator in living())

    def half_way() -> None:
        if options.kill_leader:
            lost.append(operators[0].cpu())
            operators[0].kill()

    idle = cpu()
    await asyncio.sleep(IDLE_SECONDS)
    before, began = cpu(), time.monotonic()
    await create_runs(client, options.runs, rate=options.rate, half_way=half_way)
    created = time.monotonic() - began
    if options.kill_leader:  # what the killed one had counted is gone
        await until_ended(client, options.runs)
    else:
        await eventually(lambda: total("runs_finished_total") >= options.runs, "the end of all")
    wall = time.monotonic() - began
    if options.normal_events and not options.kill_leader:
        said = options.runs * EVENTS_A_RUN
        await eventually(lambda: total("events_total") >= said, "the Events of the runs")
    used = cpu() - before
    await check_statuses(client, options.runs)
    writes = total("status_writes_total", outcome="written") / options.runs
    bare = await bare_writes(client, options.runs, writes=max(1, round(writes)))
    lag = living()[0].buckets("mirror_lag_seconds")
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
        rss_mb=round(max(operator.peak_mb() for operator in living()), 1),
        writes_per_run=round(writes, 2),
        events_per_run=round(total("events_total", outcome="written") / options.runs, 2),
        watch_events_per_run=round(total("watch_events_total", kind="AgentRun") / options.runs, 2),
        bare_seconds=round(bare, 2),
        times_bare=round(wall / bare, 2),
        show_lag_p50=round(quantile(lag, 0.5), 3),
        show_lag_p95=round(quantile(lag, 0.95), 3),
    )


async def until_ended(client: KubeClient, count: int) -> None:
    """Wait until so many runs show Succeeded; a look a second, for each goes through all runs."""
    params = {"fieldSelector": "status.phase!=Succeeded", "limit": "1"}
    deadline = time.monotonic() + 900
    while (await client.get(AGENT_RUNS.path(NAMESPACE), params=params))["items"]:
        if time.monotonic() > deadline:
            raise SystemExit(f"not all of {count} runs ended within 900 s")
        await asyncio.sleep(1)


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
    parser.add_argument(
        "--kill-leader", action="store_true", help="kill the first operator half way"
    )
    parser.add_argument("--status-rate", type=float, default=1000)
    parser.add_argument("--no-normal-events", dest="normal_events", action="store_false")
    parser.add_argument("--kubeconfig", type=Path, help="a cluster to use; else one is started")
    parser.add_argument("--verbose", action="store_true", help="show the operator's log")
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON, too")
    options = parser.parse_args()
    if options.kill_leader and options.operators < 2:
        parser.error("--kill-leader needs --operators 2: somebody must go on")
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
