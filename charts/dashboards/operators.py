"""How the operator itself does."""

from __future__ import annotations

from rowlock_operator import metrics as o

from .model import (
    Dashboard,
    Query,
    a_minute,
    a_second,
    age,
    highest,
    lines,
    of_release,
    quantile,
    stat,
    total,
)

OPERATOR = Dashboard(
    "operator",
    "Operator",
    "Whether the operator leads, hears the API server, and keeps statuses up to date.",
    stats=(
        stat("Leaders", "1, or runs are not taken in.", "short", total(of_release(o.LEADER))),
        stat(
            "PostgreSQL answers",
            "Of every operator, the waiting one included.",
            "bool_yes_no",
            f"min({of_release(o.DATABASE_UP)})",
        ),
        stat(
            "Changes not yet shown",
            "Changes of runs that were read and are not in a status yet.",
            "short",
            total(of_release(o.MIRROR_BACKLOG)),
        ),
        stat(
            "Statuses refused",
            "Runs whose status the API server refuses: a bug to report.",
            "short",
            total(of_release(o.STATUS_PARKED)),
        ),
        stat(
            "Sweep held",
            "A sweep refuses to cancel so many runs at once: look before you let it.",
            "bool_yes_no",
            highest(of_release(o.SWEEP_HELD)),
        ),
        stat(
            "Operators",
            "Operators that are scraped, the waiting one included.",
            "short",
            total(of_release(o.INFO)),
        ),
    ),
    lines=(
        lines(
            "From a change to its status",
            "From the change of a run in PostgreSQL to the status that shows it.",
            "s",
            Query(quantile(0.5, o.MIRROR_LAG), "half below"),
            Query(quantile(0.95, o.MIRROR_LAG), "95 % below"),
            Query(quantile(0.99, o.MIRROR_LAG), "99 % below"),
        ),
        lines(
            "Backlog of changes",
            "Changes of runs that were read and are not in a status yet.",
            "short",
            Query(total(of_release(o.MIRROR_BACKLOG)), "changes"),
        ),
        lines(
            "Age of the oldest change not yet shown",
            "It rises while statuses cannot be written; 0 for none.",
            "s",
            Query(age(of_release(o.MIRROR_OLDEST)), "age"),
        ),
        lines(
            "Errors of the mirror",
            "Runs that a part of the mirror could not cope with and left out: a bug to report.",
            "cpm",
            Query(a_minute(of_release(o.MIRROR_ERRORS), "kind"), "{{kind}}"),
        ),
        lines(
            "Status writes",
            "Unchanged and superseded ones cost no request.",
            "cps",
            Query(a_second(of_release(o.STATUS_WRITES), "outcome"), "{{outcome}}"),
        ),
        lines(
            "Requests to the API server",
            "By lane and answer; code 0 is no answer, 429 asks for fewer.",
            "cps",
            Query(a_second(of_release(o.API_REQUESTS), "lane", "code"), "{{lane}} {{code}}"),
        ),
        lines(
            "Requests that a lane may make",
            "It falls where the API server asks for fewer, and rises again.",
            "cps",
            Query(total(of_release(o.API_RATE), "lane"), "{{lane}}"),
        ),
        lines(
            "Objects from the watches",
            "By kind, and those dropped at once because nothing in them was new.",
            "cps",
            Query(a_second(of_release(o.WATCH_EVENTS), "kind"), "{{kind}}"),
            Query(a_second(of_release(o.WATCH_ECHOES)), "dropped"),
        ),
        lines(
            "Silence of the watches",
            "Time since a watch last reported an object;"
            " a rise while AgentRuns are made means that the watch is dead.",
            "s",
            Query(age(of_release(o.WATCH_LAST_EVENT)), "silence"),
        ),
        lines(
            "Event loops",
            "How late they wake up.",
            "s",
            Query(highest(of_release(o.LOOP_LAG), "instance", "loop"), "{{instance}} {{loop}}"),
        ),
        lines(
            "Sweeps",
            "By outcome, and what they mended: a steady rise means that the watch misses things.",
            "cpm",
            Query(a_minute(of_release(o.SWEEPS), "outcome"), "sweeps {{outcome}}"),
            Query(a_minute(of_release(o.SWEEP_REPAIRS), "kind"), "mended: {{kind}}"),
        ),
        lines(
            "Duration of sweeps, and age of the last",
            "The age goes up and down with ROWLOCK_SWEEP_SECONDS.",
            "s",
            Query(quantile(0.99, o.SWEEP_SECONDS), "99 % below"),
            Query(age(of_release(o.SWEEP_LAST)), "age of the last"),
        ),
        lines(
            "Reconciles",
            "Agents, WorkerPools and AgentRunBatches brought in line.",
            "cpm",
            Query(a_minute(of_release(o.RECONCILES), "kind", "result"), "{{kind}} {{result}}"),
        ),
        lines(
            "Rounds of the loops",
            "By loop and result.",
            "cps",
            Query(a_second(of_release(o.ROUNDS), "loop", "result"), "{{loop}} {{result}}"),
        ),
        lines(
            "Runs moved by upkeep",
            "What workers leave to the operator.",
            "cpm",
            Query(a_minute(of_release(o.UPKEEP), "kind"), "{{kind}}"),
        ),
        lines(
            "Kubernetes Events",
            "Dropped ones were over ROWLOCK_EVENTS_PER_SECOND.",
            "cps",
            Query(a_second(of_release(o.EVENTS), "outcome"), "{{outcome}}"),
        ),
        lines(
            "AgentRuns that went",
            "Found deleted, deleted because their time to live was over, and their finalizers.",
            "cpm",
            Query(a_minute(of_release(o.DEPARTED)), "found deleted"),
            Query(a_minute(of_release(o.EXPIRED)), "time to live over"),
            Query(a_minute(of_release(o.HOLDS), "kind"), "finalizer: {{kind}}"),
        ),
        lines(
            "Approvals",
            "By the phase that they came to be shown in, and decisions by what became of them.",
            "cpm",
            Query(a_minute(of_release(o.APPROVALS), "state"), "{{state}}"),
            Query(a_minute(of_release(o.APPROVAL_DECISIONS), "outcome"), "decision: {{outcome}}"),
        ),
        lines(
            "Traces",
            "Of runs that ended; all stand still where no collector is set.",
            "cpm",
            Query(a_minute(of_release(o.TRACES), "outcome"), "{{outcome}}"),
        ),
        lines(
            "Changes of the leader",
            "As the Lease counts them; nothing without an election.",
            "short",
            Query(highest(of_release(o.LEADER_CHANGES)), "changes"),
        ),
        lines(
            "Age of the leader's Lease",
            "Time since the leader renewed it: near ROWLOCK_LEASE_SECONDS it is about to lose it."
            " 0 without an election.",
            "s",
            Query(age(of_release(o.LEASE_RENEWED)), "age"),
        ),
    ),
)
