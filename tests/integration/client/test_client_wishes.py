"""Holding, going on, trying again, and answering: with real workers, as park and re-drive are."""

from __future__ import annotations

import asyncio

import pytest

from rowlock import Client, PendingApproval, SyncClient, UnknownRun, WishRefused
from rowlock.states import Phase
from tests.client_agents import payer, shouter
from tests.integration.client.conftest import Played
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

WITHIN = 30.0


async def test_a_held_run_waits_until_it_is_continued(client: Client, played: Played) -> None:
    run = await client.start(shouter, {"text": "x"})

    assert await run.suspend(reason="wait for the lawyer")

    assert (await run.info()).phase is Phase.SUSPENDED
    assert [info.id for info in await client.list(phase="Suspended")] == [run.id]
    assert await played.claim() == []
    assert await run.continue_()
    assert not await run.continue_()
    [claimed] = await played.claim()
    await played.finish(claimed, {"text": "X"})
    assert (await run.wait(WITHIN)).text == "X"
    with pytest.raises(WishRefused, match="has ended"):
        await run.suspend()
    with pytest.raises(UnknownRun):
        await client.continue_(7)


async def test_another_attempt_is_waited_for(client: Client, played: Played) -> None:
    run = await client.start(shouter, {"text": "x"})
    with pytest.raises(WishRefused, match="has not ended"):
        await run.retry()
    [claimed] = await played.claim()
    await played.finish(claimed, reason="AgentError", message="no")

    assert await run.retry() == 2

    waiting = asyncio.create_task(run.wait(WITHIN))
    [again] = await played.claim()
    await played.finish(again, {"text": "X"})
    assert (await waiting).text == "X"
    assert (await run.info()).attempt == 2


async def question_of(client: Client, run: int) -> PendingApproval:
    """Wait until a run asks something."""

    async def look() -> list[PendingApproval]:
        return await client.approvals(run)

    [question] = await eventually(look, "a question")
    return question


async def test_a_question_is_answered_and_the_run_goes_on(bench: Bench) -> None:
    bench.worker()
    async with Client(bench.dsn, by="ann") as client:
        run = await client.start(payer, {"cents": 700})
        question = await question_of(client, run.id)

        assert (question.tool, question.arguments) == ("pay", [700])
        await eventually(lambda: stands(client, run.id, Phase.AWAITING_APPROVAL), "to be parked")
        with pytest.raises(WishRefused, match="has digest"):
            await client.approve(run, digest="other")
        with pytest.raises(WishRefused, match="no open question about step nope"):
            await client.deny(run, step="nope", reason="x")
        await client.approve(question)

        assert await run.wait(WITHIN) == "paid 700"
        with pytest.raises(WishRefused, match="was approved by ann before"):
            await client.deny(question, reason="too late")
        assert await client.approvals() == []


async def test_a_denial_reaches_the_agent_with_its_reason(bench: Bench) -> None:
    bench.worker()
    async with Client(bench.dsn) as client:
        run = await client.start(payer, {"cents": 700})
        await question_of(client, run.id)
    with SyncClient(bench.dsn) as twin:
        [question] = await asyncio.to_thread(twin.approvals, run.id)
        await asyncio.to_thread(twin.deny, question.run_id, reason="too much")
        assert "too much" in await asyncio.to_thread(twin.run(run.id).wait, WITHIN)


async def stands(client: Client, run: int, phase: Phase) -> bool:
    """Say whether a run stands there."""
    return (await client.get(run)).phase is phase
