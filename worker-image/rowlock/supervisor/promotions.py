"""Promotes runs of capped agents, and tells the loops about them.

A loop that ends a run of a capped agent promotes the next one itself, at once:
it only has to know which agents these are.
All else that makes room (a lost worker, a start that is a minute old) is met by this round,
which any number of workers may do at once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rowlock import metrics
from rowlock.engine.messages import Capped, Look
from rowlock.metrics import Tally
from rowlock.store import caps
from rowlock.store.connection import Connection
from rowlock.store.types import AgentId, WorkerId
from rowlock.supervisor.child import Child

#: A free slot that no loop reported is used within this and one claim.
_PERIOD = 0.15


class Promoter:
    """Does the rounds."""

    def __init__(self, connection: Connection, *, tally: Tally) -> None:
        self._connection = connection
        self._tally = tally
        self._told: dict[WorkerId, frozenset[AgentId]] = {}

    def pause(self) -> float:
        """Return the seconds until the next round, ± 20 % so that workers drift apart."""
        return _PERIOD * random.uniform(0.8, 1.2)  # noqa: S311  spreads the workers

    async def run_once(self, children: Sequence[Child]) -> int:
        """Promote what may start, and have it claimed; return how many."""
        self._tell(children, await caps.capped_agents(self._connection))
        promoted = await caps.promote_waiting(self._connection)
        if promoted:
            self._tally.add(metrics.RUNS_PROMOTED, by=promoted)
            for child in children:
                child.send(Look())
        return promoted

    def _tell(self, children: Sequence[Child], capped: frozenset[AgentId]) -> None:
        """Tell each loop which agents are capped, once and when that changes."""
        for child in children:
            if self._told.get(child.worker_id, frozenset()) != capped:
                child.send(Capped(sorted(capped)))
        self._told = {child.worker_id: capped for child in children}
