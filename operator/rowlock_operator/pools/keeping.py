"""Which older builds a pool has to keep workers of, and how many; pure.

A pinned run goes on with workers of the build that began it. While a pool has such runs of a build
that its spec does not name any more, workers of it stay in a Deployment of their own: they go on
with those runs and begin no others. It goes when the last of these runs has ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rowlock.store.builds import BoundRuns
from rowlock.store.scaling import PoolSignals


@dataclass(frozen=True, slots=True)
class Kept:
    """One older build.

    Parameters
    ----------
    runs
        Pinned to it and not ended.
    replicas
        Workers that it needs.
    """

    build: str
    runs: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept of a pool, and what cannot be.

    Parameters
    ----------
    lost
        Builds whose Pods nobody remembers.
    """

    kept: tuple[Kept, ...] = ()
    lost: tuple[Kept, ...] = ()


def to_keep(
    bound: Iterable[BoundRuns], *, current: str | None, slots: int, most: int
) -> list[Kept]:
    """Return the builds that must stay beside `current`.

    Parameters
    ----------
    slots
        Runs that one worker holds.
    most
        Workers of one build at most.
    """
    return [
        Kept(one.build, one.pinned, _replicas(one, slots=slots, most=most))
        for one in sorted(bound, key=lambda one: one.build)
        if one.pinned and one.build != current
    ]


def _replicas(one: BoundRuns, *, slots: int, most: int) -> int:
    """Return at least one: what waits for a person may come back at any time."""
    return max(1, min(most, math.ceil((one.claimable + one.running) / slots)))


def without_bound(
    signals: PoolSignals, bound: Sequence[BoundRuns], *, current: str | None
) -> PoolSignals:
    """Return the signals without the runs that no worker of the present build could take."""
    others = [one for one in bound if one.build != current]
    demand = signals.demand
    running = max(0, demand.running - sum(one.running for one in others))
    claimable = max(0, demand.claimable - sum(one.claimable for one in others))
    return replace(signals, demand=replace(demand, running=running, claimable=claimable))


def said(builds: Sequence[Kept]) -> str:
    """Return builds and numbers of runs in words."""
    return ", ".join(f"{one.build} ({one.runs} pinned runs)" for one in builds)
