"""Batches through a real API server: what the operator needs for one of many items.

    python -m bench batch [--items 1000,100000] [--parallelism N] [-o FILE]

It starts a control plane, a PostgreSQL, an operator and a `rowlock worker` of its own, and applies
one AgentRunBatch after the other, whose items the worker reads from a file and runs with
`bench.agents.instant:agent`. The operator stays the same for all of them: what its memory gains
from one to the next is what items cost it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench._meters import process_file
from bench.kubernetes import (
    NAMESPACE,
    ROOT,
    OperatorProcess,
    check,
    cluster_for,
    create,
)
from localcluster import Cluster
from rowlock.embedded import EmbeddedPostgres
from rowlock.store.migrate import migrate
from rowlock_operator.kube.client import KubeClient, Rates
from rowlock_operator.kube.kubeconfig import load
from rowlock_operator.kube.resources import AGENT_RUN_BATCHES, AGENTS, WORKER_POOLS

_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Figures:
    """What one batch cost.

    Parameters
    ----------
    read_seconds
        From the creation of the object until the first item was started.
    run_seconds
        From there until the last item had ended.
    rss_before_mb, rss_peak_mb
        Resident memory of the operator before the batch, and the most that was seen during it.
    cpu_seconds
        Of the operator, user and system.
    status_writes
        Status writes of the batch that the API server took.
    """

    items: int
    parallelism: int | None
    read_seconds: float
    run_seconds: float
    items_per_second: float
    rss_before_mb: float
    rss_peak_mb: float
    cpu_seconds: float
    cpu_ms_per_item: float
    status_writes: int


def write_items(folder: Path, count: int) -> str:
    """Write a file of items, and return its address."""
    path = folder / f"{count}.jsonl"
    text = json.dumps({"text": "x" * 300})
    with path.open("w") as file:
        for number in range(count):
            file.write(json.dumps({"id": f"item-{number:07}", "text": text}) + "\n")
    return f"file://{path}"


@contextlib.asynccontextmanager
async def working(dsn: str, folder: Path) -> AsyncIterator[None]:
    """Have a worker inside the block that may read the folder."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rowlock.cli", "worker", "--namespace", NAMESPACE),
        env={
            **os.environ,
            "ROWLOCK_DATABASE_URL": dsn,
            "ROWLOCK_BATCH_FOLDER": str(folder),
        },
        cwd=ROOT,
        stderr=asyncio.subprocess.DEVNULL,
    )
    yield
    process.send_signal(signal.SIGTERM)
    await process.wait()


def resident_mb(operator: OperatorProcess) -> float:
    """Return the operator's resident memory now, in MB of 10^6 bytes."""
    pages = int(process_file(operator.process.pid, "statm").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def carry_out(
    client: KubeClient, operator: OperatorProcess, uri: str, options: argparse.Namespace
) -> Figures:
    """Apply one batch, wait for its end, and add up."""
    count = int(Path(uri).stem)
    name = f"batch-{count}"
    spec: dict[str, Any] = {
        "runTemplate": {"agentRef": {"name": "instant"}},
        "itemsFrom": {"uri": uri},
    }
    if options.parallelism:
        spec["parallelism"] = options.parallelism
    before, cpu, began = resident_mb(operator), operator.cpu(), time.time()
    peak, versions = before, set()
    await create(client, AGENT_RUN_BATCHES, name, spec)
    status: dict[str, Any] = {}
    deadline = time.monotonic() + options.within
    while not status.get("completionTime"):
        if time.monotonic() > deadline:
            raise SystemExit(f"{name} did not end within {options.within} s: {status}")
        await asyncio.sleep(_LOOK_SECONDS)
        found = await client.get(AGENT_RUN_BATCHES.path(NAMESPACE, name))
        versions.add(found["metadata"]["resourceVersion"])
        status, peak = found.get("status") or {}, max(peak, resident_mb(operator))
        counts = [status.get(key, 0) for key in ("total", "running", "succeeded")]
        print(f"{name}: {counts[2]} of {counts[0]} items, {counts[1]} running", file=sys.stderr)
    if status["succeeded"] != count:
        raise SystemExit(f"not all of {count} items succeeded: {status}")
    used = operator.cpu() - cpu
    started, ended = (_seconds(status[key]) for key in ("startTime", "completionTime"))
    return Figures(
        items=count,
        parallelism=options.parallelism,
        read_seconds=round(started - began, 1),
        run_seconds=round(ended - started, 1),
        items_per_second=round(count / max(1.0, ended - started), 1),
        rss_before_mb=round(before, 1),
        rss_peak_mb=round(peak, 1),
        cpu_seconds=round(used, 2),
        cpu_ms_per_item=round(used / count * 1000, 3),
        status_writes=len(versions) - 1,
    )


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def measure(
    options: argparse.Namespace, dsn: str, cluster: Cluster, folder: Path
) -> list[Figures]:
    """Carry out all batches."""
    await migrate(dsn)
    operator = OperatorProcess(dsn, cluster.kubeconfig, options)
    access, rates = load([cluster.kubeconfig]), Rates(read=5000, apply=5000)
    try:
        async with KubeClient(access, rates=rates) as client, working(dsn, folder):
            pool = {"image": "bench:1", "databaseSecretRef": {"name": "db"}}
            scaling = {"autoscaling": {"minReplicas": 0}}
            await create(client, WORKER_POOLS, "default", pool | scaling)
            await create(client, AGENTS, "instant", {"entrypoint": "bench.agents.instant:agent"})
            await operator.ready()
            return [
                await carry_out(client, operator, write_items(folder, count), options)
                for count in options.items
            ]
    finally:
        operator.process.kill()
        operator.process.wait()


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench batch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--items",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[1000, 100_000],
        help="sizes of the batches, one after the other (1000,100000)",
    )
    parser.add_argument("--parallelism", type=int, help="items under way at once")
    parser.add_argument("--within", type=float, default=3600, help="seconds for each batch")
    parser.add_argument("--kubeconfig", type=Path, help="a cluster to use; else one is started")
    parser.add_argument("--verbose", action="store_true", help="show the operator's log")
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON, too")
    parser.set_defaults(status_rate=200, normal_events=True)
    options = parser.parse_args()
    with EmbeddedPostgres() as server, tempfile.TemporaryDirectory() as folder:
        with cluster_for(options.kubeconfig) as cluster:
            found = asyncio.run(measure(options, server.url(), cluster, Path(folder)))
        asyncio.run(check(server.url()))
    for name in asdict(found[0]):
        print(f"{name:24}" + "".join(f"{getattr(it, name)!s:>12}" for it in found))
    if options.output:
        options.output.write_text(json.dumps([asdict(it) for it in found], indent=2) + "\n")


if __name__ == "__main__":
    main()
