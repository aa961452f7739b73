"""The research example: 40 pages, an outage at page 17, and a re-drive that reads the rest."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from rowlock_operator.api import Agent as AgentResource
from rowlock_operator.api import AgentRun
from tests.acceptance.test_dev import cache, start  # noqa: F401
from tests.example_programs import EXAMPLES, PATH, holds, lines, program, shown
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

FOLLOW = "python -m research.follow"


def bill(calls: Path) -> list[dict[str, Any]]:
    """Return all calls of the vision model."""
    return [json.loads(line) for line in lines(calls)]


def worker(bench: Bench, folder: Path) -> None:
    """Start a worker with the settings that the page tells."""
    bench.worker(
        environment={
            "PYTHONPATH": PATH,
            "RESEARCH_OUTAGE": str(folder / "outage"),
            "RESEARCH_CALLS": str(folder / "calls"),
        }
    )


async def test_a_redrive_reads_what_was_not_read(bench: Bench, tmp_path: Path) -> None:
    """The page's commands, in their order, print what the page says."""
    page = shown("research")
    outage, calls = tmp_path / "outage", tmp_path / "calls"
    outage.write_text("17\n")
    worker(bench, tmp_path)

    failed = await program(bench, "research.follow", "--seconds", "0.01")

    assert failed.returncode == 1, failed.stderr
    holds(failed.stdout, page[f"{FOLLOW} --seconds 0.1"][0])
    run = re.findall(r"^run (\d+) is queued$", failed.stdout, re.MULTILINE)[0]
    assert [call["page"] for call in bill(calls)] == [*range(1, 17), 17, 17]

    outage.unlink()
    retried = await program(bench, "rowlock.cli", "retry", run)
    holds(retried.stdout, page["rowlock retry N"][0])
    done = await program(bench, "research.follow", "--run", run)

    assert done.returncode == 0, done.stderr
    holds(done.stdout, page[f"{FOLLOW} --run N"][0])
    good = Counter(call["page"] for call in bill(calls) if not call["failed"])
    assert good == Counter(range(1, 41)), "each page is read once"
    assert len(bill(calls)) == int(page["wc -l < /tmp/calls"][0])
    assert len(bill(calls)) - good.total() == int(page["grep -c '\"failed\": true' /tmp/calls"][0])
    await bench.healthy()


async def test_a_redrive_during_the_outage_reads_nothing_before_it(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "outage").write_text("3")
    worker(bench, tmp_path)
    first = await program(bench, "research.follow", "--seconds", "0", "--pages", "4")
    run = re.findall(r"^run (\d+) is queued$", first.stdout, re.MULTILINE)[0]

    await program(bench, "rowlock.cli", "retry", run)
    again = await program(bench, "research.follow", "--run", run)

    assert again.returncode == 1
    assert "2 pages reused, 0 read" in again.stdout
    assert [call["page"] for call in bill(tmp_path / "calls")] == [1, 2, 3, 3, 3, 3]


async def test_a_worker_that_dies_in_the_middle_costs_one_page_at_most(
    bench: Bench, tmp_path: Path
) -> None:
    """Another process goes on at the page that was under way."""
    worker(bench, tmp_path)
    [loop] = await eventually(_loops(bench), "a loop process")

    async def killed() -> bool:
        if len(lines(tmp_path / "calls")) < 5:
            return False
        os.kill(loop, signal.SIGKILL)
        return True

    arguments = ("research.follow", "--seconds", "0.05", "--pages", "12")
    following = asyncio.create_task(program(bench, *arguments))
    await eventually(killed, "five pages")
    done = await following

    assert done.returncode == 0, done.stdout + done.stderr
    calls = Counter(call["page"] for call in bill(tmp_path / "calls"))
    assert set(calls) == set(range(1, 13))
    assert calls.total() <= 13
    assert len({call["pid"] for call in bill(tmp_path / "calls")}) == 2


def _loops(bench: Bench) -> Any:
    async def look() -> list[int]:
        return bench.workers[0].loops()

    return look


async def test_without_a_database_the_page_shows_what_dev_shows(start: Any) -> None:  # noqa: F811
    [command] = [one for one in shown("research") if "rowlock dev" in one]
    dev = start(*shlex.split(command)[shlex.split(command).index("dev") + 1 :])

    assert await dev.ends() == 0, dev.err
    holds(dev.out, shown("research")[command][0])


def test_its_manifests_are_valid_and_name_the_agent() -> None:
    folder = EXAMPLES / "research"
    agent = AgentResource.model_validate(yaml.safe_load((folder / "agent.yaml").read_text()))
    run = AgentRun.model_validate(yaml.safe_load((folder / "run.yaml").read_text()))

    assert agent.spec.entrypoint == "research.agent:research"
    assert run.spec.agent_ref.name == agent.metadata.name == "research"
    assert json.loads(run.spec.input.text)["pages"] == 40


def test_the_database_of_the_examples_is_ready_and_goes_with_its_program() -> None:
    """It prints the line to paste, and ends at the first signal."""
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "database.py"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PATH},
    ) as program:
        line = program.stdout.readline() if program.stdout else ""
        url = line.strip().removeprefix("export ROWLOCK_DATABASE_URL=")
        examined = subprocess.run(
            [sys.executable, "-m", "rowlock.cli", "doctor"],
            env={**os.environ, "PYTHONPATH": PATH, "ROWLOCK_DATABASE_URL": url},
            capture_output=True,
            text=True,
            check=False,
        )
        program.send_signal(signal.SIGTERM)

    assert examined.returncode == 0, examined.stdout + examined.stderr
    assert program.returncode == 0
