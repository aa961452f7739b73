"""Side effects by table: each class, each kind of interruption, each `on_interrupt`.

A call is interrupted in four ways: its process dies after the effect and before the record,
it runs into its timeout, its run is cancelled and brought back by a re-drive,
or its connection breaks.
What the world has seen is counted; what the model hears next is compared.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from rowlock import ChatAgent, ModelRequest, OutcomeUnknown, Run, tool
from rowlock.agents.retry import KEY_TTL_SECONDS, SideEffects
from rowlock.agents.tools import OnInterrupt
from rowlock.errors import NotStarted, PermanentError
from rowlock.testing import (
    CrashAt,
    Crashed,
    MemoryJournal,
    Parked,
    Point,
    ScriptedModel,
    Trial,
    run_agent,
    tool_call,
)

Interruption = Literal["crash", "timeout", "cancel", "transport"]

INTERRUPTIONS: tuple[Interruption, ...] = ("crash", "timeout", "cancel", "transport")

KEY = "pay:1.0"
CALL_ID = f"1/{KEY}/1"
UNKNOWN = "may or may not have happened"


@dataclass
class World:
    """The provider's side: it sees calls, and the first one is interrupted.

    Attributes
    ----------
    calls
        The call id of each call that has reached it.
    heard
        What the model heard of its tool.
    """

    interruption: Interruption
    calls: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def agent(self, side_effects: SideEffects, on_interrupt: OnInterrupt) -> Any:
        """Return an agent that pays once and says what it heard."""

        @tool(side_effects=side_effects, on_interrupt=on_interrupt, timeout=0.01)
        async def pay(run: Run) -> str:
            """Pay."""
            self.calls.append(run.call_id)
            if len(self.calls) == 1:
                await self.interrupt()
            return "paid"

        def after(request: ModelRequest) -> str:
            self.heard.append(request.message(-1)["content"])
            return "done"

        return ChatAgent("payer", ScriptedModel([tool_call("pay"), after]), "", [pay])

    async def interrupt(self) -> None:
        """End the first call in its middle."""
        self.reached.set()
        if self.interruption == "transport":
            raise ConnectionResetError("cut off")
        if self.interruption == "timeout":
            await asyncio.Event().wait()
        if self.interruption == "cancel":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    def journal(self) -> MemoryJournal:
        """Return a history that dies with the first call if that is the interruption."""
        return MemoryJournal(crash_at=KEY if self.interruption == "crash" else None)


async def begin(world: World, agent: Any) -> tuple[Any, MemoryJournal]:
    """Run until the interruption and, where that ends the process or the run, once more."""
    journal = world.journal()
    try:
        return await run_agent(agent, "go", journal=journal), journal
    except Crashed:
        journal = journal.takeover()
    except asyncio.CancelledError:
        journal = journal.next_attempt()
    return await run_agent(agent, "go", journal=journal), journal


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
@pytest.mark.parametrize("on_interrupt", ["tell_model", "ask", "fail"])
@pytest.mark.parametrize("side_effects", ["none", "idempotent"])
async def test_what_may_be_repeated_is_repeated_under_its_name(
    side_effects: SideEffects, on_interrupt: OnInterrupt, interruption: Interruption
) -> None:
    """Nobody is told or asked: the call is made again, and the model sees its result."""
    world = World(interruption)

    result, journal = await begin(world, world.agent(side_effects, on_interrupt))

    assert result == "done"
    assert world.calls == [CALL_ID, CALL_ID]
    assert world.heard == ["paid"]
    assert journal.questions == {}


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
async def test_the_model_is_told_what_nobody_knows(interruption: Interruption) -> None:
    """Once, and the call is not made again, whatever interrupted it."""
    world = World(interruption)
    agent = world.agent("non_idempotent", "tell_model")

    result, journal = await begin(world, agent)

    assert result == "done"
    assert world.calls == [CALL_ID]
    assert UNKNOWN in world.heard[0]
    assert await run_agent(agent, "go", journal=journal.next_attempt()) == "done"
    assert world.calls == [CALL_ID]


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
async def test_a_run_fails_if_its_tool_says_so(interruption: Interruption) -> None:
    """In every later attempt, too: the doubt does not go away."""
    world = World(interruption)
    agent = world.agent("non_idempotent", "fail")

    with pytest.raises(OutcomeUnknown, match=UNKNOWN):
        await begin(world, agent)

    assert world.calls == [CALL_ID]
    assert world.heard == []


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("interruption", INTERRUPTIONS)
async def test_a_person_decides_whether_to_repeat(
    interruption: Interruption, approved: bool
) -> None:
    """The question says what happened; only a yes makes the call again."""
    world = World(interruption)
    agent = world.agent("non_idempotent", "ask")
    journal = world.journal()
    with pytest.raises((Parked, Crashed, asyncio.CancelledError)) as ended:
        await run_agent(agent, "go", journal=journal)
    if ended.type is not Parked:
        later = journal.takeover() if ended.type is Crashed else journal.next_attempt()
        journal = later
        with pytest.raises(Parked):
            await run_agent(agent, "go", journal=journal)
    [(key, question)] = journal.questions.items()

    journal.decide(key, approved=approved, by="ada", reason="it is on the statement")
    assert await run_agent(agent, "go", journal=journal.takeover()) == "done"

    assert UNKNOWN.encode() in question.shown
    assert world.calls == ([CALL_ID] * 2 if approved else [CALL_ID])
    assert world.heard == (["paid"] if approved else [world.heard[0]])
    assert approved or "Denied by ada" in world.heard[0]


@pytest.mark.parametrize("on_interrupt", ["tell_model", "fail"])
@pytest.mark.parametrize(
    ("error", "calls", "heard"),
    [
        (NotStarted("busy"), 2, "paid"),
        (PermanentError("no such account"), 1, '{"error":"no such account"}'),
    ],
)
async def test_a_tool_that_knows_better_leaves_no_doubt(
    on_interrupt: OnInterrupt, error: Exception, calls: int, heard: str
) -> None:
    """Surely not begun: tried again. Refused for good: told to the model."""
    world = World("transport")
    agent = world.agent("non_idempotent", on_interrupt)

    async def interrupt() -> None:
        raise error

    world.interrupt = interrupt  # type: ignore[method-assign]

    assert (await begin(world, agent))[0] == "done"
    assert len(world.calls) == calls
    assert world.heard == [heard]


@pytest.mark.parametrize(
    ("hours", "calls", "repeated"), [(0, 2, True), (23.9, 2, True), (24.1, 1, False)]
)
async def test_a_provider_forgets_keys_after_a_day(
    hours: float, calls: int, repeated: bool
) -> None:
    """An idempotent call that was interrupted longer ago is as unknown as any other."""
    world = World("crash")
    agent = world.agent("idempotent", "tell_model")
    journal = world.journal()
    with pytest.raises(Crashed):
        await run_agent(agent, "go", journal=journal)
    heir = journal.takeover()
    heir.clock.advance(hours * 3600)

    assert await run_agent(agent, "go", journal=heir) == "done"

    assert len(world.calls) == calls
    assert (world.heard == ["paid"]) is repeated
    assert (UNKNOWN in world.heard[0]) is not repeated


async def test_a_provider_may_forget_sooner() -> None:
    """A tool says for how long its keys live."""
    calls: list[str] = []

    @tool(side_effects="idempotent", key_ttl=60)
    async def pay(run: Run) -> str:
        """Pay."""
        calls.append(run.call_id)
        return "paid"

    journal = MemoryJournal(crash_at=2)
    with pytest.raises(Crashed):
        await Run(journal).step("pay", pay, key="one")
    heir = journal.takeover()
    heir.clock.advance(61)

    with pytest.raises(OutcomeUnknown):
        await Run(heir).step("pay", pay, key="one")
    assert calls == ["1/pay:one/1"]


async def test_a_wait_that_outlives_the_key_leaves_doubt() -> None:
    """A provider that says "come back in two days" would not know the call any more."""

    class Busy(Exception):
        retry_after = 2 * KEY_TTL_SECONDS

    async def pay() -> None:
        raise Busy

    journal = MemoryJournal()

    with pytest.raises(OutcomeUnknown):
        await Run(journal).step("pay", pay, side_effects="idempotent")
    assert journal.pauses == []


@pytest.mark.parametrize(("hours", "calls"), [(1, 2), (25, 1)])
async def test_a_keys_age_counts_from_its_intent_in_the_store(hours: float, calls: int) -> None:
    """With the engine and a store: the next worker reads when the call began."""
    world = World("crash")
    trial = await Trial.begin(world.agent("idempotent", "tell_model"), "go")
    await trial.run(crash_at=CrashAt(Point.AFTER_EFFECT, KEY))
    trial.clock.advance(hours * 3600)

    await trial.run()

    assert trial.result == "done"
    assert len(world.calls) == calls
    assert len(set(world.calls)) == 1
