"""All parts of one operator, wired together: each group of them in a module of its own."""

from __future__ import annotations

from collections.abc import Sequence

from rowlock_operator.intake.seen import Seen
from rowlock_operator.lifecycle.loops import Loop, every
from rowlock_operator.lifecycle.means import Means
from rowlock_operator.lifecycle.pooling import Pooling
from rowlock_operator.lifecycle.resync import Resync
from rowlock_operator.lifecycle.showing import Showing
from rowlock_operator.lifecycle.taking_in import TakingIn
from rowlock_operator.lifecycle.upkeep import Upkeep


class Assembly:
    """The parts, and the loops that drive them."""

    def __init__(self, means: Means) -> None:
        self.showing = Showing(means)
        self.taking_in = TakingIn(means, self.showing, self._tell)
        self.pooling = Pooling(means, self.taking_in.catalog, self.showing.announcer)
        self.resync = Resync(
            means, taking_in=self.taking_in, showing=self.showing, pooling=self.pooling
        )
        self.upkeep = Upkeep(means.connections.upkeep, means.metrics)

    def loops(self) -> list[Loop]:
        """Return all loops."""
        return [
            *self.taking_in.loops(),
            Loop("sweep", self.resync.run_once, self.resync.pause),
            *self.showing.loops(),
            *self.pooling.loops(),
            Loop("upkeep", self.upkeep.run_once, every(1.0)),
        ]

    async def flush(self) -> None:
        """Bring to its end what is under way, as far as that works at once."""
        await self.taking_in.dispatch.run_once()
        await self.showing.flush()

    def _tell(self, news: Sequence[Seen]) -> None:
        self.pooling.agents.mark(news)
