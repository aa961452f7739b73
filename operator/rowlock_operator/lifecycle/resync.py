"""The round that compares everything with everything, for all parts that keep a memory."""

from __future__ import annotations

import asyncio

from rowlock.store import batches as batch_store
from rowlock_operator.intake.seen import Seen, seen_from
from rowlock_operator.intake.sweep import SweepReport
from rowlock_operator.kube.resources import AGENT_RUN_BATCHES
from rowlock_operator.lifecycle.loops import every
from rowlock_operator.lifecycle.means import Means
from rowlock_operator.lifecycle.pooling import Pooling
from rowlock_operator.lifecycle.showing import Showing
from rowlock_operator.lifecycle.taking_in import TakingIn


class Resync:
    """Has each part look at all that it may have missed."""

    def __init__(
        self, means: Means, *, taking_in: TakingIn, showing: Showing, pooling: Pooling
    ) -> None:
        self._means = means
        self._taking_in = taking_in
        self._showing = showing
        self._pooling = pooling

    async def run_once(self) -> SweepReport:
        """Do it once."""
        parts = self._taking_in
        parts.dispatch.appeared(await parts.catalog.refresh())
        self._pooling.agents.mark_all()
        parts.limits.mark_all()
        self._showing.approvals.mark_all()
        await self._batches()
        return await parts.sweep.run_once()

    async def pause(self, _report: SweepReport) -> None:
        """Wait for the next round; an outage of the API server that ended is one more reason."""
        recovered = self._means.client.recovered
        recovered.clear()
        pause = every(self._means.settings.sweep_seconds, jitter=0.1)
        waits = {asyncio.ensure_future(pause(None)), asyncio.ensure_future(recovered.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _batches(self) -> None:
        means = self._means
        namespaces = means.settings.namespaces
        rows = await batch_store.known(
            means.connections.batches, cluster=means.cluster, namespaces=namespaces or None
        )
        listed: list[Seen] = []
        for namespace in namespaces or (None,):
            async for page in means.client.pages(AGENT_RUN_BATCHES.path(namespace)):
                listed += [seen_from(it, AGENT_RUN_BATCHES.kind) for it in page["items"]]
        self._taking_in.batches.resync(listed, rows)
