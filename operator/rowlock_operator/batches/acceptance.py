"""Takes a batch in: looks up what it needs, checks every item, writes all of it or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from rowlock import options as run_options
from rowlock.batches import addresses, reader
from rowlock.batches.lines import BrokenItem, item, read_lines, unique
from rowlock.errors import RowRejected
from rowlock.options import RunOptions
from rowlock.states import BatchStop, FailureReason, Materialize, WaitReason
from rowlock.store import batches as store
from rowlock.store.batches import BatchId, NewBatch, NewItem
from rowlock.store.connection import Connection
from rowlock.store.types import NewRun
from rowlock_operator.api.agentrunbatch import AgentRunBatchSpec, BatchItem
from rowlock_operator.api.references import ConfigMapKeyReference
from rowlock_operator.batches.status import BatchRefused, BatchWaits
from rowlock_operator.intake.agents import problem_of
from rowlock_operator.intake.config_maps import ConfigMaps
from rowlock_operator.intake.inputs import ConfigMapKey
from rowlock_operator.intake.lookups import Lookups
from rowlock_operator.intake.resolver import Accepted, Refused, Waits
from rowlock_operator.intake.revisions import Revisions
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.resources import AGENT_RUNS

#: A reader works for as long as the file is long; its steps have limits of their own.
_READER = run_options.encode(RunOptions(active_deadline_seconds=604_800))
_LEVELS = {"None": Materialize.NONE, "Failed": Materialize.FAILED, "All": Materialize.ALL}


@dataclass(frozen=True, slots=True)
class _Request:
    """A batch that only lacks its items."""

    seen: Seen
    spec: AgentRunBatchSpec
    resolved: Accepted


class Acceptance:
    """Decides what becomes of new batches, and writes them."""

    def __init__(
        self, connection: Connection, lookups: Lookups, config_maps: ConfigMaps, *, cluster: str
    ) -> None:
        self._connection = connection
        self._lookups = lookups
        self._config_maps = config_maps
        self._cluster = cluster
        self._revisions = Revisions(connection)

    async def accept(self, seen: Seen) -> BatchId | BatchWaits | BatchRefused:
        """Write a batch, once, or say why not; safe to repeat.

        Raises
        ------
        StoreUnavailable, KubeError
            Something is away.
        """
        try:
            spec = AgentRunBatchSpec.model_validate(seen.spec)
        except ValidationError as error:
            return BatchRefused(FailureReason.INVALID_SPEC, problem_of(error))
        resolved = await self._resolve(seen)
        if not isinstance(resolved, Accepted):
            return resolved
        try:
            return await self._take(_Request(seen, spec, resolved))
        except BrokenItem as error:
            return BatchRefused(BatchStop.INVALID_ITEMS, str(error))
        except addresses.BadAddress as error:
            return BatchRefused(FailureReason.INVALID_SPEC, str(error))
        except RowRejected as error:
            return BatchRefused(FailureReason.INVALID_SPEC, str(error))

    async def _resolve(self, seen: Seen) -> Accepted | BatchWaits | BatchRefused:
        """Resolve the template as a run of its own would be."""
        run = Seen(AGENT_RUNS.kind, seen.key, 1, "", spec=seen.spec["runTemplate"])
        found = await self._lookups.resolve([run])
        if not found:
            message = "the operator failed to resolve runTemplate; see its log"
            return BatchRefused(FailureReason.INVALID_SPEC, message)
        [(_, resolution)] = found
        if isinstance(resolution, Waits):
            return BatchWaits(resolution.reason, resolution.message)
        if isinstance(resolution, Refused):
            return BatchRefused(resolution.reason, f"runTemplate: {resolution.message}")
        return resolution

    async def _take(self, request: _Request) -> BatchId | BatchWaits | BatchRefused:
        source = request.spec.items_from
        if source and source.uri:
            return await self._take_unread(request, source.uri)
        if source and source.config_map_key_ref:
            where = source.config_map_key_ref
            text = await self._entry(request.seen.key.namespace, where)
            if text is None:
                message = f"ConfigMap {where.name} has no key {where.key}"
                return BatchWaits(WaitReason.INPUT_NOT_FOUND, message)
            items = await asyncio.to_thread(_items_of_text, text)
        else:
            items = _items_of_object(request.spec.items or ())
        new = await self._new(request)
        if problem := store.items_problem(len(items), new.materialize):
            return BatchRefused(BatchStop.INVALID_ITEMS, problem)
        return await store.accept(self._connection, new, items)

    async def _take_unread(self, request: _Request, uri: str) -> BatchId:
        addresses.check(uri)
        new = await self._new(request)
        return await store.accept_unread(
            self._connection,
            new,
            reader.reader(new.namespace, new.run.pool_id, _READER),
            lambda number: reader.task(number, uri),
        )

    async def _entry(self, namespace: str, where: ConfigMapKeyReference) -> str | None:
        wanted = (namespace, ConfigMapKey(where.name, where.key))
        return (await self._config_maps.entries([wanted]))[wanted]

    async def _new(self, request: _Request) -> NewBatch:
        key, it, spec = request.seen.key, request.resolved, request.spec
        agent_id, revision_id = await self._revisions.of_agent(it.agent)
        run = NewRun(
            agent_id=agent_id,
            revision_id=revision_id,
            pool_id=await self._revisions.of_pool(key.namespace, it.pool),
            input=b"",
            options=run_options.encode(it.options),
            key=it.concurrency_key,
            priority=it.priority,
            max_takeovers=it.max_takeovers,
            queue_deadline_seconds=it.queue_deadline_seconds,
            pinned=it.agent.pinned,
        )
        return NewBatch(
            self._cluster,
            key.uid,
            key.namespace,
            key.name,
            run,
            parallelism=spec.parallelism,
            max_failed_percent=spec.max_failed_percent,
            materialize=_LEVELS[spec.materialize.value],
        )


def _items_of_object(given: Iterable[BatchItem]) -> list[NewItem]:
    return [
        item(f"items[{place - 1}]", place, one.id, one.text) for place, one in enumerate(given, 1)
    ]


def _items_of_text(text: str) -> Sequence[NewItem]:
    return list(unique(read_lines(text.encode("utf-8", "surrogatepass"))))
