"""Batches whose object is gone: confirmed by a GET, then stopped, and purged when all has ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import structlog

from rowlock.store import batches as store
from rowlock.store.batches import BatchId, KnownBatch
from rowlock.store.connection import Connection
from rowlock_operator.intake.repairs import too_many
from rowlock_operator.kube.client import METADATA_ONLY, KubeClient
from rowlock_operator.kube.errors import KubeError, NotFound
from rowlock_operator.kube.putoff import PutOff
from rowlock_operator.kube.resources import AGENT_RUN_BATCHES, ObjectKey

log = structlog.get_logger(__name__)

#: Chunks of rows deleted by one round.
_CHUNKS = 4


class Departed:
    """Objects that may be gone, and rows whose objects are."""

    def __init__(self, client: KubeClient, connection: Connection, *, percent: float = 10) -> None:
        self._client = client
        self._connection = connection
        self._percent = percent
        self._suspects: dict[str, ObjectKey] = {}
        self._purging: set[BatchId] = set()
        self._put_off = PutOff()

    def suspect(self, key: ObjectKey) -> None:
        """Have an object looked at soon."""
        self._suspects[key.uid] = key

    def compare(self, rows: Sequence[KnownBatch], present: Collection[str]) -> None:
        """Suspect the batches that are not listed; so many at once are a mistake and stay."""
        self._purging |= {row.batch_id for row in rows if row.departed}
        missing = [row for row in rows if row.uid not in present and not row.departed]
        live = sum(not row.finished for row in rows)
        lost = sum(not row.finished for row in missing)
        if too_many(lost, live, self._percent):
            log.error("The sweep holds: too many batches lost their object", lost=lost, live=live)
            return
        for row in missing:
            self.suspect(ObjectKey(row.namespace, row.name, row.uid))

    async def confirm(self, cluster: str) -> list[str]:
        """Stop the batches whose objects are gone; return the uids of these objects."""
        gone = []
        for uid, key in [it for it in self._suspects.items() if self._put_off.due(it[0])]:
            try:
                is_gone = await self._is_gone(key)
            except KubeError as error:
                self._put_off.failed(uid)
                log.warning("A batch cannot be looked at", batch=str(key), error=str(error))
                continue
            if is_gone:
                await self._let_go(cluster, key)
                gone.append(uid)
            del self._suspects[uid]
            self._put_off.forget(uid)
        return gone

    async def purge(self) -> None:
        """Delete some rows of batches whose objects are gone and whose runs have ended."""
        if not self._purging:
            return
        rows = await store.statuses(self._connection, self._purging, failures=0)
        self._purging &= {row.batch_id for row in rows}
        for row in rows:
            if row.finished_at and not await self._purge(row.batch_id):
                self._purging.discard(row.batch_id)

    async def _purge(self, batch: BatchId) -> bool:
        for _ in range(_CHUNKS):
            if not await store.purge(self._connection, batch):
                return False
        return True

    async def _let_go(self, cluster: str, key: ObjectKey) -> None:
        number = await store.find(self._connection, cluster=cluster, uid=key.uid)
        if number is not None:
            await store.depart(self._connection, number)
            self._purging.add(number)
        log.info("The AgentRunBatch is gone", batch=str(key), number=number)

    async def _is_gone(self, key: ObjectKey) -> bool:
        path = AGENT_RUN_BATCHES.path(key.namespace, key.name)
        try:
            item = await self._client.get(path, accept=METADATA_ONLY)
        except NotFound:
            return True
        return bool(item["metadata"]["uid"] != key.uid)
