"""The bare store: how many rows a second its hot statements move, and what each costs.

    python -m bench.store [--runs 20000] [--events 8] [-o FILE]

It starts a PostgreSQL of its own with default durability.
One connection enqueues, claims, appends and finishes; `--lanes` of them work side by side.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from rowlock.embedded import EmbeddedPostgres
from rowlock.states import EventKind, FinalStatus
from rowlock.store import intake, invariants, work, workers
from rowlock.store.connection import Connection
from rowlock.store.migrate import migrate
from rowlock.store.types import Claimed, Event, Final, NewRun, NewWorker, PoolId, WorkerId

T = TypeVar("T")


@dataclass(frozen=True)
class Figure:
    """What one statement did over the whole load.

    Parameters
    ----------
    rows_per_second
        Over the wall time of this phase, all lanes together.
    p50_ms, p99_ms
        Of one call.
    server_us, client_us
        CPU per row, of PostgreSQL's backends and of this process.
    """

    statement: str
    rows: int
    batch: int
    rows_per_second: int
    p50_ms: float
    p99_ms: float
    server_us: float
    client_us: float


class Load:
    """One database, some lanes, each with a connection and a worker of its own."""

    def __init__(self, server: EmbeddedPostgres, *, lanes: int, runs: int, events: int) -> None:
        self.server = server
        self.lanes = lanes
        self.runs = runs // lanes
        self.events = events
        self.body = json.dumps({"text": "x" * 900}).encode()
        self.connections: list[Connection] = []
        self.workers: list[WorkerId] = []
        self.claimed: list[list[Claimed]] = [[] for _ in range(lanes)]
        self.took: list[float] = []

    async def prepare(self) -> None:
        """Migrate, connect and register."""
        await migrate(self.server.url())
        opened = [Connection.open(self.server.url(), name="bench") for _ in range(self.lanes)]
        self.connections = await asyncio.gather(*opened)
        first = self.connections[0]
        self.pool = await intake.ensure_pool(first, namespace="", name="bench")
        self.agent, self.revision = await intake.ensure_agent(
            first, namespace="", name="bench", entrypoint="bench:agent", spec=b"{}", digest="1"
        )
        self.workers = await workers.register(
            first, [_process(self.pool, lane) for lane in range(self.lanes)]
        )

    async def phase(
        self, name: str, batch: int, rows: int, lane: Callable[[int, int], Awaitable[None]]
    ) -> Figure:
        """Run one phase in all lanes and measure it."""
        self.took = []
        server, client, began = _server_cpu(self.server.pid), time.process_time(), time.monotonic()
        await asyncio.gather(*(lane(number, batch) for number in range(self.lanes)))
        wall = time.monotonic() - began
        server, client = _server_cpu(self.server.pid) - server, time.process_time() - client
        cuts = statistics.quantiles(self.took, n=100)
        return Figure(
            name, rows, batch, round(rows / wall),
            round(cuts[49] * 1e3, 2), round(cuts[98] * 1e3, 2),
            round(server / rows * 1e6, 1), round(client / rows * 1e6, 1),
        )  # fmt: skip

    async def enqueue(self, lane: int, batch: int) -> None:
        """Enqueue this lane's share, linked to custom resources."""
        for start in range(0, self.runs, batch):
            new = [self._new(f"{lane}-{n}") for n in range(start, min(start + batch, self.runs))]
            await self._timed(intake.enqueue(self.connections[lane], new))

    async def claim(self, lane: int, batch: int) -> None:
        """Claim until nothing is left."""
        while True:
            found = await self._timed(
                work.claim(
                    self.connections[lane],
                    worker=self.workers[lane],
                    pool=self.pool,
                    token=time.monotonic_ns(),
                    limit=batch,
                )
            )
            if not found:
                return
            self.claimed[lane] += found

    async def append(self, lane: int, batch: int) -> None:
        """Write every event of every run, one event a run in each batch."""
        for seq in range(1, self.events + 1):
            for start in range(0, len(self.claimed[lane]), batch):
                chosen = self.claimed[lane][start : start + batch]
                events = [self._event(run, seq) for run in chosen]
                await self._timed(
                    work.append(self.connections[lane], worker=self.workers[lane], events=events)
                )

    async def finish(self, lane: int, batch: int) -> None:
        """End every run, with one last event each."""
        for start in range(0, len(self.claimed[lane]), batch):
            chosen = self.claimed[lane][start : start + batch]
            await self._timed(
                work.finish(
                    self.connections[lane],
                    worker=self.workers[lane],
                    events=[self._event(run, self.events + 1) for run in chosen],
                    finals=[_end(run) for run in chosen],
                )
            )

    async def check(self) -> None:
        """Assert that the database is sound and that every run has ended."""
        assert await invariants.violations(self.connections[0]) == []
        ended = await self.connections[0].fetch(
            "finished", [run.run_id for lane in self.claimed for run in lane]
        )
        assert len(ended) == self.runs * self.lanes
        for connection in self.connections:
            await connection.close()

    async def _timed(self, call: Awaitable[T]) -> T:
        began = time.monotonic()
        answer = await call
        self.took.append(time.monotonic() - began)
        return answer

    def _new(self, uid: str) -> NewRun:
        return NewRun(
            self.agent, self.revision, self.pool, self.body[:300], cluster="c", uid=uid, name=uid
        )

    def _event(self, run: Claimed, seq: int) -> Event:
        return Event(
            run.run_id, seq, run.epoch, run.attempt, EventKind.STEP_DONE, "turn", 1, 5, self.body
        )


def _end(run: Claimed) -> Final:
    return Final(run.run_id, run.epoch, FinalStatus.SUCCEEDED, outcome="ok", result=b'{"ok":true}')


def _process(pool: PoolId, lane: int) -> NewWorker:
    return NewWorker(pool, f"bench/{lane}", f"bench-{lane}", lane, "bench", 600)


def _server_cpu(postmaster: int) -> float:
    """Return seconds of CPU that the server's processes have used, ended ones included."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == postmaster:
            ticks += int(fields[11]) + int(fields[12])
        if stat.parent.name == str(postmaster):
            ticks += int(fields[13]) + int(fields[14])
    return ticks / 100


async def measure(*, lanes: int, runs: int, events: int) -> list[Figure]:
    """Run the whole load once."""
    with EmbeddedPostgres() as server:
        load = Load(server, lanes=lanes, runs=runs, events=events)
        await load.prepare()
        total = load.runs * lanes
        figures = [
            await load.phase("enqueue", 500, total, load.enqueue),
            await load.phase("claim", 64, total, load.claim),
            await load.phase("append", 250, total * events, load.append),
            await load.phase("finish", 100, total, load.finish),
        ]
        await load.check()
        return figures


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--events", type=int, default=8)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    figures = asyncio.run(measure(lanes=given.lanes, runs=given.runs, events=given.events))
    print(f"{'statement':10}{'rows':>9}{'batch':>7}{'rows/s':>9}{'p50 ms':>8}{'p99 ms':>8}"
          f"{'server us':>11}{'client us':>11}")  # fmt: skip
    for f in figures:
        print(f"{f.statement:10}{f.rows:>9}{f.batch:>7}{f.rows_per_second:>9}{f.p50_ms:>8}{f.p99_ms:>8}"
              f"{f.server_us:>11}{f.client_us:>11}")  # fmt: skip
    if given.output:
        given.output.write_text(json.dumps([asdict(f) for f in figures], indent=2))


if __name__ == "__main__":
    main()
