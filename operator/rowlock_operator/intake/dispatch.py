"""Where objects of all kinds come in from the source, and intake's round.

One task does it all in turn, so what it decides about one object no other object can overtake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rowlock_operator.intake.catalog import Catalog
from rowlock_operator.intake.inbox import FLUSH_ROWS, Inbox, InboxReport
from rowlock_operator.intake.recall import Recall
from rowlock_operator.intake.seen import Seen
from rowlock_operator.intake.source import Handover
from rowlock_operator.kube.resources import AGENT_RUN_APPROVALS, AGENT_RUN_BATCHES, AGENT_RUNS

#: How long the first object of a batch waits for others.
_GATHER_SECONDS = 0.03
#: Runs that wait for a ConfigMap are looked at without any event.
_IDLE_SECONDS = 1.0


class Dispatch:
    """Sorts what the source delivers, and flushes the inbox.

    Parameters
    ----------
    tell
        Called with the Agents and WorkerPools that are new or changed.
    approval
        Called with each AgentRunApproval.
    batch
        Called with each AgentRunBatch that was seen.
    """

    def __init__(
        self,
        handover: Handover,
        inbox: Inbox,
        catalog: Catalog,
        recall: Recall,
        *,
        tell: Callable[[Sequence[Seen]], None],
        approval: Callable[[Seen], None],
        batch: Callable[[Seen], None] = lambda _seen: None,
    ) -> None:
        self._handover = handover
        self._inbox = inbox
        self._catalog = catalog
        self._recall = recall
        self._tell = tell
        self._approval = approval
        self._batch = batch

    async def run_once(self) -> InboxReport:
        """Take in what came, and flush one batch."""
        news = []
        for seen in self._handover.take():
            if seen.kind == AGENT_RUNS.kind:
                self._inbox.put(seen)
            elif seen.kind == AGENT_RUN_APPROVALS.kind:
                self._approval(seen)
            elif seen.kind == AGENT_RUN_BATCHES.kind:
                self._batch(seen)
            elif self._catalog.take(seen):
                news.append(seen)
        self.appeared(news)
        await self._recall.run_once()
        return await self._inbox.run_once()

    def appeared(self, news: Sequence[Seen]) -> None:
        """Note Agents and WorkerPools that are new, changed or gone."""
        if news:
            self._recall.appeared(news)
            self._tell(news)

    async def pause(self, report: InboxReport) -> None:
        """Wait for something to do, and then a moment for more of it."""
        if report.left:
            return
        if await self._handover.wait(_IDLE_SECONDS) and report.taken < FLUSH_ROWS:
            await asyncio.sleep(_GATHER_SECONDS)
