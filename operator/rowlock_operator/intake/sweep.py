"""Compares all AgentRuns with all rows, at start and every few minutes.

This is what correctness rests on; watch events only make it fast. It reads only the rows of this
cluster and of the watched namespaces: others may belong to another operator.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import structlog

from rowlock.states import FailureReason
from rowlock.store import changes
from rowlock.store import intake as store
from rowlock.store.connection import Connection
from rowlock.store.types import LinkedRun, RunId
from rowlock_operator import metrics as m
from rowlock_operator.intake.departures import Departures
from rowlock_operator.intake.expiries import Expiries
from rowlock_operator.intake.holds import Holds
from rowlock_operator.intake.inbox import Inbox
from rowlock_operator.intake.recall import UNFINISHED
from rowlock_operator.intake.repairs import Findings, Listed, compare, listed_in
from rowlock_operator.intake.seen import seen_from
from rowlock_operator.kube.client import TABLE, KubeClient
from rowlock_operator.kube.errors import NotFound
from rowlock_operator.kube.resources import AGENT_RUNS, ObjectKey
from rowlock_operator.mirror.noticeboard import NoticeBoard
from rowlock_operator.mirror.notices import EndNotice

log = structlog.get_logger(__name__)

_ROWS = 1000
#: More objects than this are fetched by a list instead of one by one.
_FEW = 50
_CANCELLED = f"spec.desiredState=Cancel,{UNFINISHED}"
_MISSING = "the database has no row for status.runID; it will not be run again"


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one sweep found and did."""

    objects: int = 0
    rows: int = 0
    enqueued: int = 0
    vanished: int = 0
    behind: int = 0
    row_missing: int = 0
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """What a sweep looks at.

    Parameters
    ----------
    cluster
        Uid of the namespace kube-system.
    namespaces
        The watched ones; empty for all.
    percent
        More live runs than this are not cancelled at once.
    """

    cluster: str
    namespaces: tuple[str, ...] = ()
    percent: float = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutlets:
    """Where a sweep leaves what others carry on.

    Parameters
    ----------
    ttl_else
        Returns the time to live of runs of an Agent (namespace, name) that say none themselves.
    waits_in_mirror
        Tells whether a run's change is about to be shown anyway.
    """

    inbox: Inbox
    departures: Departures
    notices: NoticeBoard
    expiries: Expiries
    holds: Holds
    ttl_else: Callable[[str, str], int | None]
    waits_in_mirror: Callable[[RunId], bool]


