"""The operator as a process: how it starts, what it says, how it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rowlock.embedded import EmbeddedPostgres
from rowlock.store.migrate import migrate
from tests.operators import Stage, access, eventually, stage_fixture  # noqa: F401

PASSWORD = "s3cr3t-Pa55"


def run(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the operator to its end."""
    return subprocess.run(
        [sys.executable, "-m", "rowlock_operator", *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "/usr/bin", "HOME": "/nonexistent", "PYTHONPATH": ":".join(sys.path)}
        | environment,
    )


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Assert exit code 2 and one clear line that names the fault and no secret."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert PASSWORD not in done.stderr
    for word in words:
        assert word in done.stderr


def elsewhere(kubeconfig: Path, folder: Path) -> Path:
    """Return a copy of a kubeconfig whose API server does not answer."""
    away = folder / "away"
    away.write_text(re.sub(r"https://127.0.0.1:\d+", "https://127.0.0.1:1", kubeconfig.read_text()))
    return away


def test_help_shows_examples() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "Examples:" in done.stdout
    assert "rowlock-operator --kubeconfig" in done.stdout


def test_a_missing_database_url_is_one_clear_line() -> None:
    assert_one_line(run(), "ROWLOCK_DATABASE_URL is not set")


def test_a_malformed_database_url_is_one_clear_line() -> None:
    url = f"postgres//user:{PASSWORD}@host"
    assert_one_line(run(ROWLOCK_DATABASE_URL=url), "database URL")


def test_a_wrong_setting_names_its_variable() -> None:
    url = f"postgresql://u:{PASSWORD}@127.0.0.1/x"
    assert_one_line(run(ROWLOCK_DATABASE_URL=url, ROWLOCK_HTTP_PORT="many"), "ROWLOCK_HTTP_PORT")
    assert_one_line(
        run(ROWLOCK_DATABASE_URL=url, ROWLOCK_DEFAULT_MAX_ATTEMPTS="0"),
        "ROWLOCK_DEFAULT_MAX_ATTEMPTS",
    )
    assert_one_line(run("--namespaces", "Bad_", ROWLOCK_DATABASE_URL=url), "Bad_")


def test_missing_credentials_are_one_clear_line() -> None:
    url = "postgresql://u:p@127.0.0.1/x"
    assert_one_line(run(ROWLOCK_DATABASE_URL=url), "no Kubernetes credentials")


def test_a_broken_kubeconfig_is_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(f"users: [token: {PASSWORD}")
    url = "postgresql://u:p@127.0.0.1/x"
    done = run("--kubeconfig", str(file), ROWLOCK_DATABASE_URL=url)
    assert_one_line(done, str(file), "not valid YAML")


@pytest.mark.cluster
async def test_a_missing_schema_is_one_clear_line(stage: Stage, postgres_url: str) -> None:
    done = run("--kubeconfig", str(stage.cluster.kubeconfig), ROWLOCK_DATABASE_URL=postgres_url)
    assert_one_line(done, "rowlock migrate")


@pytest.mark.cluster
async def test_an_absent_api_server_ends_the_start_after_its_limit(
    stage: Stage, tmp_path: Path
) -> None:
    away = elsewhere(stage.cluster.kubeconfig, tmp_path)
    done = run(
        "--kubeconfig",
        str(away),
        ROWLOCK_DATABASE_URL=stage.dsn,
        ROWLOCK_START_TIMEOUT_SECONDS="1",
        ROWLOCK_HTTP_PORT="0",
    )
    assert done.returncode == 1
    assert "Waiting at start" in done.stderr
    assert "the Kubernetes API server is still away" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.cluster
async def test_sigterm_flushes_and_ends_with_zero(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator(show_delay_seconds="10")
    await stage.run("last")
    await eventually(lambda: stage.count("rowlock.run"), "the run to be taken in")
    worker = await stage.worker()
    await worker.finish(await worker.claim_one())
    assert await operator.stop() == 0
    assert (await stage.status("last"))["phase"] == "Succeeded"
    assert "Traceback" not in operator.log


@pytest.mark.cluster
async def test_probes_and_metrics_tell_how_it_goes(stage: Stage) -> None:
    operator = await stage.operator()
    assert await operator.probe("/livez") == (200, "ok\n")

    async def ready() -> bool:
        return await operator.probe("/readyz") == (200, "ok\n")

    await eventually(ready, "readiness")
    await eventually(lambda: operator.metric("database_up"), "the gauge of PostgreSQL")
    _, text = await operator.probe("/metrics")
    assert stage.namespace not in re.sub(r"pool_\w+{[^}]*}", "", text)


@pytest.mark.cluster
async def test_no_secret_is_ever_logged(stage: Stage) -> None:
    await stage.basics()
    operator = await stage.operator("--log-level", "DEBUG")
    await stage.run("one")
    await stage.shows("one", reason="WaitingForWorker")
    await operator.stop()
    assert stage.cluster.token not in operator.log
    assert stage.dsn not in operator.log
    assert stage.dsn.split(":")[2].split("@")[0] not in operator.log


@pytest.mark.cluster
async def test_postgresql_may_come_and_go(stage: Stage) -> None:
    with EmbeddedPostgres() as server:
        await migrate(server.url())
        operator = await stage.operator(database_url=server.url())
        await stage.basics()
        await stage.run("before")
        await stage.shows("before", reason="WaitingForWorker")
        server.stop()

        async def unready() -> bool:
            return (await operator.probe("/readyz"))[0] == 503

        await eventually(unready, "readiness to go off")
        await stage.runs([f"meanwhile-{number}" for number in range(10)])
        assert (await operator.probe("/livez"))[0] == 200
        server.start()
        await stage.all_show(11, "Queued")
        assert operator.process.poll() is None
        operator.process.send_signal(signal.SIGTERM)
        assert await operator.ends() == 0
