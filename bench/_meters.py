"""Counters read from outside: CPU and memory from /proc, the rest from PostgreSQL's statistics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
_BYTES = """
SELECT sum(pg_total_relation_size(i.inhrelid)) FROM pg_inherits i
WHERE i.inhparent::regclass::text IN ('rowlock.run', 'rowlock.run_event', 'rowlock.run_final')
"""
_WAL = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
#: Beats and the reaper's turn are one row each a second or so, however many runs there are.
_ROWS = """
SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint AS written, sum(n_tup_upd)::bigint AS updated
FROM pg_stat_user_tables
WHERE schemaname = 'rowlock' AND relname NOT IN ('worker_beat', 'reaper')
"""


@dataclass(frozen=True)
class Meter:
    """What is exact at any moment.

    Parameters
    ----------
    worker_cpu, postgres_cpu
        Seconds of all processes, those that have ended included.
    bytes
        Tables and indexes of history, on disk.
    wal
        Bytes written ahead.
    """

    worker_cpu: float
    postgres_cpu: float
    bytes: int
    wal: int


@dataclass(frozen=True)
class Tally:
    """What sessions report late, and for certain only when they end.

    Parameters
    ----------
    rows, updates
        Rows inserted, updated or deleted, and of these the updated ones.
    """

    commits: int
    rows: int
    updates: int


async def read(reader: asyncpg.Connection, *, worker_pid: int, postgres_pid: int) -> Meter:
    """Read what is exact now."""
    return Meter(
        worker_cpu=cpu_seconds(worker_pid),
        postgres_cpu=cpu_seconds(postgres_pid),
        bytes=int(await reader.fetchval(_BYTES)),
        wal=int(await reader.fetchval(_WAL)),
    )


async def tally(reader: asyncpg.Connection) -> Tally:
    """Read what the sessions have reported, the reader's own included."""
    await reader.execute("SELECT pg_stat_force_next_flush()")
    rows = await reader.fetchrow(_ROWS)
    assert rows is not None
    return Tally(int(await reader.fetchval(_COMMITS)), rows["written"], rows["updated"])


def cpu_seconds(root: int) -> float:
    """Return the CPU time of a process, its living descendants, and those it has waited for."""
    total = 0.0
    for pid in _tree(root):
        fields = process_file(pid, "stat").rsplit(")", 1)[-1].split()
        total += sum(int(field) for field in fields[11:15]) * _TICK_SECONDS
    return total


def resident_mb(root: int, *, itself: bool = False) -> float:
    """Return the resident memory of all descendants of a process, in MB of 10^6 bytes.

    What they share counts for each of them.
    """
    pids = [pid for pid in _tree(root) if itself or pid != root]
    pages = [process_file(pid, "statm").split()[1:2] for pid in pids]
    return sum(int(page) for found in pages for page in found) * _PAGE_BYTES / 1e6


def _tree(root: int) -> Iterator[int]:
    queue = [root]
    while queue:
        pid = queue.pop()
        yield pid
        queue += children(pid)


def children(pid: int) -> list[int]:
    """Return the processes that any thread of a process has started; none once it has ended."""
    try:
        threads = [task.name for task in Path(f"/proc/{pid}/task").iterdir()]
    except FileNotFoundError:
        return []
    told = (process_file(pid, f"task/{thread}/children") for thread in threads)
    return [int(child) for line in told for child in line.split()]


def process_file(pid: int, file: str) -> str:
    """Return a file of a process; nothing once the process has ended."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
