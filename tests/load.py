"""A load of some hundred runs, and what must be true of it when everything has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rowlock.states import FinalStatus
from tests.workers import Bench, eventually

#: Leases that outlive the faults of these tests, and nothing longer.
LEASE = ("--lease-seconds", "9", "--renew-seconds", "1", "--slots", "64")


@dataclass(frozen=True)
class Load:
    """Runs of the agent `ambler`, each of some steps that take 50 ms."""

    bench: Bench
    runs: int = 300
    steps: int = 12

    async def start(self, *, workers: int = 2, dsn: str | None = None) -> None:
        """Enqueue all, start workers (on `dsn`, if given) and return in the middle of it."""
        await self.bench.enqueue("ambler", count=self.runs, steps=self.steps)
        environment = {"ROWLOCK_DATABASE_URL": dsn} if dsn else None
        for _ in range(workers):
            self.bench.worker(*LEASE, environment=environment)
        await self.ended(at_least=self.runs // 10)

    async def ended(self, *, at_least: int, within: float = 60) -> None:
        """Wait until so many runs have ended."""
        await self.until(
            lambda: self.bench.sql.fetchval(
                "SELECT count(*) >= $1 FROM rowlock.run_final", at_least
            ),
            f"{at_least} ends",
            within,
        )

    async def events(self) -> int:
        """Return how many rows of history there are."""
        return int(await self.bench.sql.fetchval("SELECT count(*) FROM rowlock.run_event"))

    async def goes_on(self) -> None:
        """Wait until more is written than there is now."""
        before = await self.events()

        async def more() -> bool:
            return await self.events() > before

        await self.until(more, "work that goes on")

    async def until(
        self, probe: Callable[[], Awaitable[bool]], what: str, within: float = 60
    ) -> None:
        """Wait for `probe`; on failure say what the workers said."""
        try:
            await eventually(probe, what, within)
        except AssertionError as error:
            said = "\n".join(worker.log[-2000:] for worker in self.bench.workers)
            raise AssertionError(f"{error}; the workers said:\n{said}") from None

    def says(self, text: str) -> bool:
        """Whether any worker has said `text`."""
        return any(text in worker.log for worker in self.bench.workers)

    async def ends_once(self, *, takeovers: int | None = 0) -> None:
        """Assert that every run succeeds, each step once, from the database and from outside.

        Parameters
        ----------
        takeovers
            How many there may be; None for any number.
        """
        bench, sql = self.bench, self.bench.sql
        await self.ended(at_least=self.runs, within=120)
        ends = await sql.fetch("SELECT status, count(*) FROM rowlock.run_final GROUP BY status")
        assert [tuple(row) for row in ends] == [(FinalStatus.SUCCEEDED, self.runs)]
        steps = await sql.fetch(
            "SELECT run_id, key, count(*) FROM rowlock.run_event WHERE kind = 2 "
            "GROUP BY run_id, key"
        )
        assert len(steps) == self.runs * self.steps
        assert {row["count"] for row in steps} == {1}
        effects = Counter((run, step) for run, step, *_ in bench.effects())
        assert len(effects) == self.runs * self.steps
        lost = await sql.fetchval("SELECT sum(takeovers) FROM rowlock.run_final")
        if takeovers is not None:
            assert lost <= takeovers
            assert set(effects.values()) == {1}
        assert await sql.fetchval("SELECT count(*) FROM rowlock.run_lease") == 0
        assert all(worker.process.poll() is None for worker in bench.workers)
        await bench.healthy()
