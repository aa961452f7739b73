"""Load A: what a durable support run costs, four model turns and three tool calls.

    python -m bench support --model instant --concurrency 512 --runs 10000
    python -m bench support --model hosted --concurrency 1024 --runs 6144 --json FILE

A PostgreSQL of its own with default durability and one `rowlock worker` share the machine.
The model is scripted: `instant`, or `hosted` (600 ms to the first token, 60 tokens a second;
5.15 s of waiting a run). After a warm-up all runs are enqueued in one transaction, so that none
can be claimed before all can, and the clock runs from the first claim to the last end.
The results are then checked in the database and in the ledger of refunds; a load with a wrong
one exits with 1, whatever its speed.

`--arrivals burst`: all runs start at once and stay in step: the hard case, for each wave wants the
loop at once. `--arrivals even`: as many as there are slots come in evenly over the time that one
run waits, the rest with the last of them; so the slots are full and out of step, as in a service.
`ideal_ratio` compares with a worker that costs no time at all and has to wait for its models in
whole waves: 6,000 runs with 1,024 slots are six waves, of which the last is not full.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import asyncpg
from rich.console import Console
from rich.progress import Progress

from bench import _meters as meters
from bench._figures import HOSTED_SECONDS, SLICE_SECONDS, Figures, Seen, figures, median, table
from rowlock.embedded import EmbeddedPostgres
from rowlock.store import bodies, intake
from rowlock.store.connection import Connection
from rowlock.store.invariants import violations
from rowlock.store.migrate import migrate
from rowlock.store.types import NewRun

ROOT = Path(__file__).parents[1]
_SETTINGS = {"max_wal_size": "4GB", "shared_buffers": "512MB"}
_LOOK_SECONDS = 0.25


async def measure(arguments: argparse.Namespace, console: Console) -> Figures:
    """Run the load once."""
    with EmbeddedPostgres(_SETTINGS) as server, tempfile.TemporaryDirectory() as folder:
        await migrate(server.url())
        reader = await asyncpg.connect(server.url())
        seen = await observe(server, reader, Path(folder) / "ledger", arguments, console)
        await reader.close()
    return figures(arguments, seen)


async def observe(
    server: EmbeddedPostgres,
    reader: asyncpg.Connection,
    ledger: Path,
    arguments: argparse.Namespace,
    console: Console,
) -> Seen:
    """Warm up, load, and read all counters around it."""
    fresh = await meters.tally(reader)
    connection = await Connection.open(server.url(), name="bench")
    with worker(server.url(), ledger, arguments) as process:
        pids = {"worker_pid": process.pid, "postgres_pid": server.pid}
        load = Load(connection, reader, process.pid, console)
        await load.run(arguments.workers, "first run")
        small = meters.resident_mb(process.pid)
        await load.run(min(arguments.runs, arguments.warm_up), "warm up")
        after_run = await last_run(reader)
        before = await meters.read(reader, **pids)
        await load.run(arguments.runs, "load", slices=first_wave(arguments))
        after = await meters.read(reader, **pids)
    good = await check(connection, reader, calls(ledger), arguments.runs, after_run)
    await connection.close()
    return Seen(
        before=before,
        after=after,
        grown_mb=load.peak_mb - small,
        tallies=(fresh, await meters.tally(reader)),
        tallied_runs=load.runs,
        times=await run_times(reader, after_run),
        good=good,
    )


@contextmanager
def worker(
    url: str, ledger: Path, arguments: argparse.Namespace
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one worker for the length of the block."""
    argv, environment = command(
        url,
        ledger,
        pace=arguments.model,
        processes=arguments.workers,
        slots=arguments.concurrency,
    )
    with subprocess.Popen(argv, env=environment) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


def command(
    url: str, ledger: Path, *, pace: str, processes: int, slots: int
) -> tuple[list[str], dict[str, str]]:
    """Return command line and environment of a worker that runs the load's agent."""
    roots = [str(ROOT / part) for part in ("worker-image", "examples", ".")]
    settings = {
        "ROWLOCK_DATABASE_URL": url,
        "PYTHONPATH": os.pathsep.join(roots),
        "SUPPORT_MODEL_PACE": pace,
        "BENCH_LEDGER": str(ledger),
    }
    argv = [sys.executable, "-m", "rowlock.cli", "worker", "--log-level=WARNING"]
    argv += [f"--processes={processes}", f"--slots={slots}"]
    return argv, {**os.environ, **settings}