class Sweep:
    """Finds what the watch missed."""

    def __init__(
        self,
        client: KubeClient,
        connection: Connection,
        settings: SweepSettings,
        outlets: SweepOutlets,
        metrics: m.Metrics,
    ) -> None:
        self._client = client
        self._connection = connection
        self._settings = settings
        self._to = outlets
        self._metrics = metrics

    async def run_once(self) -> SweepReport:
        """Compare once, and repair.

        Raises
        ------
        StoreUnavailable, KubeError
            Nothing was repaired, or not all of it; run it again.
        """
        began = time.monotonic()
        rows = {row.uid: row async for row in self._rows()}
        listed = [item async for item in self._listed()]
        found = compare(rows, listed)
        await self._drop_what_was_meanwhile_enqueued(found)
        held = found.held(percent=self._settings.percent)
        self._metrics.show(m.SWEEP_HELD, float(held))
        report = await self._repair(found, held=held)
        self._see_off(found)
        await self._ask_for_cancels()
        self._measure(began, held=held)
        return SweepReport(len(listed), len(rows), *report, held=held)

    async def _rows(self) -> AsyncIterator[LinkedRun]:
        after = ""
        while True:
            page = await changes.objects(
                self._connection,
                cluster=self._settings.cluster,
                namespaces=self._settings.namespaces or None,
                after_uid=after,
                limit=_ROWS,
            )
            for row in page:
                yield row
            if len(page) < _ROWS:
                return
            after = page[-1].uid

    async def _listed(self) -> AsyncIterator[Listed]:
        params = {"includeObject": "Metadata"}
        for namespace in self._settings.namespaces or (None,):
            path = AGENT_RUNS.path(namespace)
            async for page in self._client.pages(path, params=params, accept=TABLE):
                for item in listed_in(page):
                    yield item

    async def _drop_what_was_meanwhile_enqueued(self, found: Findings) -> None:
        """Rows were read before the list: intake may have written some since."""
        doubtful = [item.key.uid for item in (*found.new, *found.rowless)]
        if not doubtful:
            return
        rows = await store.run_ids_by_object(
            self._connection, cluster=self._settings.cluster, uids=doubtful
        )
        found.new = [item for item in found.new if item.key.uid not in rows]
        found.rowless = [item for item in found.rowless if item.key.uid not in rows]

    async def _repair(self, found: Findings, *, held: bool) -> tuple[int, int, int, int]:
        enqueued = await self._hand_in(found.new)
        behind = [row.run_id for row in found.behind if not self._to.waits_in_mirror(row.run_id)]
        if behind:
            await changes.recreate_changes(self._connection, behind)
        self._metrics.add(m.SWEEP_REPAIRS, "behind", by=len(behind))
        if held:
            self._hold(found)
            return enqueued, 0, len(behind), 0
        for row in found.vanished:
            self._to.departures.suspect(ObjectKey(row.namespace, row.name, row.uid))
        for item in found.rowless:
            notice = EndNotice(FailureReason.ROW_MISSING, _MISSING)
            self._to.notices.post(item.key, item.generation, notice)
        self._metrics.add(m.SWEEP_REPAIRS, "vanished", by=len(found.vanished))
        self._metrics.add(m.SWEEP_REPAIRS, "row_missing", by=len(found.rowless))
        return enqueued, len(found.vanished), len(behind), len(found.rowless)

    def _see_off(self, found: Findings) -> None:
        """Have objects looked at that are over, or whose deletion is held or should be."""
        ttls = [(item.key, self._ttl(item)) for item in found.over]
        self._to.expiries.consider([(key, ttl) for key, ttl in ttls if ttl is not None])
        hold = found.held_in_vain + (found.unheld if self._to.holds.enabled else found.held_live)
        self._to.holds.look_at([item.key for item in hold])

    def _ttl(self, item: Listed) -> int | None:
        if item.ttl is not None:
            return item.ttl
        return self._to.ttl_else(item.key.namespace, item.agent)

    async def _hand_in(self, new: Sequence[Listed]) -> int:
        """Give objects without a row to the inbox, also those that wait for something."""
        if len(new) > _FEW:
            given = await self._list_again({item.key.uid for item in new})
        else:
            given = sum(await asyncio.gather(*(self._fetch(item.key) for item in new)))
        self._metrics.add(m.SWEEP_REPAIRS, "enqueued", by=given)
        return given

    async def _list_again(self, uids: set[str]) -> int:
        given = 0
        for namespace in self._settings.namespaces or (None,):
            path, params = AGENT_RUNS.path(namespace), {"fieldSelector": UNFINISHED}
            async for page in self._client.pages(path, params=params):
                for item in page["items"]:
                    if item["metadata"]["uid"] in uids:
                        self._to.inbox.put(seen_from(item, AGENT_RUNS.kind))
                        given += 1
        return given

    async def _fetch(self, key: ObjectKey) -> bool:
        try:
            item = await self._client.get(AGENT_RUNS.path(key.namespace, key.name))
        except NotFound:
            return False
        self._to.inbox.put(seen_from(item, AGENT_RUNS.kind))
        return True

    async def _ask_for_cancels(self) -> None:
        """Ask again for every end that somebody wants and that has not come yet."""
        asked = 0
        for namespace in self._settings.namespaces or (None,):
            path, params = AGENT_RUNS.path(namespace), {"fieldSelector": _CANCELLED}
            async for page in self._client.pages(path, params=params):
                for item in page["items"]:
                    self._to.inbox.put(seen_from(item, AGENT_RUNS.kind))
                    asked += 1
        self._metrics.add(m.SWEEP_REPAIRS, "cancel", by=asked)

    def _hold(self, found: Findings) -> None:
        log.error(
            "The sweep holds: too many runs lost their AgentRun or their row at once. Is this the"
            " right cluster, database and list of namespaces? If so, raise"
            " ROWLOCK_MAX_VANISHED_PERCENT",
            vanished=found.vanished_live,
            live=found.live,
            rowless=len(found.rowless),
            unfinished=found.unfinished,
        )

    def _measure(self, began: float, *, held: bool) -> None:
        self._metrics.add(m.SWEEPS, "held" if held else "done")
        self._metrics.show(m.SWEEP_LAST, time.time())
        self._metrics.observe(m.SWEEP_SECONDS, time.monotonic() - began)
