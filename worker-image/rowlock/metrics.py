"""Every metric of a worker, in one table.

Loop processes count in a `Tally`, a plain dictionary, and send what was added to their supervisor,
which alone speaks Prometheus: so a process that dies takes no counter with it but its last second.
`docs/reference/` is generated from the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)

from rowlock.states import Blame, FenceReason, ParkReason

Kind = Literal["counter", "gauge"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table.

    Parameters
    ----------
    name
        As scraped, unit and `_total` included.
    kind
        `counter` or `gauge`.
    labels
        Names of its labels, each with a small closed set of values.
    values
        Known values of its one label, exported as zero from the start.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


TABLE: dict[str, Metric] = {}


def _row(name: str, kind: Kind, text: str, *labels: str, values: Iterable[str] = ()) -> Metric:
    TABLE[name] = Metric(name, kind, text, labels, tuple(values))
    return TABLE[name]


RUNS_CLAIMED = _row("rowlock_runs_claimed_total", "counter", "Runs leased to this worker.")
CLAIMS = _row(
    "rowlock_claims_total",
    "counter",
    "Claim statements: full, partial, empty, error, or held_back (by loop lag).",
    "result",
    values=("full", "partial", "empty", "error", "held_back"),
)
RUNS_PROMOTED = _row(
    "rowlock_runs_promoted_total", "counter", "Runs of capped agents let into the queue from here."
)
ADOPTED = _row(
    "rowlock_runs_adopted_total", "counter", "Runs found after a claim whose answer was lost."
)
RUNS_FINISHED = _row(
    "rowlock_runs_finished_total",
    "counter",
    "Attempts that ended here; Retrying is a failure that another attempt follows, "
    "Succeeded with the reason Degraded is a result that is not as good as it should be.",
    "status",
    "reason",
)
RUNS_RELEASED = _row("rowlock_runs_released_total", "counter", "Runs handed over while draining.")
RUNS_PARKED = _row(
    "rowlock_runs_parked_total",
    "counter",
    "Runs that left this worker to wait, by what for; one that waits for two things counts twice.",
    "reason",
    values=ParkReason,
)
TAKEOVERS = _row(
    "rowlock_takeovers_total",
    "counter",
    "Runs taken over here from a worker that was lost, by how it was lost.",
    "reason",
    values=(reason for reason in FenceReason if reason is not FenceReason.LEFT),
)
LOST_RUNS = _row(
    "rowlock_lost_runs_total", "counter", "Runs stopped here because another worker owns them."
)
ABANDONED_RUNS = _row(
    "rowlock_abandoned_runs_total",
    "counter",
    "Runs let go of whose code did not end after a cancel.",
)
STEPS = _row("rowlock_steps_total", "counter", "Steps that finished here (stored, not replayed).")
REJECTED_ROWS = _row(
    "rowlock_rejected_rows_total", "counter", "Rows that PostgreSQL can never store.", "sqlstate"
)
WRITER_BATCHES = _row("rowlock_writer_batches_total", "counter", "Batches that were committed.")
WRITER_ROWS = _row("rowlock_writer_rows_total", "counter", "Rows that were committed.")
WRITER_RETRIES = _row(
    "rowlock_writer_retries_total", "counter", "Batches sent again because PostgreSQL was away."
)
WRITER_WAITING = _row("rowlock_writer_waiting_rows", "gauge", "Rows not committed yet.", "process")
WRITER_WAITING_BYTES = _row(
    "rowlock_writer_waiting_bytes", "gauge", "Bytes not committed yet.", "process"
)
WRITER_OLDEST = _row(
    "rowlock_writer_oldest_wait_seconds", "gauge", "Age of the oldest row that waits.", "process"
)
WRITER_SLOWEST = _row(
    "rowlock_writer_slowest_batch_seconds",
    "gauge",
    "Slowest batch since the last report, retries included.",
    "process",
)
RUNNING = _row("rowlock_runs_running", "gauge", "Runs that this process holds.", "process")
SLOTS = _row("rowlock_slots", "gauge", "Runs that this process may hold.", "process")
LOOP_LAG = _row(
    "rowlock_loop_lag_seconds", "gauge", "How late the event loop wakes up, p99 of 5 s.", "process"
)
EXECUTOR_CALLS = _row(
    "rowlock_executor_calls_total",
    "counter",
    "Calls of blocking functions: done, failed (it raised), timeout, cancelled, "
    "lost (the executor died in it) or not_started (it never began).",
    "result",
    values=("done", "failed", "timeout", "cancelled", "lost", "not_started"),
)
#: Results of a call after which its executor is killed.
KILLS = ("timeout", "cancelled")
EXECUTOR_KILLS = _row(
    "rowlock_executor_kills_total",
    "counter",
    "Executors killed in a call: its timeout was over, or its run was ended.",
    "why",
    values=KILLS,
)
EXECUTOR_STARTS = _row(
    "rowlock_executor_starts_total",
    "counter",
    "Executors started: first, or respawn in place of one that was killed, died or was used up.",
    "why",
    values=("first", "respawn"),
)
EXECUTORS_BUSY = _row("rowlock_executors_busy", "gauge", "Executors that make a call.", "process")
EXECUTORS_WAITING = _row(
    "rowlock_executors_waiting", "gauge", "Blocking calls that wait for an executor.", "process"
)
PROCESS_ENDS = _row(
    "rowlock_process_ends_total",
    "counter",
    "Loop processes that ended: left, fenced, died or stalled.",
    "how",
    values=("left", "fenced", "died", "stalled"),
)
BEATS = _row(
    "rowlock_beats_total",
    "counter",
    "Beats of loop processes: accepted or refused.",
    "result",
    values=("accepted", "refused"),
)
BEAT_AGE = _row(
    "rowlock_beat_age_seconds", "gauge", "Time since the last accepted beat was sent.", "process"
)
MOVED_RUNS = _row(
    "rowlock_moved_runs_total",
    "counter",
    "Runs whose lease this worker ended for a lost one: requeued, delayed, failed, cancelled.",
    "how",
    values=("requeued", "delayed", "failed", "cancelled"),
)
BLAMED_RUNS = _row(
    "rowlock_runs_blamed_total",
    "counter",
    "The same runs by what is put down to them: blamed (counts towards maxTakeovers), "
    "displaced (another run did it) or suspected (it or another one); none of a hand-over.",
    "blame",
    values=tuple(Blame),
)
QUARANTINED_RUNS = _row(
    "rowlock_runs_quarantined_total", "counter", "Of these, those that go on alone."
)
QUARANTINE_STARTS = _row(
    "rowlock_quarantine_starts_total",
    "counter",
    "Processes started for runs that go on alone: extra, lent (in the place of a loop process), "
    "or failed (it ended before it held a run).",
    "how",
    values=("extra", "lent", "failed"),
)
QUARANTINE_PROCESSES = _row(
    "rowlock_quarantine_processes",
    "gauge",
    "Processes for runs that go on alone, here and now; their label `process` begins with q.",
)
FENCED_WORKERS = _row(
    "rowlock_fenced_workers_total",
    "counter",
    "Workers this one fenced, by reason.",
    "reason",
    values=(reason for reason in FenceReason if reason is not FenceReason.LEFT),
)
ROUND_ERRORS = _row(
    "rowlock_round_errors_total", "counter", "Rounds of upkeep that failed, by round.", "round"
)
PARTITION_DAYS = _row(
    "rowlock_partition_days_ahead",
    "gauge",
    "Days after today whose partitions are made: at 0 the next midnight stops all writing.",
)
STORE_ERRORS = _row(
    "rowlock_store_errors_total",
    "counter",
    "Statements that PostgreSQL did not answer.",
    "part",
    values=("claimer",),
)


class Tally:
    """What was counted since the last report.

    prometheus_client takes a lock and a label lookup for each increment;
    a step may cost sixty microseconds in all, so the hot path adds to a dictionary.
    """

    __slots__ = ("_added",)

    def __init__(self) -> None:
        self._added: dict[tuple[str, ...], float] = {}

    def add(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """Add `by` to the counter `metric` with these label values, in the table's order."""
        key = (metric.name, *labels)
        self._added[key] = self._added.get(key, 0) + by

    def take(self) -> list[tuple[tuple[str, ...], float]]:
        """Return ((name, label values…), added) of all that moved, and start again from zero."""
        added, self._added = self._added, {}
        return list(added.items())


class Exporter:
    """All metrics of one worker, as Prometheus scrapes them."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._counters = {
            row.name: Counter(row.name, row.help, row.labels, registry=self.registry)
            for row in TABLE.values()
            if row.kind == "counter"
        }
        self._gauges = {
            row.name: Gauge(row.name, row.help, row.labels, registry=self.registry)
            for row in TABLE.values()
            if row.kind == "gauge"
        }
        for row in TABLE.values():
            for value in row.values:
                self._counters[row.name].labels(value)

    def add(self, added: list[tuple[tuple[str, ...], float]]) -> None:
        """Add the counters that a `Tally` returned."""
        for (name, *labels), by in added:
            counter = self._counters[name]
            (counter.labels(*labels) if labels else counter).inc(by)

    def show(self, metric: Metric, value: float, *labels: str) -> None:
        """Set the gauge `metric`."""
        gauge = self._gauges[metric.name]
        (gauge.labels(*labels) if labels else gauge).set(value)

    def text(self) -> bytes:
        """Return the text format."""
        return generate_latest(self.registry)
