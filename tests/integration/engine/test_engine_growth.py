"""What a long conversation leaves in the database grows with its length, not with its square."""

from __future__ import annotations

import pytest

from rowlock.states import FinalStatus
from tests.workers import Bench, bench_fixture  # noqa: F401

_BYTES = (
    "SELECT sum(coalesce(length(body), 0) + coalesce(length(key), 0)) "
    "FROM rowlock.run_event WHERE run_id = $1"
)


@pytest.mark.public_bug("langchain-ai/langgraphjs#1138")
async def test_two_hundred_turns_store_twice_the_bytes_of_one_hundred(bench: Bench) -> None:
    bench.worker()
    stored = []
    for turns in (100, 200):
        [run] = await bench.enqueue(f"tests.chaos_agents:talker{turns}")
        assert (await bench.final(run))["status"] == FinalStatus.SUCCEEDED
        stored.append(int(await bench.sql.fetchval(_BYTES, run)))
    assert stored[0] > 100 * 50  # each turn is there
    assert stored[1] <= 2.2 * stored[0]
