"""Which workers are lost, and what becomes of their runs."""

from __future__ import annotations

from rowlock import metrics as w
from rowlock_operator import metrics as o

from .model import (
    Dashboard,
    Query,
    a_minute,
    highest,
    in_range,
    lines,
    of_pool,
    of_release,
    quantile,
    stat,
    total,
)

TAKEOVERS = Dashboard(
    "takeovers",
    "Takeovers",
    "Which workers are lost, how that was found out, and what becomes of their runs.",
    stats=(
        stat(
            "Takeovers",
            "Runs taken over from lost workers in the shown time.",
            "short",
            in_range(of_pool(w.TAKEOVERS)),
            whole=True,
        ),
        stat(
            "Processes that died",
            "Loop processes that died or were ended because they stood still, in the shown time.",
            "short",
            f"{in_range(of_pool(w.PROCESS_ENDS, how='died'))}"
            f" + {in_range(of_pool(w.PROCESS_ENDS, how='stalled'))}",
            whole=True,
        ),
        stat(
            "Runs put into quarantine",
            "Runs that go on alone, because workers died under them, in the shown time.",
            "short",
            in_range(of_pool(w.QUARANTINED_RUNS)),
            whole=True,
        ),
        stat(
            "Zombies stopped",
            "Runs stopped at a worker because another one owns them, in the shown time.",
            "short",
            in_range(of_pool(w.LOST_RUNS)),
            whole=True,
        ),
    ),
    lines=(
        lines(
            "Takeovers, by how the worker was lost",
            "As the workers count that take over. A steady rate of LeaseExpired means that"
            " workers are killed, starved of CPU, or cut off from PostgreSQL.",
            "cpm",
            Query(a_minute(of_pool(w.TAKEOVERS), "reason"), "{{reason}}"),
        ),
        lines(
            "Takeovers shown on AgentRuns",
            "As the operator shows them; less than at the workers while its mirror is behind.",
            "cpm",
            Query(a_minute(of_release(o.TAKEOVERS), "reason"), "{{reason}}"),
        ),
        lines(
            "Duration of takeovers",
            "From the end of a lost worker's lease to the first write of the run's next owner.",
            "s",
            Query(quantile(0.5, o.TAKEOVER_RECOVERY), "half below"),
            Query(quantile(0.99, o.TAKEOVER_RECOVERY), "99 % below"),
        ),
        lines(
            "Runs of lost workers",
            "What became of a run when its lease was ended:"
            " requeued at once, delayed by its backoff, failed, or cancelled.",
            "cpm",
            Query(a_minute(of_pool(w.MOVED_RUNS), "how"), "{{how}} by a worker"),
            Query(a_minute(of_release(o.UPKEEP), "kind"), "{{kind}} by the operator"),
        ),
        lines(
            "What the loss is put down to",
            "Blamed runs come nearer to their maxTakeovers; displaced and suspected ones do not.",
            "cpm",
            Query(a_minute(of_pool(w.BLAMED_RUNS), "blame"), "{{blame}}"),
        ),
        lines(
            "Ends of loop processes",
            "Left is the usual one; fenced ones were too late with their beat.",
            "cpm",
            Query(a_minute(of_pool(w.PROCESS_ENDS), "how"), "{{how}}"),
        ),
        lines(
            "Workers fenced",
            "By the workers, which see a lapsed lease, and by the operator, which sees Pods end.",
            "cpm",
            Query(a_minute(of_pool(w.FENCED_WORKERS), "reason"), "{{reason}} by a worker"),
            Query(a_minute(of_release(o.POD_FENCED), "reason"), "{{reason}} by the operator"),
            Query(a_minute(of_release(o.FENCED)), "LeaseExpired by the operator"),
        ),
        lines(
            "Oldest beat",
            "Time since a process last renewed its lease:"
            " near the lease's length its runs are about to be taken over.",
            "s",
            Query(highest(of_pool(w.BEAT_AGE), "pool"), "{{pool}}"),
        ),
        lines(
            "Let go of",
            "Released at a drain, stopped because another worker owns them,"
            " and abandoned because their code did not end.",
            "cpm",
            Query(a_minute(of_pool(w.RUNS_RELEASED)), "released"),
            Query(a_minute(of_pool(w.LOST_RUNS)), "stopped"),
            Query(a_minute(of_pool(w.ABANDONED_RUNS)), "abandoned"),
        ),
        lines(
            "Processes of quarantine",
            "Processes that hold one run each, apart from the others.",
            "short",
            Query(total(of_pool(w.QUARANTINE_PROCESSES), "pool"), "{{pool}}"),
        ),
        lines(
            "Starts of quarantine",
            "Lent ones took the place of a loop process; failed ones ended before they held a run.",
            "cpm",
            Query(a_minute(of_pool(w.QUARANTINE_STARTS), "how"), "{{how}}"),
        ),
        lines(
            "Beats refused",
            "A refused beat tells a process that it was fenced: it ends.",
            "cpm",
            Query(a_minute(of_pool(w.BEATS, result="refused"), "pool"), "{{pool}}"),
        ),
    ),
)
