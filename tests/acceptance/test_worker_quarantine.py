"""Quarantine with real processes: started on demand, alone, let go again; lent where need be."""

from __future__ import annotations

import os
import re
import signal
import socket
import urllib.request
from pathlib import Path

from rowlock.states import FinalStatus
from rowlock.store.types import RunId
from tests.workers import Bench, LocalWorker, bench_fixture, eventually  # noqa: F401

KILLERS = "tests.killers_for_tests"


async def suspects(bench: Bench, agent: str, *, count: int = 1, **task: object) -> list[RunId]:
    """Enqueue runs with which two processes are said to have died already."""
    setting = "ALTER TABLE rowlock.run_ready ALTER {} SET DEFAULT {}"
    for column, value in (("suspected", 2), ("quarantined", True)):
        await bench.sql.execute(setting.format(column, value))
    runs = await bench.enqueue(f"{KILLERS}:{agent}", count=count, **task)
    for column, value in (("suspected", 0), ("quarantined", False)):
        await bench.sql.execute(setting.format(column, value))
    return runs


async def holder(bench: Bench, run: RunId, *, epoch: int = 1) -> str:
    """Wait until a worker holds the run; return its name behind the slash."""
    lease = await bench.lease(run, epoch=epoch)
    name = await bench.sql.fetchval(
        "SELECT name FROM rowlock.worker WHERE worker_id = $1", lease["worker_id"]
    )
    return str(name).rpartition("/")[2]


async def loops(bench: Bench, worker: LocalWorker, number: int) -> None:
    """Wait until the worker has so many processes."""

    async def look() -> bool:
        return len(worker.loops()) == number

    await eventually(look, f"{number} processes", said=bench.said)


