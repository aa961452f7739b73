"""What must be true after a soak, read from the database and from the ledger.

Every lease that was ever given or taken is in `soak.lease_log`, written by a trigger in the same
commit, so a cap that was exceeded for a millisecond shows as well as one that leaked.
A slot is written down as taken after it was free and as free before others can take it,
so what this finds did happen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from rowlock.doctor.examination import examine
from rowlock.doctor.findings import Verdict
from rowlock.store.types import RunId
from tests.soak.traffic import KINDS

WATCH = """
CREATE SCHEMA soak;
CREATE TABLE soak.lease_log (
  run_id bigint NOT NULL, agent_id int NOT NULL, key text, epoch int NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(), change int NOT NULL);
CREATE FUNCTION soak.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO soak.lease_log (run_id, agent_id, key, epoch, change)
  SELECT run_id, agent_id, key, epoch, CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END FROM leases;
  RETURN NULL;
END $$;
CREATE TRIGGER given AFTER INSERT ON rowlock.run_lease
  REFERENCING NEW TABLE AS leases FOR EACH STATEMENT EXECUTE FUNCTION soak.note();
CREATE TRIGGER taken AFTER DELETE ON rowlock.run_lease
  REFERENCING OLD TABLE AS leases FOR EACH STATEMENT EXECUTE FUNCTION soak.note();
"""

_MOST_HELD = """
WITH held AS (
  SELECT l.agent_id, l.key, sum(change) OVER agents AS by_agent,
         sum(change) OVER keys AS by_key, sum(change) OVER runs AS by_run
  FROM soak.lease_log l
  WINDOW agents AS (PARTITION BY agent_id ORDER BY at, change ROWS UNBOUNDED PRECEDING),
         keys AS (PARTITION BY agent_id, key ORDER BY at, change ROWS UNBOUNDED PRECEDING),
         runs AS (PARTITION BY run_id ORDER BY at, change ROWS UNBOUNDED PRECEDING))
SELECT a.name, max(by_agent) AS by_agent, max(by_key) FILTER (WHERE key IS NOT NULL) AS by_key,
       max(by_run) AS by_run, a.max_running, a.max_running_per_key
FROM held h JOIN rowlock.agent a USING (agent_id) GROUP BY a.agent_id ORDER BY a.name
"""

_MOST_STARTS = """
WITH started AS (
  SELECT r.agent_id, r.key, min(f.started_at) AS at
  FROM rowlock.run r JOIN rowlock.run_final f USING (run_id)
  WHERE f.started_at IS NOT NULL AND r.key IS NOT NULL GROUP BY r.run_id, r.agent_id, r.key),
counted AS (
  SELECT agent_id, count(*) OVER minutes AS starts FROM started
  WINDOW minutes AS (PARTITION BY agent_id, key ORDER BY at
                     RANGE BETWEEN interval '59.999 s' PRECEDING AND CURRENT ROW))
SELECT a.name, max(c.starts) AS starts, a.starts_per_minute_per_key AS allowed
FROM counted c JOIN rowlock.agent a USING (agent_id)
WHERE a.starts_per_minute_per_key IS NOT NULL GROUP BY a.agent_id
"""

_ENDS = """
SELECT f.run_id, f.status, f.reason, f.message, f.takeovers, f.attempt, a.name,
       encode(f.result, 'escape') AS result
