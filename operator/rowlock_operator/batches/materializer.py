"""Makes AgentRuns of items: of failed ones, or of all.

First a name is reserved in the database, then the object is created, then its uid is written.
A crash in between leaves a name: the next round creates the object, or finds it there.
Whoever sees the object before its uid is written, intake above all, finds the name and leaves it.
An object that is refused is tried again later and later; one that breaks its schema never is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from rowlock.batches.lines import MAX_TEXT_BYTES
from rowlock.clock import Clock
from rowlock.states import FailureReason
from rowlock.store import batch_objects, bodies, changes
from rowlock.store.batch_objects import Made, Unmade, Wanted
from rowlock.store.batches import BatchId
from rowlock.store.connection import Connection
from rowlock_operator.api import names
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import Conflict, Denied, Invalid, NotFound, Rejected
from rowlock_operator.kube.putoff import PutOff
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
    over
        Batches with nothing to make ever again.
    refusals
        What the API server said of one object of each batch that had any refused.
    """

    made: int = 0
    over: frozenset[BatchId] = frozenset()
    refusals: Mapping[BatchId, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Outcome:
    """What became of some items of one batch.

    Parameters
    ----------
    lost
        Names of which no object is made any more: the batch has stopped.
    invalid
        Names of which no object can ever be made.
    """

    made: list[Made] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    refusal: str | None = None


class Materializer:
    """Makes the AgentRuns of batches."""

    def __init__(
        self,
        client: KubeClient,
        connection: Connection,
        *,
        cluster: str,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._connection = connection
        self._cluster = cluster
        self._clock = clock
        self._refused: dict[BatchId, PutOff] = {}

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
        over, made, refusals = set(ids), 0, {}
        self._refused = {number: it for number, it in self._refused.items() if number in over}
        for batch in await batch_objects.wanted(self._connection, ids, at_once=_AT_ONCE):
            over.discard(batch.batch_id)
            if batch.uid not in templates:
                continue
            named = await batch_objects.name_items(self._connection, batch)
            if batch.finished and not named and not batch.unmade:
                over.add(batch.batch_id)
            if not named and not batch.unmade:
                continue
            outcome = await self._make(batch, templates[batch.uid])
            made += len(outcome.made)
            if outcome.refusal:
                refusals[batch.batch_id] = outcome.refusal
        return MaterializeReport(made, frozenset(over), refusals)

    async def _make(self, batch: Wanted, template: Mapping[str, Any]) -> _Outcome:
        rests = self._refused.setdefault(batch.batch_id, PutOff(clock=self._clock))
        resting = rests.resting()
        unmade = await batch_objects.unmade(
            self._connection, batch.batch_id, limit=_AT_ONCE, but=resting
        )
        outcome = _Outcome()
        try:
            for item in unmade:
                await self._try(batch, template, item, outcome)
        finally:
            # What was done before the API server went away is done.
            await self._note(batch, outcome)
        return outcome

    async def _try(
        self, batch: Wanted, template: Mapping[str, Any], item: Unmade, outcome: _Outcome
    ) -> None:
        rests = self._refused[batch.batch_id]
        try:
            if batch.stopped and batch.all:
                outcome.made.append(await self._find(batch, item))
            else:
                outcome.made.append(await self._create(batch, template, item))
            rests.forget(item.name)
        except (Conflict, Denied, NotFound, Rejected) as error:
            if isinstance(error, NotFound) and batch.stopped and batch.all:
                outcome.lost.append(item.name)
                return
            # Whatever is wrong with one object holds up no other.
            outcome.refusal = f"item {item.item}: {error}"
            if isinstance(error, Invalid):
                outcome.invalid.append(item.name)
                rests.forget(item.name)
                return
            seconds = rests.failed(item.name)
            log.warning(
                "The AgentRun of an item was refused",
                batch=f"{batch.namespace}/{batch.name}",
                item=item.item,
                error=str(error),
                again_in=seconds,
            )

    async def _note(self, batch: Wanted, outcome: _Outcome) -> None:
        """Write to the database what became of items."""
        conn, number = self._connection, batch.batch_id
        await batch_objects.refuse(conn, number, outcome.lost, reason=None)
        await batch_objects.refuse(conn, number, outcome.invalid, reason=FailureReason.INVALID_SPEC)
        ours = await batch_objects.link(conn, outcome.made, cluster=self._cluster)
        linked = [run for run in ours.values() if run is not None]
        if linked:
            await changes.recreate_changes(conn, linked)

    async def _create(self, batch: Wanted, template: Mapping[str, Any], item: Unmade) -> Made:
        path = AGENT_RUNS.path(batch.namespace)
        try:
            found = await self._client.create(path, agent_run(batch, template, item))
        except Conflict:
            # Made before a crash: nobody else has a name like this.
            return await self._find(batch, item)
        return _made(batch, item, found)

    async def _find(self, batch: Wanted, item: Unmade) -> Made:
        path = AGENT_RUNS.path(batch.namespace, item.name)
        return _made(batch, item, await self._client.get(path))


def _made(batch: Wanted, item: Unmade, found: Mapping[str, Any]) -> Made:
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
