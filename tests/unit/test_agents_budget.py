"""A run that has used more than its budget fails at its next step, whoever used it and when."""

from __future__ import annotations

import msgspec
import pytest

from rowlock import (
    AgentDefinitionError,
    Budget,
    BudgetExceeded,
    ChatAgent,
    ModelTurn,
    Run,
    StepFailed,
    ToolCall,
    Usage,
    agent,
    tool,
)
from rowlock.agents.protocol import Agent, Result
from rowlock.options import RunOptions
from rowlock.states import EventKind, FailureReason
from rowlock.testing import Crashed, MemoryJournal, ScriptedModel, run_agent


async def spend(run: Run, tokens: int, cost: int = 0) -> int:
    """Use tokens."""
    run.count_usage(tokens - 1, 1, cost)
    return tokens


async def free(number: int) -> int:
    """Use nothing."""
    return number


@agent(name="spender")
async def spender(run: Run, amounts: list[int]) -> int:
    """Use so many tokens in one step after another."""
    return sum([await run.step("spend", spend, n, key=i) for i, n in enumerate(amounts)])


def limited(**limits: int) -> MemoryJournal:
    """Return the history of a run whose resource limits it."""
    return MemoryJournal(options=RunOptions(**limits))


def steps(journal: MemoryJournal) -> list[str]:
    """Return the steps that finished."""
    return [entry.key for entry in journal.entries if entry.kind is EventKind.STEP_DONE]


async def test_a_run_within_its_budget_succeeds() -> None:
    """What is used up to the last token is not too much."""
    journal = limited(max_total_tokens=30)

    assert await run_agent(spender, [10, 10, 10], journal=journal) == 30
    assert journal.usage == (27, 3, 0)


async def test_a_run_over_its_budget_fails_at_its_next_step() -> None:
    """The step that went over is finished, and the next is not begun."""
    journal = limited(max_total_tokens=15)

    with pytest.raises(BudgetExceeded, match=r"used 20 tokens.*maxTotalTokens of 15") as raised:
        await run_agent(spender, [10, 10, 10], journal=journal)

    assert raised.value.reason is FailureReason.BUDGET_EXCEEDED
    assert steps(journal) == ["spend:0", "spend:1"]
    assert journal.usage == (18, 2, 0)


async def test_a_step_that_uses_nothing_is_refused_as_well() -> None:
    """A run that is over its budget does nothing more."""

    @agent(name="mixed")
    async def mixed(run: Run) -> int:
        await run.step("spend", spend, 10)
        return await run.step("free", free, 1)

    with pytest.raises(BudgetExceeded):
        await run_agent(mixed, journal=limited(max_total_tokens=5))


async def test_a_run_over_its_budget_does_not_sleep_before_it_fails() -> None:
    """Nobody should wait an hour for that."""

    @agent(name="sleeper")
    async def sleeper(run: Run) -> None:
        await run.step("spend", spend, 10)
        await run.sleep(3600)

    journal = limited(max_total_tokens=5)

    with pytest.raises(BudgetExceeded):
        await run_agent(sleeper, journal=journal)
    assert journal.sleeps == []


async def test_a_last_step_may_go_over() -> None:
    """Its result is paid for."""
    assert await run_agent(spender, [10, 10], journal=limited(max_total_tokens=15)) == 20


async def test_money_is_limited_like_tokens() -> None:
    """In millionths of a US dollar; the message says it in dollars, too."""

    @agent(name="rich")
    async def rich(run: Run) -> None:
        for number in range(3):
            await run.step("spend", spend, 1, 1_500_000, key=number)

    journal = limited(max_cost_micro=2_000_000)

    with pytest.raises(
        BudgetExceeded, match=r"cost 3 US dollars.*maxCostMicroUSD of 2000000 \(2\)"
    ):
        await run_agent(rich, journal=journal)
    assert steps(journal) == ["spend:0", "spend:1"]


