"""Caps of agents: which runs of the backlog may start now.

A run of a capped agent waits in `run_backlog` and is promoted while there is room under every cap.
What holds a slot is counted from the leases and the queue, in a snapshot taken after the lock;
nothing is kept in a counter, so a worker that dies can leave none wrong.
`migrations/0005_pre_caps.sql` says how the locks keep the count true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import asyncpg

from rowlock.store.connection import Connection
from rowlock.store.types import AgentId, RunId

#: Runs promoted by one turn; the locks of more would be held for long.
_MOST: Final = 1000
#: Above every limit that the database can hold.
_UNLIMITED: Final = 1 << 31
#: The key of runs without a key, which only `max_running` concerns.
_KEYLESS: Final = ""


@dataclass(frozen=True, slots=True)
class Caps:
    """What limits an agent; None for no limit.

    Parameters
    ----------
    max_running
        Runs that are in the queue or held by a worker.
    max_running_per_key
        The same for each key.
    starts_per_minute_per_key
        First claims of runs of one key in any 60 seconds.
    """

    max_running: int | None = None
    max_running_per_key: int | None = None
    starts_per_minute_per_key: int | None = None

    @property
    def for_keys(self) -> bool:
        """Whether any of them concerns single keys."""
        return self.max_running_per_key is not None or self.starts_per_minute_per_key is not None

    def tighter_than(self, other: Caps) -> bool:
        """Tell whether any limit is new or lower than in `other`."""
        pairs = (
            (self.max_running, other.max_running),
            (self.max_running_per_key, other.max_running_per_key),
            (self.starts_per_minute_per_key, other.starts_per_minute_per_key),
        )
        return any(_of(now) < _of(before) for now, before in pairs)


@dataclass(frozen=True, slots=True)
class Use:
    """What one key uses: slots, and starts of the last 60 s with those still to come."""

    held: int = 0
    starts: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run in the backlog; `fresh` if no worker ever had it."""

    run_id: RunId
    key: str
    fresh: bool


@dataclass(frozen=True, slots=True)
class KeyRoom:
    """How many runs of one key may be promoted, and how many of these may be fresh."""

    runs: int
    fresh: int


@dataclass(frozen=True, slots=True)
class Room:
    """How many runs may be promoted: in all, of the keys in use, of any other key."""

    total: int
    used: Mapping[str, KeyRoom] = field(default_factory=dict)
    other: KeyRoom = KeyRoom(_MOST, _MOST)

    def of(self, key: str) -> KeyRoom:
        """Return the room of one key."""
        return self.used.get(key, self.other)


def room_under(caps: Caps, uses: Mapping[str, Use]) -> Room:
    """Decide how much room is left under `caps`."""
    running = sum(use.held for use in uses.values())
    used = {key: _key_room(caps, use) for key, use in uses.items()}
    used[_KEYLESS] = KeyRoom(_MOST, _MOST)
    total = max(0, min(_MOST, _of(caps.max_running) - running))
    return Room(total, used, _key_room(caps, Use()))


def choose(waiting: Iterable[Waiting], room: Room) -> list[RunId]:
    """Return which runs to promote of those that wait, in their order, as far as the room goes."""
    chosen: list[RunId] = []
    taken: dict[str, KeyRoom] = {}
    for run in waiting:
        if len(chosen) >= room.total:
            break
        left = taken.get(run.key) or room.of(run.key)
        if left.runs > 0 and (left.fresh > 0 or not run.fresh):
            taken[run.key] = KeyRoom(left.runs - 1, left.fresh - run.fresh)
            chosen.append(run.run_id)
    return chosen


async def promote(conn: Connection, agent: AgentId, *, wait: bool = True) -> int:
    """Promote all runs of an agent that may start; return how many.

    Parameters
    ----------
    wait
        For another promotion of the same agent that is under way. It may not have seen yet what
        the caller knows; so who does not wait must come again soon.
    """
    promoted = 0
    while True:
        async with conn.transaction():
            row = await conn.fetchrow("take_turn", agent, wait)
            moved = 0 if row is None else await _fill(conn, agent, Caps(*row))
        promoted += moved
        if moved < _MOST:
            return promoted


async def promote_waiting(conn: Connection) -> int:
    """Promote what may start of every agent, leaving out those that somebody else is at."""
    promoted = 0
    for row in await conn.fetch("agents_waiting"):
        promoted += await promote(conn, AgentId(row[0]), wait=False)
    return promoted


async def capped_agents(conn: Connection) -> frozenset[AgentId]:
    """Return the agents that have any cap."""
    return frozenset(AgentId(row[0]) for row in await conn.fetch("capped_agents"))


async def set_caps(conn: Connection, agent: AgentId, caps: Caps) -> None:
    """Give an agent these caps, effective when this returns.

    Runs that no worker has taken yet go back as far as a lower cap asks for;
    those that are running go on.
    """
    async with conn.transaction():
        await conn.fetch("hold_still", agent)
        row = await conn.fetchrow("caps", agent)
        if row is None or Caps(*row) == caps:
            return
        values = (caps.max_running, caps.max_running_per_key, caps.starts_per_minute_per_key)
        await conn.execute("write_caps", agent, *values)
        if caps.tighter_than(Caps(*row)):
            await conn.fetch("hold_back", agent, caps.max_running is not None)
        await _fill(conn, agent, caps)
    await promote(conn, agent)


async def _fill(conn: Connection, agent: AgentId, caps: Caps) -> int:
    """Promote once, in a transaction that has the agent's turn; each statement sees the newest."""
    rated = caps.starts_per_minute_per_key is not None
    if rated:
        await conn.execute("settle_starts", agent)
    uses = {row[0]: Use(row[1], row[2]) for row in await conn.fetch("occupied", agent, rated)}
    room = room_under(caps, uses)
    chosen = await _choose(conn, agent, caps, room) if room.total else []
    if not chosen:
        return 0
    return int((await conn.fetchone("promote", agent, chosen, rated))["promoted"])


async def _choose(conn: Connection, agent: AgentId, caps: Caps, room: Room) -> list[RunId]:
    """Read who is next.

    The front of the backlog tells it, unless keys without room fill it.
    Then each key is asked for its first ones, however many it has behind them.
    """
    limit = _MOST if caps.for_keys else room.total
    front = _waiting(await conn.fetch("backlog_front", agent, limit))
    chosen = choose(front, room)
    if len(chosen) == room.total or len(front) < limit:
        return chosen
    keys = list(room.used)
    rows = await conn.fetch(
        "backlog_heads",
        agent,
        room.total,
        keys,
        [room.used[key].runs for key in keys],
        [room.used[key].fresh for key in keys],
        room.other.runs,
        room.other.fresh,
    )
    return [RunId(row[0]) for row in rows]


def _waiting(rows: Sequence[asyncpg.Record]) -> list[Waiting]:
    return [Waiting(RunId(row[0]), row[1], row[2]) for row in rows]


def _key_room(caps: Caps, use: Use) -> KeyRoom:
    runs = min(_MOST, _of(caps.max_running_per_key) - use.held)
    fresh = min(_MOST, _of(caps.starts_per_minute_per_key) - use.starts)
    return KeyRoom(max(0, runs), max(0, fresh))


def _of(limit: int | None) -> int:
    return _UNLIMITED if limit is None else limit
