"""A further attempt of a run that has ended: its finished steps are read back."""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.errors import StoreUnavailable
from rowlock.store.connection import Connection
from rowlock.store.nudges import nudge
from rowlock.store.types import Redriving, RunId


@dataclass(frozen=True, slots=True)
class Standing:
    """How the newest attempt of a run stands.

    Parameters
    ----------
    expired
        Its history may be gone.
    live, ended
        Number of the attempt that is not over, and of the last one that is.
    """

    expired: bool
    there: bool
    live: int | None
    ended: int | None

    @property
    def newest(self) -> int:
        """The number of the newest attempt; 0 for a run that is unknown."""
        return self.live or self.ended or 0


async def standing(conn: Connection, run_id: RunId) -> Standing:
    """Return how a run's newest attempt stands."""
    return Standing(*await conn.fetchone("last_attempt", run_id))


async def redrive(
    conn: Connection, run_id: RunId, *, by: str, attempt: int | None = None
) -> Redriving:
    """Queue the attempt after a run's last one; of many who ask at once one wins.

    Parameters
    ----------
    attempt
        The number of the attempt that is asked for: whoever gives it may ask again and again.
        None for the one after the last.
    """
    now = await standing(conn, run_id)
    if now.expired:
        return Redriving.HISTORY_EXPIRED
    if not now.there:
        return Redriving.UNKNOWN
    wanted = attempt or now.newest + 1
    if wanted <= now.newest:
        return Redriving.ALREADY_ASKED
    if now.live or wanted > now.newest + 1:
        return Redriving.NOT_FINISHED
    if await conn.fetch("redrive", run_id, wanted, by):
        await nudge(conn)
        return Redriving.QUEUED
    return await _lost(conn, run_id, wanted)


async def redrive_once(conn: Connection, run_id: RunId, *, by: str) -> Redriving:
    """Do what `redrive` does, unless `by` has asked for an attempt of this run before."""
    # In this order: an attempt that begins in between is the one that we ask for, or has our name.
    now = await standing(conn, run_id)
    if (await conn.fetchone("asked_attempts", run_id, by))["asked"]:
        return Redriving.ALREADY_ASKED
    if now.live:
        return Redriving.NOT_FINISHED
    return await redrive(conn, run_id, by=by, attempt=now.newest + 1)


async def _lost(conn: Connection, run_id: RunId, wanted: int) -> Redriving:
    """Say, by a newer snapshot, what stood in the way."""
    now = await standing(conn, run_id)
    if now.expired:
        return Redriving.HISTORY_EXPIRED
    if now.newest >= wanted:
        return Redriving.ALREADY_ASKED
    raise StoreUnavailable("the run is on its way from one place to another: try again")
