"""From a model to the structural schema that the API server demands of a custom resource.

Structural means: every type is spelled out where it stands (no `$ref`), and nothing is said by
`anyOf`. A field that may be missing is just not required; the server itself drops a null that a
field does not allow, so `nullable` is never needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import cleandoc
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from .model import Part

_DROPPED = ("$ref", "additionalProperties", "title")
_REFERENCE = "#/$defs/"


class _Generator(GenerateJsonSchema):
    """Pydantic's generator without nulls and without defaults that say nothing."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default") in (None, ()):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def encode_default(self, dft: Any) -> Any:
        # Only what was given: the server fills the rest from the defaults within the object.
        # What a rule of the object reads must be given, since the default must satisfy it alone.
        if isinstance(dft, Part):
            return dft.model_dump(mode="json", exclude_unset=True)
        return super().encode_default(dft)


def structural_schema(model: type[Part]) -> dict[str, Any]:
    """Return the structural schema of a model, with descriptions, rules and list types."""
    schema = model.model_json_schema(schema_generator=_Generator)
    return _object(schema, schema.pop("$defs", {}))


def _value(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_value(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        node = {**definitions[node["$ref"].removeprefix(_REFERENCE)], **node}
    return _object(node, definitions)


def _object(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    spelled_out: dict[str, Any] = {}
    for key, value in node.items():
        if key == "properties":  # fields may be called like a keyword
            spelled_out[key] = {name: _value(field, definitions) for name, field in value.items()}
        elif key == "description":
            spelled_out[key] = _unwrapped(value)
        elif key not in _DROPPED:
            spelled_out[key] = _value(value, definitions)
    return spelled_out


def _unwrapped(docstring: str) -> str:
    # The line breaks of the source mean nothing; kubectl and the pages wrap by themselves.
    paragraphs = cleandoc(docstring).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
