"""Each number that the doctor reads has one meaning."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.doctor import judgements
from rowlock.doctor.checks import CHECKS
from rowlock.doctor.findings import Finding, Verdict, worst

SERVER = {"version": "16.2", "number": 160002, "standby": False, "read_only": False}
SESSIONS = {"oldest": 1.0, "idle": 0.0, "some": None, "sees_all": True}
CONNECTIONS = {
    "used": 10, "most": 100, "used_here": 5, "most_here": -1, "used_by_role": 5, "most_by_role": -1,
}  # fmt: skip
SETTINGS = {
    "fsync": True, "full_page_writes": True, "autovacuum": True, "synchronous_commit": "on",
    "statement_timeout": 0, "lock_timeout": 0, "idle_timeout": 0,
}  # fmt: skip

QUARANTINE = {"quarantined": 0, "running": 0, "oldest": 0, "some": None}


@pytest.mark.parametrize(
    ("judge", "row", "verdict", "says"),
    [
        (judgements.server, SERVER, "ok", "PostgreSQL 16.2"),
        (judgements.server, SERVER | {"number": 130011}, "fail", "too old"),
        (judgements.server, SERVER | {"standby": True}, "fail", "takes no writes"),
        (judgements.server, SERVER | {"read_only": True}, "fail", "takes no writes"),
        (judgements.stuck_leases, {"stuck": 0, "abandoned": 0, "some": None}, "ok", "every lease"),
        (judgements.stuck_leases, {"stuck": 2, "abandoned": 0, "some": ["7"]}, "warn", "2 leases"),
        (judgements.stuck_leases, {"stuck": 2, "abandoned": 1, "some": ["7"]}, "fail", "7"),
        (judgements.takeovers, {"repeated": 0, "some": None}, "ok", "nor a suspect"),
        (judgements.takeovers, {"repeated": 1, "some": ["7 (3 of 5)"]}, "warn", "7 (3 of 5)"),
        (judgements.quarantine, QUARANTINE, "ok", "no run"),
        (judgements.quarantine, QUARANTINE | {"quarantined": 1, "running": 1}, "warn", "1 of them"),
        (
            judgements.quarantine,
            {"quarantined": 2, "running": 1, "oldest": 700, "some": ["7"]},
            "warn",
            "waits for 12 min: 7",
        ),
        (
            judgements.quarantine,
            {"quarantined": 2, "running": 0, "oldest": 599, "some": ["7"]},
            "warn",
            "0 of them",
        ),
        (
            judgements.quarantine,
            {"quarantined": 2, "running": 0, "oldest": 600, "some": ["7"]},
            "fail",
            "0 of them",
        ),
        (judgements.workers, {"known": 3, "silent": 0, "some": None}, "ok", "3 workers beat"),
        (judgements.workers, {"known": 3, "silent": 1, "some": ["w"]}, "warn", "1 of 3"),
        (judgements.transactions, SESSIONS, "ok", "1 s"),
        (judgements.transactions, SESSIONS | {"oldest": 301}, "warn", "5 min"),
        (
            judgements.transactions,
            SESSIONS | {"oldest": 3600, "some": ["9 (psql)"]},
            "fail",
            "psql",
        ),
        (judgements.transactions, SESSIONS | {"idle": 31}, "warn", "idle for 31 s"),
        (judgements.transactions, SESSIONS | {"idle": 7300}, "fail", "2 h"),
        (judgements.transactions, SESSIONS | {"sees_all": False}, "ok", "pg_read_all_stats"),
        (judgements.horizon, {"holder": None, "age": None, "wraparound": 5}, "ok", "0 tran"),
        (
            judgements.horizon,
            {"holder": "slot s", "age": 2 * 10**6, "wraparound": 5},
            "warn",
            "slot",
        ),
        (
            judgements.horizon,
            {"holder": "slot s", "age": 6 * 10**7, "wraparound": 5},
            "fail",
            "slot",
        ),
        (judgements.horizon, {"holder": None, "age": 1, "wraparound": 10**9}, "fail", "freeze"),
        (judgements.bloat, {"name": "t", "dead": 9, "live": 9, "bytes": 8192}, "ok", "8 KiB"),
        (judgements.bloat, {"name": "t", "dead": 60_000, "live": 0, "bytes": 0}, "warn", "60000"),
        (
            judgements.bloat,
            {"name": "t", "dead": 2_000_000, "live": 9, "bytes": 0},
            "fail",
            "t has",
        ),
        (
            judgements.bloat,
            {"name": "t", "dead": 60_000, "live": 60_000, "bytes": 0},
            "ok",
            "t has",
        ),
        (judgements.partitions, {"days": 7}, "ok", "7 days"),
        (judgements.partitions, {"days": 3}, "ok", "3 days"),
        (judgements.partitions, {"days": 2}, "warn", "2 days"),
        (judgements.partitions, {"days": 0}, "fail", "0 days"),
        (judgements.retention, {"days": 0, "oldest": 0, "half_done": False}, "ok", "no removal"),
        (judgements.retention, {"days": 1, "oldest": 9, "half_done": True}, "ok", "detached half"),
        (judgements.retention, {"days": 2, "oldest": 4000, "half_done": False}, "warn", "2 days"),
        (judgements.changes, {"unshown": 5, "oldest": 1.0}, "ok", "5 changes"),
        (judgements.changes, {"unshown": 5, "oldest": 61.0}, "warn", "61 s"),
        (judgements.changes, {"unshown": 5, "oldest": 601.0}, "fail", "10 min"),
        (judgements.queue, {"waiting": 0, "oldest": 0, "some": None}, "ok", "every pool"),
        (judgements.queue, {"waiting": 3, "oldest": 5, "some": ["a/b"]}, "ok", "a/b"),
        (judgements.queue, {"waiting": 3, "oldest": 90, "some": ["a/b"]}, "warn", "3 runs"),
        (judgements.queue, {"waiting": 3, "oldest": 900, "some": ["a/b"]}, "fail", "15 min"),
        (judgements.wishes, {"open": 0, "oldest": 0, "some": None}, "ok", "0 cancels"),
        (judgements.wishes, {"open": 1, "oldest": 100, "some": ["8"]}, "warn", "runs 8"),
        (judgements.wishes, {"open": 1, "oldest": 1000, "some": ["8"]}, "fail", "runs 8"),
        (judgements.connections, CONNECTIONS, "ok", "10 of 100 connections"),
        (judgements.connections, CONNECTIONS | {"used": 80}, "warn", "80 of 100"),
        (judgements.connections, CONNECTIONS | {"used": 95}, "fail", "95 of 100"),
        (
            judgements.connections,
            CONNECTIONS | {"most_here": 5},
            "fail",
            "5 of 5 connections of this d",
        ),
        (
            judgements.connections,
            CONNECTIONS | {"most_by_role": 6},
            "warn",
            "5 of 6 connections of thi",
        ),
        (judgements.settings, SETTINGS, "ok", "never"),
        (judgements.settings, SETTINGS | {"idle_timeout": 60_000}, "ok", "60 s"),
        (judgements.settings, SETTINGS | {"fsync": False}, "fail", "fsync = off"),
        (judgements.settings, SETTINGS | {"full_page_writes": False}, "fail", "full_page_writes"),
        (judgements.settings, SETTINGS | {"autovacuum": False}, "fail", "autovacuum = off"),
        (
            judgements.settings,
            SETTINGS | {"synchronous_commit": "off"},
            "fail",
            "synchronous_commit",
        ),
        (judgements.settings, SETTINGS | {"synchronous_commit": "local"}, "ok", "durable"),
        (judgements.settings, SETTINGS | {"statement_timeout": 900}, "warn", "900 ms"),
        (judgements.settings, SETTINGS | {"lock_timeout": 900}, "warn", "lock_timeout = 900 ms"),
        (judgements.settings, SETTINGS | {"statement_timeout": 30_000}, "ok", "durable"),
    ],
)
def test_numbers_have_one_verdict(judge: Any, row: dict[str, Any], verdict: str, says: str) -> None:
    found, said = judge(row)
    assert found == verdict
    assert says in said


def test_every_check_has_its_cure_and_its_own_name() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.cure
        assert "\n" not in check.cure
        assert check.looks


@pytest.mark.parametrize(
    ("verdicts", "result"),
    [(["ok", "ok"], "ok"), (["warn", "ok"], "warn"), (["ok", "fail", "warn"], "fail")],
)
def test_the_worst_verdict_counts(verdicts: list[str], result: str) -> None:
    assert worst([Finding("c", Verdict(verdict), "") for verdict in verdicts]) == result
