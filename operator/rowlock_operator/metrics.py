"""Every metric of the operator, in one table; `docs/reference/` is generated from it.

Labels have small closed sets of values, or are namespaces: never the name or uid of a run.
All names start with `rowlock_operator_`, so that sums over workers and operator do not double.
Ages are exported as timestamps: an age would stand still together with the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from rowlock.states import ApprovalPhase, FailureReason, FenceReason, FinalStatus
from rowlock.store.types import Deciding

Kind = Literal["counter", "gauge", "histogram"]
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300)


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table.

    Parameters
    ----------
    name
        As scraped, unit and `_total` included.
    values
        Known values of the label, exported as zero from the start; empty for open sets.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


TABLE: dict[str, Metric] = {}


def _row(name: str, kind: Kind, text: str, *labels: str, values: Sequence[str] = ()) -> Metric:
    metric = Metric(f"rowlock_operator_{name}", kind, text, labels, tuple(values))
    TABLE[metric.name] = metric
    return metric


WATCH_EVENTS = _row("watch_events_total", "counter", "Objects that the watches reported.", "kind")
WATCH_ECHOES = _row(
    "watch_echoes_total",
    "counter",
    "Of these, the ones dropped at once: nothing in them was new.",
    "kind",
)
WATCH_LAST_EVENT = _row(
    "watch_last_event_timestamp_seconds", "gauge", "When a watch last reported an object."
)
INBOX_RUNS = _row("inbox_runs", "gauge", "AgentRuns seen and not yet in the database.")
INTAKE = _row(
    "intake_total",
    "counter",
    "AgentRuns by what intake made of them.",
    "outcome",
    values=("enqueued", "known", "waits", "refused", "duplicate", "cancelled"),
)
INTAKE_SECONDS = _row("intake_flush_seconds", "histogram", "Duration of one flush of the inbox.")
WAITING_RUNS = _row(
    "waiting_runs", "gauge", "AgentRuns that wait for an Agent, a WorkerPool or an input."
)
DEPARTED = _row(
    "departed_total", "counter", "AgentRuns found deleted, whose runs were cancelled or let go."
)
EXPIRED = _row("expired_total", "counter", "AgentRuns deleted because their time to live was over.")
HOLDS = _row(
    "holds_total",
    "counter",
    "Finalizers of the deletion hold, by what was done; give_up is one whose run has not ended.",
    "kind",
    values=("add", "release", "give_up"),
)
STATUS_WRITES = _row(
    "status_writes_total",
    "counter",
    "Attempts to show a status, by outcome.",
    "outcome",
    values=("written", "unchanged", "superseded", "gone", "parked", "failed"),
)
STATUS_PARKED = _row(
    "status_parked_runs", "gauge", "Runs whose status the API server refuses: a bug to report."
)
MIRROR_ERRORS = _row(
    "mirror_errors_total",
    "counter",
    "Runs that a part of the mirror could not cope with and left out: a bug to report.",
    "kind",
    values=("row", "status", "metrics", "approvals", "event", "trace"),
)
MIRROR_BACKLOG = _row("mirror_backlog_changes", "gauge", "Changes read and not yet shown.")
MIRROR_OLDEST = _row(
    "mirror_oldest_change_timestamp_seconds",
    "gauge",
    "Time of the oldest change not yet shown; 0 for none.",
)
MIRROR_LAG = _row("mirror_lag_seconds", "histogram", "From a change in the database to its status.")
EVENTS = _row(
    "events_total",
    "counter",
    "Kubernetes Events by outcome.",
    "outcome",
    values=("written", "exists", "dropped", "failed"),
)
TAKEOVERS = _row(
    "takeovers_total",
    "counter",
    "Takeovers shown, by how the worker was lost.",
    "reason",
    values=[reason.value for reason in FenceReason if reason is not FenceReason.LEFT],
)
TAKEOVER_RECOVERY = _row(
    "takeover_recovery_seconds",
    "histogram",
    "From the end of a lost worker's lease to the first write of the run's next owner.",
)
RUNS_STARTED = _row("runs_started_total", "counter", "Runs shown as started for the first time.")
RUNS_FINISHED = _row(
    "runs_finished_total",
    "counter",
    "Runs shown as finished.",
    "status",
    values=[status.name.capitalize() for status in FinalStatus],
)
RUNS_FAILED = _row(
    "runs_failed_total",
    "counter",
    "Runs shown as failed, by reason.",
    "reason",
    values=[reason.value for reason in FailureReason],
)
SWEEPS = _row(
    "sweeps_total", "counter", "Sweeps by outcome.", "outcome", values=("done", "held", "failed")
)
SWEEP_REPAIRS = _row(
    "sweep_repairs_total",
    "counter",
    "What sweeps found and mended; a steady rise means that the watch misses things.",
    "kind",
    values=("enqueued", "vanished", "behind", "row_missing", "cancel"),
)
SWEEP_SECONDS = _row("sweep_seconds", "histogram", "Duration of one sweep.")
SWEEP_LAST = _row(
    "sweep_last_success_timestamp_seconds", "gauge", "When a sweep last came to its end."
)
SWEEP_HELD = _row("sweep_held", "gauge", "1 while a sweep refuses to cancel so many runs at once.")
API_REQUESTS = _row(
    "api_requests_total",
    "counter",
    "Requests to the API server; code 0 is no answer.",
    "lane",
    "code",
)
API_RATE = _row("api_rate_limit", "gauge", "Requests a second that a lane may make now.", "lane")
POOL_REPLICAS = _row(
    "pool_replicas",
    "gauge",
    "Pods of a WorkerPool: needed by its work, desired, ready.",
    "namespace",
    "pool",
    "state",
)
POOL_RUNS = _row(
    "pool_runs",
    "gauge",
    "Runs of a WorkerPool: running, claimable (the quarantined among them), waiting.",
    "namespace",
    "pool",
    "state",
)
POOL_OLDEST = _row(
    "pool_oldest_run_timestamp_seconds",
    "gauge",
    "Since when the oldest claimable run waits; 0 for none.",
    "namespace",
    "pool",
)
APPROVALS = _row(
    "approvals_total",
    "counter",
    "AgentRunApprovals that came to be shown in a phase.",
    "state",
    values=[phase.value for phase in ApprovalPhase],
)
APPROVALS_WAITING = _row(
    "approvals_waiting", "gauge", "Questions to people that wait for an answer."
)
APPROVALS_OLDEST = _row(
    "approvals_oldest_timestamp_seconds",
    "gauge",
    "Since when the oldest question to a person waits; 0 for none.",
)
APPROVAL_DECISIONS = _row(
    "approval_decisions_total",
    "counter",
    "Decisions of AgentRunApprovals given to the database, by what became of them.",
    "outcome",
    values=[outcome.value for outcome in Deciding],
)
POOL_SLOTS = _row(
    "pool_slots",
    "gauge",
    "Free slots of a WorkerPool: free, and saturated where their worker is late or full.",
    "namespace",
    "pool",
    "state",
)
POOL_SIGNAL = _row(
    "pool_signal_timestamp_seconds",
    "gauge",
    "When it was last known what a WorkerPool has to do; while it is old, scaling is held.",
    "namespace",
    "pool",
)
POOL_LIMITED = _row(
    "pool_scaling_limited",
    "gauge",
    "1 while a WorkerPool cannot have the workers that it needs, by what is in the way.",
    "namespace",
    "pool",
    "reason",
)
POOL_SCALINGS = _row(
    "pool_scalings_total",
    "counter",
    "Changes of the number of a WorkerPool's workers.",
    "direction",
    values=("up", "down"),
)
RECONCILES = _row(
    "reconciles_total",
    "counter",
    "Agents, WorkerPools and AgentRunBatches brought in line.",
    "kind",
    "result",
)
TRACES = _row(
    "traces_total",
    "counter",
    "Traces of runs that ended, by what became of them.",
    "outcome",
    values=("sent", "failed", "dropped", "not_sampled"),
)
ROUNDS = _row("rounds_total", "counter", "Rounds of each loop, by result.", "loop", "result")
UPKEEP = _row(
    "upkeep_runs_total",
    "counter",
    "Runs moved by upkeep.",
    "kind",
    values=("requeued", "delayed", "failed", "cancelled", "expired", "woken", "promoted", "lapsed"),
)
POD_FENCED = _row(
    "pod_fenced_workers_total",
    "counter",
    "Workers fenced because their Pod ended, by reason.",
    "reason",
    values=[
        FenceReason.WORKER_DELETED.value,
        FenceReason.WORKER_EVICTED.value,
        FenceReason.WORKER_DIED.value,
    ],
)
WORKER_PODS = _row("worker_pods", "gauge", "Pods of workers that the watch knows.")
FENCED = _row("fenced_workers_total", "counter", "Workers fenced because their lease ran out.")
DATABASE_UP = _row("database_up", "gauge", "1 while PostgreSQL answers.")
LOOP_LAG = _row("loop_lag_seconds", "gauge", "How late an event loop wakes up.", "loop")
LEADER = _row("leader", "gauge", "1 while this operator leads; always 1 without an election.")
LEADER_CHANGES = _row(
    "leader_changes", "gauge", "How often the leader has changed, as the Lease counts it."
)
LEASE_RENEWED = _row(
    "lease_renewed_timestamp_seconds", "gauge", "When this operator last renewed its Lease."
)
INFO = _row("build_info", "gauge", "Always 1.", "version")

#: The gauges of a process; all others are about all runs and pools, and only a leader knows them.
_OF_ANY = {
    metric.name
    for metric in (
        API_RATE, DATABASE_UP, INFO, LEADER, LEADER_CHANGES, LEASE_RENEWED, LOOP_LAG,
    )
}  # fmt: skip


class Metrics:
    """The metrics of one operator; several may live in one process, as in tests.

    Parameters
    ----------
    standby
        Leave out what only a leader knows, until `lead` is called: a standby's zeros beside the
        leader's values would spoil every minimum, and every age that is made of a timestamp.
    """

    def __init__(self, *, standby: bool = False) -> None:
        # A `_created` series beside each counter doubles the scrape and tells nobody anything.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._children: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._collectors = {name: self._collector(metric) for name, metric in TABLE.items()}
        self._held_back = [name for name in TABLE if standby and is_of_leader(TABLE[name])]
        for name in TABLE:
            if name not in self._held_back:
                self.registry.register(self._collectors[name])

    def lead(self) -> None:
        """Export everything from now on."""
        while self._held_back:
            self.registry.register(self._collectors[self._held_back.pop()])

    def add(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """Raise a counter."""
        self._child(metric, labels).inc(by)

    def show(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._child(metric, labels).set(value)

    def observe(self, metric: Metric, value: float) -> None:
        """Put a value into a histogram."""
        self._child(metric, ()).observe(value)

    def forget(self, metric: Metric, *labels: str) -> None:
        """Drop one combination of labels, as of a deleted pool."""
        if self._children.pop((metric.name, labels), None) is not None:
            self._collectors[metric.name].remove(*labels)

    def forget_matching(self, namespace: str, pool: str) -> None:
        """Drop all that is known of a deleted pool."""
        for name, labels in list(self._children):
            if TABLE[name].labels[:2] == ("namespace", "pool") and labels[:2] == (namespace, pool):
                self.forget(TABLE[name], *labels)

    def value(self, metric: Metric, *labels: str) -> float:
        """Return the present value of a counter or gauge, 0 if it was never touched."""
        named = dict(zip(metric.labels, labels, strict=True))
        return self.registry.get_sample_value(metric.name, named) or 0.0

    def text(self) -> bytes:
        """Return all of them as Prometheus scrapes them."""
        return generate_latest(self.registry)

    def _child(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        # The library looks a combination of labels up under a lock, which takes 20 µs.
        key = (metric.name, labels)
        child = self._children.get(key)
        if child is None:
            collector = self._collectors[metric.name]
            child = self._children[key] = collector.labels(*labels) if labels else collector
        return child

    def _collector(self, metric: Metric) -> Counter | Gauge | Histogram:
        if metric.kind == "histogram":
            return Histogram(
                metric.name, metric.help, metric.labels, registry=None, buckets=_SECONDS
            )
        make = Counter if metric.kind == "counter" else Gauge
        collector = make(metric.name, metric.help, metric.labels, registry=None)
        for value in metric.values:
            collector.labels(value)
        return collector


def is_of_leader(metric: Metric) -> bool:
    """Tell whether the leader alone exports a metric.

    Counters and histograms of a standby stand at zero and add nothing to any sum.
    """
    return metric.kind == "gauge" and metric.name not in _OF_ANY
