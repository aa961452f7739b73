"""`rowlock run`: what is started, waited for and followed, and what the exit code says."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.test_run_commands import rowlock
from tests.conftest import run_cli
from tests.workers import ROOT, Bench, bench_fixture, eventually  # noqa: F401

WALKER = "tests.agents_for_tests:walker"
PAGES = "tests.waiting_agents:pages"
REFUNDER = "tests.waiting_agents:refunder"


def task(bench: Bench, **fields: Any) -> str:
    """Return an input as a person types it."""
    return json.dumps({"folder": str(bench.folder), **fields})


class Command:
    """A command that is still running."""

    def __init__(self, bench: Bench, folder: Path, *arguments: str) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rowlock.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=ROOT,
                env={**os.environ, "ROWLOCK_DATABASE_URL": bench.dsn},
            )

    @property
    def out(self) -> str:
        """What it has answered."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """What it has told."""
        return self._err.read_text()

    async def tells(self, text: str) -> None:
        """Wait until it has said so."""

        async def look() -> bool:
            return text in self.err or text in self.out

        await eventually(look, f"{text!r}", said=lambda: self.err + self.out)

    async def ends(self) -> int:
        """Wait for its end and return its code."""

        async def look() -> bool:
            return self.process.poll() is not None

        await eventually(look, "the end of the command", said=lambda: self.err + self.out)
        return int(self.process.wait())


@pytest.fixture
def command(bench: Bench, tmp_path: Path) -> Iterator[Any]:
    """Start one command; it is gone at the end."""
    made: list[Command] = []

    def start(*arguments: str) -> Command:
        made.append(Command(bench, tmp_path, *arguments))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


async def test_wait_prints_the_result_alone_and_tells_the_rest_on_the_side(bench: Bench) -> None:
    bench.worker()

    done = await rowlock(bench, "run", WALKER, "-i", task(bench), "--wait")

    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    queued, verdict = done.stderr.splitlines()
    run = queued.removeprefix("run ").removesuffix(": queued")
    assert verdict.startswith(f"✓ run {run} succeeded in ")


async def test_a_start_alone_answers_with_the_number(bench: Bench) -> None:
    once = ("run", WALKER, "-i", task(bench), "--idempotency-key", "k", "--key", "ann")

    first = await rowlock(bench, *once, "-o", "name")
    again = await rowlock(bench, *once)
    shown = json.loads((await rowlock(bench, *once, "-o", "json")).stdout)

    run = int(first.stdout)
    assert again.stdout == f"run {run}: was there before\n"
    assert shown == {"run": run, "agent": WALKER, "created": False}
    assert await bench.sql.fetchval("SELECT key FROM rowlock.run WHERE run_id = $1", run) == "ann"


async def test_an_input_comes_from_a_file_or_from_a_pipe(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(task(bench, steps=1))
    bench.worker()
    from_file = await rowlock(bench, "run", WALKER, "-i", f"@{tmp_path}/order.json", "-w")
    assert (from_file.returncode, from_file.stdout) == (0, "0\n"), from_file.stderr

    piped = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "rowlock.cli", "run", "walker", "-i", "-", "-w"],
        input=task(bench, steps=2),
        env={**os.environ, "ROWLOCK_DATABASE_URL": bench.dsn},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (piped.returncode, piped.stdout) == (0, "1\n"), piped.stderr


async def test_a_failure_is_exit_code_one_and_a_document_says_why(bench: Bench) -> None:
    bench.worker()
    given = task(bench, steps=2, failing=2)

    done = await rowlock(bench, "run", PAGES, "-i", given, "--wait", "-o", "json")
    asked = await rowlock(bench, "run", PAGES, "-i", given, "--wait", "-o", "yaml")

    assert (done.returncode, asked.returncode) == (1, 1)
    told = json.loads(done.stdout)
    assert (told["phase"], told["reason"], told["result"]) == ("Failed", "AgentError", None)
    assert "the provider is out" in told["message"]
    assert yaml.safe_load(asked.stdout)["reason"] == "AgentError"
    assert f"✗ run {told['run']} failed in " in done.stderr


async def test_a_run_that_is_cancelled_meanwhile_is_exit_code_one(
    bench: Bench, command: Any
) -> None:
    waits = command("run", WALKER, "-i", task(bench), "--wait", "-o", "name")
    await waits.tells("queued")
    run = await bench.sql.fetchval("SELECT run_id FROM rowlock.run")

    await rowlock(bench, "cancel", run, "--by", "ada", "--reason", "typo")

    assert await waits.ends() == 1
    assert "Cancelled: cancelled by ada: typo" in waits.err
    assert waits.out == f"{run}\n"


async def test_follow_shows_each_step_when_it_ends(bench: Bench, command: Any) -> None:
    bench.worker()
    follows = command("run", WALKER, "-i", task(bench, gates=[1]), "--follow")

    await follows.tells("✓ step-0")
    await bench.waiting("1")
    assert "✓ step-1" not in follows.err
    bench.open_gate("1")

    assert await follows.ends() == 0
    assert [line for line in follows.err.splitlines() if line.startswith("✓ step-2")]
    assert follows.out == "3\n"


async def test_follow_says_what_a_person_must_do(bench: Bench, command: Any) -> None:
    bench.worker(environment={"ROWLOCK_PARK_SECONDS": "0.2"})
    follows = command("run", REFUNDER, "-i", task(bench), "-f")
    await follows.tells("it waits for a person: rowlock approvals ")
    run = await bench.sql.fetchval("SELECT run_id FROM rowlock.run")

    assert (await rowlock(bench, "approvals", run, "-o", "name")).stdout == f"{run}\n"
    [question] = json.loads((await rowlock(bench, "approvals", "-o", "json")).stdout)
    described = (await rowlock(bench, "describe", run)).stdout
    assert f": rowlock approve {run} {question['step']}" in described
    await rowlock(bench, "approve", run, "--by", "ada")

    assert await follows.ends() == 0
    assert follows.out == "refunded 100\n"


async def test_after_an_interrupt_the_run_goes_on(bench: Bench, command: Any) -> None:
    bench.worker()
    waits = command("run", WALKER, "-i", task(bench, gates=[0]), "--wait")
    await bench.waiting("0")

    waits.process.send_signal(signal.SIGINT)

    assert await waits.ends() == 130
    run = await bench.sql.fetchval("SELECT run_id FROM rowlock.run")
    assert f"run {run} goes on: rowlock describe {run}" in waits.err
    assert "Traceback" not in waits.err
    bench.open_gate("0")
    assert (await bench.final(run))["status"] == 1


async def test_who_waits_no_longer_than_so_is_told_that_the_run_goes_on(bench: Bench) -> None:
    done = await rowlock(bench, "run", WALKER, "-i", task(bench), "--timeout", "0.3")

    run = await bench.sql.fetchval("SELECT run_id FROM rowlock.run")
    assert (done.returncode, done.stdout) == (124, "")
    assert done.stderr.splitlines()[-1] == (
        f"run {run} has not ended within 0.3 s, and goes on: rowlock describe {run}"
    )
    assert await bench.sql.fetchval("SELECT count(*) FROM rowlock.run_live") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nobody",), "agent: there is no 'nobody'; those known are walker."),
        (("tests.nowhere:agent",), "tests.nowhere"),
        (("walker", "-i", '{"a": }'), "--input: is not valid JSON"),
        (("walker", "-i", "@/no/such/file"), "--input: @/no/such/file cannot be read"),
        (("walker", "--pool", "gpu"), "pool: there is no 'gpu'; those known are default"),
        ((WALKER, "-i", '{"steps": 3}'), "folder"),
        (("walker", "-n", "team-a"), "there is no 'walker' in namespace 'team-a'"),
    ],
)
async def test_what_cannot_be_started_is_one_line_and_exit_code_two(
    bench: Bench, arguments: tuple[str, ...], says: str
) -> None:
    await bench.enqueue("walker")
    await bench.sql.execute("UPDATE rowlock.agent SET name = 'walker'")

    done = await rowlock(bench, "run", *arguments, "--wait")

    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("rowlock: ")
    assert says in line
    assert await bench.sql.fetchval("SELECT count(*) FROM rowlock.run") == 1


async def test_without_a_database_nothing_is_started() -> None:
    done = await asyncio.to_thread(run_cli, sys.executable, "-m", "rowlock.cli", "run", "walker")

    assert done.returncode == 2
    assert done.stderr == (
        "rowlock: ROWLOCK_DATABASE_URL is not set: postgresql://user:password@host:5432/name; "
        "or go through the cluster: --cluster, --context or -n\n"
    )


def test_kubectl_finds_the_same_commands() -> None:
    """Kubectl runs whatever is called `kubectl-NAME`."""
    script = Path(sys.executable).parent / "kubectl-rowlock"

    done = run_cli(str(script), "pools", "--help")

    assert done.returncode == 0, done.stderr
    assert "kubectl-rowlock pools" in done.stdout