@pytest.mark.parametrize("entries", [0, 1, 2])
async def test_takeovers_add_up(entries: int) -> None:
    """The next worker fails at the same step, wherever the first one died."""
    journal = limited(max_total_tokens=15)
    with pytest.raises(BudgetExceeded):
        await run_agent(spender, [10, 10, 10], journal=journal)
    heir = journal.takeover(entries=entries)

    with pytest.raises(BudgetExceeded, match="used 20 tokens"):
        await run_agent(spender, [10, 10, 10], journal=heir)

    assert steps(heir) == ["spend:0", "spend:1"]
    assert heir.usage == (18, 2, 0)


async def test_attempts_add_up() -> None:
    """What a failed step of an earlier attempt used counts before it is asked for again."""

    async def waste(run: Run) -> None:
        run.count_usage(10, 0)
        raise OSError("gone")

    @agent(name="wasteful")
    async def wasteful(run: Run) -> None:
        await run.step("free", free, run.attempt, key=run.attempt)
        await run.step("waste", waste, retries=0)

    first = limited(max_total_tokens=15)
    with pytest.raises(StepFailed):
        await run_agent(wasteful, journal=first)
    second = first.next_attempt()
    with pytest.raises(StepFailed):
        await run_agent(wasteful, journal=second)
    third = second.next_attempt()

    with pytest.raises(BudgetExceeded, match="used 20 tokens"):
        await run_agent(wasteful, journal=third)

    assert third.usage == (20, 0, 0)
    assert steps(third) == ["free:1", "free:2"]


async def test_what_is_not_asked_for_again_counts_as_well() -> None:
    """An attempt that takes another path has still paid for the first one."""

    @agent(name="fork")
    async def fork(run: Run) -> int:
        return await run.step("spend", spend, 10, key=run.attempt)

    journal = MemoryJournal()
    await run_agent(fork, journal=journal)
    second = journal.next_attempt()
    await run_agent(fork, journal=second)

    assert second.usage == (18, 2, 0)


async def test_tries_add_up_within_a_step() -> None:
    """A call that fails after it has cost something is not tried for ever."""
    tries: list[int] = []

    async def waste(run: Run) -> None:
        tries.append(1)
        run.count_usage(10, 0)
        raise OSError("gone")

    @agent(name="wasteful")
    async def wasteful(run: Run) -> None:
        await run.step("waste", waste, retries=100)

    with pytest.raises(BudgetExceeded, match="used 20 tokens"):
        await run_agent(wasteful, journal=limited(max_total_tokens=15))
    assert len(tries) == 2


async def test_what_the_agent_uses_outside_of_steps_counts() -> None:
    """It says so anew in each replay, and is not counted twice for that."""

    @agent(name="talker")
    async def talker(run: Run) -> int:
        run.count_usage(10, 0)
        return await run.step("spend", spend, 10)

    journal = MemoryJournal(crash_at=1)
    with pytest.raises(Crashed):
        await run_agent(talker, journal=journal)
    heir = journal.takeover()
    await run_agent(talker, journal=heir)

    assert heir.usage == (19, 1, 0)
    with pytest.raises(BudgetExceeded, match="used 10 tokens"):
        await run_agent(talker, journal=limited(max_total_tokens=5))


async def test_code_that_catches_the_error_fails_nevertheless() -> None:
    """A budget is the limit of who pays, not a hint for who spends."""

    @agent(name="stubborn")
    async def stubborn(run: Run) -> str:
        try:
            await run.step("spend", spend, 10)
            await run.step("free", free, 1)
        except BudgetExceeded:
            pass
        return "fine"

    with pytest.raises(BudgetExceeded):
        await run_agent(stubborn, journal=limited(max_total_tokens=5))


async def test_nobody_is_asked_for_a_call_that_may_not_be_made() -> None:
    """The question would stand there for nothing."""

    @tool(approval="always")
    async def act() -> None:
        """Act."""

    @agent(name="asking")
    async def asking(run: Run) -> None:
        await run.step("spend", spend, 10)
        await run.step("act", act)

    journal = limited(max_total_tokens=5)

    with pytest.raises(BudgetExceeded):
        await run_agent(asking, journal=journal)
    assert journal.questions == {}


