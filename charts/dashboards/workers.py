"""How loaded workers are, and how well they do."""

from __future__ import annotations

from rowlock import metrics as w
from rowlock_operator import metrics as o

from .model import (
    Dashboard,
    Query,
    a_minute,
    a_second,
    highest,
    lines,
    of_pool,
    of_release,
    stat,
    total,
)

WORKERS = Dashboard(
    "workers",
    "Workers",
    "How loaded workers are, and how late their event loops.",
    stats=(
        stat(
            "Ready", "Pods that are ready.", "short", total(of_pool(o.POOL_REPLICAS, state="ready"))
        ),
        stat("Slots", "Runs that all processes may hold.", "short", total(of_pool(w.SLOTS))),
        stat(
            "Slots in use",
            "Share of the slots that hold a run.",
            "percentunit",
            f"{total(of_pool(w.RUNNING))} / ({total(of_pool(w.SLOTS))} > 0)",
        ),
        stat(
            "Latest event loop",
            "How late the latest event loop of all wakes up (p99 of 5 s).",
            "s",
            highest(of_pool(w.LOOP_LAG)),
        ),
    ),
    lines=(
        lines(
            "Runs and slots",
            "Runs that workers hold, and that they may hold.",
            "short",
            Query(total(of_pool(w.RUNNING), "pool"), "runs in {{pool}}"),
            Query(total(of_pool(w.SLOTS), "pool"), "slots in {{pool}}"),
        ),
        lines(
            "Event loops",
            "How late each process wakes up: the CPU is short, or a step holds the loop."
            " A late process claims less.",
            "s",
            Query(highest(of_pool(w.LOOP_LAG), "instance", "process"), "{{instance}} {{process}}"),
        ),
        lines(
            "Age of the last beat",
            "It goes up and down with the interval of renewal; above it something is in the way.",
            "s",
            Query(highest(of_pool(w.BEAT_AGE), "instance", "process"), "{{instance}} {{process}}"),
        ),
        lines(
            "Steps",
            "Steps that were done and stored, by worker.",
            "cps",
            Query(a_second(of_pool(w.STEPS), "instance"), "{{instance}}"),
        ),
        lines(
            "Executors",
            "Executors in a blocking call, and calls that wait for one:"
            " where calls wait, more executors or fewer slots are needed.",
            "short",
            Query(total(of_pool(w.EXECUTORS_BUSY)), "busy"),
            Query(total(of_pool(w.EXECUTORS_WAITING)), "calls that wait"),
        ),
        lines(
            "Blocking calls",
            "By how they ended; lost means that the executor died in it.",
            "cps",
            Query(a_second(of_pool(w.EXECUTOR_CALLS), "result"), "{{result}}"),
        ),
        lines(
            "Executors killed and started",
            "Each killed one costs the start of another.",
            "cpm",
            Query(a_minute(of_pool(w.EXECUTOR_KILLS), "why"), "killed: {{why}}"),
            Query(a_minute(of_pool(w.EXECUTOR_STARTS), "why"), "started: {{why}}"),
        ),
        lines(
            "Pods",
            "Pods needed by the work, desired after limits and delays, and ready.",
            "short",
            Query(total(of_pool(o.POOL_REPLICAS), "state"), "{{state}}"),
            Query(total(of_release(o.WORKER_PODS)), "known to the watch, all pools"),
        ),
        lines(
            "Reads without an answer",
            "Between a claim and the start of its run; PostgreSQL was away, and they are repeated."
            " A claim without an answer is an error on the dashboard Queue.",
            "cpm",
            Query(a_minute(of_pool(w.STORE_ERRORS), "part"), "{{part}}"),
        ),
        lines(
            "Rounds of upkeep that failed",
            "By round; single ones are repeated.",
            "cpm",
            Query(a_minute(of_pool(w.ROUND_ERRORS), "round"), "{{round}}"),
        ),
    ),
)