async def test_a_suspect_goes_on_alone_beside_the_others_and_the_process_is_let_go(
    bench: Bench,
) -> None:
    worker = bench.worker("--slots", "8")
    [first, second] = await suspects(bench, "bystander", count=2, gates=["alone"])
    neighbours = await bench.enqueue("walker", count=20)
    held = await eventually(
        lambda: bench.sql.fetchrow("SELECT * FROM rowlock.run_lease WHERE quarantined"), "a lease"
    )
    assert held["run_id"] in (first, second)
    assert await holder(bench, held["run_id"]) == "q0"
    for run in neighbours:
        assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED
    waits = await bench.sql.fetchval("SELECT count(*) FROM rowlock.run_ready WHERE quarantined")
    assert (waits, len(worker.loops())) == (1, 2)
    await bench.healthy()
    bench.open_gate("alone")
    for run in (first, second):
        final = await bench.final(run)
        assert (final["status"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 0)
    await loops(bench, worker, 1)
    left = "SELECT fence_reason = 'Left' FROM rowlock.worker WHERE quarantine"
    await eventually(lambda: bench.sql.fetchval(left), "a farewell")


async def test_several_at_once_are_each_alone(bench: Bench) -> None:
    worker = bench.worker("--quarantine-processes", "2")
    runs = await suspects(bench, "bystander", count=3, gates=["alone"])
    await loops(bench, worker, 3)

    async def both() -> bool:
        held = await bench.sql.fetch("SELECT worker_id FROM rowlock.run_lease WHERE quarantined")
        assert len({row["worker_id"] for row in held}) == len(held)
        return len(held) == 2

    await eventually(both, "two suspects at work", said=bench.said)
    bench.open_gate("alone")
    for run in runs:
        assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED
    await bench.healthy()


async def test_without_extra_processes_a_loop_lends_its_place_and_gets_it_back(
    bench: Bench,
) -> None:
    """So nothing starves where memory is short: one process serves both, one after the other."""
    worker = bench.worker("--quarantine-processes", "0", "--slots", "4")
    [before] = await bench.enqueue("walker", steps=5, gates=[1])
    await bench.waiting("1")
    [suspect] = await suspects(bench, "bystander")
    await worker.says("a loop process drains and lends its place")
    bench.open_gate("1")  # the step boundary that the drain waits for
    assert (await bench.final(suspect))["worker"].endswith("/q0")
    final = await bench.final(before)
    assert (final["status"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 0)
    assert final["worker"].endswith("/0")
    assert len(worker.loops()) == 1
    await bench.healthy()


async def test_where_none_can_be_started_a_place_is_lent_after_three_tries(
    bench: Bench, tmp_path: Path
) -> None:
    """As under a memory limit: the process is killed while it starts."""
    site = tmp_path / "site"
    site.mkdir()
    # Python runs this in each process of the worker; only a fourth and later ones may live.
    (site / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "if 'rowlock.engine.process' in ' '.join(sys.orig_argv):\n"
        f"    starts = open({str(tmp_path / 'starts')!r}, 'a+')\n"
        "    starts.write('x'); starts.flush(); starts.seek(0)\n"
        "    if 2 <= len(starts.read()) <= 4:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = f"{site}:{Path.cwd() / 'worker-image'}:{Path.cwd()}"
    worker = bench.worker(environment={"PYTHONPATH": path})
    await bench.claiming(1)
    [suspect] = await suspects(bench, "bystander")
    assert (await bench.final(suspect))["status"] == FinalStatus.SUCCEEDED
    assert len(re.findall("ended before it held a run", worker.log)) == 3
    assert "a loop process drains and lends its place" in worker.log
    await bench.healthy()


async def test_who_lived_long_enough_alone_is_among_the_others_again(bench: Bench) -> None:
    await bench.sql.execute(
        "CREATE OR REPLACE FUNCTION rowlock.probation(suspected smallint) RETURNS interval "
        "LANGUAGE sql IMMUTABLE AS $$ SELECT interval '1 second' $$"
    )
    worker = bench.worker("--drain-seconds", "1")
    [run] = await suspects(bench, "ambling", steps=400)
    assert await holder(bench, run) == "q0"
    assert await holder(bench, run, epoch=2) == "0"
    row = await bench.sql.fetchrow("SELECT * FROM rowlock.run_lease WHERE run_id = $1", run)
    assert row is not None
    assert (row["quarantined"], row["suspected"], row["takeovers"]) == (False, 2, 0)
    assert "Draining" in worker.log
    await bench.healthy()


async def test_a_run_that_only_dies_among_others_succeeds_alone(bench: Bench) -> None:
    """Such as one that trips over a library another run has loaded."""
    worker = bench.worker()
    neighbours = await bench.enqueue(f"{KILLERS}:bystander", count=5, gates=["go"])
    [run] = await bench.enqueue(f"{KILLERS}:segfaulter", lives=2)
    bench.open_gate("kill")
    final = await bench.final(run)
    assert (final["status"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 2)
    assert final["worker"].endswith("/q0")
    bench.open_gate("go")
    for other in neighbours:
        final = await bench.final(other)
        assert (final["status"], final["takeovers"]) == (FinalStatus.SUCCEEDED, 2)
    assert worker.log.count("A loop process ended") == 2
    await bench.healthy()


async def test_a_run_that_kills_the_whole_worker_is_found_too(bench: Bench) -> None:
    """Its restarts are ours here, as a container's are the kubelet's."""
    neighbours = await bench.enqueue(f"{KILLERS}:bystander", count=5, gates=["go"])
    [run] = await bench.enqueue(f"{KILLERS}:boss")
    await bench.sql.execute("UPDATE rowlock.run_ready SET max_takeovers = 0")
    await bench.sql.execute("UPDATE rowlock.run_ready SET priority = 1 WHERE run_id = $1", run)
    bench.open_gate("kill")
    for _ in range(3):
        worker = bench.worker("--instance", "pod/main")
        await worker.ends()
    worker = bench.worker("--instance", "pod/main")
    final = await bench.final(run)
    assert (final["reason"], final["takeovers"]) == ("TakeoverLimitReached", 3)
    bench.open_gate("go")
    for other in neighbours:
        assert (await bench.final(other))["status"] == FinalStatus.SUCCEEDED
    await bench.healthy()


async def test_a_drain_hands_a_suspect_over_and_it_stays_one(bench: Bench) -> None:
    worker = bench.worker()
    [run] = await suspects(bench, "ambling", steps=400)
    await bench.lease(run)
    os.kill(worker.pid, signal.SIGTERM)
    assert await worker.ends() == 0
    row = await bench.sql.fetchrow("SELECT * FROM rowlock.run_ready WHERE run_id = $1", run)
    assert row is not None
    assert (row["quarantined"], row["suspected"], row["takeovers"]) == (True, 2, 0)


async def test_metrics_tell_of_blame_and_quarantine(bench: Bench) -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    bench.worker("--metrics-port", str(port), "--slots", "8")
    await bench.enqueue(f"{KILLERS}:bystander", count=2, gates=["go"])
    [run] = await bench.enqueue(f"{KILLERS}:segfaulter", lives=2)
    bench.open_gate("kill")
    await bench.final(run)

    async def shown() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:  # noqa: ASYNC210
            text = answer.read().decode()
        wanted = (
            'rowlock_runs_blamed_total{blame="blamed"} 2.0',
            'rowlock_runs_blamed_total{blame="displaced"} 4.0',
            'rowlock_runs_blamed_total{blame="suspected"} 0.0',
            "rowlock_runs_quarantined_total 1.0",
            'rowlock_quarantine_starts_total{how="extra"} 1.0',
            "rowlock_quarantine_processes 0.0",
            'rowlock_slots{process="0"} 8.0',
            'rowlock_slots{process="q0"} 0.0',
        )
        return all(line in text for line in wanted)

    await eventually(shown, "the metrics", said=bench.said)
