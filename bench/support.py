"""Load A: what a durable support run costs, four model turns and three tool calls.

    python -m bench support --model instant --concurrency 512 --runs 10000
    python -m bench support --model hosted --concurrency 1024 --runs 6000 --json FILE

A PostgreSQL of its own with default durability and one `rowlock worker` share the machine.
The model is scripted: `instant`, or `hosted` (600 ms to the first token, 60 tokens a second;
5.15 s of waiting a run). After a warm-up all runs are enqueued, and the clock runs from the first
claim to the last end. The results are then checked in the database and in the ledger of refunds;
a load with a wrong one exits with 1, whatever its speed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import asyncpg
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rowlock.embedded import EmbeddedPostgres
from rowlock.store import bodies, intake
from rowlock.store.connection import Connection
from rowlock.store.invariants import violations
from rowlock.store.migrate import migrate
from rowlock.store.types import NewRun

ROOT = Path(__file__).parents[1]
#: Seconds that one hosted run waits for its model, and nothing else.
HOSTED_SECONDS = 5.15
_TICK = 1 / os.sysconf("SC_CLK_TCK")
_SETTINGS = {"max_wal_size": "4GB", "shared_buffers": "512MB"}


@dataclass(frozen=True)
class Figures:
    """What one load showed; times in seconds unless the name says otherwise.

    Parameters
    ----------
    run_seconds_p50, run_seconds_p99
        From the claim of a run to its end, by the database's clock.
    added_seconds_p50
        The median run beyond what its model waits.
    ideal_ratio
        Wall time if nothing but the models took time, divided by the wall time; 0 for instant.
    bytes_per_run
        Tables and indexes of history, on disk.
    """

    model: str
    concurrency: int
    workers: int
    runs: int
    seconds: float
    runs_per_second: float
    run_seconds_p50: float
    run_seconds_p99: float
    added_seconds_p50: float
    ideal_ratio: float
    worker_cpu_ms_per_run: float
    postgres_cpu_ms_per_run: float
    commits_per_run: float
    bytes_per_run: float
    wal_bytes_per_run: float
    effects_exactly_once: bool


@dataclass(frozen=True)
class Meter:
    """Counters at one moment."""

    worker_cpu: float
    postgres_cpu: float
    commits: int
    bytes: int
    wal: int


async def measure(arguments: argparse.Namespace, console: Console) -> Figures:
    """Run the load once."""
    with EmbeddedPostgres(_SETTINGS) as server, tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        await migrate(server.url())
        connection = await Connection.open(server.url(), name="bench")
        reader = await asyncpg.connect(server.url())
        with worker(server.url(), ledger, arguments) as process:
            await load(
                connection, reader, min(arguments.runs, arguments.warm_up), console, "warm up"
            )
            before, after_run = await meter(reader, process.pid, server.pid), await last_run(reader)
            await load(connection, reader, arguments.runs, console, "load")
            after = await meter(reader, process.pid, server.pid)
            figures = await report(reader, arguments, before, after, after_run)
        calls = ledger.read_text().split()
        good = await check(connection, reader, calls, arguments.runs, after_run)
        await reader.close()
        await connection.close()
    return Figures(**figures, effects_exactly_once=good)


@contextmanager
def worker(
    url: str, ledger: Path, arguments: argparse.Namespace
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one worker for the length of the block."""
    roots = [str(ROOT / part) for part in ("worker-image", "examples", ".")]
    settings = {
        "ROWLOCK_DATABASE_URL": url,
        "PYTHONPATH": os.pathsep.join(roots),
        "SUPPORT_MODEL_PACE": arguments.model,
        "BENCH_LEDGER": str(ledger),
    }
    command = [sys.executable, "-m", "rowlock.cli", "worker", "--log-level=WARNING"]
    command += [f"--processes={arguments.workers}", f"--slots={arguments.concurrency}"]
    with subprocess.Popen(command, env={**os.environ, **settings}) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


async def load(
    connection: Connection, reader: asyncpg.Connection, runs: int, console: Console, what: str
) -> None:
    """Enqueue `runs` runs and wait until none is left."""
    pool = await intake.ensure_pool(connection, namespace="", name="default")
    agent, revision = await intake.ensure_agent(
        connection,
        namespace="",
        name="support",
        entrypoint="bench.agents.support:agent",
        spec=b"{}",
        digest="1",
    )
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(what, total=runs)
        for start in range(0, runs, 500):
            batch = [
                NewRun(agent, revision, pool, input=bodies.encode({"order_id": str(1000 + n)}))
                for n in range(start, min(start + 500, runs))
            ]
            await intake.enqueue(connection, batch)
        while left := await reader.fetchval(_LEFT):
            progress.update(bar, completed=runs - left)
            await asyncio.sleep(0.25)


