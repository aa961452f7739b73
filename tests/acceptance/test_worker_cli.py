"""The command line: what goes wrong is one line, with the right exit code and without a secret."""

from __future__ import annotations

import json
import os
import socket
import sys
import uuid
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.conftest import on_database, run_cli

SECRET = "s3cret-pass"


def rowlock(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run `rowlock` and return exit code, stdout and stderr."""
    done = run_cli(sys.executable, "-m", "rowlock.cli", *arguments, env=environment)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
async def empty(postgres_url: str) -> AsyncIterator[str]:
    """URL of a database without our schema."""
    name = f"empty_{uuid.uuid4().hex[:12]}"
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(f'CREATE DATABASE "{name}"')
    yield on_database(postgres_url, name)
    await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await admin.close()


def only_line(text: str) -> str:
    """Return the one line that an error is."""
    [line] = text.splitlines()
    assert line.startswith("rowlock: ")
    assert SECRET not in line
    return line


@pytest.mark.parametrize("command", ["worker", "migrate"])
def test_a_missing_url_is_named(command: str) -> None:
    code, _, err = rowlock(command)
    assert code == 2
    assert "ROWLOCK_DATABASE_URL is not set" in only_line(err)


@pytest.mark.parametrize("command", ["worker", "migrate"])
@pytest.mark.parametrize(
    "url", [f"mysql://u:{SECRET}@localhost/db", f"postgresql://u:{SECRET}@x@:port/db", SECRET]
)
def test_a_malformed_url_is_refused_without_showing_it(command: str, url: str) -> None:
    code, _, err = rowlock(command, ROWLOCK_DATABASE_URL=url)
    assert code == 2
    assert "postgresql://user:password@host:5432/name" in only_line(err)


@pytest.mark.parametrize("command", ["worker", "migrate"])
def test_a_wrong_password_is_one_line(command: str, postgres_url: str) -> None:
    place = postgres_url.rpartition("@")[2]
    url = f"postgresql://postgres:{SECRET}@{place}"
    code, _, err = rowlock(command, ROWLOCK_DATABASE_URL=url)
    if os.environ.get("CI_DATABASE_TRUSTS_EVERYBODY"):
        pytest.skip("this server asks for no password")
    assert code == 2
    assert "refuses this login" in only_line(err)


def test_a_database_without_the_schema_asks_for_migrate(empty: str) -> None:
    code, _, err = rowlock("worker", ROWLOCK_DATABASE_URL=empty)
    assert code == 2
    assert "rowlock migrate" in only_line(err)


def test_migrate_shows_its_progress_and_may_be_repeated(empty: str) -> None:
    code, out, err = rowlock("migrate", ROWLOCK_DATABASE_URL=empty)
    assert (code, err) == (0, "")
    assert "0001" in out
    code, out, _ = rowlock("migrate", "-o", "json", ROWLOCK_DATABASE_URL=empty)
    assert (code, json.loads(out)) == (0, {"applied": []})


def test_an_absent_database_is_waited_for_and_then_given_up() -> None:
    with socket.socket() as probe:  # bound and not listening: nobody else can take the port
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        url = f"postgresql://u:{SECRET}@127.0.0.1:{port}/db"
        code, _, err = rowlock("worker", "--connect-timeout", "0.5", ROWLOCK_DATABASE_URL=url)
    assert code == 1
    said = err.splitlines()
    assert "Waiting for PostgreSQL" in said[0]
    assert only_line(said[-1]).endswith("is out of reach (ConnectionRefusedError)")
    assert SECRET not in err


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ROWLOCK_LEASE_SECONDS", "soon"),
        ("ROWLOCK_SLOTS", "0"),
        ("ROWLOCK_LOG_FORMAT", "xml"),
        ("ROWLOCK_METRICS_PORT", "66000"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(variable: str, value: str) -> None:
    environment = {"ROWLOCK_DATABASE_URL": f"postgresql://u:{SECRET}@h/db", variable: value}
    code, _, err = rowlock("worker", **environment)
    assert code == 2
    assert variable in only_line(err)


@pytest.mark.public_bug("earendil-works/absurd#65")
def test_a_lease_that_does_not_outlive_three_beats_is_refused() -> None:
    url = f"postgresql://u:{SECRET}@h/db"
    code, _, err = rowlock(
        "worker", "--lease-seconds", "5", "--renew-seconds", "2", ROWLOCK_DATABASE_URL=url
    )
    assert code == 2
    assert "renew_seconds must be at most a third of lease_seconds: 2.0 * 3 > 5.0" in only_line(err)


def test_a_taken_metrics_port_is_one_line(dsn: str) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, err = rowlock("worker", "--metrics-port", port, ROWLOCK_DATABASE_URL=dsn)
    assert code == 2
    assert f"metrics port {port}" in only_line(err)


def test_help_shows_examples_and_every_command() -> None:
    code, out, _ = rowlock("--help")
    assert code == 0
    for word in ("Examples:", "rowlock worker --pool default", "migrate"):
        assert word in out
    code, out, _ = rowlock("worker", "--help")
    assert code == 0
    assert "--lease-seconds" in out


def test_an_unknown_flag_is_a_usage_error() -> None:
    code, _, err = rowlock("worker", "--no-such-flag")
    assert code == 2
    assert "no-such-flag" in err
    assert "Traceback" not in err
