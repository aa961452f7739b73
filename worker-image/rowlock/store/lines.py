"""The lines that runs wait in, for people: who is next, and why a run does not run yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rowlock.states import Place
from rowlock.store.connection import Connection
from rowlock.store.types import RunId

#: As far as one line is counted.
COUNTED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run that waits.

    Parameters
    ----------
    nth
        Its place in line, 1 for the next: among all of the pool, or in the backlog among all of
        its agent, where keys take turns. None for one that goes on alone or waits for something
        else, and beyond the ten thousandth.
    since
        Of waiting there.
    due_at
        When it goes on by itself.
    timer_reason, parked_for
        What it waits for, as `rowlock.waiting.wait_reason` takes it.
    """

    run_id: RunId
    namespace: str
    pool: str
    agent: str
    key: str | None
    priority: int
    place: Place
    quarantined: bool
    attempt: int
    nth: int | None
    since: datetime
    due_at: datetime | None
    timer_reason: int | None
    parked_for: tuple[str, ...]


async def waiting(
    conn: Connection, *, namespace: str | None = None, pool: str | None = None, limit: int = 50
) -> list[Waiting]:
    """Return the first `limit` runs of each line, line after line.

    Parameters
    ----------
    namespace, pool
        Of the pools; None for all.
    """
    return [_waiting(row) for row in await conn.fetch("waiting_lines", namespace, pool, limit)]


async def place_of(conn: Connection, run_id: RunId) -> Waiting | None:
    """Return where a run waits; None if a worker holds it, it has ended, or it never was."""
    row = await conn.fetchrow("waiting_place", run_id, COUNTED)
    return None if row is None else _waiting(row)


def _waiting(row: Any) -> Waiting:
    fields = dict(row)
    nth = fields.pop("nth")
    return Waiting(
        **fields
        | {
            "run_id": RunId(fields["run_id"]),
            "place": Place(fields["place"]),
            "parked_for": tuple(fields["parked_for"] or ()),
        },
        nth=None if nth is None or nth > COUNTED else nth,
    )
