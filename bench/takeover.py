"""Load D: how soon runs go on elsewhere when what runs them is lost.

    python -m bench takeover --kind loop --times 15
    python -m bench takeover --kind worker --times 15 --json FILE

Two workers of one process each share 256 support runs that wait for a hosted model (load A).
Every six seconds one of them is hurt, and for each run that it held it is read from the database
how long it took until the run was leased again, by the database's clock.

loop    SIGKILL of a loop process; its supervisor lives
worker  SIGKILL of supervisor and loop; the worker is started again at once, as a container is
drain   SIGTERM; another worker is started at once; nothing may count as a takeover

The results are checked as those of load A are: a wrong one exits with 1, whatever the times.
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
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench import _meters as meters
from bench.support import Load, calls, check, command
from rowlock.embedded import EmbeddedPostgres
from rowlock.store.connection import Connection
from rowlock.store.migrate import migrate

_SETTINGS = {"max_wal_size": "4GB", "shared_buffers": "512MB"}
_AT_ONCE = 256
_PAUSE_SECONDS = 6.0
_LOOK_SECONDS = 0.02
_WITHIN_SECONDS = 60.0

_BUSIEST = """
SELECT w.worker_id, w.pid, count(*) AS runs
FROM rowlock.worker w JOIN rowlock.run_lease l USING (worker_id)
WHERE w.fenced_at IS NULL AND NOT w.quarantine
GROUP BY w.worker_id ORDER BY runs DESC LIMIT 1
"""
_HELD = "SELECT run_id, epoch FROM rowlock.run_lease WHERE worker_id = $1"
#: Since when each run of $1 is held at a later epoch than $2; those that ended meanwhile, too.
_AGAIN = """
SELECT h.run_id, min(l.claimed_at) AS at
FROM unnest($1::bigint[], $2::int[]) AS h(run_id, epoch)
JOIN (SELECT run_id, epoch, claimed_at FROM rowlock.run_lease
      UNION ALL SELECT run_id, epoch, claimed_at FROM rowlock.run_final) l
  ON l.run_id = h.run_id AND l.epoch > h.epoch
GROUP BY h.run_id
"""
_ENDED = "SELECT count(*) FROM rowlock.run_final WHERE run_id = ANY($1::bigint[]) AND epoch = 1"


@dataclass
class Seen:
    """Seconds from the harm until a run was held again, of all runs that were hit."""

    seconds: list[float] = field(default_factory=list)
    hits: int = 0
    ended: int = 0


class Fleet:
    """Two workers, each in a process group of its own."""

    def __init__(self, url: str, ledger: Path) -> None:
        self._url, self._ledger = url, ledger
        self.workers = [self.start(f"bench-{n}") for n in range(2)]

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a worker."""
        argv, environment = command(
            self._url, self._ledger, pace="hosted", processes=1, slots=_AT_ONCE
        )
        return subprocess.Popen(
            [*argv, f"--instance={name}", "--log-level=ERROR"],
            env=environment,
            start_new_session=True,
        )

    def of(self, supervisor: int) -> int:
        """Return the place of a worker."""
        return next(n for n, process in enumerate(self.workers) if process.pid == supervisor)

    def loop_of(self, place: int) -> int:
        """Return a worker's only loop process."""
        loops = [
            pid
            for pid in meters.children(self.workers[place].pid)
            if "rowlock.engine.process" in meters.process_file(pid, "cmdline")
        ]
        return min(loops)  # one of quarantine would be younger

    def end(self) -> None:
        """Have all leave."""
        for process in self.workers:
            process.send_signal(signal.SIGTERM)
        for process in self.workers:
            process.wait()


