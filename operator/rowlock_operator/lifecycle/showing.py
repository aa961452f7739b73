"""The parts that show rows to people: statuses, Events, approvals, traces."""

from __future__ import annotations

from rowlock_operator.approvals.approvals import Approvals
from rowlock_operator.intake.departures import Departures
from rowlock_operator.lifecycle.loops import Loop, every, unless
from rowlock_operator.lifecycle.means import Means
from rowlock_operator.mirror.announcer import Announcer
from rowlock_operator.mirror.desk import StatusDesk
from rowlock_operator.mirror.mirror import Mirror, MirrorSettings
from rowlock_operator.mirror.noticeboard import NoticeBoard
from rowlock_operator.mirror.scope import Scope
from rowlock_operator.traces.tracer import Tracer

_MIRROR_SECONDS = 0.1


class Showing:
    """What turns rows into what `kubectl` shows."""

    def __init__(self, means: Means) -> None:
        settings, client, metrics = means.settings, means.client, means.metrics
        self.desk = StatusDesk(client, metrics)
        self.notices = NoticeBoard(self.desk)
        self.announcer = Announcer(client, metrics, normal=settings.normal_events)
        self.departures = Departures(
            client, means.connections.sweep, cluster=means.cluster, metrics=metrics
        )
        self.approvals = Approvals(
            client,
            means.connections.approvals,
            self.announcer,
            metrics,
            cluster=means.cluster,
            namespaces=settings.namespaces,
        )
        self.mirror = Mirror(
            means.connections.mirror,
            self.desk,
            self.announcer,
            scope=Scope(means.cluster, settings.namespaces),
            gone=self.departures,
            metrics=metrics,
            settings=MirrorSettings(delay=settings.show_delay_seconds),
        )
        self.mirror.on_change = self.approvals.note
        self.tracer = _tracer(means)
        if self.tracer is not None:
            self.mirror.on_end = self.tracer.ended

    def loops(self) -> list[Loop]:
        """Return the loops of these parts."""
        pause = unless(lambda report: bool(report.shown), every(_MIRROR_SECONDS))
        departed = unless(lambda _: bool(len(self.departures)), lambda _: self.departures.wait())
        loops = [
            Loop("mirror", self.mirror.run_once, pause),
            Loop("departures", self.departures.run_once, departed),
            Loop("approvals", self.approvals.run_once, self.approvals.pause),
        ]
        if self.tracer is not None:
            loops.append(Loop("traces", self.tracer.run_once, every(1.0)))
        return loops

    async def flush(self) -> None:
        """Show what is under way, as far as that works at once."""
        await self.notices.run_once()
        while (await self.mirror.run_once()).shown:
            pass
        await self.announcer.drain()
        await self.mirror.forget()


def _tracer(means: Means) -> Tracer | None:
    if means.connections.traces is None:
        return None
    from rowlock_operator.traces.export import Collector  # noqa: PLC0415  an extra

    sink = Collector(ratio=means.settings.trace_ratio)
    return Tracer(means.connections.traces, sink, means.metrics)
