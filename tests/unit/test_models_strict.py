"""Schemas in strict mode: what a server takes that holds a model to them, and what has none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from rowlock.models.forms import Forms
from rowlock.models.strict import strict


class Team(Enum):
    """Who answers."""

    BILLING = "billing"
    SHIPPING = "shipping"


class Item(BaseModel):
    """A thing that was ordered."""

    sku: Annotated[str, Field(pattern="^[A-Z]+$", max_length=8, description="As printed.")]
    pieces: Annotated[int, Field(ge=1, multiple_of=2)] = 2


class Refund(BaseModel):
    """Money back."""

    kind: Literal["refund"] = "refund"
    cents: int
    url: Annotated[str, Field(json_schema_extra={"format": "uri"})] = ""


class Letter(BaseModel):
    """Words."""

    kind: Literal["letter"] = "letter"
    text: str


class Ticket(BaseModel):
    """All that may stand in a schema with a strict one."""

    title: Annotated[str, Field(min_length=1, examples=["Broken"])]
    team: Annotated[Team, Field(description="Who answers.")] = Team.BILLING
    first: Annotated[Item, Field(description="The dearest.")]
    items: Annotated[list[Item], Field(max_length=9)] = []
    due: date | None = None
    id: UUID
    done: Annotated[Refund | Letter, Field(discriminator="kind")]
    level: Annotated[Literal[1, 2, 3], Field(deprecated=True)] = 1


class Node(BaseModel):
    """A tree: its schema is a reference to one of its definitions."""

    value: float
    children: list[Node] = []


class Open(BaseModel):
    """Whoever answers may add fields."""

    model_config = ConfigDict(extra="allow")
    a: int


class Nothing(BaseModel):
    """An object without fields."""


def schema_of(type_: Any) -> bytes:
    """Return the schema of a type, as an agent's output has it."""
    return msgspec.json.encode(TypeAdapter(type_).json_schema())


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield all schemas in a schema."""
    assert isinstance(schema, dict)
    yield schema
    inner = [*schema.get("$defs", {}).values(), *schema.get("properties", {}).values()]
    inner += schema.get("anyOf", [])
    inner += [schema["items"]] if "items" in schema else []
    for one in inner:
        yield from parts(one)


@pytest.mark.parametrize("type_", [Ticket, Node, Nothing, Item])
def test_a_strict_schema_keeps_the_rules(type_: Any) -> None:
    """Those of the guide, each looked at in all parts of the schema."""
    made = msgspec.json.decode(strict(schema_of(type_)) or b"")

    assert made["type"] == "object"
    for part in parts(made):
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])
        assert "$ref" not in part or len(part) == 1
        assert not part.keys() & {"default", "oneOf", "allOf", "discriminator", "maxLength"}
        assert part.keys() & {"type", "enum", "const", "$ref", "anyOf"}
    assert len(list(parts(made))) >= len(type_.model_fields) + 1


def test_what_a_field_means_stays() -> None:
    """Descriptions, choices and known limits are kept; others are told in words."""
    made = msgspec.json.decode(strict(schema_of(Ticket)) or b"")
    fields, item = made["properties"], made["$defs"]["Item"]["properties"]

    assert fields["title"]["description"] == "(minLength: 1)"
    assert fields["team"] == {"$ref": "#/$defs/Team"}
    assert fields["first"] == {
        "description": "The dearest.",
        "anyOf": [{"$ref": "#/$defs/Item"}],
    }
    assert fields["due"]["anyOf"][0] == {"type": "string", "format": "date"}
    assert fields["items"]["maxItems"] == 9
    assert len(fields["done"]["anyOf"]) == 2
    assert item["sku"]["description"] == "As printed. (maxLength: 8)"
    assert item["sku"]["pattern"] == "^[A-Z]+$"
    assert (item["pieces"]["minimum"], item["pieces"]["multipleOf"]) == (1, 2)
    assert made["$defs"]["Refund"]["properties"]["url"]["description"] == "(format: uri)"


OPEN = [dict[str, int], Open, tuple[int, str], Any]


@pytest.mark.parametrize("type_", [*OPEN, list[int], Refund | Letter, int], ids=str)
def test_what_has_no_strict_schema_is_asked_for_otherwise(type_: Any) -> None:
    """In words at last: the API takes no lists, choices or numbers at the root."""
    schema = schema_of(type_)
    assert strict(schema) is None
    assert "strict" not in Forms("strict").of(schema)
    assert list(Forms("strict").of(schema))[-1] == "prompt"


@pytest.mark.parametrize("type_", OPEN, ids=str)
def test_nor_has_an_object_with_such_a_field(type_: Any) -> None:
    """Whatever else it holds."""
    fields = {"a": TypeAdapter(type_).json_schema()}
    assert strict(msgspec.json.encode({"type": "object", "properties": fields})) is None


@pytest.mark.parametrize(
    "part",
    [
        {"not": {"type": "null"}},
        {"allOf": [{"type": "object"}, {"type": "object"}]},
        {"type": "object", "patternProperties": {}},
        {"type": "array"},
        {"type": "array", "items": True},
        {"type": "string", "x-new": 1},
        True,
    ],
    ids=str,
)
def test_a_part_that_nobody_knows_is_not_guessed(part: Any) -> None:
    """Such a schema is sent as it is, and not in strict mode."""
    fields = {"type": "object", "properties": {"a": part}}
    assert strict(msgspec.json.encode(fields)) is None


def test_the_forms_go_from_the_firmest_to_a_wish() -> None:
    """Each begins where the author said, and then where the server took one."""
    schema = schema_of(Item)
    forms = Forms("strict")
    assert list(forms.of(schema)) == ["strict", "json_schema", "json_object", "prompt"]
    assert list(Forms("json_object").of(schema)) == ["json_object", "prompt"]

    forms.taken(schema, "json_object", model="m", said="no")
    assert list(forms.of(schema)) == ["json_object", "prompt"]
    assert next(forms.of(schema_of(Node))) == "strict", "another schema may be taken"
