"""`@tool`: the model is told what the annotations say, and is answered when it gets them wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from rowlock import AgentDefinitionError, Run, tool
from rowlock.agents.problems import Misfit


class Address(BaseModel):
    """Where to send something."""

    street: str
    title: str = "home"


@tool(side_effects="idempotent", name="send-parcel", retries=1, timeout=9, on_interrupt="fail")
async def send_parcel(
    run: Run,
    order_id: Annotated[str, Field(description="As printed on the receipt.")],
    to: Address,
    speed: Literal["slow", "fast"] = "slow",
    copies: Annotated[int, Field(gt=0)] = 1,
) -> str:
    """Send a parcel.

    It leaves on the next working day.
    """
    return f"{order_id} {to.street} {speed} {copies}"


def test_the_schema_comes_from_the_annotations() -> None:
    """Without the run and made-up titles, with descriptions, bounds and defaults."""
    parameters = send_parcel.parameters

    assert send_parcel.schema()["function"]["name"] == "send-parcel"
    assert send_parcel.description == "Send a parcel.\n\nIt leaves on the next working day."
    assert parameters["required"] == ["order_id", "to"]
    assert parameters["additionalProperties"] is False
    assert parameters["properties"]["order_id"] == {
        "description": "As printed on the receipt.",
        "type": "string",
    }
    assert parameters["properties"]["speed"]["default"] == "slow"
    assert parameters["properties"]["copies"]["exclusiveMinimum"] == 0
    assert "title" in parameters["$defs"]["Address"]["properties"]
    assert "title" not in parameters["$defs"]["Address"]


def test_a_tool_without_arguments_has_a_schema_too() -> None:
    """An empty object; a model may leave the arguments out."""

    @tool(side_effects="none")
    async def now() -> str:
        return "now"

    assert now.parameters == {"additionalProperties": False, "properties": {}, "type": "object"}
    assert now.parse("") == {}


def test_arguments_are_validated_into_types() -> None:
    """Only what the model gave: defaults are the function's own."""
    arguments = send_parcel.parse('{"order_id": "7", "to": {"street": "S"}}')

    assert arguments == {"order_id": "7", "to": Address(street="S")}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("{", "JSON"),
        ("[]", "the arguments"),
        ('{"order_id": "7"}', "to: is required"),
        ('{"order_id": "7", "to": {}}', "to.street: is required"),
        ('{"order_id": "7", "to": {"street": "S"}, "copies": 0}', "copies: .*greater than 0"),
        ('{"order_id": "7", "to": {"street": "S"}, "colour": 1}', "colour: is not known"),
        ('{"order_id": "7", "to": {"street": "S"}, "run": 1}', "run: is not known"),
    ],
)
def test_wrong_arguments_are_explained(arguments: str, problem: str) -> None:
    """In words that the model can act on."""
    with pytest.raises(Misfit, match=problem):
        send_parcel.parse(arguments)


async def test_a_tool_can_be_called_as_the_function_it_is() -> None:
    """In tests, for example."""

    @tool(side_effects="none")
    async def add(one: int, two: int = 1) -> int:
        return one + two

    assert await add(1, two=2) == 3


def test_what_a_tool_declares_is_kept() -> None:
    """And the careful class is the default."""

    @tool()
    async def unmarked() -> None:
        """Say nothing about repeating."""

    assert unmarked.policy.side_effects == "non_idempotent"
    assert unmarked.on_interrupt == "tell_model"
    assert (send_parcel.policy.retries, send_parcel.policy.timeout) == (1, 9)
    assert send_parcel.on_interrupt == "fail"


def declared(**options: Any) -> Any:
    """Declare a tool with wrong options."""

    async def act(order_id: str) -> None:
        """Do nothing."""

    return tool(**options)(act)


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        ({"side_effects": "some"}, "non_idempotent"),
        ({"on_interrupt": "retry"}, "tell_model"),
        ({"name": "send parcel"}, "letters, digits"),
    ],
)
def test_wrong_options_are_refused_at_import(options: dict[str, str], cure: str) -> None:
    """The message lists what is allowed."""
    with pytest.raises(AgentDefinitionError, match=cure):
        declared(**options)


async def unannotated(order_id) -> None:  # type: ignore[no-untyped-def]
    """Lack an annotation."""


async def no_result(order_id: str):  # type: ignore[no-untyped-def]
    """Lack a return annotation."""


async def no_data(client: object, thing: asyncio.Lock) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Name a type that was never imported."""


async def variadic(**options: str) -> None:
    """Take anything."""


async def field_default(copies: int = Field(gt=0)) -> None:
    """Give a field where a default belongs."""


async def late_run(order_id: str, run: Run) -> None:
    """Take the run in the wrong place."""


@pytest.mark.parametrize(
    ("function", "cure"),
    [
        (unannotated, "order_id: …"),
        (no_result, "->"),
        (no_data, "top of its module"),
        (variadic, "name each one"),
        (field_default, "Annotated"),
        (late_run, "'run'"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_function_that_no_model_can_call_is_refused(function: Any, cure: str) -> None:
    """The message names the tool and the parameter."""
    with pytest.raises(AgentDefinitionError, match=f"ool '{function.__name__}'") as raised:
        tool(side_effects="none")(function)

    assert cure in str(raised.value)


def test_a_decorator_without_parentheses_is_refused() -> None:
    """Its author has not said what repeating would do."""
    with pytest.raises(AgentDefinitionError, match="parentheses"):
        tool(unannotated)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [{"street": "S"}, None, "S", 7])
def test_a_result_that_does_not_fit_is_refused(value: Any) -> None:
    """In one line; what the model would be told is not what the author declared."""

    @tool(side_effects="none")
    async def find() -> Address:
        """Find an address."""
        return Address(street="S")

    with pytest.raises(Misfit, match="the result") as raised:
        find.codec.accept(value)

    assert "\n" not in str(raised.value)