class Load:
    """Runs of the support agent, enqueued and waited for.

    Attributes
    ----------
    runs
        How many so far.
    peak_mb
        The most memory that the loops had at any look.
    """

    def __init__(
        self,
        connection: Connection,
        reader: asyncpg.Connection,
        worker_pid: int,
        console: Console,
    ) -> None:
        self.runs = 0
        self.peak_mb = 0.0
        self._connection = connection
        self._reader = reader
        self._worker_pid = worker_pid
        self._console = console

    async def run(self, runs: int, what: str, *, slices: Sequence[int] = (0,)) -> None:
        """Enqueue `runs` runs and wait until none is left.

        Parameters
        ----------
        slices
            How many come in together, one slice every `SLICE_SECONDS`; all others with the last.
        """
        self.runs += runs
        await self._enqueue(await self._new_runs(runs), slices)
        with Progress(console=self._console, transient=True) as progress:
            bar = progress.add_task(what, total=runs)
            while left := await self._reader.fetchval(_LEFT):
                progress.update(bar, completed=runs - left)
                self.peak_mb = max(self.peak_mb, meters.resident_mb(self._worker_pid))
                await asyncio.sleep(_LOOK_SECONDS)

    async def enqueue(self, runs: int) -> None:
        """Enqueue `runs` runs and wait for none."""
        self.runs += runs
        await intake.enqueue(self._connection, await self._new_runs(runs))

    async def _enqueue(self, new: list[NewRun], slices: Sequence[int]) -> None:
        began = time.monotonic()
        for number, size in enumerate(slices, start=1):
            part, new = (new[:size], new[size:]) if number < len(slices) else (new, [])
            async with self._connection.transaction():
                await intake.enqueue(self._connection, part)
            if new:
                await asyncio.sleep(began + number * SLICE_SECONDS - time.monotonic())

    async def _new_runs(self, runs: int) -> list[NewRun]:
        pool = await intake.ensure_pool(self._connection, namespace="", name="default")
        agent, revision = await intake.ensure_agent(
            self._connection,
            namespace="",
            name="support",
            entrypoint="bench.agents.support:agent",
            spec=b"{}",
            digest="1",
        )
        return [
            NewRun(agent, revision, pool, input=bodies.encode({"order_id": str(1000 + number)}))
            for number in range(runs)
        ]


def first_wave(arguments: argparse.Namespace) -> list[int]:
    """Return how many runs come in with each slice of the first wave."""
    if arguments.arrivals == "burst":
        return [0]
    slices = round(HOSTED_SECONDS / SLICE_SECONDS)
    slots: int = arguments.concurrency
    return [slots * (n + 1) // slices - slots * n // slices for n in range(slices)]


_LEFT = "SELECT count(*) FROM rowlock.run_live"


def calls(ledger: Path) -> list[str]:
    """Return the call ids of all refunds."""
    return ledger.read_text().split()


async def last_run(reader: asyncpg.Connection) -> int:
    """Return the newest run's id."""
    return int(await reader.fetchval("SELECT max(run_id) FROM rowlock.run"))


async def run_times(reader: asyncpg.Connection, after_run: int) -> list[tuple[float, float]]:
    """Return when each run was claimed and when it ended."""
    rows = await reader.fetch(
        "SELECT extract(epoch FROM claimed_at)::float8, extract(epoch FROM finished_at)::float8"
        " FROM rowlock.run_final WHERE run_id > $1",
        after_run,
    )
    return [(row[0], row[1]) for row in rows]


async def check(
    connection: Connection,
    reader: asyncpg.Connection,
    refunds: list[str],
    runs: int,
    after_run: int,
) -> bool:
    """Every run succeeded once, nothing is left over, and money moved once for each."""
    succeeded = await reader.fetchval(
        "SELECT count(*) FROM rowlock.run_final WHERE run_id > $1 AND status = 1", after_run
    )
    measured = [call for call in refunds if int(call.split("/")[0]) > after_run]
    wrong = await violations(connection)
    for problem, run in wrong[:5]:
        print(f"violation: {problem} (run {run})", file=sys.stderr)
    return succeeded == runs == len(measured) == len(set(measured)) and not wrong


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench support",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", choices=("instant", "hosted"), default="instant")
    parser.add_argument("--arrivals", choices=("burst", "even"), default="burst")
    parser.add_argument("--concurrency", type=int, default=512, help="runs at once")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1, help="loop processes")
    parser.add_argument("--warm-up", type=int, default=500, help="runs before the clock starts")
    parser.add_argument("--repeat", type=int, default=1, help="measure so often, show medians")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    arguments = parser.parse_args()
    if arguments.arrivals == "even" and arguments.model == "instant":
        parser.error("--arrivals even spreads what a model waits: use it with --model hosted")
    return arguments


def main() -> None:
    """Measure, print, and say by the exit code whether the results were right."""
    arguments = parse()
    console = Console(stderr=True)
    repeats = [asyncio.run(measure(arguments, console)) for _ in range(arguments.repeat)]
    shown = median(repeats)
    Console().print(table(shown))
    if arguments.json:
        every = {"repeats": [asdict(one) for one in repeats]} if len(repeats) > 1 else {}
        arguments.json.write_text(json.dumps({**shown, **every}, indent=2) + "\n")
    sys.exit(0 if shown["effects_exactly_once"] else 1)


if __name__ == "__main__":
    main()