_LEFT = "SELECT (SELECT count(*) FROM rowlock.run_ready) + (SELECT count(*) FROM rowlock.run_lease)"


async def last_run(reader: asyncpg.Connection) -> int:
    """Return the newest run's id."""
    return int(await reader.fetchval("SELECT max(run_id) FROM rowlock.run"))


async def meter(reader: asyncpg.Connection, worker_pid: int, postgres_pid: int) -> Meter:
    """Read all counters."""
    await reader.execute("SELECT pg_stat_force_next_flush()")
    commits = await reader.fetchval(
        "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    )
    size = await reader.fetchval(
        "SELECT sum(pg_total_relation_size(i.inhrelid)) FROM pg_inherits i"
        " WHERE i.inhparent::regclass::text"
        " IN ('rowlock.run', 'rowlock.run_event', 'rowlock.run_final')"
    )
    wal = await reader.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
    return Meter(cpu(worker_pid), cpu(postgres_pid), int(commits), int(size), int(wal))


def cpu(root: int) -> float:
    """Return the CPU seconds of a process, its living descendants, and those it has waited for."""
    total, queue = 0.0, [root]
    while queue:
        pid = queue.pop()
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            continue
        total += sum(int(field) for field in fields[11:15]) * _TICK
        queue += [int(child) for child in children]
    return total


async def report(
    reader: asyncpg.Connection,
    arguments: argparse.Namespace,
    before: Meter,
    after: Meter,
    after_run: int,
) -> dict[str, Any]:
    """Turn counters and the database's times into figures."""
    rows = await reader.fetch(
        "SELECT extract(epoch FROM claimed_at)::float8 AS began,"
        " extract(epoch FROM finished_at)::float8 AS ended"
        " FROM rowlock.run_final WHERE run_id > $1",
        after_run,
    )
    took = sorted(row["ended"] - row["began"] for row in rows)
    seconds = max(row["ended"] for row in rows) - min(row["began"] for row in rows)
    runs = arguments.runs
    waits = HOSTED_SECONDS if arguments.model == "hosted" else 0.0
    ideal = runs * waits / arguments.concurrency
    return {
        "model": arguments.model,
        "concurrency": arguments.concurrency,
        "workers": arguments.workers,
        "runs": runs,
        "seconds": round(seconds, 3),
        "runs_per_second": round(runs / seconds, 1),
        "run_seconds_p50": round(statistics.median(took), 4),
        "run_seconds_p99": round(took[int(len(took) * 0.99) - 1], 4),
        "added_seconds_p50": round(statistics.median(took) - waits, 4),
        "ideal_ratio": round(ideal / seconds, 4),
        "worker_cpu_ms_per_run": round((after.worker_cpu - before.worker_cpu) * 1000 / runs, 4),
        "postgres_cpu_ms_per_run": round(
            (after.postgres_cpu - before.postgres_cpu) * 1000 / runs, 4
        ),
        "commits_per_run": round((after.commits - before.commits) / runs, 4),
        "bytes_per_run": round((after.bytes - before.bytes) / runs, 1),
        "wal_bytes_per_run": round((after.wal - before.wal) / runs, 1),
    }


async def check(
    connection: Connection,
    reader: asyncpg.Connection,
    calls: list[str],
    runs: int,
    after_run: int,
) -> bool:
    """Every run succeeded once, nothing is left over, and money moved once for each."""
    succeeded = await reader.fetchval(
        "SELECT count(*) FROM rowlock.run_final WHERE run_id > $1 AND status = 1", after_run
    )
    measured = [call for call in calls if int(call.split("/")[0]) > after_run]
    wrong = await violations(connection)
    for problem, run in wrong[:5]:
        print(f"violation: {problem} (run {run})", file=sys.stderr)
    return succeeded == runs == len(measured) == len(set(measured)) and not wrong


def table(figures: Figures) -> Table:
    """Lay the figures out for people."""
    result = Table("figure", "value", title="Load A: support agent")
    for name, value in asdict(figures).items():
        result.add_row(name, str(value))
    return result


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench support",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", choices=("instant", "hosted"), default="instant")
    parser.add_argument("--concurrency", type=int, default=512, help="runs at once")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1, help="loop processes")
    parser.add_argument("--warm-up", type=int, default=500, help="runs before the clock starts")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    return parser.parse_args()


def main() -> None:
    """Measure, print, and say by the exit code whether the results were right."""
    arguments = parse()
    console = Console(stderr=True)
    figures = asyncio.run(measure(arguments, console))
    Console().print(table(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(figures), indent=2) + "\n")
    sys.exit(0 if figures.effects_exactly_once else 1)


if __name__ == "__main__":
    main()
