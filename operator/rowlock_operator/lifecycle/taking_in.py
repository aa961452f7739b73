"""The parts that take objects in, compare them with the rows, and see them off."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowlock_operator.batches.acceptance import Acceptance
from rowlock_operator.batches.batches import Batches, BatchesSettings
from rowlock_operator.intake.admission import Admission, Outlets
from rowlock_operator.intake.catalog import Catalog
from rowlock_operator.intake.config_maps import ConfigMaps
from rowlock_operator.intake.dispatch import Dispatch
from rowlock_operator.intake.expiries import Expiries
from rowlock_operator.intake.holds import Holds, HoldSettings
from rowlock_operator.intake.inbox import Inbox
from rowlock_operator.intake.limits import Limits
from rowlock_operator.intake.lookups import Lookups
from rowlock_operator.intake.recall import Recall
from rowlock_operator.intake.seen import Seen
from rowlock_operator.intake.source import Handover
from rowlock_operator.intake.sweep import Sweep, SweepOutlets, SweepSettings
from rowlock_operator.intake.waiting import Waiting
from rowlock_operator.lifecycle.loops import Loop, every
from rowlock_operator.lifecycle.means import Means
from rowlock_operator.lifecycle.showing import Showing


class TakingIn:
    """What turns objects into rows.

    Parameters
    ----------
    tell
        Called with the Agents and WorkerPools that are new or changed.
    """

    def __init__(
        self, means: Means, showing: Showing, tell: Callable[[Sequence[Seen]], None]
    ) -> None:
        self._tell_others = tell
        self.handover = Handover()
        self.catalog = Catalog(means.client, namespaces=means.settings.namespaces)
        self.limits = Limits(means.connections.limits, self.catalog)
        self.expiries = _expiries(means, showing)
        self.holds = _holds(means)
        lookups = Lookups(self.catalog, ConfigMaps(means.client), means.settings.run_defaults)
        self.batches = _batches(means, showing, lookups)
        waiting = Waiting()
        self.inbox = self._inbox(means, showing, lookups, waiting)
        self.dispatch = Dispatch(
            self.handover,
            self.inbox,
            self.catalog,
            Recall(means.client, self.inbox, waiting),
            tell=self._tell,
            approval=showing.approvals.put,
            batch=self.batches.take,
        )
        self.sweep = self._sweep(means, showing, lookups)

    def loops(self) -> list[Loop]:
        """Return the loops of these parts, but for the sweep's."""
        return [
            Loop("intake", self.dispatch.run_once, self.dispatch.pause),
            Loop("expiries", self.expiries.run_once, self.expiries.pause),
            Loop("holds", self.holds.run_once, self.holds.pause),
            Loop("limits", self.limits.run_once, every(0.2)),
            Loop("batches", self.batches.run_once, every(0.2)),
        ]

    def _tell(self, news: Sequence[Seen]) -> None:
        self._tell_others(news)
        self.limits.mark(news)
        self.batches.appeared(news)

    def _inbox(self, means: Means, showing: Showing, lookups: Lookups, waiting: Waiting) -> Inbox:
        outlets = Outlets(
            statuses=showing.desk,
            notices=showing.notices,
            departures=showing.departures,
            waiting=waiting,
            holds=self.holds,
        )
        admission = Admission(
            means.connections.intake,
            lookups,
            outlets,
            cluster=means.cluster,
            metrics=means.metrics,
        )
        return Inbox(admission, means.metrics)

    def _sweep(self, means: Means, showing: Showing, lookups: Lookups) -> Sweep:
        settings = SweepSettings(
            cluster=means.cluster,
            namespaces=means.settings.namespaces,
            percent=means.settings.max_vanished_percent,
        )
        outlets = SweepOutlets(
            inbox=self.inbox,
            departures=showing.departures,
            notices=showing.notices,
            expiries=self.expiries,
            holds=self.holds,
            ttl_else=lookups.ttl,
            waits_in_mirror=showing.mirror.waits,
        )
        return Sweep(means.client, means.connections.sweep, settings, outlets, means.metrics)


def _expiries(means: Means, showing: Showing) -> Expiries:
    return Expiries(
        means.client,
        means.connections.endings,
        showing.departures,
        means.metrics,
        cluster=means.cluster,
        namespaces=means.settings.namespaces,
    )


def _holds(means: Means) -> Holds:
    settings = HoldSettings(
        cluster=means.cluster,
        enabled=means.settings.deletion_hold,
        limit=means.settings.deletion_hold_seconds,
    )
    return Holds(means.client, means.connections.endings, means.metrics, settings)


def _batches(means: Means, showing: Showing, lookups: Lookups) -> Batches:
    connection = means.connections.batches
    return Batches(
        means.client,
        connection,
        Acceptance(connection, lookups, ConfigMaps(means.client), cluster=means.cluster),
        showing.announcer,
        settings=BatchesSettings(
            cluster=means.cluster, status_seconds=means.settings.batch_status_seconds
        ),
        metrics=means.metrics,
    )
