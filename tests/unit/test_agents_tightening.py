"""An Agent object makes tools stricter, never looser, and never ones that are not there."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock import ChatAgent, Run, agent, tool
from rowlock.agents.retry import Policy
from rowlock.agents.tightening import check_names, stricter
from rowlock.errors import AgentSpecRefused
from rowlock.options import RunOptions, ToolRule, decode, encode
from rowlock.states import FailureReason
from rowlock.testing import MemoryJournal, Parked, ScriptedModel, run_agent, tool_call
from rowlock_operator.api.agent import AgentTool, SideEffects, ToolApproval
from rowlock_operator.intake.tightening import tool_rules


@tool(side_effects="idempotent", name="tighten-pay")
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


payer = ChatAgent(
    "payer", ScriptedModel([[tool_call("tighten-pay", "c1", cents=1)], "done"]), "Pay.", [pay]
)


@agent(name="function")
async def function(run: Run) -> str:
    """Pay in a step."""
    return await run.step("pay", pay, 1)


def journal(*rules: ToolRule) -> MemoryJournal:
    """Return a journal of a run whose Agent has these rules."""
    return MemoryJournal(options=RunOptions(tools=rules))


@pytest.mark.parametrize("asked", [payer, function])
async def test_a_tool_that_asks_nobody_asks_when_the_agent_object_says_always(asked: Any) -> None:
    value = "pay" if asked is payer else None
    with pytest.raises(Parked):
        await run_agent(asked, value, journal=journal(ToolRule("tighten-pay", always_ask=True)))
    await run_agent(asked, value, journal=journal(ToolRule("tighten-pay")))  # nobody is asked


@pytest.mark.parametrize("asked", [payer, function])
@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            ToolRule("tighten-pay", side_effects="none"),
            r"spec.tools\[tighten-pay\].sideEffects: None is",
        ),
        (ToolRule("tighten-pya", always_ask=True), r"spec.tools\[tighten-pya\]: .*no tool"),
    ],
)
async def test_a_looser_class_and_an_unknown_tool_end_the_run(
    asked: Any, rule: ToolRule, said: str
) -> None:
    with pytest.raises(AgentSpecRefused, match=said) as refused:
        await run_agent(asked, "pay" if asked is payer else None, journal=journal(rule))
    assert refused.value.reason is FailureReason.INVALID_SPEC


@pytest.mark.parametrize(("asked", "calls"), [(None, 2), ("non_idempotent", 1)])
async def test_a_stronger_class_is_that_of_the_call(asked: str | None, calls: int) -> None:
    """A call whose outcome is unknown is not made again."""
    made: list[int] = []

    @tool(side_effects="none", name="tighten-look", retries=1)
    async def look() -> str:
        made.append(1)
        if len(made) == 1:
            raise ValueError("the line was cut")
        return "seen"

    looker = ChatAgent(
        "looker", ScriptedModel([[tool_call("tighten-look", "c1")], "done"]), "Look.", [look]
    )
    rules = [ToolRule("tighten-look", side_effects=asked)]
    await run_agent(looker, "look", journal=journal(*rules))
    assert len(made) == calls


@pytest.mark.parametrize("declared", ["none", "idempotent", "non_idempotent"])
@pytest.mark.parametrize("wanted", [None, "none", "idempotent", "non_idempotent"])
def test_only_what_is_as_strong_or_stronger_is_allowed(declared: Any, wanted: str | None) -> None:
    order = ("none", "idempotent", "non_idempotent")
    policy, rule = Policy(declared, retries=1), ToolRule("t", side_effects=wanted)
    if wanted is not None and order.index(wanted) < order.index(declared):
        with pytest.raises(AgentSpecRefused):
            stricter(policy, rule)
        return
    assert stricter(policy, rule) == Policy(wanted or declared, retries=1)  # type: ignore[arg-type]
    assert stricter(policy, None) is policy


def test_a_class_that_a_newer_operator_knows_is_refused() -> None:
    with pytest.raises(AgentSpecRefused, match="does not know 'reversible'"):
        stricter(Policy("none"), ToolRule("t", side_effects="reversible"))


def test_names_are_checked_against_what_there_is() -> None:
    check_names([ToolRule("a")], {"a", "b"}, agent="x")
    with pytest.raises(AgentSpecRefused, match="it has: a, b"):
        check_names([ToolRule("a"), ToolRule("c")], {"b", "a"}, agent="x")


def test_the_object_s_words_travel_with_the_run() -> None:
    tools = (
        AgentTool(name="a", approval=ToolApproval.ALWAYS),
        AgentTool(name="b", side_effects=SideEffects.NON_IDEMPOTENT),
    )
    rules = (ToolRule("a", always_ask=True), ToolRule("b", side_effects="non_idempotent"))
    assert tool_rules(tools) == rules
    assert decode(encode(RunOptions(tools=rules))).tools == rules
    assert encode(RunOptions()) == b"{}"
