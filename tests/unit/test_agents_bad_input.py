"""What cannot work is refused at import: the message names what is wrong and what to do instead.

One row for each mistake. None of them may be found out by a model's turn.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, ConfigDict

from rowlock import AgentDefinitionError, ChatAgent, ModelRequest, ModelTurn, Run, agent, tool
from rowlock.testing import ScriptedModel

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


class Opaque:
    """No data."""


class Holder(BaseModel):
    """Data with a part that is none."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    opaque: Opaque


class Unfinished(BaseModel):
    """Has a field of a type that nobody has defined."""

    other: Later | None = None  # type: ignore[name-defined]  # noqa: F821


@dataclass
class Plain:
    """Data."""

    number: int


async def fine(number: int) -> int:
    """Return a number."""
    return number


async def no_result(number: int):  # type: ignore[no-untyped-def]
    """Lack a return annotation."""


async def no_annotation(number) -> int:  # type: ignore[no-untyped-def]
    """Lack an annotation."""
    return 1


async def several(*numbers: int) -> int:
    """Take any number of values."""
    return 1


async def named(**numbers: int) -> int:
    """Take any name."""
    return 1


async def by_place(number: int, /) -> int:
    """Take a value that has no name."""
    return number


async def bad_default(number: int = "one") -> int:  # type: ignore[assignment]
    """Have a default of another type."""
    return number


async def for_checkers(number: OnlyForCheckers) -> int:
    """Name a type that is not there at run time."""
    return 1


async def generator(number: int) -> AsyncIterator[int]:
    """Yield."""
    yield number


async def opaque_argument(thing: Opaque) -> int:
    """Take what no JSON gives."""
    return 1


async def opaque_result(number: int) -> Holder:
    """Return what no JSON holds."""
    return Holder(opaque=Opaque())


async def unfinished(thing: Unfinished) -> int:
    """Take a model that is not whole."""
    return 1


async def callback(then: Callable[[int], int]) -> int:
    """Take a function."""
    return 1


class Methods:
    """Holds functions that belong to objects."""

    async def method(self, number: int) -> int:
        """Need an object."""
        return number


def closure() -> Callable[[int], int]:
    """Return a plain function that no executor can find."""

    def inner(number: int) -> int:
        """Return a number."""
        return number

    return inner


class Blocking:
    """A model whose turn would hold the event loop."""

    name = "blocking"

    def turn(self, _: ModelRequest) -> ModelTurn:
        """Answer."""
        return ModelTurn("fine")


def declared(fn: Any, **options: Any) -> Any:
    """Declare a tool."""
    return tool(**{"side_effects": "none", **options})(fn)


def chat(**options: Any) -> Any:
    """Declare a chat agent."""
    return ChatAgent(**{"name": "bad", "model": ScriptedModel([]), "instructions": "", **options})


TOOLS: list[tuple[str, Callable[[], Any], str]] = [
    ("no result", lambda: declared(no_result), r"'no_result'.*`-> …`"),
    ("no annotation", lambda: declared(no_annotation), r"'no_annotation'.*`number: …`"),
    ("*args", lambda: declared(several), r"'several'.*\*numbers.*name each one"),
    ("**kwargs", lambda: declared(named), r"'named'.*\*\*numbers.*name each one"),
    ("positional only", lambda: declared(by_place), r"'by_place'.*number.*name each one"),
    ("default", lambda: declared(bad_default), r"'number'.*'bad_default'.*default.*integer"),
    ("type checkers only", lambda: declared(for_checkers), r"'for_checkers'.*top of its module"),
    ("generator", lambda: declared(generator), r"'generator'.*AsyncIterator.*pydantic model"),
    ("argument", lambda: declared(opaque_argument), r"'thing'.*Opaque.*pydantic model"),
    ("result", lambda: declared(opaque_result), r"'opaque_result'.*Opaque.*pydantic model"),
    ("unfinished", lambda: declared(unfinished), r"'thing'.*'Later'.*top of its module"),
    ("callback", lambda: declared(callback), r"'callback'.*Callable.*pydantic model"),
    ("method", lambda: declared(Methods.method), r"'method'.*'self'.*top of its module"),
    ("closure", lambda: declared(closure()), r"'inner'.*top of its module.*async def"),
    ("lambda", lambda: declared(lambda: 1), r"lambda.*letters, digits"),
    ("partial", lambda: declared(partial(fine, 1)), r"partial.*`async def`"),
    ("class", lambda: declared(Plain), r"Plain.*no function"),
    ("twice", lambda: declared(declared(fine)), r"Tool.*one decorator on each"),
    ("async blocking", lambda: declared(fine, blocking=True), r"'fine'.*`async def`.*leave"),
    ("blocking", lambda: declared(fine, blocking="no"), r"'fine'.*blocking.*'no'"),
    ("side effects", lambda: declared(fine, side_effects="some"), r"'some'.*idempotent"),
    ("on interrupt", lambda: declared(fine, on_interrupt="panic"), r"'panic'.*tell_model"),
    ("retries", lambda: declared(fine, retries=-1), r"'fine'.*retries.*-1"),
    ("half a retry", lambda: declared(fine, retries=0.5), r"'fine'.*retries.*0.5"),
    ("timeout", lambda: declared(fine, timeout=0), r"'fine'.*timeout.*above 0"),
    ("no timeout", lambda: declared(fine, timeout=math.inf), r"'fine'.*timeout.*inf"),
    ("name", lambda: declared(fine, name="two words"), r"'two words'.*letters, digits"),
    ("no name", lambda: declared(fine, name=7), r"7.*letters, digits"),
    ("reserved name", lambda: declared(fine, name="model"), r"'model'.*another name.*name=…"),
    ("key's life", lambda: declared(fine, key_ttl=0), r"'fine'.*key_ttl.*above 0"),
    ("approval", lambda: declared(fine, approval="often"), r"'fine'.*'often'.*'always'"),
    ("async approval", lambda: declared(fine, approval=fine), r"'fine'.*approval=.*async def"),
    ("approval's names", lambda: declared(fine, approval=lambda n: n), r"'fine'.*names.*'n'"),
    ("no parentheses", lambda: tool(fine), r"parentheses"),  # type: ignore[arg-type]
]

