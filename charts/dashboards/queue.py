"""What waits for a slot, how long, and why."""

from __future__ import annotations

from rowlock import metrics as w
from rowlock_operator import metrics as o

from .model import (
    Dashboard,
    Query,
    a_minute,
    a_second,
    age,
    highest,
    lines,
    of_pool,
    of_release,
    quantile,
    stat,
    total,
)

QUEUE = Dashboard(
    "queue",
    "Queue",
    "What waits for a slot, how long, and what the pools do about it.",
    stats=(
        stat(
            "Claimable",
            "Runs that the next free slot takes.",
            "short",
            total(of_pool(o.POOL_RUNS, state="claimable")),
        ),
        stat(
            "Oldest claimable run",
            "How long the run that waits longest has been claimable.",
            "s",
            highest(age(of_pool(o.POOL_OLDEST), "namespace", "pool")),
        ),
        stat(
            "Free slots",
            "Slots that could take a run now.",
            "short",
            total(of_pool(o.POOL_SLOTS, state="free")),
        ),
        stat(
            "Before the database",
            "AgentRuns that the operator has seen and not yet written to PostgreSQL.",
            "short",
            total(of_release(o.INBOX_RUNS)),
        ),
    ),
    lines=(
        lines(
            "Claimable runs",
            "By pool. A rise with free slots beside it is a fault; one without asks for workers.",
            "short",
            Query(
                total(of_pool(o.POOL_RUNS, state="claimable"), "namespace", "pool"),
                "{{namespace}}/{{pool}}",
            ),
        ),
        lines(
            "Age of the oldest claimable run",
            "By pool; 0 for an empty queue.",
            "s",
            Query(age(of_pool(o.POOL_OLDEST), "namespace", "pool"), "{{namespace}}/{{pool}}"),
        ),
        lines(
            "Slots",
            "Free ones, and saturated ones: free too, but of a worker that is late or full.",
            "short",
            Query(total(of_pool(o.POOL_SLOTS), "state"), "{{state}}"),
        ),
        lines(
            "Claim statements",
            "Empty ones found nothing; held_back were not sent because the event loop was late.",
            "cps",
            Query(a_second(of_pool(w.CLAIMS), "result"), "{{result}}"),
        ),
        lines(
            "Runs claimed",
            "Runs leased to workers, and runs of capped agents let into the queue.",
            "cps",
            Query(a_second(of_pool(w.RUNS_CLAIMED), "pool"), "claimed in {{pool}}"),
            Query(a_second(of_pool(w.ADOPTED)), "found after a lost answer"),
            Query(a_second(of_pool(w.RUNS_PROMOTED)), "let in by workers"),
            Query(a_second(of_release(o.UPKEEP, kind="promoted")), "let in by the operator"),
        ),
        lines(
            "AgentRuns that are not runs yet",
            "Waiting ones lack an Agent, a WorkerPool or an input.",
            "short",
            Query(total(of_release(o.WAITING_RUNS)), "waiting"),
            Query(total(of_release(o.INBOX_RUNS)), "in the inbox"),
        ),
        lines(
            "Duration of a flush of the inbox",
            "From AgentRuns seen to rows in PostgreSQL.",
            "s",
            Query(quantile(0.5, o.INTAKE_SECONDS), "half below"),
            Query(quantile(0.99, o.INTAKE_SECONDS), "99 % below"),
        ),
        lines(
            "Workers of the pools",
            "Pods needed by the work, desired after limits and delays, and ready.",
            "short",
            Query(total(of_pool(o.POOL_REPLICAS), "state"), "{{state}}"),
        ),
        lines(
            "Scalings",
            "Changes of the number of workers.",
            "cpm",
            Query(a_minute(of_release(o.POOL_SCALINGS), "direction"), "{{direction}}"),
        ),
        lines(
            "What is in the way of more workers",
            "Pools that cannot have the workers that they need, by reason.",
            "short",
            Query(total(of_pool(o.POOL_LIMITED), "reason"), "{{reason}}"),
        ),
        lines(
            "Age of the signal for scaling",
            "Since when it is not known what a pool has to do; while it is old, scaling is held.",
            "s",
            Query(age(of_pool(o.POOL_SIGNAL), "namespace", "pool"), "{{namespace}}/{{pool}}"),
        ),
    ),
)
