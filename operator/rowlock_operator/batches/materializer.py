"""Makes AgentRuns of items: of failed ones, or of all.

First a name is reserved in the database, then the object is created, then its uid is written.
A crash in between leaves a name: the next round creates the object, or finds it there.
Whoever sees the object before its uid is written, intake above all, finds the name and leaves it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from rowlock.batches.lines import MAX_TEXT_BYTES
from rowlock.store import batch_objects, bodies, changes
from rowlock.store.batch_objects import Made, Unmade, Wanted
from rowlock.store.batches import BatchId
from rowlock.store.connection import Connection
from rowlock_operator.api import names
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import Conflict, Denied, NotFound, Rejected
from rowlock_operator.kube.resources import AGENT_RUN_BATCHES, AGENT_RUNS

log = structlog.get_logger(__name__)

#: Objects of one batch made by one round.
_AT_ONCE = 20
LABEL_BATCH = f"{names.GROUP}/batch"
LABEL_ITEM = f"{names.GROUP}/batch-item"


@dataclass(frozen=True, slots=True)
class MaterializeReport:
    """What one round did.

    Parameters
    ----------
    idle
        Batches with nothing to make now.
    """

    made: int = 0
    idle: frozenset[BatchId] = frozenset()


class Materializer:
    """Makes the AgentRuns of batches."""

    def __init__(self, client: KubeClient, connection: Connection, *, cluster: str) -> None:
        self._client = client
        self._connection = connection
        self._cluster = cluster

    async def run_once(
        self, ids: Collection[BatchId], templates: Mapping[str, Mapping[str, Any]]
    ) -> MaterializeReport:
        """Make some of the AgentRuns that these batches are to have.

        Parameters
        ----------
        templates
            `spec.runTemplate` of the objects that are known, by uid.

        Raises
        ------
        KubeError
            The API server is away.
        """
        idle, made = set(ids), 0
        for batch in await batch_objects.wanted(self._connection, ids, at_once=_AT_ONCE):
            if batch.uid not in templates:
                continue
            named = await batch_objects.name_items(self._connection, batch)
            unmade = await batch_objects.unmade(self._connection, batch.batch_id, limit=_AT_ONCE)
            if named or unmade:
                idle.discard(batch.batch_id)
            made += await self._make(batch, templates[batch.uid], unmade)
        return MaterializeReport(made, frozenset(idle))

    async def _make(
        self, batch: Wanted, template: Mapping[str, Any], unmade: Collection[Unmade]
    ) -> int:
        made = []
        for item in unmade:
            try:
                made.append(await self._create(batch, template, item))
            except (Conflict, Denied, NotFound, Rejected) as error:
                # It is tried again; whatever is wrong with one namespace holds up no other.
                log.error(
                    "The AgentRun of an item was refused",
                    batch=f"{batch.namespace}/{batch.name}",
                    item=item.item,
                    error=str(error),
                )
        ours = await batch_objects.link(self._connection, made, cluster=self._cluster)
        linked = [run for run in ours.values() if run is not None]
        if linked:
            await changes.recreate_changes(self._connection, linked)
        return len(made)

    async def _create(self, batch: Wanted, template: Mapping[str, Any], item: Unmade) -> Made:
        path = AGENT_RUNS.path(batch.namespace)
        try:
            found = await self._client.create(path, agent_run(batch, template, item))
        except Conflict:
            # Made before a crash: nobody else has a name like this.
            found = await self._client.get(AGENT_RUNS.path(batch.namespace, item.name))
        metadata = found["metadata"]
        return Made(batch.namespace, item.name, metadata["uid"], metadata.get("generation", 1))


def agent_run(batch: Wanted, template: Mapping[str, Any], item: Unmade) -> dict[str, Any]:
    """Return the AgentRun of an item."""
    return {
        "apiVersion": AGENT_RUNS.api_version,
        "kind": AGENT_RUNS.kind,
        "metadata": {
            "name": item.name,
            "namespace": batch.namespace,
            "labels": {LABEL_BATCH: batch.name, LABEL_ITEM: item.item},
            "ownerReferences": [
                {
                    "apiVersion": AGENT_RUN_BATCHES.api_version,
                    "kind": AGENT_RUN_BATCHES.kind,
                    "name": batch.name,
                    "uid": batch.uid,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {**template, "input": {"text": text_of(item.input)}},
    }


def text_of(stored: bytes) -> str:
    """Return an input as the text that means the same in an AgentRun."""
    raw = bodies.unpack(stored).decode()
    if len(raw) <= MAX_TEXT_BYTES:
        return raw
    # A plain text, which takes more room as JSON.
    decoded = msgspec.json.decode(raw)
    return decoded if isinstance(decoded, str) else raw
