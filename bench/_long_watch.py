"""Looks at load B once a second, from outside, and hears what its processes say of themselves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg

from bench import _meters as meters
from bench._long_figures import Second
from rowlock import metrics
from rowlock.embedded import EmbeddedPostgres

_CONNECTIONS = """
SELECT count(*) AS connections, count(*) FILTER (WHERE state <> 'idle') AS active,
       count(*) FILTER (WHERE wait_event_type = 'Lock') AS waiting
FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name !~ '^(rowlock )?bench'
"""
_LEFT = "SELECT count(*) FROM rowlock.run_live"


class Ear:
    """Hears live text and reports of the loops, and what the model's server sends.

    Parameters
    ----------
    path
        Of the socket that loops connect to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokens = self.wrong = 0
        self.server_late = 0.0
        self.lags: list[float] = []
        self.pauses: list[float] = []
        self.late: list[float] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Hear the loops inside the block."""
        server = await asyncio.start_unix_server(self._connected, self.path, limit=2**24)
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()

    @contextlib.contextmanager
    def hearing(self, model: asyncio.subprocess.Process) -> Iterator[None]:
        """Hear the model's server inside the block."""
        task = asyncio.create_task(self._read_server(model))
        try:
            yield
        finally:
            task.cancel()

    def take(self) -> tuple[list[float], list[float], list[float], float]:
        """Return what was heard since the last time: lags, pauses, ages of text, lateness."""
        heard = (self.lags, self.pauses, self.late, self.server_late)
        self.lags, self.pauses, self.late, self.server_late = [], [], [], 0.0
        return heard

    async def _connected(self, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            while line := await reader.readline():
                self._hear(json.loads(line))

    def _hear(self, said: dict[str, object]) -> None:
        if said["type"] == "Live":
            oldest = str(said["text"]).split(" ", 2)[1]
            if "." in oldest:  # the last words of a run say nothing of the time
                self.late.append(time.monotonic() - float(oldest))
            return
        lags, pauses = said["lags"], said["pauses"]
        assert isinstance(lags, list)
        assert isinstance(pauses, list)
        self.lags += lags
        self.pauses += pauses

    async def _read_server(self, model: asyncio.subprocess.Process) -> None:
        assert model.stdout is not None
        while line := await model.stdout.readline():
            said = json.loads(line)
            self.tokens, self.wrong = said["tokens"], said["wrong"]
            self.server_late = max(self.server_late, said["late"])


class Watch:
    """What is read once a second.

    Parameters
    ----------
    port
        Of the worker's metrics.
    worker, model, proxy
        Process ids.
    """

    def __init__(
        self, server: EmbeddedPostgres, ear: Ear, port: int, *, worker: int, model: int, proxy: int
    ) -> None:
        self.server = server
        self.seconds: list[Second] = []
        self._ear = ear
        self._port = port
        self._pids = {"worker": worker, "model": model, "proxy": proxy}
        self._reader: asyncpg.Connection | None = None
        self._began = self._looked = time.monotonic()
        self._cpu: dict[str, float] = {}

    def begin(self) -> None:
        """Count from now on."""
        self._began = self._looked = time.monotonic()
        self._cpu = self._read_cpu()
        self._ear.take()

    async def look(self) -> Second:
        """Read everything once."""
        now, before, cpu = time.monotonic(), self._looked, self._read_cpu()
        spent = {name: cpu[name] - self._cpu.get(name, 0.0) for name in cpu}
        self._looked, self._cpu = now, cpu
        span = now - before
        lags, pauses, late, server_late = self._ear.take()
        gauges = await asyncio.to_thread(self._gauges)
        seen = await self._ask(_CONNECTIONS)
        second = Second(
            at=now - self._began,
            running=int(sum(gauges.get(metrics.RUNNING.name, [0.0]))),
            left=await self.left(),
            worker_cores=spent["worker"] / span,
            postgres_cores=max(spent["postgres"], 0.0) / span,  # fewer after a restart
            server_cores=spent["model"] / span,
            worker_mb=meters.resident_mb(self._pids["worker"], itself=True),
            connections=seen["connections"] if seen else 0,
            active=seen["active"] if seen else 0,
            waiting=seen["waiting"] if seen else 0,
            writer_rows=sum(gauges.get(metrics.WRITER_WAITING.name, [0.0])),
            writer_oldest=max(gauges.get(metrics.WRITER_OLDEST.name, [0.0])),
            lags=lags,
            pauses=pauses,
            late=late,
            tokens=self._ear.tokens,
            server_late=server_late,
        )
        self.seconds.append(second)
        return second

    async def left(self) -> int:
        """Return how many runs have not ended; one more than none while nobody can be asked."""
        row = await self._ask(_LEFT)
        return int(row["count"]) if row else 1

    async def _ask(self, statement: str) -> asyncpg.Record | None:
        """Return a row; None while PostgreSQL is away."""
        try:
            if self._reader is None or self._reader.is_closed():
                settings = {"application_name": "bench watch"}
                self._reader = await asyncpg.connect(self.server.url(), server_settings=settings)
            return await self._reader.fetchrow(statement)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return None

    def _read_cpu(self) -> dict[str, float]:
        pids = dict(self._pids)
        with contextlib.suppress(RuntimeError):
            pids["postgres"] = self.server.pid
        return {"postgres": 0.0} | {name: meters.cpu_seconds(pid) for name, pid in pids.items()}

    def _gauges(self) -> dict[str, list[float]]:
        """Return the values of each metric over all loops; none while the worker starts."""
        found: dict[str, list[float]] = {}
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return found
        for line in lines:
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found.setdefault(name.split("{")[0], []).append(float(value))
        return found
