"""AgentRuns that seem to be deleted: confirmed by a GET, then their runs are cancelled.

A watch that was away, a list of the wrong namespaces, a name used twice: a sign is not enough.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock.errors import RowlockError
from rowlock.store import changes
from rowlock.store import intake as store
from rowlock.store.connection import Connection
from rowlock_operator import metrics as m
from rowlock_operator.kube.client import METADATA_ONLY, KubeClient
from rowlock_operator.kube.errors import NotFound
from rowlock_operator.kube.resources import AGENT_RUNS, ObjectKey

log = structlog.get_logger(__name__)

_AT_ONCE = 200
#: Who asked for the end of a run, as its history says.
DELETION = "the deletion of its AgentRun"


@dataclass(frozen=True, slots=True)
class DepartureReport:
    """What one round did."""

    departed: int = 0
    stayed: int = 0


class Departures:
    """A set of objects to look at, and the loop that does so."""

    def __init__(
        self,
        client: KubeClient,
        connection: Connection,
        *,
        cluster: str,
        metrics: m.Metrics,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._connection = connection
        self._cluster = cluster
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._suspects: dict[str, ObjectKey] = {}
        self._something = asyncio.Event()

    def __len__(self) -> int:
        return len(self._suspects)

    def suspect(self, key: ObjectKey) -> None:
        """Have an object looked at soon."""
        self._suspects[key.uid] = key
        self._something.set()

    async def wait(self) -> None:
        """Wait until there is something to look at."""
        await self._something.wait()

    async def run_once(self) -> DepartureReport:
        """Look at some of the objects, and let go of those that are gone."""
        batch = list(self._suspects.values())[:_AT_ONCE]
        answers = await asyncio.gather(
            *(self._is_gone(key) for key in batch), return_exceptions=True
        )
        gone = [key for key, answer in zip(batch, answers, strict=True) if answer is True]
        await self._let_go(gone)
        for key, answer in zip(batch, answers, strict=True):
            if not isinstance(answer, BaseException):
                self._suspects.pop(key.uid, None)
        if not self._suspects:
            self._something.clear()
        _raise_first(answers)
        return DepartureReport(departed=len(gone), stayed=len(batch) - len(gone))

    async def _is_gone(self, key: ObjectKey) -> bool:
        path = AGENT_RUNS.path(key.namespace, key.name)
        try:
            item = await self._client.get(path, accept=METADATA_ONLY)
        except NotFound:
            return True
        return bool(item["metadata"]["uid"] != key.uid)

    async def _let_go(self, gone: list[ObjectKey]) -> None:
        if not gone:
            return
        runs = await store.run_ids_by_object(
            self._connection, cluster=self._cluster, uids=[key.uid for key in gone]
        )
        ids = list(runs.values())
        if ids:
            # First the wish, then the link: a crash in between leaves what the sweep finds again.
            await store.request_cancel(self._connection, ids, by=DELETION)
            await changes.unlink(self._connection, ids)
        self._metrics.add(m.DEPARTED, by=len(gone))
        for key in gone:
            log.info("The AgentRun is gone", run=str(key), run_id=str(runs.get(key.uid, "")))


def _raise_first(answers: list[bool | BaseException]) -> None:
    for answer in answers:
        if isinstance(answer, RowlockError):
            raise answer
        if isinstance(answer, BaseException):
            raise answer
