"""Caps of agents: which runs of the backlog may start now; decided by `rowlock.store.caps`."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from rowlock.states import ChangeKind, Place
from rowlock.store.caps import Caps, Use, Waiting, choose, room_under
from rowlock.store.types import AgentId, RunId
from rowlock.testing.store import lines
from rowlock.testing.store.tables import Live, Start, Tables

_WINDOW = timedelta(seconds=60)


def promote(tables: Tables, agent: AgentId) -> int:
    """Promote all runs of an agent that may start; return how many."""
    if agent not in tables.agents:
        return 0
    promoted = 0
    while moved := _fill(tables, agent):
        promoted += moved
    return promoted


def promote_waiting(tables: Tables) -> int:
    """Promote what may start of every agent."""
    return sum(promote(tables, agent) for agent in tables.agents)


def set_caps(tables: Tables, agent: AgentId, caps: Caps) -> None:
    """Give an agent these caps; runs that no worker has taken yet go back where one is lower."""
    if agent not in tables.agents or tables.agents[agent].caps == caps:
        return
    before, tables.agents[agent].caps = tables.agents[agent].caps, caps
    if caps.tighter_than(before):
        _hold_back(tables, agent, everything=caps.max_running is not None)
    promote(tables, agent)


def _fill(tables: Tables, agent: AgentId) -> int:
    caps = tables.agents[agent].caps
    rated = caps.starts_per_minute_per_key is not None
    if rated:
        _settle_starts(tables, agent)
    waiting = _of(tables, agent, Place.BACKLOG)
    room = room_under(caps, _uses(tables, agent, rated=rated))
    chosen = choose((Waiting(r.run_id, r.key or "", r.started_at is None) for r in waiting), room)
    moved = [tables.live[run_id] for run_id in chosen]
    for run in moved:
        if rated and run.key is not None and run.started_at is None:
            tables.starts[run.run_id] = Start(agent, run.key)
    lines.promote(tables, moved)
    for run in moved:
        tables.change(run, ChangeKind.PROMOTED)
    return len(moved)


def _hold_back(tables: Tables, agent: AgentId, *, everything: bool) -> None:
    ready = _of(tables, agent, Place.READY)
    moved = [run for run in ready if everything or run.key is not None]
    lines.hold_back(tables, moved)
    for run in moved:
        if run.run_id in tables.starts and tables.starts[run.run_id].at is None:
            del tables.starts[run.run_id]
        tables.change(run, ChangeKind.HELD_BACK)


def _of(tables: Tables, agent: AgentId, *places: Place) -> list[Live]:
    return [run for run in tables.at(*places) if run.agent_id == agent]


def _uses(tables: Tables, agent: AgentId, *, rated: bool) -> dict[str, Use]:
    held = Counter(run.key or "" for run in _of(tables, agent, Place.READY, Place.LEASE))
    starts: Counter[str] = Counter()
    if rated:
        starts.update(start.key for start in tables.starts.values() if start.agent_id == agent)
    return {key: Use(held[key], starts[key]) for key in held.keys() | starts.keys()}


def _settle_starts(tables: Tables, agent: AgentId) -> None:
    """Find out when promoted runs started, and forget the starts that are older than 60 s."""
    for run_id, start in list(tables.starts.items()):
        if start.agent_id != agent:
            continue
        start.at = start.at or _started(tables, run_id)
        if _counts_no_more(tables, run_id, start):
            del tables.starts[run_id]


def _started(tables: Tables, run_id: RunId) -> datetime | None:
    row = tables.live.get(run_id) or tables.newest_final(run_id)
    return row.started_at if row else None


def _counts_no_more(tables: Tables, run_id: RunId, start: Start) -> bool:
    if start.at is not None:
        return start.at <= tables.now() - _WINDOW
    # It ended, or went back, before any worker took it.
    return run_id not in tables.live or tables.live[run_id].place is not Place.READY