CHATS: list[tuple[str, Callable[[], Any], str]] = [
    ("name", lambda: chat(name="My Agent"), r"'My Agent'.*lower-case"),
    ("one tool", lambda: chat(tools=declared(fine)), r"tools must be a list"),
    ("no tool", lambda: chat(tools=[fine]), r"fine.*@tool"),
    ("two of a name", lambda: chat(tools=[declared(fine)] * 2), r"two tools called 'fine'.*name="),
    ("instructions", lambda: chat(instructions=None), r"instructions must be a text"),
    ("turns", lambda: chat(max_turns=0), r"max_turns.*from 1 on"),
    ("all turns", lambda: chat(max_turns=None), r"max_turns.*None"),
    ("repairs", lambda: chat(repairs=-1), r"repairs.*from 0 on"),
    ("a model's name", lambda: chat(model="gpt-5-mini"), r"'gpt-5-mini'.*async def turn"),
    ("a blocking model", lambda: chat(model=Blocking()), r"Blocking.*async def turn"),
    ("input", lambda: chat(input=asyncio.Lock), r"input.*Lock.*pydantic model"),
    ("output", lambda: chat(output=Holder), r"output.*Opaque.*pydantic model"),
    ("output's name", lambda: chat(output="Answer"), r"output.*'Answer'.*define or import"),
    ("an answer", lambda: chat(output=7), r"output.*7.*pydantic model"),
]


@pytest.mark.parametrize(("build", "cure"), [row[1:] for row in TOOLS], ids=[r[0] for r in TOOLS])
def test_a_tool_that_cannot_work_is_refused(build: Callable[[], Any], cure: str) -> None:
    """Before any agent has it."""
    with pytest.raises(AgentDefinitionError, match=cure):
        build()


@pytest.mark.parametrize(("build", "cure"), [row[1:] for row in CHATS], ids=[r[0] for r in CHATS])
def test_a_chat_agent_that_cannot_work_is_refused(build: Callable[[], Any], cure: str) -> None:
    """Before any model is asked."""
    with pytest.raises(AgentDefinitionError, match=rf"(?s){cure}") as raised:
        build()

    assert "gent 'bad'" in str(raised.value) or "called" in str(raised.value)


async def bad_result(run: Run) -> Holder:
    """Return what no JSON holds."""
    return Holder(opaque=Opaque())


async def bad_input(run: Run, number: int = "one") -> int:  # type: ignore[assignment]
    """Have a default of another type."""
    return number


async def input_unfinished(run: Run, thing: Unfinished) -> int:
    """Take a model that is not whole."""
    return 1


@pytest.mark.parametrize(
    ("function", "cure"),
    [
        (bad_result, r"'bad'.*Opaque.*pydantic model"),
        (bad_input, r"'bad'.*default.*integer"),
        (input_unfinished, r"'bad'.*'Later'.*top of its module"),
        (declared(fine), r"'bad'.*Tool.*no function"),
        (partial(fine, 1), r"'bad'.*no function"),
        (Plain, r"'bad'.*no function"),
    ],
)
def test_a_durable_function_that_cannot_work_is_refused(function: Any, cure: str) -> None:
    """More of them stand in test_agents_function.py."""
    with pytest.raises(AgentDefinitionError, match=cure):
        agent(name="bad")(function)


def test_every_message_is_one_line_that_fits_a_status() -> None:
    """A worker that cannot import an agent shows it there."""
    for _, build, _ in TOOLS + CHATS:
        with pytest.raises(AgentDefinitionError) as raised:
            build()
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 600
