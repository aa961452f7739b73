"""Runs of days long past, made by living them today and then moving them back."""

from __future__ import annotations

from datetime import date, timedelta

from rowlock.store import retention, work
from rowlock.store.retention import Swept
from rowlock.store.types import RunId
from tests.integration.store.world import World, end, step

MAKE_DAY = """
DO $$
DECLARE parent text; part text; day date := '%s';
BEGIN
  FOREACH parent IN ARRAY ARRAY['run', 'run_event', 'run_final'] LOOP
    part := parent || '_' || to_char(day, 'YYYYMMDD');
    EXECUTE format(
      'CREATE TABLE IF NOT EXISTS rowlock.%%I PARTITION OF rowlock.%%I '
      'FOR VALUES FROM (%%s) TO (%%s)',
      part, parent, rowlock.id_floor(day::timestamp AT TIME ZONE 'UTC'),
      rowlock.id_floor((day + 1)::timestamp AT TIME ZONE 'UTC'));
  END LOOP;
END $$
"""
HISTORY = ("run", "run_event", "run_final")
LIVE = ("run_ready", "run_backlog", "run_timer", "run_parked", "run_lease")
OTHERS = ("run_change", "run_object", "run_dedup", "approval", "run_attempt", "wish", "run_start")


class Past:
    """A database whose runs can be made old."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._made = 0

    async def day(self, age: int) -> date:
        """Return the day `age` days ago, with its partitions."""
        today: date = await self.world.value("SELECT (now() AT TIME ZONE 'UTC')::date")
        day = today - timedelta(days=age)
        await self.world.sql(MAKE_DAY % day)
        return day

    async def move(self, run: RunId, age: int, *, ended: int | None = None) -> RunId:
        """Let `run` have begun `age` days ago and ended `ended` days ago (default: the same)."""
        day = await self.day(age)
        self._made += 1
        old = RunId(
            self._made
            + await self.world.value(
                "SELECT rowlock.id_floor($1::date::timestamp AT TIME ZONE 'UTC')", day
            )
        )
        for table in HISTORY + LIVE + OTHERS:
            statement = f"UPDATE rowlock.{table} SET run_id = $1 WHERE run_id = $2"  # noqa: S608
            await self.world.sql(statement, old, run)
        await self.world.sql(
            "UPDATE rowlock.run_final SET finished_at = now() - $1::interval WHERE run_id = $2",
            timedelta(days=age if ended is None else ended),
            old,
        )
        return old

    async def finished(self, age: int, *, ended: int | None = None, linked: bool = False) -> RunId:
        """Return a run that has gone through its whole life, with two steps."""
        worker, [claimed] = await self.world.running(1, linked=linked)
        events = [step(claimed, 1), step(claimed, 2)]
        await work.finish(self.world.store, worker=worker, events=events, finals=[end(claimed)])
        return await self.move(claimed.run_id, age, ended=ended)

    async def tables(self, day: date) -> set[str]:
        """Return what is left of a day, attached or not."""
        rows = await self.world.sql("SELECT name FROM rowlock.history_table WHERE day = $1", day)
        return {row["name"] for row in rows}

    async def sweep(self, days: int = 30, *, wait_seconds: float = 300) -> Swept:
        """Do one round."""
        return await retention.sweep(self.world.dsn, retention_days=days, wait_seconds=wait_seconds)
