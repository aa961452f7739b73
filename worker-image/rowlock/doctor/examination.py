"""Asking: each check by itself, so that one that cannot be read leaves the others alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from rowlock.doctor.checks import CHECKS, Check
from rowlock.doctor.findings import Finding, Verdict
from rowlock.errors import ConfigurationError, RowlockError
from rowlock.store import invariants, migrate
from rowlock.store.connection import Connection
from rowlock.store.versions import newest_pre

#: Reading all invariants of a large history takes its time.
_COMMAND_SECONDS: Final = 300.0


async def examine(dsn: str) -> list[Finding]:
    """Check the database and return one finding a check.

    Raises
    ------
    ConfigurationError
        The URL, the login or the database is wrong.
    StoreUnavailable
        The server is out of reach.
    """
    connection = await Connection.open(
        dsn, name="doctor", check_schema=False, command_timeout=_COMMAND_SECONDS
    )
    try:
        schema = await _asked("schema", lambda: _schema(connection))
        findings = [schema, await _asked("pooler", lambda: _pooler(connection))]
        if schema.verdict is Verdict.FAIL:
            return findings
        findings += [await _ask(connection, check) for check in CHECKS]
        return [*findings, await _asked("invariants", lambda: _invariants(connection))]
    finally:
        await connection.close()


async def _ask(connection: Connection, check: Check) -> Finding:
    async def ask() -> Finding:
        row = await connection.fetchone(check.statement)
        verdict, says = check.judge(dict(row))
        return Finding(check.name, verdict, says, "" if verdict is Verdict.OK else check.cure)

    return await _asked(check.name, ask)


async def _asked(name: str, ask: Callable[[], Awaitable[Finding]]) -> Finding:
    try:
        return await ask()
    except ConfigurationError:
        raise
    except RowlockError as error:
        cure = "see the message; a reader needs the role rowlock_reader"
        return Finding(name, Verdict.FAIL, f"could not be read: {error}", cure)


async def _schema(connection: Connection) -> Finding:
    found, wanted = await migrate.version(connection), newest_pre()
    if found < wanted:
        says = f"version {found}, this program needs {wanted}"
        return Finding("schema", Verdict.FAIL, says, "run `rowlock migrate` as the owner")
    missing = await migrate.pending(connection)
    if missing:
        says = f"version {found}, without {', '.join(missing)}"
        cure = "run `rowlock migrate --phase post` when no old program runs any more"
        return Finding("schema", Verdict.WARN, says, cure)
    return Finding("schema", Verdict.OK, f"version {found}")


async def _pooler(connection: Connection) -> Finding:
    if not connection.pooled:
        return Finding("pooler", Verdict.OK, "none stands between")
    if connection.prepares:
        return Finding("pooler", Verdict.OK, "one stands between and keeps prepared statements")
    says = "one stands between that cannot keep prepared statements: each is planned anew"
    cure = "PgBouncer 1.21 or newer with max_prepared_statements = 200 saves that work"
    return Finding("pooler", Verdict.WARN, says, cure)


async def _invariants(connection: Connection) -> Finding:
    broken = await invariants.violations(connection)
    if not broken:
        return Finding("invariants", Verdict.OK, "none is broken")
    some = "; ".join(f"run {run} {problem}" for problem, run in broken[:3])
    cure = "keep the rows, SELECT * FROM rowlock.violations, and report it"
    return Finding("invariants", Verdict.FAIL, f"{len(broken)} broken: {some}", cure)
