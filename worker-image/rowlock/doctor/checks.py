"""The table of checks, from which the reference page is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rowlock.doctor import judgements
from rowlock.doctor.findings import Verdict
from rowlock.doctor.judgements import Row


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table.

    Parameters
    ----------
    statement
        Its statement in `store/queries/doctor.sql`.
    looks
        What it looks at, for the reference.
    """

    name: str
    statement: str
    judge: Callable[[Row], tuple[Verdict, str]]
    looks: str
    cure: str


#: Asked in this order, after the schema and before the invariants.
CHECKS: Final = (
    Check(
        "server",
        "doctor_server",
        judgements.server,
        "version; whether it takes writes",
        "use a primary server of a supported version",
    ),
    Check(
        "settings",
        "doctor_settings",
        judgements.settings,
        "durability, autovacuum, timeouts of this role",
        "ALTER SYSTEM or ALTER ROLE … SET the value back",
    ),
    Check(
        "connections",
        "doctor_connections",
        judgements.connections,
        "used of those allowed: warn at 80 %, fail at 95 %",
        "raise max_connections or the limit, or put PgBouncer between (transaction mode)",
    ),
    Check(
        "transactions",
        "doctor_transactions",
        judgements.transactions,
        "open for 5 min / 1 h, idle in a transaction for 30 s / 10 min",
        "end it: SELECT pg_terminate_backend(pid); set idle_in_transaction_session_timeout",
    ),
    Check(
        "horizon",
        "doctor_horizon",
        judgements.horizon,
        "what keeps dead rows alive (1 M / 50 M transactions); wraparound",
        "end what holds it: the session, the replication slot or the prepared transaction",
    ),
    Check(
        "bloat",
        "doctor_bloat",
        judgements.bloat,
        "dead rows of the hot tables: 50,000 / 1 M more than live ones",
        "see `horizon` and `transactions`, then VACUUM the table",
    ),
    Check(
        "partitions",
        "partitions_ahead",
        judgements.partitions,
        "days of history made ahead: warn at 2, fail at 0",
        "start a worker, or run `rowlock gc` as the owner; look for errors of ensure_partitions",
    ),
    Check(
        "retention",
        "doctor_retention",
        judgements.retention,
        "days that are to go and stay for over an hour",
        "run `rowlock gc` as the owner; it finishes what was begun",
    ),
    Check(
        "workers",
        "doctor_workers",
        judgements.workers,
        "silent for longer than their lease",
        "see whether their pods run; a worker or the operator that runs fences them by itself",
    ),
    Check(
        "leases",
        "doctor_stuck_leases",
        judgements.stuck_leases,
        "that nobody renews; fail after two lease times",
        "start a worker or the operator: nobody takes lost runs over",
    ),
    Check(
        "takeovers",
        "doctor_takeovers",
        judgements.takeovers,
        "live runs to which two losses of a worker or more are put down, or may be",
        "look whether that run kills its worker: SELECT * FROM rowlock.repeat_takeovers",
    ),
    Check(
        "quarantine",
        "doctor_quarantine",
        judgements.quarantine,
        "runs that go on alone: warn; fail when none does and one waits for 10 min",
        "see what their agents call (C extensions, memory); start a worker if none runs",
    ),
    Check(
        "queue",
        "doctor_queue",
        judgements.queue,
        "ready runs in pools without a worker, for 1 min / 10 min",
        "start workers for the pool: SELECT * FROM rowlock.pool_demand",
    ),
    Check(
        "changes",
        "doctor_changes",
        judgements.changes,
        "changes that no mirror has shown, for 1 min / 10 min",
        "start the operator, or see its log: statuses stand still",
    ),
    Check(
        "wishes",
        "doctor_wishes",
        judgements.wishes,
        "cancels not carried out, for 1 min / 10 min",
        "start a worker; a run that swallows its cancel ends with its worker",
    ),
)
