"""What type checkers make of code that uses Rowlock; checked by mypy and pyright, never run.

`assert_type` holds what an author may rely on.
A line with an ignore is a mistake that both checkers must find: an ignore that is not needed is an
error of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any, assert_type

from pydantic import BaseModel

from rowlock import ChatAgent, Model, ModelRequest, ModelTurn, Run, Tool, Usage, agent, tool
from rowlock.agents.protocol import Agent
from rowlock.testing import MemoryJournal, ScriptedModel, Trial, Trials, run_agent


class Task(BaseModel):
    """An input."""

    topic: str


class Answer(BaseModel):
    """An output."""

    text: str


class Page(BaseModel):
    """What a step returns."""

    words: list[str]


# ---------------------------------------------------------------- tools


@tool(side_effects="none")
async def look_up(order_id: str, deep: bool = False) -> Answer:
    """Look something up."""
    return Answer(text=order_id)


@tool(side_effects="idempotent", retries=2, timeout=10)
async def refund(run: Run, order_id: str, cents: int) -> str:
    """Give money back."""
    assert_type(run.call_id, str)
    return order_id


@tool(side_effects="none")
def count(text: str) -> int:
    """Count, in an executor."""
    return len(text)


async def tools_are_still_their_functions() -> None:
    """With their parameters and results."""
    assert_type(await look_up("7"), Answer)
    assert_type(await look_up(order_id="7", deep=True), Answer)
    assert_type(count("a"), int)
    assert_type(look_up.name, str)
    await look_up(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await look_up()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    any_tool: Tool[..., Any] = refund
    assert_type(any_tool.description, str)


@tool(side_effects="sometimes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
async def unsure() -> None:
    """Have side effects of an unknown kind."""


# ---------------------------------------------------------------- steps


async def read(url: str) -> Page:
    """Read a page."""
    return Page(words=[url])


def parse(text: str) -> int:
    """Parse, in an executor."""
    return int(text)


def later(text: str) -> Awaitable[float]:
    """Return what must be awaited."""
    raise NotImplementedError


async def opaque(*args: Any) -> Any:
    """Return anything."""


async def steps_return_what_their_functions_return(run: Run) -> None:
    """Whatever kind of function it is."""
    assert_type(await run.step("read", read, "a"), Page)
    assert_type(await run.step("parse", parse, "1", key=7), int)
    assert_type(await run.step("later", later, "1"), float)
    assert_type(await run.step("look up", look_up, "1"), Answer)
    assert_type(await run.step("count", count, "1", blocking=False), int)
    assert_type(await run.step("opaque", opaque), Any)
    pending = run.step("read", read, "a")
    awaitable: Coroutine[Any, Any, Page] = pending
    assert_type(await awaitable, Page)
    await run.step(read, "read")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


async def gather_keeps_types(run: Run) -> None:
    """One type for any number of steps, each its own where their number is known."""
    urls = ["a", "b"]
    assert_type(await run.gather(*(run.step("read", read, url) for url in urls)), list[Page])
    assert_type(await run.gather(*[run.step("read", read, u) for u in urls], limit=2), list[Page])
    page, number = await run.gather(run.step("read", read, "a"), run.step("parse", parse, "1"))
    assert_type(page, Page)
    assert_type(number, int)
    one, two, three = await run.gather(
        run.step("read", read, "a"), run.step("parse", parse, "1"), run.step("later", later, "1")
    )
    assert_type((one, two, three), tuple[Page, int, float])


async def what_a_run_says_of_itself(run: Run) -> None:
    """Plain types."""
    assert_type(run.id, str)
    assert_type(run.attempt, int)
    assert_type(run.usage, Usage)
    assert_type(run.usage.tokens_in, int)
    run.progress("half")
    run.text("to")
    run.mark_degraded("no index")
    run.count_usage(1, 2, cost_micro=3)


# ---------------------------------------------------------------- agents


@agent(name="research")
async def research(run: Run, task: Task) -> Answer:
    """Research."""
    page = await run.step("read", read, task.topic)
    return Answer(text=page.words[0])


@agent(name="nightly")
async def nightly(run: Run) -> None:
    """Take nothing and return nothing."""


async def decorated_functions_keep_their_signatures(run: Run) -> None:
    """And know the type of their results."""
    assert_type(await research(run, Task(topic="tea")), Answer)
    assert_type(research.read_result(b"{}"), Answer)
    assert_type(nightly.read_result(b"null"), None)
    await research(run, "tea")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@agent(name="plain")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def plain(run: Run) -> int:
    """Be no coroutine function."""
    return 1


class Echo:
    """A model of one's own is one by its shape."""

    name = "echo"

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Answer."""
        return ModelTurn(text=str(request.turn), usage=Usage(tokens_in=1))


echo: Model = Echo()
scripted: Model = ScriptedModel(["fine"])
chat = ChatAgent("chat", echo, "Be brief.", tools=[look_up, refund, count])
typed = ChatAgent("typed", echo, "Be brief.", input=Task, output=Answer, max_turns=5, repairs=1)
many = ChatAgent("many", echo, "Be brief.", output=list[Answer])
either = ChatAgent("either", echo, "Be brief.", output=Answer | Page)

assert_type(chat, ChatAgent[Any, str])
assert_type(typed, ChatAgent[Task, Answer])
assert_type(many, ChatAgent[Any, list[Answer]])
assert_type(either, ChatAgent[Any, Any])
assert_type(typed.check_input({"topic": "tea"}), Task)
assert_type(typed.read_result(b"{}"), Answer)
assert_type(chat.read_result(b'""'), str)

ChatAgent("wrong", object(), "")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
ChatAgent("wrong", echo, "", tools=[read])  # type: ignore[list-item]  # pyright: ignore[reportCallIssue, reportArgumentType]

agents: list[Agent] = [research, nightly, chat, typed]


async def tests_of_authors() -> None:
    """What a test uses."""
    journal = MemoryJournal(crash_at=2)
    assert_type(await run_agent(research, {"topic": "tea"}, journal=journal), Any)
    assert_type(journal.takeover(), MemoryJournal)


async def test_with_a_fixture(trial: Trials) -> None:
    """What a test under pytest uses."""
    begun = await trial(research, {"topic": "tea"}, max_takeovers=1)
    assert_type(begun, Trial)
    assert_type(trial.begun, list[Trial])
