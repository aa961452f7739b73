"""The figures of load A: what is read around the load, and what follows from it."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from bench import _meters as meters

#: Seconds that one hosted run waits for its model, and nothing else.
HOSTED_SECONDS = 5.15
#: Between two slices of runs that come in evenly.
SLICE_SECONDS = 0.05


@dataclass(frozen=True)
class Figures:
    """What one load showed; times in seconds unless the name says otherwise.

    Parameters
    ----------
    seconds
        From the first claim to the last end, by the database's clock.
    run_seconds_p50, run_seconds_p99
        From the claim of a run to its end, by the same clock.
    added_seconds_p50
        The median run beyond what its model waits.
    ideal_ratio
        Whole waves of waiting for models, and what the last slice of an even first wave starts
        later than the first, divided by `seconds`; 0 for instant.
    steady_ratio
        The same from when all slots are full to when the queue is empty, so without the first
        wave's start and the last one's end; 0 for instant, and for a single wave.
    worker_cpu_ms_per_run
        Supervisor and loops, agents' code and the scripted model included.
    worker_rss_mb_per_run
        How much the loops grew from one run to the most at once, divided by that number.
    commits_per_run, rows_per_run, updates_per_run
        Of all sessions, enqueuing and idle polls included, over warm-up and load;
        rows are those inserted, updated and deleted, but for beats.
    bytes_per_run
        Tables and indexes of history, on disk.
    """

    model: str
    arrivals: str
    concurrency: int
    workers: int
    runs: int
    seconds: float
    runs_per_second: float
    run_seconds_p50: float
    run_seconds_p99: float
    added_seconds_p50: float
    ideal_ratio: float
    steady_ratio: float
    worker_cpu_ms_per_run: float
    worker_rss_mb_per_run: float
    postgres_cpu_ms_per_run: float
    commits_per_run: float
    rows_per_run: float
    updates_per_run: float
    bytes_per_run: float
    wal_bytes_per_run: float
    effects_exactly_once: bool


@dataclass(frozen=True)
class Seen:
    """What was read before, during and after the load.

    Parameters
    ----------
    grown_mb
        How much the loops grew from their first run to the most at once.
    tallies
        When nothing had run, and when worker and enqueuer had ended.
    tallied_runs
        Runs between the two: the warm-up's and the load's.
    times
        When each run of the load was claimed and when it ended.
    """

    before: meters.Meter
    after: meters.Meter
    grown_mb: float
    tallies: tuple[meters.Tally, meters.Tally]
    tallied_runs: int
    times: Sequence[tuple[float, float]]
    good: bool


def figures(arguments: argparse.Namespace, seen: Seen) -> Figures:
    """Turn counters and the database's times into figures."""
    took = sorted(ended - began for began, ended in seen.times)
    seconds = max(ended for _, ended in seen.times) - min(began for began, _ in seen.times)
    runs: int = arguments.runs
    slots: int = arguments.concurrency
    waits = HOSTED_SECONDS if arguments.model == "hosted" else 0.0
    later = waits - SLICE_SECONDS if arguments.arrivals == "even" else 0.0
    before, after, (fresh, done) = seen.before, seen.after, seen.tallies

    def each(spent: float, unit: float = 1.0) -> float:
        return round(spent * unit / runs, 4)

    def tallied(spent: float) -> float:
        return round(spent / seen.tallied_runs, 4)

    return Figures(
        model=arguments.model,
        arrivals=arguments.arrivals,
        concurrency=slots,
        workers=arguments.workers,
        runs=runs,
        seconds=round(seconds, 3),
        runs_per_second=round(runs / seconds, 1),
        run_seconds_p50=round(statistics.median(took), 4),
        run_seconds_p99=round(took[int(len(took) * 0.99) - 1], 4),
        added_seconds_p50=round(statistics.median(took) - waits, 4),
        ideal_ratio=round((math.ceil(runs / slots) * waits + later) / seconds, 4),
        steady_ratio=round(steady(seen.times, slots=slots, waits=waits), 4),
        worker_cpu_ms_per_run=each(after.worker_cpu - before.worker_cpu, 1000),
        worker_rss_mb_per_run=round(seen.grown_mb / min(runs, slots), 4),
        postgres_cpu_ms_per_run=each(after.postgres_cpu - before.postgres_cpu, 1000),
        commits_per_run=tallied(done.commits - fresh.commits),
        rows_per_run=tallied(done.rows - fresh.rows),
        updates_per_run=tallied(done.updates - fresh.updates),
        bytes_per_run=each(after.bytes - before.bytes),
        wal_bytes_per_run=each(after.wal - before.wal),
        effects_exactly_once=seen.good,
    )


def steady(times: Sequence[tuple[float, float]], *, slots: int, waits: float) -> float:
    """Return how long the claims after the first wave would ideally take, by how long they took."""
    claims = sorted(began for began, _ in times)
    waves = len(claims) / slots - 1
    return waves * waits / (claims[-1] - claims[slots - 1]) if waves > 0 else 0.0


def median(repeats: Sequence[Figures]) -> dict[str, object]:
    """Return the median of each figure; a result is good only if all were."""
    columns = {name: [asdict(one)[name] for one in repeats] for name in asdict(repeats[0])}
    return {
        name: all(values)
        if isinstance(values[0], bool)
        else values[0]
        if isinstance(values[0], str)
        else statistics.median(values)
        for name, values in columns.items()
    }


def table(shown: dict[str, object]) -> Table:
    """Lay the figures out for people."""
    result = Table("figure", "value", title="Load A: support agent")
    for name, value in shown.items():
        result.add_row(name, str(value))
    return result