FROM rowlock.run_final f JOIN rowlock.run r USING (run_id) JOIN rowlock.agent a USING (agent_id)
WHERE f.attempt = (SELECT max(x.attempt) FROM rowlock.run_final x WHERE x.run_id = f.run_id)
"""

_STEPS_TWICE = """
SELECT run_id, key FROM rowlock.run_event WHERE kind = 2
GROUP BY run_id, key HAVING count(*) > 1 LIMIT 20
"""

#: What every succeeded run of an agent has done to the world.
_EFFECTS = {
    "desk": {"refund": 1},
    "print": {"press": 2},
    "hog": {"block": 1},
    "wobbly": {"ship": 1},
    "napper": {"knock": 2},
    "asker": {"pay": 1},
}
_AGENT_OF = {kind.name: kind.entrypoint for kind in KINDS}


@dataclass
class Evidence:
    """All that is known after a soak."""

    asked: dict[RunId, str]
    cancelled: set[RunId]
    ends: list[asyncpg.Record]
    ledger: dict[int, dict[str, Counter[str]]]
    held: list[asyncpg.Record]
    starts: list[asyncpg.Record]
    rows: Counter[str]
    steps_twice: list[asyncpg.Record]


def read_ledger(file: Path) -> dict[int, dict[str, Counter[str]]]:
    """Return for each run what it did, and how often under each call id."""
    done: dict[int, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for line in file.read_text().splitlines():
        _, run, what, call_id = line.split(maxsplit=3)
        done[int(run)][what][call_id] += 1
    return done


async def gather(
    sql: asyncpg.Connection, ledger: Path, asked: dict[RunId, str], cancelled: set[RunId]
) -> Evidence:
    """Read everything."""
    tables = ("run", "run_live", "wish", "run_lease", "violations", "run_event", "run_final")
    rows = Counter(
        {name: await sql.fetchval(f"SELECT count(*) FROM rowlock.{name}") for name in tables}  # noqa: S608
    )
    return Evidence(
        asked,
        cancelled,
        await sql.fetch(_ENDS),
        read_ledger(ledger),
        await sql.fetch(_MOST_HELD),
        await sql.fetch(_MOST_STARTS),
        rows,
        await sql.fetch(_STEPS_TWICE),
    )


def breaches(evidence: Evidence) -> list[str]:
    """Return each broken promise in words; empty after a good soak."""
    checks: tuple[Callable[[Evidence], Iterator[str]], ...] = (_ends, _rows, _effects, _caps)
    return [breach for check in checks for breach in check(evidence)]


def _ends(evidence: Evidence) -> Iterator[str]:
    ended = {row["run_id"] for row in evidence.ends}
    if ended != evidence.asked.keys():
        missing, unasked = evidence.asked.keys() - ended, ended - evidence.asked.keys()
        yield f"accepted and without an end: {len(missing)}, unasked: {len(unasked)}"
    for row in evidence.ends:
        if row["status"] == 2:
            yield f"run {row['run_id']} ({row['name']}) failed: {row['reason']} {row['message']}"
        if row["status"] == 3 and row["run_id"] not in evidence.cancelled:
            yield f"run {row['run_id']} was cancelled and nobody had asked for it"


def _rows(evidence: Evidence) -> Iterator[str]:
    for name in ("run_live", "wish", "run_lease", "violations"):
        if evidence.rows[name]:
            yield f"{evidence.rows[name]} rows are left in rowlock.{name}"
    for row in evidence.steps_twice:
        yield f"run {row['run_id']} has step {row['key']} twice in its history"


def _effects(evidence: Evidence) -> Iterator[str]:
    for row in evidence.ends:
        run, agent = row["run_id"], _AGENT_OF[row["name"]]
        done = evidence.ledger.get(run, {})
        if agent == "wire":
            yield from _at_most_once(run, done, row)
            continue
        wanted = {"desk": "desk", "printer": "print"}.get(agent, agent)
        for what, times in _EFFECTS[wanted].items():
            seen = len(done.get(what, ()))
            if seen > times or (row["status"] == 1 and seen < times):
                yield f"run {run} ({agent}) did {what} under {seen} call ids, not {times}"


def _at_most_once(run: int, done: dict[str, Counter[str]], row: asyncpg.Record) -> Iterator[str]:
    times = sum(done.get("transfer", Counter()).values())
    if times > 1:
        yield f"run {run} made its only transfer {times} times"
    if row["status"] == 1 and row["result"] == '"done"' and times != 1:
        yield f"run {run} says that it made a transfer, and made {times}"


def _caps(evidence: Evidence) -> Iterator[str]:
    if not evidence.held:
        yield "the log of leases is empty"
    for row in evidence.held:
        if row["by_run"] > 1:
            yield f"a run of {row['name']} was held by {row['by_run']} workers at once"
        if row["max_running"] and row["by_agent"] > row["max_running"]:
            yield f"{row['name']} had {row['by_agent']} runs, its cap is {row['max_running']}"
        if row["max_running_per_key"] and row["by_key"] > row["max_running_per_key"]:
            yield f"a key of {row['name']} had {row['by_key']} runs"
    for row in evidence.starts:
        if row["starts"] > row["allowed"]:
            yield f"a key of {row['name']} had {row['starts']} starts in a minute"


async def doctor(dsn: str) -> list[str]:
    """Return what `rowlock doctor` finds wrong."""
    return [
        f"doctor: {finding.check}: {finding.says}"
        for finding in await examine(dsn)
        if finding.verdict is Verdict.FAIL
    ]
