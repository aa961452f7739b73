"""How runs fare."""

from __future__ import annotations

from rowlock import metrics as w
from rowlock_operator import metrics as o

from .model import (
    Dashboard,
    Query,
    a_minute,
    a_second,
    age,
    in_range,
    lines,
    of_pool,
    of_release,
    stat,
    total,
)

RUNS = Dashboard(
    "runs",
    "Runs",
    "How many runs there are, how they end, and what they wait for.",
    stats=(
        stat(
            "Running",
            "Runs that a worker holds now.",
            "short",
            total(of_pool(o.POOL_RUNS, state="running")),
        ),
        stat(
            "Claimable",
            "Runs that the next free slot takes.",
            "short",
            total(of_pool(o.POOL_RUNS, state="claimable")),
        ),
        stat(
            "Waiting",
            "Runs that wait for a time, as of a retry, or for a limit of their Agent."
            " Those set aside to sleep, for a person or suspended are not among them.",
            "short",
            total(of_pool(o.POOL_RUNS, state="waiting")),
        ),
        stat(
            "Succeeded",
            "Share of the runs shown as finished in the shown time that succeeded.",
            "percentunit",
            f"{in_range(of_release(o.RUNS_FINISHED, status='Succeeded'))}"
            f" / ({in_range(of_release(o.RUNS_FINISHED))} > 0)",
        ),
    ),
    lines=(
        lines(
            "Runs by state",
            "Runs of the chosen pools that have not ended and are not set aside.",
            "short",
            Query(total(of_pool(o.POOL_RUNS), "state"), "{{state}}"),
            stacked=True,
        ),
        lines(
            "Started and finished",
            "AgentRuns shown as started for the first time, and as finished."
            " Where starts stay above ends, more and more is under way.",
            "cps",
            Query(a_second(of_release(o.RUNS_STARTED)), "started"),
            Query(a_second(of_release(o.RUNS_FINISHED), "status"), "{{status}}"),
        ),
        lines(
            "Failed, by reason",
            "AgentRuns shown as failed; docs/reference/conditions-and-events.md has the reasons.",
            "cpm",
            Query(a_minute(of_release(o.RUNS_FAILED), "reason"), "{{reason}}"),
        ),
        lines(
            "Attempts ended at workers",
            "With the attempts that another one follows (Retrying),"
            " and with runs that no AgentRun stands for.",
            "cps",
            Query(a_second(of_pool(w.RUNS_FINISHED), "status", "reason"), "{{status}} {{reason}}"),
        ),
        lines(
            "Steps",
            "Steps that were done and stored; replayed ones are not among them.",
            "cps",
            Query(a_second(of_pool(w.STEPS), "pool"), "{{pool}}"),
        ),
        lines(
            "Set aside, by what for",
            "Runs that left their worker to wait; one that waits for two things counts twice.",
            "cpm",
            Query(a_minute(of_pool(w.RUNS_PARKED), "reason"), "{{reason}}"),
        ),
        lines(
            "AgentRuns taken in",
            "What the operator made of AgentRuns that came:"
            " refused ones say why in their condition Accepted.",
            "cps",
            Query(a_second(of_release(o.INTAKE), "outcome"), "{{outcome}}"),
        ),
        lines(
            "Questions to people",
            "Approvals that wait for an answer, of all pools.",
            "short",
            Query(total(of_release(o.APPROVALS_WAITING)), "waiting"),
        ),
        lines(
            "Age of the oldest question",
            "Since when the question that waits longest waits for its person; 0 for none.",
            "s",
            Query(age(of_release(o.APPROVALS_OLDEST)), "age"),
        ),
    ),
)
