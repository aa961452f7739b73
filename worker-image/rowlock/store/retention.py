"""History goes by whole days: what nobody needs any more is detached and dropped.

A day may go when the newest end in it is past retention and no run in it is live,
has a change that no mirror has shown, or still has its custom resource.
That is decided in one transaction which raises `history_floor` under a lock and remembers the day;
what follows may be killed at any point, and the next round goes on from there.

Partitions are detached CONCURRENTLY: reading and writing go on meanwhile, but the statement
waits for every transaction that has used the table. Only the owner of the schema may do this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

from rowlock.errors import DatabaseRefused, StoreUnavailable
from rowlock.store import queue
from rowlock.store.connection import Connection

_PAGE: Final = 5000
#: Where each page walk begins: below every key that can be.
_START: Final[dict[str, tuple[Any, ...]]] = {
    "run_dedup": (0, ""),
    "approval": (0,),
    "run_attempt": (0,),
    "wish": (0,),
    "run_start": (0,),
    "worker": (0,),
}

Progress = Callable[[str], None]


class GcBusy(StoreUnavailable):
    """Another `rowlock gc` is at work on this database."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What one round did.

    Parameters
    ----------
    dropped
        Days that are gone for good.
    kept
        Days older than the retention that had to stay, and why.
    orphans
        Deleted rows, by table.
    analyzed
        Partitions whose statistics were renewed.
    partitions_made
        Partitions made for days to come.
    history_floor
        The run id below which history may be gone.
    """

    dropped: list[date] = field(default_factory=list)
    kept: dict[date, str] = field(default_factory=dict)
    orphans: dict[str, int] = field(default_factory=dict)
    analyzed: list[str] = field(default_factory=list)
    partitions_made: int = 0
    history_floor: int = 0


async def sweep(
    dsn: str, *, retention_days: int, wait_seconds: float = 300, progress: Progress = lambda _: None
) -> Swept:
    """Do one round: drop the days that may go, delete orphans, renew statistics.

    Parameters
    ----------
    retention_days
        For how long after their end runs stay readable; 0 keeps all of them.
    wait_seconds
        For how long one detach waits for transactions that have used the table.
        What it leaves half done the next round finishes.
    progress
        Called with a line for each thing that is done.

    Raises
    ------
    DatabaseRefused
        This login is not the owner of the schema.
    GcBusy
        Another round is under way.
    StoreUnavailable
        A detach waited for too long, or the database is away.
    """
    turn = await Connection.open(dsn, name="gc turn")
    try:
        async with turn.transaction():
            if not (await turn.fetchone("gc_turn"))["mine"]:
                raise GcBusy
            await turn.execute("gc_hold")
            return await _with_turn(dsn, retention_days, wait_seconds, progress)
    finally:
        await turn.close()


async def _with_turn(dsn: str, days: int, wait_seconds: float, progress: Progress) -> Swept:
    connection = await Connection.open(dsn, name="gc", command_timeout=600)
    try:
        await _refuse_strangers(connection)
        return await _round(connection, days, wait_seconds, progress)
    finally:
        await connection.close()


async def _refuse_strangers(connection: Connection) -> None:
    row = await connection.fetchone("gc_owner")
    if not row["allowed"]:
        raise DatabaseRefused(
            "only the owner of the schema can detach and drop partitions: "
            f"give rowlock gc a login of the role {row['owner']}, as for rowlock migrate"
        )


async def _round(
    connection: Connection, days: int, wait_seconds: float, progress: Progress
) -> Swept:
    made = await queue.ensure_partitions(connection)
    # What an earlier round began comes first: a table has room for one half-done detach.
    dropped = await _remove(connection, wait_seconds, progress)
    kept: dict[date, str] = {}
    for day in await _old_days(connection, days):
        why = (await connection.fetchone("expire_day", day, days))["why"]
        if why:
            kept[day] = why
            progress(f"{day} stays: it {why}")
        else:
            dropped += await _remove(connection, wait_seconds, progress)
    return Swept(
        dropped=dropped,
        kept=kept,
        orphans=await _delete_orphans(connection, days, progress),
        analyzed=[name async for name in _analyze(connection, progress)],
        partitions_made=made,
        history_floor=(await connection.fetchone("history_floor"))["run_id"],
    )


async def _old_days(connection: Connection, days: int) -> list[date]:
    if days == 0:
        return []
    return [row["day"] for row in await connection.fetch("history_days", days)]


async def _remove(connection: Connection, wait_seconds: float, progress: Progress) -> list[date]:
    """Carry out what is left to do for days that are to go; return those that are gone."""
    while (row := await connection.fetchrow("next_removal")) is not None:
        progress(f"{row['day']}: {row['act']} {row['name']}")
        try:
            await connection.run_script(row["statement"], timeout=wait_seconds)
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"could not {row['act']} {row['name']}: {error}; "
                "if a transaction that has used the table stays open, end it (`rowlock doctor` "
                "names it); the next `rowlock gc` goes on from here"
            ) from error
    return sorted(row["day"] for row in await connection.fetch("forget_removed_days"))


async def _delete_orphans(connection: Connection, days: int, progress: Progress) -> dict[str, int]:
    deleted = {}
    for table, start in _START.items():
        if table == "worker" and days == 0:
            continue
        more = (days,) if table == "worker" else ()
        deleted[table] = await _pages(connection, f"gc_{table}", start, more)
        if deleted[table]:
            progress(f"{table}: {deleted[table]} orphans deleted")
    return deleted


async def _pages(
    connection: Connection, statement: str, cursor: tuple[Any, ...], more: Sequence[Any]
) -> int:
    """Walk a whole table by its key, each page a transaction of its own."""
    deleted = 0
    while (row := await connection.fetchrow(statement, *cursor, _PAGE, *more)) is not None:
        *place, count = row.values()
        cursor, deleted = tuple(place), deleted + count
    return deleted


async def _analyze(connection: Connection, progress: Progress) -> AsyncIterator[str]:
    for row in await connection.fetch("young_partitions"):
        progress(f"analyze {row['name']}")
        await connection.run_script(row["statement"])
        yield row["name"]
