"""What a person does to one run from a shell: clear answers, clear refusals, exit codes."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from rowlock.states import FinalStatus
from rowlock.store import approvals
from tests.acceptance.test_worker_waits import AGENTS, QUICK, parked, questions, result
from tests.conftest import run_cli
from tests.workers import Bench, bench_fixture  # noqa: F401


async def rowlock(bench: Bench, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run one command."""
    return await asyncio.to_thread(
        run_cli,
        sys.executable,
        "-m",
        "rowlock.cli",
        *map(str, arguments),
        env={"ROWLOCK_DATABASE_URL": bench.dsn},
    )


async def says(bench: Bench, code: int, text: str, *arguments: object) -> None:
    """Assert what a command answers: on stdout if it worked, else in one line on stderr."""
    done = await rowlock(bench, *arguments)
    said = done.stdout if code == 0 else done.stderr
    assert (done.returncode, text in said) == (code, True), (done.stdout, done.stderr)
    assert len(said.splitlines()) == 1


async def test_a_queued_run_is_suspended_continued_and_cancelled(bench: Bench) -> None:
    [run] = await bench.enqueue("walker")
    await says(bench, 1, f"run {run} is not suspended", "continue", run)
    await says(bench, 0, f"run {run}: suspended", "suspend", run, "--reason", "look first")
    await says(bench, 0, f"run {run}: continues", "continue", run)
    await says(bench, 0, f"run {run}: ended", "cancel", run, "--by", "ada", "--reason", "typo")
    assert (await bench.final(run))["message"] == "cancelled by ada: typo"
    await says(bench, 0, f"run {run}: ended", "cancel", run)
    await says(bench, 1, f"run {run} has ended", "suspend", run)
    await says(bench, 1, f"run {run} has no open question", "approve", run)


async def test_questions_are_listed_and_answered(bench: Bench) -> None:
    bench.worker(environment=QUICK)
    [run] = await bench.enqueue(AGENTS + "twice")
    first, second = await questions(bench, run, count=2)
    listed = (await rowlock(bench, "approvals", run)).stdout.splitlines()
    assert [line.split("  ")[:2] for line in listed] == [
        [str(run), first.step_key],
        [str(run), second.step_key],
    ]
    assert '"cents":100' in listed[0]
    await says(bench, 1, "has 2 open questions: name a step of", "approve", run)
    await says(bench, 1, first.digest, "approve", run, first.step_key, "--digest", "other")
    assert len(await approvals.pending_approvals(bench.store)) == 2
    await says(
        bench, 0, "approved by ada", "approve", run, first.step_key, "--by", "ada",
        "--digest", first.digest,
    )  # fmt: skip
    await says(bench, 0, "denied by bob", "deny", run, "--by", "bob", "--reason", "one is enough")
    assert await result(bench, run) == "refunded 100 | Denied by bob: one is enough"


async def test_retry_starts_another_attempt_of_a_run_that_has_ended(bench: Bench) -> None:
    bench.worker(environment=QUICK)
    [run] = await bench.enqueue(AGENTS + "pages", steps=3, failing=2)
    assert (await bench.final(run))["status"] == FinalStatus.FAILED
    bench.open_gate("provider")
    await says(bench, 0, f"run {run}: attempt 2 is queued", "retry", run)
    assert await result(bench, run) == [1, 2, 3]
    [waiting] = await bench.enqueue(AGENTS + "sleeper", seconds=60.0)
    await parked(bench, waiting)
    await says(bench, 1, f"run {waiting} has not ended", "retry", waiting)
    await bench.sql.execute("UPDATE rowlock.history_floor SET run_id = $1", run + 1)
    await says(bench, 1, "past its retention", "retry", run)


async def test_a_run_that_never_was_is_refused_by_every_command(bench: Bench) -> None:
    for command in ("suspend", "continue", "cancel", "retry"):
        await says(bench, 1, f"there is no run {1 << 60}", command, 1 << 60)
    await says(bench, 1, "has no open question", "deny", 1 << 60, "--reason", "no")
    assert (await rowlock(bench, "approvals")).stdout == ""
    assert (await rowlock(bench, "retry", "x")).returncode == 2
