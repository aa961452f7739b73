"""Load C: what a re-drive costs beside the steps that it has to do.

    python -m bench redrive                          40 pages of 2.5 s, page 17 fails at first
    python -m bench redrive --pages 101 --failing 101 --seconds 0.01 --rounds 20

A PostgreSQL of its own with default durability and one `rowlock worker` that is otherwise idle.
A run reads its pages one after the other, and one of them fails. Then its provider is back,
and the run is re-driven: finished pages are read back, the others are done.

* `picked up`: from the moment when the re-drive is asked for to the claim.
* `loaded`: from the claim to the first line of the agent.
* `skipped`: from there to the begin of the first page that was not finished.
* `overhead`: the whole, from asking to the last row, without the pages' own time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import asyncpg
from rich.console import Console
from rich.table import Table

from bench.support import worker
from rowlock.embedded import EmbeddedPostgres
from rowlock.states import FinalStatus
from rowlock.store import intake, redrive
from rowlock.store.connection import Connection
from rowlock.store.migrate import migrate
from rowlock.store.types import NewRun, Redriving, RunId

_LOOK_SECONDS = 0.002


@dataclass(frozen=True)
class Figure:
    """One re-drive; times in milliseconds."""

    reused: int
    done: int
    picked_up_ms: float
    loaded_ms: float
    skipped_ms: float
    overhead_ms: float


class Load:
    """One idle worker and the runs that it gets."""

    def __init__(
        self, store: Connection, sql: asyncpg.Connection, ledger: Path, given: argparse.Namespace
    ) -> None:
        self._store = store
        self._sql = sql
        self._ledger = ledger
        self._given = given

    async def round(self) -> Figure:
        """Let one run fail, re-drive it, and measure that."""
        provider = self._ledger.parent / "provider"
        provider.unlink(missing_ok=True)
        run = await self._enqueue()
        failed = await self._ended(run, attempt=1)
        assert (failed["status"], failed["step"]) == (FinalStatus.FAILED, self._given.failing - 1)
        provider.touch()
        await asyncio.sleep(random.uniform(1, 2))
        asked = time.time()
        assert await redrive.redrive(self._store, run, by="bench") is Redriving.QUEUED
        return await self._measured(run, asked)

    async def _measured(self, run: RunId, asked: float) -> Figure:
        given, done = self._given, self._given.pages - self._given.failing + 1
        ended = await self._ended(run, attempt=2)
        assert (ended["status"], ended["step"]) == (FinalStatus.SUCCEEDED, given.pages)
        lines = [line.split() for line in self._ledger.read_text().splitlines()]
        times = {what: float(at) for name, attempt, what, at in lines
                 if (name, attempt) == (str(run), "2")}  # fmt: skip
        assert len(times) == 1 + done, "each page that was not finished is read once, no other"
        claimed, finished = ended["claimed_at"].timestamp(), ended["finished_at"].timestamp()
        first = times[str(given.failing)]
        parts = (
            claimed - asked,
            times["began"] - claimed,
            first - times["began"],
            finished - asked - done * given.seconds,
        )
        return Figure(given.failing - 1, done, *(round(part * 1000, 2) for part in parts))

    async def _enqueue(self) -> RunId:
        given = self._given
        pool = await intake.ensure_pool(self._store, namespace="", name="default")
        agent, revision = await intake.ensure_agent(
            self._store, namespace="", name="pages", entrypoint="bench.agents.pages:pages",
            spec=b"{}", digest="1",
        )  # fmt: skip
        task = {"pages": given.pages, "seconds": given.seconds, "failing": given.failing}
        new = NewRun(agent, revision, pool, input=json.dumps(task).encode())
        return (await intake.enqueue(self._store, [new]))[0].run_id

    async def _ended(self, run: RunId, *, attempt: int) -> asyncpg.Record:
        text = "SELECT * FROM rowlock.run_final WHERE run_id = $1 AND attempt = $2"
        while True:
            row = await self._sql.fetchrow(text, run, attempt)
            if row is not None:
                return row
            await asyncio.sleep(_LOOK_SECONDS)


async def measure(given: argparse.Namespace) -> list[Figure]:
    """Run all rounds."""
    with EmbeddedPostgres() as server, tempfile.TemporaryDirectory() as folder:
        await migrate(server.url())
        ledger = Path(folder) / "ledger"
        store = await Connection.open(server.url(), name="bench")
        sql = await asyncpg.connect(server.url())
        with worker(server.url(), ledger, given):
            load = Load(store, sql, ledger, given)
            figures = [await load.round() for _ in range(given.rounds)]
        await store.close()
        await sql.close()
    return figures


def shown(figures: list[Figure]) -> Table:
    """Return medians and worst ones as a table."""
    table = Table("", "median", "worst")
    for name in [field.name for field in fields(Figure)]:
        values: list[Any] = [getattr(figure, name) for figure in figures]
        table.add_row(name, f"{statistics.median(values):g}", f"{max(values):g}")
    return table


def main() -> None:
    """Run the load and print its table."""
    parser = argparse.ArgumentParser("python -m bench redrive", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--failing", type=int, default=17)
    parser.add_argument("--seconds", type=float, default=2.5, help="of one page")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write all rounds to this file")
    parser.set_defaults(model="instant", workers=1, concurrency=64)
    given = parser.parse_args()
    figures = asyncio.run(measure(given))
    Console().print(shown(figures))
    if given.json:
        given.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")


if __name__ == "__main__":
    main()
