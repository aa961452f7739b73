"""What commands ask, answered through the cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from typing import Any, Final

from rowlock.client.happenings import RunEvent
from rowlock.cluster import objects, podlogs, telling, wishes
from rowlock.cluster.kubectl import Kubectl
from rowlock.cluster.names import AGENT_RUNS, AGENTS, WORKER_POOLS, run_name
from rowlock.cluster.questions import answer_to, open_questions
from rowlock.cluster.starting import start
from rowlock.cluster.watching import finished, news, states
from rowlock.commands.shapes import (
    Answered,
    Happening,
    LogLine,
    Name,
    PoolShape,
    QuestionShape,
    RunShape,
    Started,
    Told,
    WaitShape,
)
from rowlock.commands.sides import Answer, Starting, Wanted, phase_named
from rowlock.errors import ClusterForbids, InvalidRequest, WishRefused
from rowlock.states import Phase

#: How long the last Event of a run may come after its status.
_LATE_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.25
_LAST_EVENTS: Final = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class ClusterSide:
    """Reads and changes objects with kubectl."""

    kubectl: Kubectl

    def name(self, text: str) -> str:
        """Return the name of an AgentRun."""
        return run_name(text)

    async def start(self, asked: Starting) -> Started:
        """Create an AgentRun."""
        return await start(self.kubectl, asked)

    async def until_end(self, run: Name, show: Callable[[RunEvent], None]) -> Told:
        """Watch an AgentRun to its end."""
        before: dict[str, Any] | None = None
        async with contextlib.aclosing(states(self.kubectl, str(run))) as found:  # type: ignore[type-var]
            async for item in found:
                for event in news(before, item):
                    show(event)
                before = item
                if finished(item):
                    break
        return telling.told(before or {}, None)

    async def runs(self, wanted: Wanted) -> list[RunShape]:
        """Return AgentRuns, the newest first."""
        phase = phase_named(wanted.phase, tuple(Phase))
        if phase is not None and phase not in tuple(Phase):
            raise InvalidRequest(f"phase: {phase!r} is not one of {', '.join(Phase)}")
        fields = {"spec.agentRef.name": wanted.agent}
        if phase != Phase.PENDING:  # those have no status yet, and so no field to select by
            fields["status.phase"] = phase
        found = [objects.run_shape(item) for item in await self._found(fields)]
        fits = [
            one
            for one in found
            if (wanted.key in (None, one.key))
            and (phase in (None, one.phase))
            and (wanted.since is None or one.created_at >= wanted.since)
        ]
        return sorted(fits, key=lambda one: one.created_at, reverse=True)[: wanted.limit]

    async def tell(self, run: Name) -> Told:
        """Return what an AgentRun and its events tell."""
        item = await wishes.read(self.kubectl, str(run))
        try:
            return telling.told(item, await self._events(item))
        except ClusterForbids:
            return telling.told(item, None)

    async def queue(self, run: Name | None, pool: str | None, limit: int) -> list[WaitShape]:
        """Return the AgentRuns that wait, or why this one does."""
        if run is not None:
            return [await self._waits(str(run))]
        pools = await self._pools_of_agents()
        found = [objects.wait_shape(it, pools) for it in await self._found({}) if objects.waits(it)]
        fits = [one for one in found if pool in (None, one.pool)]
        fits.sort(key=lambda it: (*_line(it), -it.priority, it.since))
        fronts = (islice(line, limit) for _, line in groupby(fits, key=_line))
        return list(chain.from_iterable(fronts))

    async def pools(self) -> list[PoolShape]:
        """Return the WorkerPools."""
        found = await self.kubectl.read(WORKER_POOLS)
        return [objects.pool_shape(item) for item in found["items"]]

    async def happenings(self, run: Name, *, after: int, follow: bool) -> AsyncIterator[Happening]:
        """Yield the Kubernetes events of an AgentRun, and last where it stands."""
        item = await wishes.read(self.kubectl, str(run))
        told: set[tuple[int, str]] = set()
        async with contextlib.aclosing(self._versions(item, follow)) as versions:  # type: ignore[type-var]
            async for item in versions:
                for event in await self._events(item, complete=follow and finished(item)):
                    if event.seq > after and (event.seq, event.kind) not in told:
                        told.add((event.seq, event.kind))
                        yield event
        # `--after` takes the number of any line: this one stands behind all events.
        last = max((seq for seq, _ in told), default=after)
        yield replace(telling.state(item), seq=last)

    async def said(self, run: Name, *, follow: bool) -> AsyncIterator[LogLine]:
        """Yield what the Pods of its workers have logged about it."""
        ask = podlogs.follow if follow else podlogs.recorded
        async with contextlib.aclosing(ask(self.kubectl, str(run))) as found:  # type: ignore[type-var]
            async for line in found:
                yield line

    async def suspend(self, run: Name, *, by: str, reason: str | None) -> Answered:
        """Change its desiredState to Suspend."""
        return await wishes.suspend(self.kubectl, str(run), by=by, reason=reason)

    async def continue_(self, run: Name) -> Answered:
        """Change its desiredState to Run."""
        return await wishes.continue_(self.kubectl, str(run))

    async def cancel(self, run: Name, *, by: str, reason: str | None) -> Answered:
        """Change its desiredState to Cancel."""
        return await wishes.cancel(self.kubectl, str(run), by=by, reason=reason)

    async def retry(self, run: Name, *, by: str) -> Answered:  # noqa: ARG002  the API server knows
        """Raise its redrive by one."""
        return await wishes.retry(self.kubectl, str(run))

    async def questions(self, run: Name | None) -> list[QuestionShape]:
        """Return the AgentRunApprovals without a decision."""
        return await open_questions(self.kubectl, None if run is None else str(run))

    async def answer(self, run: Name, answer: Answer) -> Answered:
        """Decide an AgentRunApproval."""
        return await answer_to(self.kubectl, str(run), answer)

    async def _found(self, fields: dict[str, str | None]) -> list[dict[str, Any]]:
        chosen = ",".join(f"{name}={value}" for name, value in fields.items() if value)
        found = await self.kubectl.read(
            AGENT_RUNS, *([f"--field-selector={chosen}"] * bool(chosen))
        )
        return list(found["items"])

    async def _waits(self, run: str) -> WaitShape:
        item = await wishes.read(self.kubectl, run)
        if not objects.waits(item):
            how = "has ended" if finished(item) else "runs"
            raise WishRefused(f"run {run} {how}: it waits nowhere")
        return objects.wait_shape(item, await self._pools_of_agents())

    async def _pools_of_agents(self) -> dict[str, str]:
        try:
            found = await self.kubectl.read(AGENTS)
        except ClusterForbids:
            return {}
        named = {objects.name_of(it): objects.pool_of_agent(it) for it in found["items"]}
        return {name: pool for name, pool in named.items() if pool}

    async def _events(self, item: objects.Object, *, complete: bool = False) -> list[Happening]:
        """Return the events about an object, in their order.

        Parameters
        ----------
        complete
            Wait a moment for that of the end: the operator writes it after the status.
        """
        about = item["metadata"]
        fields = (
            f"involvedObject.kind=AgentRun,involvedObject.name={about['name']},"
            f"involvedObject.uid={about['uid']}"
        )
        loop = asyncio.get_running_loop()
        until = loop.time() + _LATE_SECONDS
        while True:
            found = await self.kubectl.read("events", f"--field-selector={fields}")
            events = [telling.happening(one) for one in found["items"]]
            events.sort(key=lambda one: one.seq)
            ended = bool(events) and events[-1].kind in _LAST_EVENTS
            if not complete or ended or loop.time() > until:
                return events
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _versions(self, item: dict[str, Any], follow: bool) -> AsyncIterator[dict[str, Any]]:
        """Yield an object, or each version of it until the run has ended."""
        if not follow:
            yield item
            return
        name = objects.name_of(item)
        async with contextlib.aclosing(states(self.kubectl, name)) as found:  # type: ignore[type-var]
            async for one in found:
                yield one
                if finished(one):
                    return


def _line(one: WaitShape) -> tuple[str, str]:
    """Return the line that a run waits in."""
    return (one.pool or "", one.reason)
