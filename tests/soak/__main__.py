"""A randomized soak: workers and PostgreSQL are killed under load, then everything is counted.

    python -m tests.soak --minutes 10 --seed 7

The seed fixes what goes wrong and in which order. When it happens to whom is up to the machine,
so a seed does not repeat a soak exactly; its evidence is in the folder that it names first.
After a breach the exit code is 1, and logs, ledger and the database's files are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import asyncpg
from rich.console import Console
from rich.table import Table

from rowlock.embedded import EmbeddedPostgres
from rowlock.store.connection import Connection
from rowlock.store.faults import DRIVER
from rowlock.store.migrate import migrate
from tests.soak import verdict
from tests.soak.fleet import Fleet
from tests.soak.mischief import Mischief
from tests.soak.traffic import Traffic

#: Runs that are queued or running at any time.
_STANDING = 250
_DRAIN_SECONDS = 240.0
_TELL_SECONDS = 10.0
#: A crash must not lose what was committed: durability is PostgreSQL's default.
_SETTINGS = {"max_wal_size": "2GB", "max_connections": "300"}


class Soak:
    """One soak in a folder of its own."""

    def __init__(self, folder: Path, server: EmbeddedPostgres, options: argparse.Namespace) -> None:
        self._folder = folder
        self._server = server
        self._options = options
        self._say = Console(soft_wrap=True)
        self._began = time.monotonic()

    async def run(self) -> int:
        """Load, harm, drain, judge; return the exit code."""
        await migrate(self._server.url())
        sql = await asyncpg.connect(self._server.url())
        await sql.execute(verdict.WATCH)
        await sql.close()
        connection = await Connection.open(self._server.url(), name="soak")
        chance = random.Random(self._options.seed)
        self._traffic = Traffic(connection, random.Random(chance.random()))
        await self._traffic.declare()
        self._fleet = Fleet(self._server.url(), self._folder, size=self._options.workers)
        try:
            self._mischief = Mischief(chance, self._server, self._fleet, self._traffic)
            await self._storm()
            breaches = await self._calm()
        finally:
            self._fleet.destroy()
            await connection.close()
        return await self._judge(breaches)

    async def _storm(self) -> None:
        until = self._began + self._options.minutes * 60
        feeding = asyncio.create_task(self._feed(until))
        telling = asyncio.create_task(self._tell())
        while time.monotonic() < until and not feeding.done():
            await asyncio.sleep(self._mischief.pause())
            what = await self._mischief.one()
            self._note(what)
            self._fleet.look()
        telling.cancel()
        await feeding
        await self._mischief.end()

    async def _feed(self, until: float) -> None:
        while time.monotonic() < until:
            if (await self._left()) < _STANDING:
                await self._traffic.enqueue(60)
            await self._traffic.approve()
            await asyncio.sleep(0.2)

    async def _left(self) -> int:
        """Return how many runs have no end; a guess of too many while PostgreSQL is away."""
        try:
            sql = await asyncpg.connect(self._server.url(), timeout=5)
        except DRIVER:
            return _STANDING
        try:
            return int(await sql.fetchval("SELECT count(*) FROM rowlock.run_live"))
        except DRIVER:
            return _STANDING
        finally:
            sql.terminate()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            done = sum(self._mischief.done.values())
            self._say.print(
                f"{time.monotonic() - self._began:5.0f} s  {len(self._traffic.runs):6} runs asked, "
                f"{await self._left():4} without an end, {done:4} bad things done"
            )

    def _note(self, what: str) -> None:
        with (self._folder / "mischief.log").open("a") as log:
            log.write(f"{time.monotonic() - self._began:9.3f} {what}\n")

    async def _calm(self) -> list[str]:
        """Let everything come to its end, and everybody leave."""
        await self._traffic.continue_some()
        until = time.monotonic() + _DRAIN_SECONDS
        while (left := await self._left()) and time.monotonic() < until:
            self._fleet.look()
            await self._traffic.approve()
            await asyncio.sleep(0.5)
        found = [f"{left} runs did not end within {_DRAIN_SECONDS:g} s"] if left else []
        await asyncio.sleep(2)  # two rounds of upkeep, which clear the wishes of ended runs
        codes = self._fleet.leave()
        if any(codes):
            found.append(f"workers left with exit codes {codes}")
        if self._fleet.unclean:
            found.append(f"workers ended by themselves with {self._fleet.unclean}")
        return found

    async def _judge(self, found: list[str]) -> int:
        sql = await asyncpg.connect(self._server.url())
        evidence = await verdict.gather(
            sql, self._folder / "ledger", self._traffic.runs, self._traffic.cancelled
        )
        await sql.close()
        found += verdict.breaches(evidence) + await verdict.doctor(self._server.url())
        figures = self._figures(evidence)
        (self._folder / "result.json").write_text(json.dumps(figures | {"breaches": found}))
        self._show(figures)
        for breach in found[:40]:
            self._say.print(f"[red]breach[/red] {breach}")
        self._say.print(f"seed {self._options.seed}: {len(found)} breaches")
        return 1 if found else 0

    def _figures(self, evidence: verdict.Evidence) -> dict[str, object]:
        ends = Counter(
            {1: "succeeded", 2: "failed", 3: "cancelled"}[e["status"]] for e in evidence.ends
        )
        lines = sum(
            n for done in evidence.ledger.values() for by in done.values() for n in by.values()
        )
        calls = sum(len(by) for done in evidence.ledger.values() for by in done.values())
        return {
            "runs": len(evidence.asked),
            **ends,
            "takeovers": sum(row["takeovers"] for row in evidence.ends),
            "rows of history": evidence.rows["run_event"],
            "effects": calls,
            "asked again after an interruption": lines - calls,
            **self._mischief.done,
        }

    def _show(self, figures: dict[str, object]) -> None:
        table = Table("what", "count", title=f"soak, seed {self._options.seed}")
        for name, value in figures.items():
            table.add_row(name, f"{value:,}")
        self._say.print(table)


def main() -> int:
    """Read the command line and soak."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10, help="of harm; the end comes on top")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="for the evidence; default: a new one")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="rowlock-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    say = Console(soft_wrap=True)
    say.print(f"soak: seed {options.seed}, {options.minutes:g} minutes, evidence in {folder}")
    server = EmbeddedPostgres(_SETTINGS).start()
    code = 1
    try:
        code = asyncio.run(Soak(folder, server, options).run())
    finally:
        server.remove() if code == 0 else server.stop()
        if code:
            say.print(f"soak: kept {folder} and {server.folder}")
    return code


if __name__ == "__main__":
    sys.exit(main())
