"""Load B: a thousand long runs at once, with a real client, a sandbox and somebody who looks.

    python -m bench long --scale 0.1
    python -m bench long --runs 1000 --json FILE
    python -m bench long --scale 0.1 --restart-postgres

One `rowlock worker` of two processes holds all runs at once, PostgreSQL is a millisecond away
(a proxy that holds back what clients say), and `OpenAIChat` listens over HTTP to a server that
streams a token at a time. Four fifths of the runs take 25 to 50 steps, one fifth 100 to 145 with
bigger outputs; a step is a turn of the model and a command in a sandbox that answers after 150 ms.
A tenth of the runs is watched: their live text goes as far as another process.
All start within 30 s. `--scale` makes runs, steps and that time so much smaller or larger.

Each second is recorded. At the end every row of every run is read from the database and compared
with what must be there, and the commands with the sandbox's ledger: one lost or doubled is a
failure of the load, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench._long_figures import Verdict, figures, ideal_seconds, verdict
from bench._long_watch import Ear, Watch
from bench.agents.long import Task
from bench.support import ROOT, command
from rowlock.embedded import EmbeddedPostgres
from rowlock.store import bodies, intake
from rowlock.store.connection import Connection
from rowlock.store.invariants import violations
from rowlock.store.migrate import migrate
from rowlock.store.types import NewRun

_SETTINGS = {"max_wal_size": "4GB", "shared_buffers": "512MB"}
_RAMP_SECONDS = 30.0
_SLICE_SECONDS = 0.1
#: Steps of a run that has the worker to itself, and how often that is looked at.
_ALONE = (3, 2)
#: A load that takes so many times as long as its longest run alone has failed.
_PATIENCE = 3.0


def tasks(runs: int, scale: float, *, first: int) -> list[Task]:
    """Return what each run is to do: the same for the same numbers."""
    chance = random.Random(runs)
    made: list[Task] = []
    for number in range(first, first + runs):
        big = number % 5 == 4
        steps = chance.randint(100, 145) if big else chance.randint(25, 50)
        watched = number % 20 in (0, 4)
        scaled = max(round(steps * scale), 1)
        made.append(Task(number=number, steps=scaled, big=big, watched=watched))
    return made


class Bench:
    """All that takes part in one load, and what it needs to be asked.

    Parameters
    ----------
    folder
        For the ledger and the socket of those who look.
    """

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments = arguments
        self.ledger = folder / "ledger"
        self.ear = Ear(folder / "viewer")
        self.server = EmbeddedPostgres(_SETTINGS)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Watch]:
        """Run PostgreSQL, what stands before it, the model's server and the worker."""
        arguments = self.arguments
        async with contextlib.AsyncExitStack() as stack:
            self.server.start()
            stack.callback(self.server.remove)
            await migrate(self.server.url())
            await stack.enter_async_context(self.ear.listening())
            model, model_port = await _started(
                stack,
                "bench._long_server",
                f"--rate={arguments.rate}",
                f"--tokens={arguments.tokens}",
            )
            stack.enter_context(self.ear.hearing(model))
            port = self.server.url().rsplit(":", 1)[1].split("/")[0]
            proxy, proxy_port = await _started(
                stack, "bench._delay_proxy", f"--to={port}", f"--ms={arguments.delay_ms}"
            )
            metrics = _free_port()
            url = self.server.url().replace(f":{port}/", f":{proxy_port}/")
            worker = await self._worker(url, model_port, metrics)
            stack.push_async_callback(_end, worker)
            yield Watch(
                self.server, self.ear, metrics, worker=worker.pid, model=model.pid, proxy=proxy.pid
            )

    async def _worker(self, url: str, model_port: int, metrics: int) -> asyncio.subprocess.Process:
        arguments = self.arguments
        argv, environment = command(
            url,
            self.ledger,
            pace="instant",
            processes=arguments.workers,
            slots=arguments.runs + arguments.workers,
        )
        environment["BENCH_MODEL"] = f"http://127.0.0.1:{model_port}/v1"
        environment["BENCH_VIEWER"] = str(self.ear.path)
        if arguments.profile:
            arguments.profile.mkdir(parents=True, exist_ok=True)
            environment["BENCH_PROFILE"] = str(arguments.profile.absolute())
        return await asyncio.create_subprocess_exec(
            *argv, f"--metrics-port={metrics}", env=environment
        )

    async def enqueue(self, new: list[Task], seconds: float) -> dict[int, Task]:
        """Ask for all runs, evenly over so many seconds; return them by their ids."""
        connection = await Connection.open(self.server.url(), name="bench")
        pool = await intake.ensure_pool(connection, namespace="", name="default")
        entrypoint = "bench.agents.long:agent"
        agent, revision = await intake.ensure_agent(
            connection, namespace="", name="long", entrypoint=entrypoint, spec=b"{}", digest="1"
        )
        asked: dict[int, Task] = {}
        began, slices = time.monotonic(), max(round(seconds / _SLICE_SECONDS), 1)
        for place in range(slices):
            part = new[len(new) * place // slices : len(new) * (place + 1) // slices]
            rows = [
                NewRun(agent, revision, pool, input=bodies.encode(task.model_dump()))
                for task in part
            ]
            accepted = await intake.enqueue(connection, rows) if rows else []
            asked |= {int(one.run_id): task for one, task in zip(accepted, part, strict=True)}
            await asyncio.sleep(max(began + (place + 1) * _SLICE_SECONDS - time.monotonic(), 0))
        await connection.close()
        return asked

    async def verdict(self, asked: Mapping[int, Task]) -> Verdict:
        """Compare what is stored with what must be."""
        numbers = {str(task.number) for task in asked.values()}
        given = [
            line
            for line in self.ledger.read_text().split()
            if line.split(".", maxsplit=1)[0] in numbers
        ]
        reader = await asyncpg.connect(self.server.url())
        arguments = self.arguments
        found = await verdict(reader, asked, given, rate=arguments.rate, tokens=arguments.tokens)
        await reader.close()
        connection = await Connection.open(self.server.url(), name="bench")
        found.problems["invariants broken"] = len(await violations(connection))
        await connection.close()
        return found


async def measure(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Run the load once."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, Path(folder))
        async with bench.running() as watch:
            idle = await alone(bench, watch)
            new = tasks(arguments.runs, arguments.scale, first=0)
            expected = max(
                ideal_seconds(task, rate=arguments.rate, tokens=arguments.tokens) for task in new
            )
            ramp = min(_RAMP_SECONDS * arguments.scale, _RAMP_SECONDS)
            watch.begin()
            asking = asyncio.create_task(bench.enqueue(new, ramp))
            await follow(watch, arguments, expected=expected + ramp, asking=asking, console=console)
            asked = await asking
            found = await bench.verdict(asked)
        found.problems["conversations that the model's server refused"] = bench.ear.wrong
        shown = figures(watch.seconds, found, idle=idle, tasks=asked)
    shown["postgres_restarted"] = arguments.restart_postgres
    return {**shown, "per_second": [second.shown() for second in watch.seconds]}


async def alone(bench: Bench, watch: Watch) -> float:
    """Return by how much a run takes longer than its model when nothing else runs."""
    steps, times = _ALONE
    stretches: list[float] = []
    for number in range(times):
        task = Task(number=1_000_000 + number, steps=steps, big=False, watched=False)
        asked = await bench.enqueue([task], 0)
        while await watch.left():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        stretches += (await bench.verdict(asked)).stretches
    return min(stretches)


async def follow(
    watch: Watch,
    arguments: argparse.Namespace,
    *,
    expected: float,
    asking: asyncio.Task[Any],
    console: Console,
) -> None:
    """Record each second until no run is left; restart PostgreSQL in the middle if asked to."""
    restarting: asyncio.Task[None] | None = None
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("runs", total=arguments.runs)
        while True:
            await asyncio.sleep(1)
            second = await watch.look()
            if arguments.restart_postgres and restarting is None and second.at > expected / 2:
                restarting = asyncio.create_task(asyncio.to_thread(watch.server.restart))
            progress.update(bar, completed=arguments.runs - second.left if asking.done() else 0)
            if asking.done() and second.left == 0:
                break
            if second.at > _PATIENCE * expected + 60:
                raise TimeoutError(f"{second.left} runs are left after {second.at:.0f} s")
    if restarting is not None:
        await restarting


async def _started(
    stack: contextlib.AsyncExitStack, module: str, *options: str
) -> tuple[asyncio.subprocess.Process, int]:
    """Start a server of ours and return it with the port that it says first."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *options, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    stack.push_async_callback(_end, process)
    assert process.stdout is not None
    return process, int(await process.stdout.readline())


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench long",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, help="at once; default 1000 times the scale")
    parser.add_argument("--scale", type=float, default=1.0, help="of runs, steps and the start")
    parser.add_argument("--workers", type=int, default=2, help="loop processes")
    parser.add_argument("--rate", type=float, default=70.0, help="tokens a second and stream")
    parser.add_argument("--tokens", type=int, default=250, help="of a turn of the model")
    parser.add_argument("--delay-ms", type=float, default=1.0, help="of PostgreSQL, a round trip")
    parser.add_argument("--restart-postgres", action="store_true", help="in the middle")
    parser.add_argument("--profile", type=Path, help="write samples of the loops into this folder")
    parser.add_argument("--json", type=Path, help="write figures and all seconds here, too")
    arguments = parser.parse_args()
    arguments.runs = arguments.runs or max(round(1000 * arguments.scale), 1)
    return arguments


def main() -> None:
    """Measure, print, and say by the exit code whether the results were right."""
    arguments = parse()
    shown = asyncio.run(measure(arguments, Console(stderr=True)))
    table = Table("figure", "value", title="Load B: long runs")
    for name, value in shown.items():
        if name != "per_second":
            table.add_row(name, str(value))
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(shown, indent=2) + "\n")
    sys.exit(1 if shown["problems"] else 0)


if __name__ == "__main__":
    main()
