"""Fetches waiting AgentRuns again when what they wait for may have appeared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rowlock.clock import Clock, SystemClock
from rowlock_operator.intake.inbox import Inbox
from rowlock_operator.intake.seen import Seen, seen_from
from rowlock_operator.intake.waiting import Waiting
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import NotFound
from rowlock_operator.kube.resources import AGENT_RUNS, AGENTS

#: Selects the AgentRuns that are not over; also those without a status.
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed,status.phase!=Cancelled"
_INPUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RecallReport:
    """What one round did."""

    listed: int = 0
    recalled: int = 0


class Recall:
    """Lists the waiting runs of an Agent or namespace, and hands them to the inbox."""

    def __init__(
        self, client: KubeClient, inbox: Inbox, waiting: Waiting, *, clock: Clock | None = None
    ) -> None:
        self._client = client
        self._inbox = inbox
        self._waiting = waiting
        self._clock = clock or SystemClock()
        self._asked: set[tuple[str, str]] = set()
        self._inputs_at = self._clock.monotonic()

    def appeared(self, news: Iterable[Seen]) -> None:
        """Note Agents and WorkerPools that are new or changed."""
        for seen in news:
            if not seen.gone and self._waiting.may_wait(
                seen.kind, seen.key.namespace, seen.key.name
            ):
                agent = seen.key.name if seen.kind == AGENTS.kind else ""
                self._asked.add((seen.key.namespace, agent))

    async def run_once(self) -> RecallReport:
        """Fetch what was asked for, and now and then the runs that wait for a ConfigMap."""
        recalled = 0
        listed = 0
        while self._asked:
            # Taken out first: what appears again while we list must be listed again.
            namespace, agent = self._asked.pop()
            try:
                recalled += await self._list(namespace, agent)
            except BaseException:
                self._asked.add((namespace, agent))
                raise
            listed += 1
        if self._clock.monotonic() - self._inputs_at >= _INPUT_SECONDS:
            recalled += await self._look_for_inputs()
            self._inputs_at = self._clock.monotonic()
        return RecallReport(listed, recalled)

    async def _list(self, namespace: str, agent: str) -> int:
        selector = f"spec.agentRef.name={agent},{UNFINISHED}" if agent else UNFINISHED
        recalled = 0
        path, params = AGENT_RUNS.path(namespace), {"fieldSelector": selector}
        async for page in self._client.pages(path, params=params):
            for item in page["items"]:
                seen = seen_from(item, AGENT_RUNS.kind)
                if seen.run_id is None and not seen.finished:
                    self._inbox.put(seen)
                    recalled += 1
        return recalled

    async def _look_for_inputs(self) -> int:
        recalled = 0
        for key in self._waiting.for_inputs():
            try:
                item = await self._client.get(AGENT_RUNS.path(key.namespace, key.name))
            except NotFound:
                self._waiting.discard(key.uid)
                continue
            self._inbox.put(seen_from(item, AGENT_RUNS.kind))
            recalled += 1
        return recalled
