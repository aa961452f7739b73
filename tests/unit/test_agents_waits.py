"""Sleeps, questions to people and changed steps, on a history in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rowlock import AgentDefinitionError, AgentError, ApprovalDenied, ChatAgent, Run, agent, tool
from rowlock.agents.messages import ModelRequest
from rowlock.errors import StepFailed
from rowlock.states import EventKind
from rowlock.testing import (
    Crashed,
    MemoryJournal,
    Parked,
    ScriptedModel,
    run_agent,
    tool_call,
)


def tool_answers(request: ModelRequest) -> str:
    """Answer with what the tools said."""
    told = [msgspec.json.decode(raw) for raw in request.messages]
    return " | ".join(message["content"] for message in told if message["role"] == "tool")


def counting() -> tuple[list[Any], Callable[..., Any]]:
    """Return a list of calls and a step that adds to it."""
    calls: list[Any] = []

    async def step(value: Any) -> Any:
        calls.append(value)
        return value

    return calls, step


# -------------------------------------------------------------------- sleep


async def test_a_sleep_that_is_over_is_passed_at_once_after_a_crash() -> None:
    calls, step = counting()

    @agent(name="a")
    async def sleeper(run: Run) -> str:
        await run.sleep(3600)
        await run.step("one", step, 1)
        return str(await run.step("two", step, 2))

    journal = MemoryJournal(crash_at=2)
    with pytest.raises(Crashed):
        await run_agent(sleeper, journal=journal)
    heir = journal.takeover()
    assert await run_agent(sleeper, journal=heir) == "2"
    assert (journal.sleeps, heir.sleeps) == ([3600.0], [])
    assert calls == [1, 2, 2]


async def test_of_a_sleep_only_the_rest_is_waited_after_a_crash() -> None:
    @agent(name="a")
    async def sleeper(run: Run) -> None:
        await run.sleep(100)

    journal = MemoryJournal()
    await run_agent(sleeper, journal=journal)
    heir = journal.takeover()
    heir.clock.advance(-60)
    await run_agent(sleeper, journal=heir)
    assert heir.sleeps == [60.0]


async def test_sleeps_of_one_length_are_waits_of_their_own_unless_a_key_says_otherwise() -> None:
    @agent(name="a")
    async def sleeper(run: Run) -> None:
        await run.sleep(1)
        await run.sleep(1)
        await run.sleep(5, key="morning")
        await run.sleep(7, key="morning")

    journal = MemoryJournal()
    await run_agent(sleeper, journal=journal)
    assert journal.sleeps == [1.0, 1.0, 5.0]


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), "3"])
async def test_a_sleep_of_no_length_is_refused(seconds: Any) -> None:
    @agent(name="a")
    async def sleeper(run: Run) -> None:
        await run.sleep(seconds)

    with pytest.raises(AgentError, match="takes seconds from 0 on"):
        await run_agent(sleeper)


async def test_a_sleep_inside_a_step_is_refused() -> None:
    @agent(name="a")
    async def sleeper(run: Run) -> None:
        async def step() -> None:
            await run.sleep(1)

        await run.step("outer", step)

    with pytest.raises(AgentError, match="inside a step"):
        await run_agent(sleeper)


# -------------------------------------------------------------------- approvals


def refunder(calls: list[int], *, turns: int = 1, **options: Any) -> ChatAgent:
    """Return an agent that asks for `turns` refunds in one turn, of 100, 200 … cents."""

    @tool(side_effects="idempotent", **options)
    async def refund(cents: int) -> str:
        """Pay back."""
        calls.append(cents)
        return f"refunded {cents}"

    asked = [tool_call("refund", f"c{n}", cents=n * 100) for n in range(1, turns + 1)]
    return ChatAgent("refunder", ScriptedModel([asked, tool_answers]), "Refund.", [refund])


async def test_a_call_waits_for_a_person_and_happens_when_they_agree() -> None:
    calls: list[int] = []
    asker, journal = refunder(calls, approval="always"), MemoryJournal()
    with pytest.raises(Parked):
        await run_agent(asker, "please", journal=journal)
    [question] = journal.questions.values()
    assert msgspec.json.decode(question.shown) == {"tool": "refund", "arguments": {"cents": 100}}
    assert calls == []
    journal.decide(question.key, approved=True)
    assert await run_agent(asker, "please", journal=journal.takeover()) == "refunded 100"
    assert calls == [100]


async def test_a_denial_is_told_to_the_model_and_stays_after_a_crash() -> None:
    calls: list[int] = []
    asker, journal = refunder(calls, approval="always"), MemoryJournal()
    with pytest.raises(Parked):
        await run_agent(asker, "please", journal=journal)
    journal.decide("refund:1.0", approved=False, by="ada", reason="too much")
    heir = journal.takeover()
    told = "Denied by ada: too much"
    assert await run_agent(asker, "please", journal=heir) == told
    assert await run_agent(asker, "please", journal=heir.takeover()) == told
    assert calls == []
    assert heir.kinds("refund:1.0") == [EventKind.STEP_FAILED]


async def test_only_an_approval_carries_over_to_a_later_attempt() -> None:
    calls: list[int] = []
    asker, journal = refunder(calls, turns=2, approval="always"), MemoryJournal()
    with pytest.raises(Parked):
        await run_agent(asker, "please", journal=journal)
    assert sorted(journal.questions) == ["refund:1.0", "refund:1.1"]
    journal.decide("refund:1.0", approved=True)
    journal.decide("refund:1.1", approved=False)
    second = journal.next_attempt()
    with pytest.raises(Parked):
        await run_agent(asker, "please", journal=second)
    assert list(second.questions) == ["refund:1.1"]
    assert calls == [100]


async def test_a_function_says_which_calls_need_a_person() -> None:
    calls: list[int] = []
    asker = refunder(calls, turns=3, approval=lambda cents: cents > 200)
    journal = MemoryJournal()
    with pytest.raises(Parked):
        await run_agent(asker, "please", journal=journal)
    assert calls == [100, 200]
    assert list(journal.questions) == ["refund:1.2"]


async def test_a_function_that_cannot_say_fails_the_run_before_the_call() -> None:
    calls: list[int] = []
    asker = refunder(calls, approval=lambda cents: cents > cents[0])
    with pytest.raises(AgentError, match="approval function of tool 'refund' failed"):
        await run_agent(asker, "please")
    assert calls == []


async def test_a_tool_that_needs_a_person_needs_one_as_a_step_too() -> None:
    @tool(side_effects="idempotent", approval=lambda cents: cents > 100)
    async def refund(cents: int) -> int:
        """Pay back."""
        return cents

    @agent(name="a")
    async def payer(run: Run) -> str:
        await run.step("small", refund, 50)
        try:
            return str(await run.step("big", refund, 500))
        except ApprovalDenied as error:
            return str(error)

    journal = MemoryJournal()
    with pytest.raises(Parked):
        await run_agent(payer, journal=journal)
    [key] = journal.questions
    journal.decide(key, approved=False, by="ada")
    assert await run_agent(payer, journal=journal.takeover()) == "Denied by ada."


@pytest.mark.parametrize("options", [{"approval": "sometimes"}, {"approval_timeout": 0}])
def test_a_wrong_approval_is_refused_at_import(options: dict[str, Any]) -> None:
    with pytest.raises(AgentDefinitionError, match="approval"):
        refunder([], **options)


async def test_a_person_decides_whether_an_interrupted_call_is_made_again() -> None:
    """Each interruption is a question of its own: the first yes does not allow a third call."""
    calls: list[str] = []

    @tool(side_effects="non_idempotent", on_interrupt="ask")
    async def send(run: Run, text: str) -> str:
        """Send a letter."""
        calls.append(run.call_id)
        return "sent"

    sender = ChatAgent(
        "sender", ScriptedModel([tool_call("send", text="hi"), tool_answers]), "Send.", [send]
    )
    journal = MemoryJournal(crash_at="send:1.0")
    with pytest.raises(Crashed):
        await run_agent(sender, "go", journal=journal)

    second = journal.takeover()
    with pytest.raises(Parked):
        await run_agent(sender, "go", journal=second)
    [key] = second.questions
    assert key.startswith("send:1.0!")
    second.decide(key, approved=True)

    third = second.takeover()
    third._crash_at = "send:1.0"
    with pytest.raises(Crashed):
        await run_agent(sender, "go", journal=third)
    assert len(calls) == 2
    fourth = third.takeover()
    with pytest.raises(Parked):
        await run_agent(sender, "go", journal=fourth)
    [again] = fourth.questions
    assert again != key
    fourth.decide(again, approved=False, by="ada", reason="it arrived")
    told = await run_agent(sender, "go", journal=fourth.takeover())
    assert told.startswith("Unknown outcome")
    assert told.endswith("Denied by ada: it arrived")
    assert len(calls) == 2
    assert len(set(calls)) == 1


# -------------------------------------------------------------------- re-drive


def chain(step: Callable[..., Any], second: int, *, fails: bool = False) -> Any:
    """Return an agent of four steps, of which the second has an argument of its own."""

    async def boom() -> None:
        raise ValueError("down")

    @agent(name="chain")
    async def four(run: Run) -> list[int]:
        done = [await run.step("s", step, 1, key=1)]
        done += [await run.step("s", step, second, key=2)]
        done += [await run.step("s", step, 3, key=3)]
        if fails:
            await run.step("boom", boom, retries=0)
        return [*done, await run.step("s", step, 4, key=4)]

    return four


async def test_a_redrive_repeats_no_step_whose_arguments_are_the_same() -> None:
    calls, step = counting()
    journal = MemoryJournal()
    with pytest.raises(StepFailed):
        await run_agent(chain(step, 2, fails=True), journal=journal)
    assert await run_agent(chain(step, 2), journal=journal.next_attempt()) == [1, 2, 3, 4]
    assert calls == [1, 2, 3, 4]


async def test_a_changed_step_runs_again_and_drops_what_was_recorded_after_it() -> None:
    calls, step = counting()
    journal = MemoryJournal()
    await run_agent(chain(step, 2), journal=journal)
    assert await run_agent(chain(step, 20), journal=journal.next_attempt()) == [1, 20, 3, 4]
    assert calls == [1, 2, 3, 4, 20, 3, 4]


async def test_what_was_dropped_stays_dropped_after_a_crash_and_in_later_attempts() -> None:
    calls, step = counting()
    journal = MemoryJournal()
    await run_agent(chain(step, 2), journal=journal)
    second = journal.next_attempt()
    second._crash_at = "s:3"
    with pytest.raises(Crashed):
        await run_agent(chain(step, 20), journal=second)
    heir = second.takeover()
    with pytest.raises(StepFailed):
        await run_agent(chain(step, 20, fails=True), journal=heir)
    # The heir found the second step done and unchanged, and yet had to drop the third.
    assert calls == [1, 2, 3, 4, 20, 3, 3]
    third = heir.next_attempt()
    assert await run_agent(chain(step, 20), journal=third) == [1, 20, 3, 4]
    # The second attempt's third step counts; of the first attempt's fourth nothing is left.
    assert calls == [1, 2, 3, 4, 20, 3, 3, 4]


async def test_a_step_that_changes_twice_drops_all_that_rested_on_either() -> None:
    calls, step = counting()
    journal = MemoryJournal()
    await run_agent(chain(step, 2), journal=journal)
    second = journal.next_attempt()
    with pytest.raises(StepFailed):
        await run_agent(chain(step, 20, fails=True), journal=second)
    assert await run_agent(chain(step, 200), journal=second.next_attempt()) == [1, 200, 3, 4]
    assert calls == [1, 2, 3, 4, 20, 3, 200, 3, 4]