@pytest.mark.parametrize(
    ("declared", "given", "holds"), [(100, 15, 15), (15, 100, 15), (15, None, 15), (None, 15, 15)]
)
async def test_the_smaller_of_two_budgets_holds(
    declared: int | None, given: int | None, holds: int
) -> None:
    """An author's limit is for all runs; a resource can only make it less."""

    @agent(name="spender", budget=Budget(max_total_tokens=declared))
    async def both(run: Run) -> None:
        for number in range(3):
            await run.step("spend", spend, 10, key=number)

    journal = MemoryJournal(options=RunOptions(max_total_tokens=given))

    with pytest.raises(BudgetExceeded, match=f"of {holds},"):
        await run_agent(both, journal=journal)


async def test_a_conversation_ends_at_its_budget() -> None:
    """The model's usage is what counts; the tools of the last turn are not called."""
    called: list[str] = []

    @tool(side_effects="none")
    async def look(topic: str) -> str:
        """Look."""
        called.append(topic)
        return topic

    turns = [
        ModelTurn(
            "", (ToolCall("1", "look", f'{{"topic": "{topic}"}}'),), Usage(100, 20, cost_micro=7)
        )
        for topic in "abc"
    ]
    chat = ChatAgent("chat", ScriptedModel(turns), "", [look], budget=Budget(max_total_tokens=200))
    journal = MemoryJournal()

    with pytest.raises(BudgetExceeded, match="used 240 tokens"):
        await run_agent(chat, "go", journal=journal)
    assert called == ["a"]
    assert journal.usage == (200, 40, 14)


async def test_a_result_says_what_all_attempts_used() -> None:
    """So a status shows what the run cost, while `run.usage` is the same in every replay."""
    seen: list[Usage] = []

    @agent(name="watcher")
    async def watcher(run: Run) -> int:
        seen.append(run.usage)
        await run.step("spend", spend, 10, 3)
        seen.append(run.usage)
        return 1

    async def result(of: Agent, journal: MemoryJournal) -> Result:
        return await of.execute(journal, None)

    journal = MemoryJournal()
    first = await result(watcher, journal)
    again = await result(watcher, journal.next_attempt())

    assert (first.tokens_in, first.tokens_out, first.cost_micro) == (9, 1, 3)
    assert (again.tokens_in, again.tokens_out, again.cost_micro) == (9, 1, 3)
    assert seen == [Usage(), Usage(9, 1, 3)] * 2


@pytest.mark.parametrize("limit", [0, -1, 1.5, "many", True])
def test_a_limit_that_makes_no_sense_is_refused(limit: object) -> None:
    """At import, with its name."""
    with pytest.raises(AgentDefinitionError, match=r"max_total_tokens.*from 1 on"):
        Budget(max_total_tokens=limit)  # type: ignore[arg-type]
    with pytest.raises(AgentDefinitionError, match=r"max_cost_micro.*from 1 on"):
        Budget(max_cost_micro=limit)  # type: ignore[arg-type]


def test_what_is_no_budget_is_refused() -> None:
    """At import, with the agent's name."""
    with pytest.raises(AgentDefinitionError, match=r"'bad'.*Budget, not 100"):
        agent(name="bad", budget=100)(spend)  # type: ignore[arg-type]
    with pytest.raises(AgentDefinitionError, match=r"'bad'.*Budget, not 100"):
        ChatAgent("bad", ScriptedModel([]), "", budget=100)  # type: ignore[call-overload]


def test_records_of_old_code_that_say_nothing_of_usage_are_free() -> None:
    """Nothing is guessed."""
    body = msgspec.json.encode({"args": "x", "result": 1})
    from rowlock.agents.protocol import Entry

    journal = MemoryJournal([Entry(EventKind.STEP_DONE, "old", 1, body)])

    assert Run(journal, budget=Budget(1))._steps.spending.used == (0, 0, 0)
