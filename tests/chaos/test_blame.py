"""A run that kills its process again and again ends, and its neighbours do not notice much."""

from __future__ import annotations

import json
from collections import Counter

import asyncpg
import pytest

from rowlock.states import EventKind, FinalStatus
from rowlock.store.types import RunId
from tests.workers import Bench, LocalWorker, bench_fixture, eventually  # noqa: F401

KILLERS = "tests.killers_for_tests"
#: A pod of the default size; each healthy run may lose its worker once on its own account.
NEIGHBOURS = 255
LIMIT = 2
WORKER = ("--slots", "256", "--lease-seconds", "60", "--renew-seconds", "5")


async def enqueue(bench: Bench, agent: str, **task: object) -> list[RunId]:
    """Enqueue runs of an agent that tolerate `LIMIT` losses."""
    runs = await bench.enqueue(f"{KILLERS}:{agent}", **task)
    await bench.sql.execute(
        "UPDATE rowlock.run_ready SET max_takeovers = $1 WHERE run_id = ANY($2)", LIMIT, runs
    )
    return runs


async def together(bench: Bench, *runs: RunId) -> None:
    """Wait until a worker holds all these runs."""

    async def look() -> bool:
        held = await bench.sql.fetchval(
            "SELECT count(*) FROM rowlock.run_lease WHERE run_id = ANY($1)", list(runs)
        )
        return bool(held == len(runs))

    await eventually(look, "all runs on a worker", said=bench.said)


async def killed_among(
    bench: Bench, agent: str, *flags: str, **task: object
) -> tuple[RunId, list[RunId]]:
    """Let a killer die among neighbours, all in the middle of their first step."""
    neighbours = await enqueue(bench, "bystander", count=NEIGHBOURS, gates=["go"])
    [killer] = await enqueue(bench, agent, **task)
    await bench.sql.execute("UPDATE rowlock.run_ready SET priority = 1 WHERE run_id = $1", killer)
    bench.worker(*WORKER, *flags)
    await together(bench, killer, *neighbours)
    bench.open_gate("kill")
    return killer, neighbours


async def ended_by_its_deaths(bench: Bench, killer: RunId, *, deaths: int) -> asyncpg.Record:
    """Wait for the killer's end and assert that it says what it did."""
    final = await bench.final(killer, within=120)
    assert (final["status"], final["reason"]) == (FinalStatus.FAILED, "TakeoverLimitReached")
    assert final["takeovers"] == deaths
    assert f"{LIMIT + 1} losses of its worker are put down to it" in final["message"]
    assert f"maxTakeovers is {LIMIT}" in final["message"]
    lines = (bench.folder / "deaths").read_text().splitlines()
    assert len({line.split()[0] for line in lines}) == len(lines) == deaths
    return final


async def all_well(bench: Bench, runs: list[RunId], *, takeovers: int) -> None:
    """Assert that each of these runs succeeds, every step once, with few takeovers."""

    async def done() -> bool:
        query = "SELECT count(*) FROM rowlock.run_final WHERE run_id = ANY($1)"
        return bool(await bench.sql.fetchval(query, runs) == len(runs))

    await eventually(done, "the end of all neighbours", within=120, said=bench.said)
    ends = await bench.sql.fetch(
        "SELECT status, takeovers FROM rowlock.run_final WHERE run_id = ANY($1)", runs
    )
    assert {row["status"] for row in ends} == {FinalStatus.SUCCEEDED}
    assert max(row["takeovers"] for row in ends) <= takeovers
    steps = await bench.sql.fetch(
        "SELECT run_id, key, count(*) AS times FROM rowlock.run_event "
        "WHERE kind = $1 AND run_id = ANY($2) GROUP BY 1, 2",
        int(EventKind.STEP_DONE),
        runs,
    )
    assert len(steps) == len(runs) * 3
    assert {row["times"] for row in steps} == {1}
    after_the_gate = Counter((e[0], e[1]) for e in bench.effects() if e[1] != "step-0")
    assert set(after_the_gate.values()) == {1}
    await bench.healthy()


async def blames(bench: Bench, run: RunId) -> list[str]:
    """Return what was put down to a run, loss by loss: in its history, or carried to its end."""
    history = await bench.history(run)
    told = [json.loads(row["body"]) for row in history if row["kind"] == EventKind.TAKEN_OVER]
    carried = json.loads((await bench.final(run))["carry"] or "[]")
    by_epoch = {entry["epoch"]: entry["blame"] for entry in [*told, *carried]}
    return [by_epoch[epoch] for epoch in sorted(by_epoch)]


@pytest.mark.parametrize("agent", ["segfaulter", "branching", "leaver"])
async def test_a_run_that_kills_its_process_on_the_loop_takes_nobody_along(
    bench: Bench, agent: str
) -> None:
    """Two deaths among 255 others, then in quarantine."""
    killer, neighbours = await killed_among(bench, agent)
    await ended_by_its_deaths(bench, killer, deaths=LIMIT + 1)
    bench.open_gate("go")
    await all_well(bench, neighbours, takeovers=2)
    assert await blames(bench, neighbours[0]) == ["displaced"] * 2
    assert await blames(bench, killer) == ["blamed"] * 3


async def test_a_run_that_kills_its_process_unseen_is_found_alone(bench: Bench) -> None:
    """From a thread, while the loop is idle: all are suspects, and only it dies in quarantine."""
    killer, neighbours = await killed_among(bench, "threader", others=NEIGHBOURS)

    async def suspects() -> bool:
        query = "SELECT count(*) FROM rowlock.run_live WHERE quarantined"
        return bool(await bench.sql.fetchval(query) == NEIGHBOURS + 1)

    await eventually(suspects, "everybody in quarantine", said=bench.said)
    bench.open_gate("go")
    await ended_by_its_deaths(bench, killer, deaths=2 + LIMIT + 1)
    await all_well(bench, neighbours, takeovers=2)
    assert await blames(bench, neighbours[0]) == ["suspected"] * 2
    assert await blames(bench, killer) == ["suspected"] * 2 + ["blamed"] * 3
