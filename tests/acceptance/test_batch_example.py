"""The batch example: three hundred invoices, each sent once, two at a time for each customer."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from rowlock import Client
from rowlock.testing import CrashAt, Point, Trial
from tests.example_programs import PATH, holds, lines, program, shown
from tests.workers import Bench, LocalWorker, bench_fixture, eventually  # noqa: F401

START = "python -m batch.start"
HELD = """
SELECT EXISTS (SELECT FROM rowlock.run_lease l JOIN rowlock.worker w USING (worker_id)
               WHERE w.fenced_at IS NULL)
"""


def worker(bench: Bench, outbox: Path, *, seconds: float = 0.005) -> LocalWorker:
    """Start a worker that puts mails into a folder."""
    return bench.worker(
        environment={
            "PYTHONPATH": PATH,
            "BATCH_OUTBOX": str(outbox),
            "BATCH_SECONDS": str(seconds),
        }
    )


def mails(outbox: Path) -> Counter[int]:
    """Return how often each invoice has left."""
    return Counter(json.loads(mail.read_text())["number"] for mail in outbox.glob("*.json"))


def most_at_once(calls: Path) -> dict[str, int]:
    """Return the most calls that were under way at once, for each customer."""
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for line in lines(calls):
        call = json.loads(line)
        changes[call["customer"]] += [(call["began"], 1), (call["ended"], -1)]
    most: dict[str, int] = {}
    for customer, times in changes.items():
        now = 0
        for _, change in sorted(times):
            now += change
            most[customer] = max(most.get(customer, 0), now)
    return most


async def test_the_program_may_be_run_twice(bench: Bench, tmp_path: Path) -> None:
    """It prints what the page says, and the second time nothing is done."""
    worker(bench, tmp_path)

    first = await program(bench, "batch.start")
    calls = lines(tmp_path / "calls")
    again = await program(bench, "batch.start")

    shown_first, shown_again = shown("batch")[START]
    holds(first.stdout, shown_first)
    holds(again.stdout, shown_again)
    assert "300/300" in first.stderr
    assert (first.returncode, again.returncode) == (1, 1)
    assert again.stdout.splitlines()[1:] == first.stdout.splitlines()[1:]
    assert lines(tmp_path / "calls") == calls
    assert set(mails(tmp_path).values()) == {1}
    assert mails(tmp_path).total() == 296
    assert most_at_once(tmp_path / "calls") == {f"customer-{n}": 2 for n in range(1, 13)}
    await bench.healthy()


async def test_two_people_and_a_dead_worker_send_nothing_twice(
    bench: Bench, tmp_path: Path
) -> None:
    """Both start the same month, and a process dies in the middle of it."""
    victim = worker(bench, tmp_path, seconds=0.05)
    both = [asyncio.create_task(program(bench, "batch.start")) for _ in range(2)]

    async def taken_over() -> bool:
        """Kill the process that holds runs, again if what it had sent has ended all of them."""
        if len(lines(tmp_path / "calls")) < 40:
            return False
        if await bench.sql.fetchval(HELD):
            for loop in victim.loops():  # none while it is being replaced
                os.kill(loop, signal.SIGKILL)
        return bool(await bench.sql.fetchval("SELECT sum(takeovers) > 0 FROM rowlock.run_status"))

    await eventually(taken_over, "a takeover after forty mails")
    done = await asyncio.gather(*both)

    started = [int(re.findall(r"^(\d+) runs started", one.stdout)[0]) for one in done]
    assert sum(started) == 300, [one.stdout + one.stderr for one in done]
    assert mails(tmp_path) == Counter(n for n in range(1, 301) if n % 61)
    assert max(most_at_once(tmp_path / "calls").values()) <= 2
    await bench.healthy()


async def test_an_interrupt_in_the_middle_does_no_harm(bench: Bench, tmp_path: Path) -> None:
    """The runs go on without the program, and the next start waits for them."""
    worker(bench, tmp_path, seconds=0.05)
    interrupted = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "batch.start",
        env={**os.environ, "PYTHONPATH": PATH, "ROWLOCK_DATABASE_URL": bench.dsn},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip

    async def some() -> bool:
        return len(lines(tmp_path / "calls")) > 20

    await eventually(some, "twenty mails")
    interrupted.send_signal(signal.SIGINT)
    out, err = await interrupted.communicate()
    assert (interrupted.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    assert b"start it again to wait for them" in err

    done = await program(bench, "batch.start")

    holds(done.stdout, shown("batch")[START][1])
    assert set(mails(tmp_path).values()) == {1}
    assert len(lines(tmp_path / "calls")) == mails(tmp_path).total() == 296


async def test_another_month_is_another_batch(bench: Bench, tmp_path: Path) -> None:
    worker(bench, tmp_path)

    for month in ("2026-11", "2026-12"):
        done = await program(bench, "batch.start", "--month", month, "--invoices", "10")
        assert done.stdout.startswith("10 runs started, 0 were there already\n10 invoices sent to")
        assert done.returncode == 0

    assert set(mails(tmp_path).values()) == {2}


async def test_the_same_month_with_other_invoices_is_refused(bench: Bench, tmp_path: Path) -> None:
    """A key stands for one invoice; the program says which one differs."""
    worker(bench, tmp_path)
    await program(bench, "batch.start", "--invoices", "1")
    async with Client(bench.dsn) as client:
        other = {"number": 2, "customer": "another", "hours": 1}
        await client.start("invoice", other, idempotency_key="invoice/2026-11/2")

    refused = await program(bench, "batch.start", "--invoices", "3")

    assert refused.returncode == 1
    [line] = refused.stderr.splitlines()
    assert line.startswith("batch: idempotency_key: 'invoice/2026-11/2' belongs to run ")


async def test_without_a_database_it_says_so_in_one_line(bench: Bench) -> None:
    refused = await program(
        bench, "batch.start", ROWLOCK_DATABASE_URL="postgresql://u:s3@[::1]:1/x"
    )

    assert refused.returncode == 1
    assert refused.stderr.startswith("batch: ")
    assert "s3@" not in refused.stderr


@pytest.mark.parametrize("point", [Point.AFTER_INTENT, Point.AFTER_EFFECT, Point.AFTER_COMMIT])
async def test_an_invoice_leaves_once_wherever_its_worker_dies(
    point: Point, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoice: Any
) -> None:
    monkeypatch.setenv("BATCH_OUTBOX", str(tmp_path))
    monkeypatch.setenv("BATCH_SECONDS", "0")
    trial = await Trial.begin(invoice, {"number": 7, "customer": "c", "hours": 49})

    await trial.run(crash_at=CrashAt(point, "send"))
    await trial.run()

    assert trial.result == {"number": 7, "cents": 436_100}
    assert mails(tmp_path) == {7: 1}


@pytest.fixture(name="invoice")
def invoice_agent(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's agent, imported from the repository's root."""
    from examples.batch import agent

    return agent.invoice
