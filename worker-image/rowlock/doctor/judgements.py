"""What the numbers of each statement mean: pure functions of one row, with their thresholds.

Where two thresholds stand, the first warns and the second fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.doctor.findings import Verdict
from rowlock.store.connection import OLDEST_SERVER

Row = Mapping[str, Any]

#: Of a transaction, and of its time without a statement.
OPEN_SECONDS = (300.0, 3600.0)
IDLE_SECONDS = (30.0, 600.0)


def _level(value: float, *, warn: float, fail: float) -> Verdict:
    return Verdict.FAIL if value >= fail else Verdict.WARN if value >= warn else Verdict.OK


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.0f} h"


def _some(row: Row) -> str:
    return ", ".join(row["some"] or ()) or "none"


def server(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_server`."""
    says = f"PostgreSQL {row['version']}"
    if row["number"] < OLDEST_SERVER * 10_000:
        return Verdict.FAIL, f"{says}: too old, Rowlock needs {OLDEST_SERVER} or newer"
    if row["standby"] or row["read_only"]:
        return Verdict.FAIL, f"{says}: takes no writes"
    return Verdict.OK, says


def stuck_leases(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_stuck_leases`: a lease just over is the reaper's, one for long means none."""
    if not row["stuck"]:
        return Verdict.OK, "every lease is renewed"
    verdict = Verdict.FAIL if row["abandoned"] else Verdict.WARN
    return verdict, f"{row['stuck']} leases that nobody renews: {_some(row)}"


def takeovers(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_takeovers`."""
    if not row["repeated"]:
        return Verdict.OK, "no live run is to blame for more than one loss, nor a suspect"
    return Verdict.WARN, f"{row['repeated']} runs may be what kills workers: {_some(row)}"


def quarantine(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_quarantine`: any worker of the pool starts a process within seconds."""
    if not row["quarantined"]:
        return Verdict.OK, "no run goes on alone"
    says = f"{row['quarantined']} runs go on alone, {row['running']} of them now"
    if row["oldest"]:
        says += f", the oldest waits for {_seconds(row['oldest'])}: {_some(row)}"
    stuck = row["running"] == 0 and row["oldest"] >= 600
    return Verdict.FAIL if stuck else Verdict.WARN, says


def workers(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_workers`."""
    if not row["silent"]:
        return Verdict.OK, f"{row['known']} workers beat"
    return Verdict.WARN, f"{row['silent']} of {row['known']} workers are silent: {_some(row)}"


def transactions(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_transactions`: an idle one is worse, for it may hold locks for nothing."""
    verdict = max(
        _level(row["oldest"], warn=OPEN_SECONDS[0], fail=OPEN_SECONDS[1]),
        _level(row["idle"], warn=IDLE_SECONDS[0], fail=IDLE_SECONDS[1]),
        key=list(Verdict).index,
    )
    says = f"the oldest is {_seconds(row['oldest'])} old, idle for {_seconds(row['idle'])}"
    if verdict is not Verdict.OK:
        says += f": sessions {_some(row)}"
    if not row["sees_all"]:
        says += " (of this role's sessions only; GRANT pg_read_all_stats shows all)"
    return verdict, says


def horizon(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_horizon`; a server stops writing at 2.1e9 transactions without a freeze."""
    if row["wraparound"] >= 1_000_000_000:
        return Verdict.FAIL, f"{row['wraparound']} transactions without a freeze"
    age = row["age"] or 0
    verdict = _level(age, warn=1_000_000, fail=50_000_000)
    holder = f", by {row['holder']}" if verdict is not Verdict.OK else ""
    return verdict, f"dead rows are kept for {age} transactions{holder}"


def bloat(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_bloat`: autovacuum begins at 2,000 dead rows in these tables."""
    verdict = _level(row["dead"] - row["live"], warn=50_000, fail=1_000_000)
    return verdict, f"{row['name']} has {row['dead']} dead rows, {row['bytes'] // 1024} KiB"


def partitions(row: Row) -> tuple[Verdict, str]:
    """Judge `partitions_ahead`; workers make seven days."""
    days = row["days"]
    return _level(-days, warn=-2, fail=0), f"{days} days ahead"


def retention(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_retention`."""
    if not row["days"]:
        return Verdict.OK, "no removal of history is half done"
    half = ", one is detached half" if row["half_done"] else ""
    verdict = _level(row["oldest"], warn=3600, fail=float("inf"))
    return verdict, f"{row['days']} days are to go since {_seconds(row['oldest'])}{half}"


def changes(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_changes`."""
    verdict = _level(row["oldest"], warn=60, fail=600)
    return verdict, f"{row['unshown']} changes wait, the oldest for {_seconds(row['oldest'])}"


def queue(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_queue`."""
    if not row["waiting"]:
        return Verdict.OK, "every pool with work has a worker"
    verdict = _level(row["oldest"], warn=60, fail=600)
    waits = f"{row['waiting']} runs wait for {_seconds(row['oldest'])}"
    return verdict, f"{waits} in pools without a worker: {_some(row)}"


def wishes(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_wishes`."""
    verdict = _level(row["oldest"], warn=60, fail=600)
    says = f"{row['open']} cancels wait, the oldest for {_seconds(row['oldest'])}"
    return verdict, says if verdict is Verdict.OK else f"{says}: runs {_some(row)}"


def connections(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_connections`: a limit of -1 is none."""
    pairs = {"": (row["used"], row["most"])}
    pairs[" of this database"] = (row["used_here"], row["most_here"])
    pairs[" of this role"] = (row["used_by_role"], row["most_by_role"])
    where, (used, most) = max(
        ((where, pair) for where, pair in pairs.items() if pair[1] > 0),
        key=lambda item: item[1][0] / item[1][1],
    )
    return _level(used / most, warn=0.8, fail=0.95), f"{used} of {most} connections{where}"


def settings(row: Row) -> tuple[Verdict, str]:
    """Judge `doctor_settings`: what was acknowledged must survive a crash."""
    off = [name for name in ("fsync", "full_page_writes", "autovacuum") if not row[name]]
    if row["synchronous_commit"] == "off":
        off.append("synchronous_commit")
    if off:
        return Verdict.FAIL, f"{', '.join(off)} = off"
    short = [
        f"{name} = {row[name]} ms"
        for name in ("statement_timeout", "lock_timeout")
        if 0 < row[name] < 10_000
    ]
    if short:
        return Verdict.WARN, f"{', '.join(short)}: shorter than a busy moment"
    idle = f"{row['idle_timeout'] / 1000:g} s" if row["idle_timeout"] else "never"
    return Verdict.OK, f"commits are durable; idle transactions end after: {idle}"
