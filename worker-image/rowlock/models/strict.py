"""A type's JSON Schema as servers want it that hold a model to it, token by token.

In strict mode every object lists all of its fields and takes no others, and only some keywords
are known. The rules are OpenAI's (its guide "Structured Outputs", section "Supported schemas"):

| in the type's schema | in the strict one |
|---|---|
| a field with a default | required: the model always says it |
| a default, a title of a reference, examples, a discriminator | left out |
| `oneOf`, `allOf` of one schema | `anyOf` |
| a limit that is not known, such as `maxLength` | left out, told in the description |
| fields of any name, values of any type, tuples, `not`, `if` | there is no strict schema |

What is left out of the schema is still checked when the answer is there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

#: Kept as they are.
_KNOWN: Final = frozenset(
    {"type", "enum", "const", "$ref", "description", "title", "pattern", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"}
)
_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
#: Say nothing that an answer must keep to.
_DROPPED: Final = frozenset(
    {"default", "examples", "discriminator", "deprecated", "readOnly", "writeOnly"}
    | {"contentMediaType", "contentEncoding", "$schema", "$id", "$comment"}
)
#: Left out, and told in words.
_TOLD: Final = frozenset(
    {"minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties", "format"}
)
#: What holds other schemas.
_OWN: Final = frozenset(
    {"properties", "required", "additionalProperties", "items"}
    | {"anyOf", "oneOf", "allOf", "$defs"}
)


class _Unfit(Exception):
    """There is no strict schema that says the same."""


@lru_cache(256)
def strict(schema: bytes) -> bytes | None:
    """Return the strict schema that takes the place of `schema`; None if there is none.

    Parameters
    ----------
    schema
        JSON, as pydantic writes it.
    """
    try:
        return msgspec.json.encode(_root(msgspec.json.decode(schema)))
    except _Unfit:
        return None


def _root(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a whole schema, which must be an object of its own and no reference to one."""
    definitions: dict[str, Any] = schema.get("$defs", {})
    if set(schema) <= {"$ref", "$defs", "title", "description"} and "$ref" in schema:
        schema = {**definitions[str(schema["$ref"]).rpartition("/")[2]], "$defs": definitions}
    made = _schema(schema)
    if made.get("type") != "object":
        raise _Unfit("no object at the root")
    return made


def _schema(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict) or set(schema) - _KNOWN - _DROPPED - _TOLD - _OWN:
        raise _Unfit("a keyword that nobody knows")
    made = {name: value for name, value in schema.items() if name in _KNOWN}
    _tell(made, schema)
    if "$defs" in schema:
        made["$defs"] = {name: _schema(value) for name, value in schema["$defs"].items()}
    _choice(made, schema)
    if schema.get("type") == "object":
        made |= _object(schema)
    elif schema.get("type") == "array":
        made["items"] = _schema(schema.get("items"))
    if not made.keys() & {"type", "enum", "const", "$ref", "anyOf"}:
        raise _Unfit("any value at all")
    return _alone(made)


def _tell(made: dict[str, Any], schema: dict[str, Any]) -> None:
    """Keep a format that is known, and put limits that are not into the description."""
    limits = {name: schema[name] for name in sorted(_TOLD & schema.keys())}
    if limits.get("format") in _FORMATS:
        made["format"] = limits.pop("format")
    if limits:
        told = ", ".join(f"{name}: {value}" for name, value in limits.items())
        made["description"] = f"{made.get('description', '')} ({told})".strip()


def _choice(made: dict[str, Any], schema: dict[str, Any]) -> None:
    found = [name for name in ("anyOf", "oneOf", "allOf") if name in schema]
    if len(found) > 1 or ("allOf" in found and len(schema["allOf"]) > 1):
        raise _Unfit("several schemas at once")
    for name in found:
        made["anyOf"] = [_schema(one) for one in schema[name]]


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an object, all of them required."""
    fields: dict[str, Any] | None = schema.get("properties")
    if fields is None or schema.get("additionalProperties"):
        raise _Unfit("fields of any name")
    made = {name: _schema(value) for name, value in fields.items()}
    return {"properties": made, "required": list(made), "additionalProperties": False}


def _alone(made: dict[str, Any]) -> dict[str, Any]:
    """Return a reference without anything beside it: what it is described as stays around it."""
    if "$ref" not in made or len(made) == 1:
        return made
    reference = made.pop("$ref")
    made.pop("title", None)
    return {**made, "anyOf": [{"$ref": reference}]} if made else {"$ref": reference}
