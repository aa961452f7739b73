"""Who is next: places in line, and which runs must wait in the backlog.

`migrations/0005_pre_caps.sql` says how that works; the same rules on plain objects.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.states import Place
from rowlock.store.caps import Caps
from rowlock.store.types import AgentId
from rowlock.testing.store.tables import FIRST, Live, Tables

#: A key's runs of one priority in one pool stand in one line.
Line = tuple[AgentId, str | None, int, int]


def line_of(run: Live) -> Line:
    """Return the line in which a run stands."""
    return (run.agent_id, run.key, run.priority, run.pool_id)


def held(tables: Tables, run: Live) -> bool:
    """Tell whether a run that comes into a queue must wait in its agent's backlog."""
    caps = tables.agents[run.agent_id].caps
    return caps.max_running is not None or (caps != Caps() and run.key is not None)


def queue_up(tables: Tables, runs: Sequence[Live]) -> None:
    """Put new runs at the end of their lines: the end of each is looked up once."""
    moment = tables.moment()
    ends: dict[Line, float] = {}
    for run in runs:
        line = line_of(run)
        if line not in ends:
            ends[line] = (
                _backlog_end(tables, run) if held(tables, run) else _end(tables, run, moment)
            )
        ends[line] += 1
        run.vft = ends[line]
    for run in runs:
        run.place = Place.BACKLOG if held(tables, run) else Place.READY
        tables.live[run.run_id] = run


def promote(tables: Tables, runs: Sequence[Live]) -> None:
    """Move runs of the backlog to the end of their lines in the shared queue."""
    moment = tables.moment()
    ends = {line_of(run): _end(tables, run, moment) for run in runs}
    for run in sorted(runs, key=lambda run: (run.vft, run.run_id)):
        turns = tables.agents[run.agent_id].turns
        if run.started_at is None:
            turns[run.priority] = max(run.vft, turns.get(run.priority, run.vft))
            ends[line_of(run)] += 1
            run.vft = ends[line_of(run)]
        else:
            run.vft = FIRST
        run.stand(Place.READY, tables.now())


def hold_back(tables: Tables, runs: Sequence[Live]) -> None:
    """Move runs of the shared queue before those of their key that wait in the backlog."""
    starts = _beginnings(tables, [run for run in runs if run.started_at is None])
    for run in sorted(runs, key=lambda run: (run.vft, run.run_id)):
        if run.started_at is None:
            starts[run.key, run.priority] += 1
            run.vft = starts[run.key, run.priority]
        else:
            run.vft = FIRST
        run.stand(Place.BACKLOG, tables.now())


def requeue(tables: Tables, run: Live) -> None:
    """Put a run that ran before back, with the place that it had."""
    must_wait = held(tables, run)
    if must_wait:
        run.vft = FIRST
    run.stand(Place.BACKLOG if must_wait else Place.READY, tables.now())


def begin_again(tables: Tables, run: Live) -> None:
    """Put a run that nobody holds at the end of its line; under a cap, what ran before is first."""
    must_wait = held(tables, run)
    if not must_wait:
        run.vft = _end(tables, run, tables.moment()) + 1
    else:
        run.vft = _backlog_end(tables, run) + 1 if run.started_at is None else FIRST
    run.stand(Place.BACKLOG if must_wait else Place.READY, tables.now())


def _end(tables: Tables, run: Live, moment: float) -> float:
    """Return the last place of a run's line in the shared queue, or where that queue has come."""
    near = [
        other for other in tables.at(Place.READY)
        if (other.pool_id, other.priority) == (run.pool_id, run.priority)
    ]  # fmt: skip
    own = [other.vft for other in near if line_of(other) == line_of(run)]
    head = min((other.vft for other in near if other.epoch == 0), default=moment)
    return max([*own, head])


def _backlog_end(tables: Tables, run: Live) -> float:
    own = (
        other.vft for other in tables.at(Place.BACKLOG)
        if (other.agent_id, other.key, other.priority) == (run.agent_id, run.key, run.priority)
    )  # fmt: skip
    turn = tables.agents[run.agent_id].turns.get(run.priority, 0.0)
    return max([0.0, turn, *own])


def _beginnings(tables: Tables, runs: Sequence[Live]) -> dict[tuple[str | None, int], float]:
    """Return the place before the first of these runs, for each key and priority."""
    found: dict[tuple[str | None, int], float] = {}
    for key, priority in {(run.key, run.priority) for run in runs}:
        own = [run for run in runs if (run.key, run.priority) == (key, priority)]
        waiting = [
            other.vft for other in tables.at(Place.BACKLOG)
            if (other.agent_id, other.key, other.priority) == (own[0].agent_id, key, priority)
            and other.vft > FIRST
        ]  # fmt: skip
        turn = tables.agents[own[0].agent_id].turns.get(priority, 0.0)
        found[key, priority] = min(waiting) - len(own) - 1 if waiting else turn
    return found
