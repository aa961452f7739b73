"""`@agent`: what cannot work is refused at import, what does not fit before the first step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from rowlock import (
    AgentDefinitionError,
    AgentError,
    InvalidInput,
    InvalidOutput,
    NonDeterministic,
    Run,
    StepFailed,
    agent,
)
from rowlock.agents.function import AgentFunction
from rowlock.testing import MemoryJournal, run_agent


class Page(BaseModel):
    """A part of a task."""

    url: str
    words: Annotated[int, Field(gt=0)]


class Task(BaseModel):
    """An input with parts."""

    model_config = ConfigDict(extra="forbid")

    title: str
    pages: list[Page] = []


class Options(BaseModel):
    """An input that may be left out."""

    depth: int = 2


class Strict(BaseModel):
    """A model that takes a date as JSON has it, and as Python has it, but nothing else."""

    model_config = ConfigDict(strict=True)

    day: date


@agent(name="count")
async def count(run: Run, task: Task) -> int:
    """Count words."""
    return sum([await run.step("words", words, page) for page in task.pages])


async def words(page: Page) -> int:
    """Return a page's words."""
    return page.words


@agent(name="plain")
async def plain(run: Run) -> str:
    """Take no input."""
    return run.id


async def test_a_durable_function_runs_to_its_result() -> None:
    """Its input is validated, its result is JSON."""
    task = {"title": "t", "pages": [{"url": "a", "words": 2}, {"url": "b", "words": 3}]}

    assert await run_agent(count, task) == 5


async def test_a_result_carries_what_was_counted() -> None:
    """Steps, usage and quality stand beside the body."""

    @agent(name="busy")
    async def busy(run: Run) -> str:
        run.count_usage(5, 2, 1)
        run.mark_degraded("no source")
        await run.step("words", words, Page(url="a", words=1))
        return "done"

    result = await busy.execute(MemoryJournal(), None)

    assert (result.body, result.degraded, result.steps) == (b'"done"', ("no source",), 1)
    assert (result.tokens_in, result.tokens_out, result.cost_micro) == (5, 2, 1)


async def test_an_agent_can_call_another_as_a_function() -> None:
    """Its steps belong to the caller's run."""

    @agent(name="outer")
    async def outer(run: Run) -> int:
        return 1 + await count(run, Task(title="t", pages=[Page(url="a", words=2)]))

    assert await run_agent(outer) == 3


def test_input_problems_are_named_all_at_once() -> None:
    """Each with its path and what would be right."""
    value = {"pages": [{"url": "a", "words": 1}, {"url": 7, "words": 0}], "colour": "red"}

    with pytest.raises(InvalidInput) as raised:
        count.check_input(value)

    message = str(raised.value)
    assert "agent 'count'" in message
    assert "title: is required" in message
    assert "pages[1].url: Input should be a valid string (got 7)" in message
    assert "pages[1].words: Input should be greater than 0 (got 0)" in message
    assert "colour: is not known" in message


def test_the_message_about_a_bad_input_is_bounded() -> None:
    """It fits into a status, says how much it leaves out, and shows no large value."""
    value = {"title": "x" * 10_000, "pages": [{"url": "y" * 9_000}] * 500}

    with pytest.raises(InvalidInput, match=r"and \d+ more") as raised:
        count.check_input(value)

    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("value", [None, "text", 7, [1]])
def test_an_input_of_another_kind_is_refused(value: Any) -> None:
    """Nothing but an object is a task; no input at all lacks its fields."""
    with pytest.raises(InvalidInput, match=r"the input|title"):
        count.check_input(value)


def test_no_input_is_an_empty_model() -> None:
    """Where all fields have defaults."""

    @agent(name="optional")
    async def optional(run: Run, options: Options) -> int:
        return options.depth

    assert optional.check_input(None) == Options()


def test_a_strict_model_takes_json() -> None:
    """A date is a string in JSON; strictness is meant for everything else."""

    @agent(name="strict")
    async def strict(run: Run, input: Strict) -> str:  # noqa: A002
        return str(input.day)

    assert strict.check_input({"day": "2026-05-04"}) == Strict(day=date(2026, 5, 4))
    with pytest.raises(InvalidInput, match="day"):
        strict.check_input({"day": 7})


def test_an_agent_without_an_input_refuses_one() -> None:
    """It would be ignored silently otherwise."""
    assert plain.check_input(None) is plain.check_input({}) is None
    with pytest.raises(InvalidInput, match="takes no input"):
        plain.check_input("hello")


def test_the_inputs_schema_is_known() -> None:
    """For documentation and for checks before a run is accepted."""
    assert count.input_schema is not None
    assert count.input_schema["required"] == ["title"]
    assert plain.input_schema is None