async def measure(arguments: argparse.Namespace, console: Console) -> tuple[Seen, bool, int]:
    """Hurt workers, and return what was seen, whether all results are right, and the takeovers."""
    with EmbeddedPostgres(_SETTINGS) as server, tempfile.TemporaryDirectory() as folder:
        await migrate(server.url())
        reader = await asyncpg.connect(server.url())
        connection = await Connection.open(server.url(), name="bench")
        ledger = Path(folder) / "ledger"
        fleet = Fleet(server.url(), ledger)
        load = Load(connection, reader, fleet.workers[0].pid, console)
        seen = Seen()
        try:
            await load.run(2, "first run")
            first = int(await reader.fetchval("SELECT max(run_id) FROM rowlock.run"))
            before = load.runs
            feeding = asyncio.create_task(feed(load, server.url()))
            with Progress(console=console, transient=True) as progress:
                bar = progress.add_task(f"hurting ({arguments.kind})", total=arguments.times)
                for _ in range(arguments.times):
                    await asyncio.sleep(_PAUSE_SECONDS)
                    await hurt(arguments.kind, fleet, reader, seen)
                    progress.advance(bar)
            feeding.cancel()
            await none_left(reader)
        finally:
            fleet.end()
        good = await check(connection, reader, calls(ledger), load.runs - before, first)
        takeovers = int(await reader.fetchval("SELECT sum(takeovers) FROM rowlock.run_final"))
        await connection.close()
        await reader.close()
    return seen, good, takeovers


async def feed(load: Load, url: str) -> None:
    """Keep so many runs at once without an end."""
    counter = await asyncpg.connect(url)
    while True:
        live = await counter.fetchval("SELECT count(*) FROM rowlock.run_live")
        if live < _AT_ONCE:
            await load.enqueue(_AT_ONCE - live)
        await asyncio.sleep(0.1)


async def none_left(reader: asyncpg.Connection) -> None:
    """Wait until all runs have ended."""
    while await reader.fetchval("SELECT count(*) FROM rowlock.run_live"):  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_SECONDS)


async def hurt(kind: str, fleet: Fleet, reader: asyncpg.Connection, seen: Seen) -> None:
    """Hurt the busiest worker and watch its runs."""
    [victim] = await reader.fetch(_BUSIEST)
    place = fleet.of(victim["pid"])
    process = fleet.workers[place]
    held = await reader.fetch(_HELD, victim["worker_id"])
    at = await reader.fetchval("SELECT clock_timestamp()")
    if kind == "loop":
        os.kill(fleet.loop_of(place), signal.SIGKILL)
    else:
        os.killpg(process.pid, signal.SIGKILL if kind == "worker" else signal.SIGTERM)
        fleet.workers[place] = fleet.start(f"bench-{place}" if kind == "worker" else f"{at:%H%M%S}")
    ids, epochs = [row["run_id"] for row in held], [row["epoch"] for row in held]
    again: dict[int, float] = {}
    deadline = asyncio.get_running_loop().time() + _WITHIN_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        rows = await reader.fetch(_AGAIN, ids, epochs)
        again = {row["run_id"]: (row["at"] - at).total_seconds() for row in rows}
        ended = await reader.fetchval(_ENDED, ids)
        if len(again) + ended >= len(ids):
            break
        await asyncio.sleep(_LOOK_SECONDS)
    await asyncio.to_thread(process.wait) if kind != "loop" else None
    seen.seconds += again.values()
    seen.hits += len(ids)
    seen.ended += len(ids) - len(again)


def figures(kind: str, seen: Seen, *, good: bool, takeovers: int) -> dict[str, object]:
    """Turn what was seen into figures; times in seconds."""
    times = sorted(seen.seconds)
    return {
        "kind": kind,
        "runs_hit": seen.hits,
        "ended_before": seen.ended,
        "elsewhere_p50": round(statistics.median(times), 3),
        "elsewhere_p95": round(times[int(len(times) * 0.95) - 1], 3),
        "elsewhere_max": round(times[-1], 3),
        "takeovers": takeovers,
        "effects_exactly_once": good,
    }


def main() -> None:
    """Measure, print, and say by the exit code whether the results were right."""
    parser = argparse.ArgumentParser(
        prog="python -m bench takeover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kind", choices=("loop", "worker", "drain"), default="loop")
    parser.add_argument("--times", type=int, default=15, help="how often something is hurt")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    arguments = parser.parse_args()
    seen, good, takeovers = asyncio.run(measure(arguments, Console(stderr=True)))
    shown = figures(arguments.kind, seen, good=good, takeovers=takeovers)
    table = Table("figure", "value", title="Load D: takeover")
    for name, value in shown.items():
        table.add_row(name, str(value))
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(shown, indent=2) + "\n")
    right = good and (arguments.kind != "drain" or takeovers == 0)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
