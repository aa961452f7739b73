"""Two builds of the workers: a run goes on where its history matches."""

from __future__ import annotations

import json
import signal
from typing import Any

from rowlock.states import EventKind
from rowlock.store.bodies import unpack
from rowlock.store.types import RunId
from tests.workers import Bench, LocalWorker, bench_fixture, eventually  # noqa: F401

COOK = "tests.version_agents:cook"
REST = "UPDATE rowlock.worker SET rests_until = rowlock.now() + interval '1 hour' WHERE build = $1"
SLEPT = "UPDATE rowlock.run_event SET at = at - interval '1 hour' WHERE run_id = $1 AND kind = $2"
WOKEN = "UPDATE rowlock.run_parked SET wake_at = rowlock.now() WHERE run_id = $1"
LONG_AGO = "UPDATE rowlock.worker SET fenced_at = fenced_at - interval '2 minutes' WHERE build = $1"


def worker(bench: Bench, build: str) -> LocalWorker:
    """Start a worker of a build."""
    variables = {"ROWLOCK_BUILD": build, "ROWLOCK_PARK_SECONDS": "0.05", "RECIPE": build}
    return bench.worker(environment=variables)


async def parked(bench: Bench, run: RunId) -> None:
    """Wait until the run waits without a worker."""
    query = "SELECT true FROM rowlock.run_parked WHERE run_id = $1"
    await eventually(lambda: bench.sql.fetchval(query, run), f"run {run} parks", said=bench.said)


async def wake(bench: Bench, run: RunId) -> None:
    """Let its hour of sleep be over."""
    await bench.sql.execute(SLEPT, run, int(EventKind.SLEEP))
    await bench.sql.execute(WOKEN, run)


async def bound(bench: Bench, run: RunId, build: str) -> None:
    """Wait until the run waits for workers of a build."""
    query = "SELECT true FROM rowlock.run_ready WHERE run_id = $1 AND build = $2"
    await eventually(
        lambda: bench.sql.fetchval(query, run, build), f"{run} waits for {build}", said=bench.said
    )


async def handed_over(bench: Bench, run: RunId) -> list[dict[str, Any]]:
    """Return what history says of the run's hand-overs."""
    rows = await bench.history(run)
    return [json.loads(unpack(it["body"])) for it in rows if it["kind"] == EventKind.HANDED_OVER]


def done(bench: Bench, run: RunId) -> list[str]:
    """Return what the run did, in order."""
    return [what for who, what, *_ in bench.effects() if who == str(run)]


async def test_a_run_goes_back_to_the_build_that_its_history_matches(bench: Bench) -> None:
    """In a rollout: the old worker rests, the new one takes what it can go on with."""
    worker(bench, "v1")
    [run] = await bench.enqueue(COOK, seconds=3600)
    await parked(bench, run)
    await bench.sql.execute(REST, "v1")
    worker(bench, "v2")
    await bench.claiming(2)
    [new] = await bench.enqueue(COOK)
    await wake(bench, run)
    final, other = await bench.final(run), await bench.final(new)
    assert final["status"] == other["status"] == 1
    assert final["takeovers"] == 0
    assert done(bench, run) == ["prepare-v1", "serve-v1"]
    assert done(bench, new) == ["prepare-v2", "serve-v2"]
    [handed] = await handed_over(bench, run)
    assert (handed["reason"], handed["build"]) == ("OtherBuild", "v2")
    assert "'prepare:first'" in handed["message"]
    await bench.healthy()


async def test_a_run_fails_a_minute_after_the_last_build_that_matches(bench: Bench) -> None:
    old = worker(bench, "v1")
    [run] = await bench.enqueue(COOK, seconds=3600)
    await parked(bench, run)
    old.process.send_signal(signal.SIGTERM)
    await old.ends()
    worker(bench, "v2")
    await wake(bench, run)
    await bound(bench, run, "v1")  # it may be about to start again
    await bench.sql.execute(LONG_AGO, "v1")
    final = await bench.final(run)
    assert (final["status"], final["reason"]) == (2, "NonDeterministic")
    assert "'prepare:first'" in final["message"]
    assert "No worker of build 'v1' lives, nor did in the last minute" in final["message"]
    assert done(bench, run) == ["prepare-v1"]
    await bench.healthy()


async def test_a_pinned_run_waits_for_its_build(bench: Bench) -> None:
    old = worker(bench, "v1")
    [run] = await bench.enqueue(COOK, seconds=3600, pinned=True)
    await parked(bench, run)
    old.process.send_signal(signal.SIGTERM)
    await old.ends()
    await bench.sql.execute(LONG_AGO, "v1")
    worker(bench, "v2")
    await wake(bench, run)
    await bound(bench, run, "v1")
    [new] = await bench.enqueue(COOK, pinned=True)
    assert (await bench.final(new))["status"] == 1
    assert done(bench, new) == ["prepare-v2", "serve-v2"]
    await bench.moves_on("SELECT tick_at FROM rowlock.reaper")  # a round leaves it where it is
    await bound(bench, run, "v1")
    worker(bench, "v1")
    assert (await bench.final(run))["status"] == 1
    assert done(bench, run) == ["prepare-v1", "serve-v1"]
    assert await handed_over(bench, run) == []
    await bench.healthy()
