"""The definitions that are generated from the models are sound, whole and explained."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum, unique
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field

from rowlock_operator.api import CATEGORY, GROUP, VERSION, AgentRun
from rowlock_operator.api.crd import crd
from rowlock_operator.api.fields import INT32_MAX, Int32, Int64, Timestamp, list_keyed_by
from rowlock_operator.api.kinds import KINDS
from rowlock_operator.api.model import Part, Rule
from rowlock_operator.api.resource import Resource
from rowlock_operator.api.structural import structural_schema

#: What a structural schema may say; everything else is refused by the server or lost.
KEYWORDS = {
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def version(kind: type[Resource]) -> Mapping[str, Any]:
    """Return the only version of a kind's definition."""
    versions: list[Mapping[str, Any]] = crd(kind)["spec"]["versions"]
    assert len(versions) == 1
    return versions[0]


def schema(kind: type[Resource]) -> Mapping[str, Any]:
    """Return the schema of a kind."""
    root: Mapping[str, Any] = version(kind)["schema"]["openAPIV3Schema"]
    return root


def nodes(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every schema below a schema, with its path; the entries of a list end in []."""
    yield path, node
    for name, field in node.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")


@unique
class Colour(StrEnum):
    """Colours."""

    RED = "Red"
    BLUE = "Blue"


class Inner(Part):
    """An inner object."""

    count: Int32 = Field(default=1, ge=0, le=9)
    """How many
    there are."""

    rules: ClassVar = (Rule("self.count != 3", "count must not be 3"),)


class Outer(Part):
    """An object with one field of each sort."""

    title: str = Field(pattern="^a")
    """A field that is called like a keyword."""

    maybe: Int64 | None = Field(default=None, ge=1)
    """First paragraph.

    Second paragraph.
    """

    colour: Colour = Colour.RED
    """An enum."""

    at: Timestamp | None = None
    """A time."""

    inner: Inner = Inner(count=2)
    """An object with a default."""

    empty: Inner = Inner()
    """An object with a default that says nothing."""

    several: Annotated[
        tuple[Inner, ...], Field(max_length=3, json_schema_extra=list_keyed_by("count"))
    ] = ()
    """A list."""

    free: dict[str, Any] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )
    """Anything."""


def test_schema_spells_everything_out() -> None:
    """Types, formats, bounds, enums, defaults, lists and rules stand where they hold."""
    count = {"type": "integer", "format": "int32", "default": 1, "minimum": 0, "maximum": 9}
    inner = {
        "type": "object",
        "properties": {"count": {**count, "description": "How many there are."}},
        "x-kubernetes-validations": [{"rule": "self.count != 3", "message": "count must not be 3"}],
    }

    assert structural_schema(Outer) == {
        "type": "object",
        "description": "An object with one field of each sort.",
        "required": ["title"],
        "properties": {
            "title": {
                "type": "string",
                "pattern": "^a",
                "description": "A field that is called like a keyword.",
            },
            "maybe": {
                "type": "integer",
                "format": "int64",
                "minimum": 1,
                "description": "First paragraph.\n\nSecond paragraph.",
            },
            "colour": {
                "type": "string",
                "enum": ["Red", "Blue"],
                "default": "Red",
                "description": "An enum.",
            },
            "at": {"type": "string", "format": "date-time", "description": "A time."},
            "inner": {
                **inner,
                "default": {"count": 2},
                "description": "An object with a default.",
            },
            "empty": {
                **inner,
                "default": {},
                "description": "An object with a default that says nothing.",
            },
            "several": {
                "type": "array",
                "maxItems": 3,
                "items": {**inner, "description": "An inner object."},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["count"],
                "description": "A list.",
            },
            "free": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "description": "Anything.",
            },
        },
    }


@every_kind
def test_schema_is_structural(kind: type[Resource]) -> None:
    """Each node has one type and nothing that the server does not know."""
    for path, node in nodes(schema(kind)):
        assert set(node) <= KEYWORDS, path
        assert isinstance(node["type"], str), path


@every_kind
def test_every_field_is_explained(kind: type[Resource]) -> None:
    """`kubectl explain` and the reference page have a sentence for each field."""
    known_to_the_server = {".apiVersion", ".kind", ".metadata"}
    for path, node in nodes(schema(kind)):
        text = node.get("description", "")
        assert path in known_to_the_server or re.search(r"[.:;)]$", text), path


@every_kind
def test_every_list_can_be_applied_entry_by_entry(kind: type[Resource]) -> None:
    """Two writers of a list do not overwrite each other, and every list has an end."""
    for path, node in nodes(schema(kind)):
        if node["type"] == "array":
            (key,) = node["x-kubernetes-list-map-keys"]
            assert key in node["items"]["required"], path
            assert node["maxItems"] <= 100, path


@every_kind
def test_every_number_of_a_spec_has_both_bounds(kind: type[Resource]) -> None:
    """The server takes any 64-bit number for `format: int32`, and a column or clock would break."""
    for path, node in nodes(schema(kind)["properties"]["spec"]):
        if node.get("format") == "int32":
            assert node["minimum"] >= -INT32_MAX, path
            assert node["maximum"] <= INT32_MAX, path


@every_kind
def test_every_text_has_a_length(kind: type[Resource]) -> None:
    """No field can fill the store, and the cost of rules stays bounded."""
    for path, node in nodes({**schema(kind), "properties": fields_of_ours(kind)}):
        if node["type"] == "string" and node.get("format") != "date-time":
            assert "maxLength" in node or "enum" in node, path


def test_limits_are_resolved_not_defaulted() -> None:
    """A limit that the Agent or the installation may set has no default on the run."""
    fields = schema(AgentRun)["properties"]["spec"]["properties"]
    defaulted = {name for name, field in fields.items() if "default" in field}

    assert defaulted == {"desiredState", "priority", "redrive"}


@every_kind
def test_columns_selectors_and_scale_lead_somewhere(kind: type[Resource]) -> None:
    """A path that leads nowhere shows blank cells for ever."""
    definition = kind.definition
    known = {path for path, _ in nodes(schema(kind))} | {".metadata.creationTimestamp"}
    scale = definition.scale
    paths = [
        *(column.path for column in definition.columns),
        *definition.selectable,
        *((scale.spec_replicas, scale.status_replicas, scale.selector) if scale else ()),
    ]

    assert [path for path in paths if re.sub(r"\[\?.*\]", "[]", path) not in known] == []


@every_kind
def test_columns_have_the_type_of_their_field(kind: type[Resource]) -> None:
    """A column of another type stays blank."""
    types = dict(nodes(schema(kind)))
    for column in kind.definition.columns:
        if column.path in types:
            node = types[column.path]
            is_date = node.get("format") == "date-time"
            assert column.type == ("date" if is_date else node["type"]), column.name


@every_kind
def test_definition_keeps_the_limits_of_kubernetes(kind: type[Resource]) -> None:
    """Eight scalar selectors outside metadata; unique columns and short names."""
    definition = kind.definition
    columns = [column.name for column in definition.columns]

    assert len(definition.selectable) <= 8
    assert all(path.startswith((".spec.", ".status.")) for path in definition.selectable)
    assert len(set(columns)) == len(columns)


def test_kinds_do_not_share_names() -> None:
    """A name means one kind, and the category none."""
    names = [
        name
        for kind in KINDS
        for name in (
            kind.definition.plural,
            kind.definition.kind.lower(),
            *kind.definition.short_names,
        )
    ]

    assert len(set(names)) == len(names)
    assert CATEGORY not in names


@every_kind
def test_definition_is_named_after_its_group(kind: type[Resource]) -> None:
    """Group, version, plural and kind agree, and both the status and one version are served."""
    definition = crd(kind)
    names = definition["spec"]["names"]

    assert definition["metadata"]["name"] == f"{names['plural']}.{GROUP}"
    assert names["listKind"] == f"{names['kind']}List"
    assert names["singular"] == names["kind"].lower()
    assert names["categories"] == [CATEGORY]
    assert version(kind)["name"] == VERSION
    assert version(kind)["subresources"]["status"] == {}


@every_kind
def test_messages_tell_rules_apart(kind: type[Resource]) -> None:
    """Two rules of one object never say the same."""
    for path, node in nodes(schema(kind)):
        messages = [rule["message"] for rule in node.get("x-kubernetes-validations", ())]
        assert len(set(messages)) == len(messages), path


@every_kind
def test_definition_is_small(kind: type[Resource]) -> None:
    """All definitions together fit a Helm release many times over."""
    assert len(str(crd(kind))) < 40_000


def fields_of_ours(kind: type[Resource]) -> Mapping[str, Any]:
    """Return the properties without the envelope that the server checks itself."""
    properties = schema(kind)["properties"]
    return {name: properties[name] for name in ("spec", "status")}
