"""Statements that PostgreSQL committed and nobody heard of, on the wire of a real worker."""

from __future__ import annotations

import pytest

from tests.proofs import ended_once
from tests.wire import wire_to
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

LEASE = ("--lease-seconds", "15", "--renew-seconds", "1")
STEPS = 3


@pytest.mark.parametrize("statement", ["claim", "append", "finish", "bodies", "register"])
async def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_done_twice(
    bench: Bench, statement: str
) -> None:
    runs = await bench.enqueue("walker", count=40, steps=STEPS)
    async with wire_to(bench.dsn) as wire:
        stop = wire.stop_at(statement, "after")
        bench.worker(*LEASE, environment={"ROWLOCK_DATABASE_URL": wire.url})
        await stop.reached()
        stop.drop()
        await ended_once(bench, runs, steps=STEPS, takeovers=0)


async def test_the_runs_of_a_claim_that_is_never_answered_are_adopted(bench: Bench) -> None:
    """The connection stays open and silent, as behind a firewall that forgot it."""
    async with wire_to(bench.dsn) as wire:
        bench.worker(environment={"ROWLOCK_DATABASE_URL": wire.url})
        await bench.claiming(1)
        stop = wire.stop_at("claim", "after")
        await stop.reached()  # an empty one; the next is sent only after its answer
        second = wire.stop_at("claim", "after")
        runs = await bench.enqueue("walker", count=5, steps=STEPS)
        stop.go_on()
        await second.reached()
        await eventually(
            lambda: bench.sql.fetchval("SELECT count(*) = 5 FROM rowlock.run_lease"),
            "leases that nobody knows of",
        )
        await ended_once(bench, runs, steps=STEPS, takeovers=0, within=15)


@pytest.mark.public_bug("langchain-ai/langgraph#7417 (comment)")
async def test_a_claimer_on_a_silent_connection_starts_runs_again_after_a_lease(
    bench: Bench,
) -> None:
    """There is no wake-up connection that could go silent; polling is the truth.

    What could is the claimer's own, and the runs of others in its pool do not wait for it.
    """
    async with wire_to(bench.dsn) as wire:
        bench.worker("--processes", "2", environment={"ROWLOCK_DATABASE_URL": wire.url})
        await bench.claiming(2)
        wire.cut(only="/0 claimer")
        [run] = await bench.enqueue("walker", steps=STEPS)
        asked = await bench.sql.fetchval("SELECT rowlock.now()")
        lease = await bench.lease(run)
        assert (lease["claimed_at"] - asked).total_seconds() < 4  # by the other process
        listening = "SELECT count(*) FROM pg_stat_activity WHERE query ~* '^ *listen'"
        assert await bench.sql.fetchval(listening) == 0
        loops = bench.workers[0].loops()
        await ended_once(bench, [run], steps=STEPS, takeovers=0)
        await bench.workers[0].says("did not answer a claim")
        await bench.claiming(3)  # the silent session, and the one that stands for it
        assert bench.workers[0].loops() == loops
