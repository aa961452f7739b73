"""Plain functions as steps and tools: what crosses into an executor, and what is refused."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any

import pytest

from rowlock import (
    AgentDefinitionError,
    AgentError,
    ChatAgent,
    OutcomeUnknown,
    Run,
    StepFailed,
    tool,
)
from rowlock.agents.crossing import Kind, error_of, trouble_of
from rowlock.agents.problems import describe_error
from rowlock.agents.retry import Policy, after_failure, wait_seconds
from rowlock.testing import MemoryJournal, ScriptedModel, run_agent, tool_call
from tests import blocking_for_tests as plain


async def test_typed_values_arrive_as_their_types() -> None:
    """A model, a dataclass and dates go and come back through JSON."""
    run = Run(MemoryJournal())

    note = await run.step(
        "later", plain.later, plain.Note(text="x"), plain.Pair(1, 2), [date(2031, 1, 1)]
    )

    assert note == plain.Note(text="x 3 2031")


async def test_it_runs_beside_the_event_loop() -> None:
    """Never on it."""
    assert await Run(MemoryJournal()).step("who", threading.get_ident) != threading.get_ident()


@pytest.mark.parametrize("value", [None, 5, "x", [1, [2]], {"a": {"b": [True]}}])
async def test_plain_json_needs_no_annotation(value: Any) -> None:
    assert await Run(MemoryJournal()).step("loose", plain.loose, value) == value


@pytest.mark.parametrize("value", [(1, 2), {1}, plain.Note(text="x"), plain.Pair(1, 2), b"x"])
async def test_what_would_arrive_as_something_else_is_refused(value: Any) -> None:
    journal = MemoryJournal()
    with pytest.raises(AgentError, match=r"argument 'value' of 'loose'.*annotate the parameter"):
        await Run(journal).step("loose", plain.loose, value, side_effects="non_idempotent")
    assert journal.entries == []  # no intent: nobody has to wonder whether it happened


async def test_an_argument_of_another_type_than_declared_is_refused() -> None:
    with pytest.raises(AgentError, match="argument 'note' of 'later'"):
        await Run(MemoryJournal()).step("later", plain.later, "no note", plain.Pair(1, 2), [])


async def test_a_variadic_parameter_takes_all_that_is_left() -> None:
    assert await Run(MemoryJournal()).step("every", plain.every, 1, 2.5) == [1.0, 2.5]


async def test_a_function_written_in_c_is_found_as_well() -> None:
    run = Run(MemoryJournal())
    assert await run.step("hypot", math.hypot, 3, 4) == 5
    assert await run.step("add", operator.add, 3, 4) == 7


async def test_a_coroutine_that_a_plain_function_returns_is_awaited() -> None:
    assert await Run(MemoryJournal()).step("wrapped", plain.wrapped, 4) == 8


class Client:
    """Something with state."""

    def fetch(self, number: int) -> int:
        """Fetch."""
        return number


def closure() -> Callable[[int], int]:
    """Return a function that nobody can find by its name."""
    return lambda number: number


@pytest.mark.parametrize(
    "fn",
    [closure(), partial(plain.add, 1), Client().fetch],
    ids=["lambda", "partial", "method"],
)
async def test_what_no_executor_can_find_is_refused_with_what_to_do(fn: Any) -> None:
    run = Run(MemoryJournal())
    with pytest.raises(AgentDefinitionError) as caught:
        await run.step("lost", fn, 1)
    assert str(caught.value).startswith("Step 'lost': ")
    for way_out in ("at the top of its module", "`async def`", "blocking=False"):
        assert way_out in str(caught.value)
    assert await run.step("kept", fn, 1, blocking=False) in {1, 2}


def test_a_function_whose_name_belongs_to_another_is_refused() -> None:
    fake = closure()
    fake.__module__, fake.__qualname__ = plain.add.__module__, "add"
    with pytest.raises(AgentDefinitionError, match="not found in module"):
        Run(MemoryJournal()).step("fake", fake, 1).close()


def test_a_plain_tool_that_is_a_closure_is_refused_where_it_is_declared() -> None:
    with pytest.raises(AgentDefinitionError, match=r"Tool 'look'.*top of its module"):

        @tool(side_effects="none")
        def look() -> str:
            return ""


def test_an_async_tool_cannot_be_blocking() -> None:
    with pytest.raises(AgentDefinitionError, match=r"Tool 'look'.*blocking=True"):

        @tool(side_effects="none", blocking=True)
        async def look() -> str:
            return ""


def test_an_async_step_cannot_be_blocking() -> None:
    with pytest.raises(AgentDefinitionError, match=r"Step 'double'.*blocking=True"):
        Run(MemoryJournal()).step("double", plain.double, 2, blocking=True).close()


async def test_a_model_calls_a_plain_tool_with_typed_arguments() -> None:
    script = ScriptedModel(
        [tool_call("weigh", order_id="A1", note={"text": "heavy", "on": "2030-05-05"}), "ok"]
    )
    journal = MemoryJournal()
    assert await run_agent(ChatAgent("a", script, "", [plain.weigh]), "go", journal=journal) == "ok"
    done = journal.recall("weigh:1.0")
    assert done is not None
    assert b'{"text":"A1 heavy Note","on":"2030-05-05"}' in done.body


async def test_a_model_hears_what_a_plain_tool_refuses_for_good() -> None:
    script = ScriptedModel([tool_call("weigh", order_id="", note={"text": ""}), "ok"])
    journal = MemoryJournal()
    await run_agent(ChatAgent("a", script, "", [plain.weigh]), "go", journal=journal)
    done = journal.recall("weigh:1.0")
    assert done is not None
    assert b'{"error":"There is no order."}' in done.body


async def test_a_tool_that_is_declared_in_place_is_found_by_its_function() -> None:
    inline = tool(side_effects="none", name="sum")(plain.add)
    script = ScriptedModel([tool_call("sum", left=1, right=2), "ok"])
    journal = MemoryJournal()
    await run_agent(ChatAgent("a", script, "", [inline]), "go", journal=journal)
    done = journal.recall("sum:1.0")
    assert done is not None
    assert b'"result":3' in done.body


async def test_a_plain_function_knows_its_run_and_adds_to_its_step() -> None:
    journal = MemoryJournal(run_id=42)
    run = Run(journal)

    assert await run.step("named", plain.named, "hi", key=1) == ["42", "1", "42/named:1/1", "hi"]
    assert (run.usage.tokens_in, run.usage.tokens_out, run.usage.cost_micro) == (3, 4, 5)
    assert journal.usage == (3, 4, 5)
    replayed = Run(journal.takeover())
    await replayed.step("named", plain.named, "hi", key=1)
    assert replayed.usage == run.usage


@pytest.mark.parametrize("what", ["step", "progress", "text", "usage"])
async def test_what_needs_the_loop_is_refused_at_once(what: str) -> None:
    with pytest.raises(StepFailed, match=rf"at the first try.*run\.{what} needs the event loop"):
        await Run(MemoryJournal()).step("asks", plain.asks, what)


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("permanent", Kind.PERMANENT, "PermanentError: never"),
        ("not_started", Kind.NOT_STARTED, "NotStarted: busy"),
        ("slow", Kind.ERROR, "Slow: later"),
        ("exit", Kind.EXIT, "SystemExit: 7"),
        ("chain", Kind.ERROR, "ValueError: the order is not there <- KeyError: 'order 1001'"),
        ("unreadable", Kind.ERROR, "Unreadable: (its message cannot be read)"),
        ("surrogate", Kind.ERROR, "ValueError: ?"),
    ],
)
def test_an_exception_counts_and_reads_alike_on_the_other_side(
    how: str, kind: Kind, text: str
) -> None:
    try:
        plain.fails(how)
    except BaseException as error:
        trouble = trouble_of(error)
        raised: BaseException = error
    rebuilt = error_of(trouble)
    assert trouble.kind is kind
    assert describe_error(rebuilt) == text
    for effects in ("none", "non_idempotent"):
        policy = Policy(effects)
        assert after_failure(rebuilt, policy=policy, tries=1) is after_failure(
            raised, policy=policy, tries=1
        )
    assert wait_seconds(rebuilt, tries=1, seed="s") == wait_seconds(raised, tries=1, seed="s")


async def test_a_result_that_does_not_fit_is_not_tried_again() -> None:
    with pytest.raises(StepFailed, match="at the first try: Misfit: the result does not fit"):
        await Run(MemoryJournal()).step("fails", plain.fails, "misfit")


async def test_what_may_not_be_repeated_is_unknown_after_an_error() -> None:
    with pytest.raises(OutcomeUnknown, match="ValueError: the order is not there"):
        await Run(MemoryJournal()).step(
            "fails", plain.fails, "chain", side_effects="non_idempotent"
        )


async def test_what_did_not_start_is_tried_again() -> None:
    journal = MemoryJournal()
    with pytest.raises(StepFailed, match="after 3 tries: NotStarted: busy"):
        await Run(journal).step(
            "fails", plain.fails, "not_started", side_effects="non_idempotent", retries=2
        )
    assert len(journal.pauses) == 2