async def test_a_result_that_does_not_fit_fails_the_run() -> None:
    """With the reason InvalidOutput, and the field."""

    @agent(name="liar")
    async def liar(run: Run) -> list[Page]:
        return [Page.model_construct(url="a", words="many")]  # type: ignore[arg-type]

    with pytest.raises(InvalidOutput, match=r"'liar'.*\[0\]\.words"):
        await run_agent(liar)


def test_a_stored_result_is_read_as_the_declared_type() -> None:
    """By the agent that declares it; another type is found out."""

    @agent(name="typed")
    async def typed(run: Run) -> list[Task]:
        return []

    read = typed.read_result(b'[{"title": "tea"}]')

    assert read == [Task(title="tea")]
    with pytest.raises(InvalidOutput, match=r"'typed'.*title"):
        typed.read_result(b'[{"pages": []}]')


def test_a_default_stands_for_no_input() -> None:
    """As it does when the function is called."""

    @agent(name="patient")
    async def patient(run: Run, tries: int = 5) -> int:
        return tries

    assert patient.check_input(None) == 5
    assert patient.check_input(3) == 3


async def test_what_the_agent_raises_ends_the_attempt_with_its_causes() -> None:
    """As AgentError, which a later attempt may follow."""

    @agent(name="broken")
    async def broken(run: Run) -> None:
        try:
            raise KeyError("x")
        except KeyError as error:
            raise ValueError("no such customer") from error

    with pytest.raises(AgentError, match="ValueError: no such customer <- KeyError: 'x'"):
        await run_agent(broken)


async def test_an_agent_that_exits_fails_like_any_other() -> None:
    """It must not end the process, in which other runs live."""

    @agent(name="quitter")
    async def quitter(run: Run) -> None:
        raise SystemExit(3)

    with pytest.raises(AgentError, match="SystemExit"):
        await run_agent(quitter)


async def test_a_run_error_inside_a_task_group_keeps_its_reason() -> None:
    """The group around it is not the reason."""

    @agent(name="grouped")
    async def grouped(run: Run) -> None:
        await run.step("words", words, Page(url="a", words=1), key=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step("words", words, Page(url="a", words=2), key=1))

    with pytest.raises(NonDeterministic):
        await run_agent(grouped)


async def test_a_failed_step_may_be_caught() -> None:
    """An agent decides itself what it can do without."""

    async def fail() -> int:
        raise OSError("gone")

    @agent(name="careful")
    async def careful(run: Run) -> str:
        try:
            await run.step("fail", fail, retries=0)
        except StepFailed:
            run.mark_degraded("without the page")
        return "done"

    assert await run_agent(careful) == "done"


def sync(run: Run) -> int:
    """Not async."""
    return 1


async def no_run(task: Task) -> int:
    """No run."""
    return 1


async def no_return(run: Run):  # type: ignore[no-untyped-def]
    """No return annotation."""


async def no_annotation(run: Run, task) -> int:  # type: ignore[no-untyped-def]
    """An input without annotation."""
    return 1


async def unserializable(run: Run, lock: asyncio.Lock) -> int:
    """An input that no JSON gives."""
    return 1


async def callback(run: Run, then: Callable[[], int]) -> int:
    """An input that JSON Schema cannot describe."""
    return 1


async def bad_result(run: Run) -> asyncio.Lock:
    """A result that is no data."""
    return asyncio.Lock()


async def two_inputs(run: Run, one: int, two: int) -> int:
    """Two inputs."""
    return 1


async def variadic(run: Run, *tasks: Task) -> int:
    """Any number of inputs."""
    return 1


async def unresolved(run: Run, task: Missing) -> int:  # type: ignore[name-defined]  # noqa: F821
    """An annotation that names nothing."""
    return 1


@pytest.mark.parametrize(
    ("function", "cure"),
    [
        (sync, "async def"),
        (no_run, "run: Run"),
        (no_return, "->"),
        (no_annotation, "`task: …`"),
        (unserializable, "pydantic model"),
        (callback, "pydantic model"),
        (bad_result, "pydantic model"),
        (two_inputs, "one input"),
        (variadic, "name each one"),
        (unresolved, "top of its module"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_declaration_that_cannot_work_is_refused_at_import(
    function: Callable[..., Any], cure: str
) -> None:
    """The message names the agent and what to do."""
    with pytest.raises(AgentDefinitionError, match=r"[Aa]gent 'bad'") as raised:
        AgentFunction(function, name="bad")

    assert cure in str(raised.value)


@pytest.mark.parametrize("name", ["", "Support", "a_b", "-a", "a" * 64, None])
def test_a_name_that_no_resource_can_have_is_refused(name: Any) -> None:
    """Agents are named by resources of a cluster."""
    with pytest.raises(AgentDefinitionError, match="lower-case"):
        agent(name=name)


def test_a_decorator_without_parentheses_is_refused() -> None:
    """The message shows how it is written."""
    with pytest.raises(AgentDefinitionError, match=r"@agent\(name="):
        agent(no_run)  # type: ignore[arg-type]
