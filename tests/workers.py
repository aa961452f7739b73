"""Real workers for tests: started as people start them, watched from outside, ended by signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import msgspec
import pytest

from rowlock.store import intake
from rowlock.store.connection import Connection
from rowlock.store.invariants import violations
from rowlock.store.types import NewRun, RunId

T = TypeVar("T")

ROOT = Path(__file__).parent.parent
WITHIN = 60.0

#: Leases short enough for a test to outlive one.
QUICK = ("--lease-seconds", "1.5", "--renew-seconds", "0.5")
#: Leases that no test outlives, and what is far below one: it was not its lapse that freed a run.
#: How long things really take is measured by loads, on a machine that does nothing else.
LONG = ("--lease-seconds", "30", "--renew-seconds", "5")
AT_ONCE = timedelta(seconds=10)


async def eventually(
    probe: Callable[[], Awaitable[T | None]],
    what: str,
    within: float = WITHIN,
    *,
    said: Callable[[], str] = str,
) -> T:
    """Ask `probe` until it answers something true; fail with `what` after `within` seconds.

    Parameters
    ----------
    said
        Returns what else belongs into the failure, as of then.
    """
    deadline = time.monotonic() + within
    while True:
        answer = await probe()
        if answer:
            return answer
        assert time.monotonic() < deadline, (
            f"not within {within:g} s: {what}; last answer {answer!r}\n{said()}"
        )
        await asyncio.sleep(0.02)


class LocalWorker:
    """One `rowlock worker` in a process group of its own."""

    def __init__(self, dsn: str, log: Path, *flags: str, environment: dict[str, str] | None = None):
        self._log = log
        environment = {
            **os.environ,
            "ROWLOCK_DATABASE_URL": dsn,
            "PYTHONPATH": os.pathsep.join(
                map(str, (ROOT / "worker-image", ROOT / "operator", ROOT))
            ),
            **(environment or {}),
        }
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rowlock.cli", "worker", "--log-format", "json", *flags],
                stdout=output,
                stderr=output,
                env=environment,
                cwd=ROOT,
                start_new_session=True,
            )
        self.pid = self.process.pid

    @property
    def log(self) -> str:
        """All that it has said."""
        return self._log.read_text(errors="replace")

    async def says(self, pattern: str) -> str:
        """Wait for a line that matches."""

        async def look() -> str | None:
            assert self.process.poll() is None or re.search(pattern, self.log), self.log
            found = re.search(f"^.*{pattern}.*$", self.log, re.MULTILINE)
            return found[0] if found else None

        return str(await eventually(look, f"log line {pattern!r} in\n{self.log[-4000:]}"))

    def loops(self) -> list[int]:
        """Process ids of its loop processes."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to supervisor and loops alike."""
        os.killpg(self.pid, number)

    async def ends(self, within: float = WITHIN) -> int:
        """Wait for its end and return its exit code."""

        async def ended() -> bool:
            return self.process.poll() is not None

        await eventually(ended, f"end of the worker:\n{self.log[-4000:]}", within)
        return int(self.process.wait())

    def destroy(self) -> None:
        """End whatever is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Bench:
    """A test's database and the workers on it."""

    dsn: str
    folder: Path
    store: Connection
    sql: asyncpg.Connection[Any]
    workers: list[LocalWorker]

    def worker(self, *flags: str, environment: dict[str, str] | None = None) -> LocalWorker:
        """Start a worker."""
        log = self.folder / f"worker-{len(self.workers)}.log"
        flags = (*QUICK, "--processes", "1", *flags)
        self.workers.append(LocalWorker(self.dsn, log, *flags, environment=environment))
        return self.workers[-1]

    async def enqueue(
        self,
        agent: str,
        *,
        count: int = 1,
        options: dict[str, Any] | None = None,
        key: str | None = None,
        limits: dict[str, int] | None = None,
        pinned: bool = False,
        **task: Any,
    ) -> list[RunId]:
        """Enqueue runs of an agent of `agents_for_tests`, or of any "module:attribute"."""
        entrypoint = agent if ":" in agent else f"tests.agents_for_tests:{agent}"
        pool = await intake.ensure_pool(self.store, namespace="", name="default")
        agent_id, revision = await intake.ensure_agent(
            self.store,
            namespace="",
            name=agent,
            entrypoint=entrypoint,
            spec=b"{}",
            digest=entrypoint,
            **(limits or {}),
        )
        new = NewRun(
            agent_id,
            revision,
            pool,
            input=msgspec.json.encode({"folder": str(self.folder), **task}),
            options=msgspec.json.encode(options or {}),
            key=key,
            pinned=pinned,
        )
        return [enqueued.run_id for enqueued in await intake.enqueue(self.store, [new] * count)]

    async def final(self, run: RunId, within: float = WITHIN) -> asyncpg.Record:
        """Wait for the run's end and return its last row of `run_final`."""

        async def look() -> asyncpg.Record | None:
            return await self.sql.fetchrow(
                "SELECT f.* FROM rowlock.run_final f WHERE run_id = $1 AND NOT EXISTS "
                "(SELECT FROM rowlock.run_live l WHERE l.run_id = f.run_id) "
                "ORDER BY attempt DESC LIMIT 1",
                run,
            )

        said = "\n".join(worker.log[-3000:] for worker in self.workers)
        return await eventually(look, f"the end of run {run}; the workers said:\n{said}", within)

    def said(self) -> str:
        """Return the last that each worker said."""
        return "\n".join(worker.log[-6000:] for worker in self.workers)

    async def where(self, run: RunId) -> list[str]:
        """Say where a run stands, for a failed test's message."""
        return [
            str(r)
            for r in await self.sql.fetch("SELECT * FROM rowlock.run_live WHERE run_id=$1", run)
        ]

    async def lease(self, run: RunId, *, epoch: int = 1) -> asyncpg.Record:
        """Wait until some worker holds the run at `epoch` or later, and return its lease."""

        async def look() -> asyncpg.Record | None:
            return await self.sql.fetchrow(
                "SELECT * FROM rowlock.run_lease WHERE run_id = $1 AND epoch >= $2", run, epoch
            )

        return await eventually(look, f"lease of run {run} at epoch {epoch}")

    async def history(self, run: RunId) -> list[asyncpg.Record]:
        """Return all rows of the run's history."""
        return await self.sql.fetch(
            "SELECT * FROM rowlock.run_event WHERE run_id = $1 ORDER BY seq", run
        )

    async def claiming(self, processes: int) -> None:
        """Wait until so many loop processes have claimed, whether or not there was anything."""
        query = (
            "SELECT count(*) = $1 FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE '-- claim%'"
        )
        await eventually(lambda: self.sql.fetchval(query, processes), f"{processes} claimers")

    async def moves_on(self, query: str, value: object = None) -> None:
        """Wait until the value of `query` is another one: than now, or than `value`."""
        value = value or await self.sql.fetchval(query)

        async def look() -> bool:
            return bool(await self.sql.fetchval(query) != value)

        await eventually(look, f"{query} stays as it is")

    async def waiting(self, name: str) -> None:
        """Wait until an agent stands before the gate `name`."""

        async def look() -> bool:
            return (self.folder / f"waiting-{name}").exists()

        await eventually(look, f"an agent at gate {name}")

    def open_gate(self, name: str) -> None:
        """Let agents through the gate `name`, now and later."""
        (self.folder / f"gate-{name}").touch()

    def effects(self) -> list[list[str]]:
        """Return the fields of each effect, in the order in which they happened."""
        file = self.folder / "effects"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    async def healthy(self) -> None:
        """Assert that no invariant of the database is broken."""
        assert await violations(self.store) == []


@pytest.fixture(name="bench")
async def bench_fixture(dsn: str, tmp_path: Path) -> AsyncIterator[Bench]:
    """A database and a way to start workers on it; all of them are gone at the end."""
    async with bench_on(dsn, tmp_path) as bench:
        yield bench


@contextlib.asynccontextmanager
async def bench_on(dsn: str, tmp_path: Path) -> AsyncIterator[Bench]:
    """Yield a bench on a migrated database."""
    store = await Connection.open(dsn, name="test")
    sql = await asyncpg.connect(dsn)
    bench = Bench(dsn, tmp_path, store, sql, [])
    try:
        yield bench
    finally:
        for worker in bench.workers:
            worker.destroy()
        await store.close()
        await bench.sql.close()
