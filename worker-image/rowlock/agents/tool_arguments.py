"""The arguments of a tool: how they are checked, and how the model is told about them."""

from __future__ import annotations

from typing import Any, NotRequired

from pydantic import ConfigDict, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12

from rowlock.agents.codec import schema_of, type_adapter
from rowlock.agents.signature import Declaration, Parameter, check_default
from rowlock.errors import AgentDefinitionError


def arguments_validator(name: str, declared: Declaration) -> TypeAdapter[Any]:
    """Build the validator of a call's arguments; unknown ones are refused."""
    fields = {p.name: _field(p, name) for p in declared.parameters}
    arguments = TypedDict(name, fields)  # type: ignore[misc]
    setattr(arguments, "__pydantic_config__", ConfigDict(extra="forbid"))  # noqa: B010
    for parameter in declared.parameters:
        owner = f"Parameter {parameter.name!r} of tool {name!r}"
        check_default(parameter, type_adapter(parameter.annotation, owner=owner), owner=owner)
    return type_adapter(arguments, owner=f"Tool {name!r}")


def _field(parameter: Parameter, tool_name: str) -> Any:
    if isinstance(parameter.default, FieldInfo):
        raise AgentDefinitionError(
            f"Parameter {parameter.name!r} of tool {tool_name!r}: "
            "write `Annotated[…, Field(…)] = default`."
        )
    return parameter.annotation if parameter.required else NotRequired[parameter.annotation]


def arguments_schema(
    arguments: TypeAdapter[Any], declared: Declaration, owner: str
) -> dict[str, Any]:
    """Return the arguments' JSON Schema with defaults, without titles: they only cost tokens."""
    schema = _without_titles(schema_of(arguments, owner=owner))
    schema.setdefault("properties", {})
    for parameter in declared.parameters:
        if not parameter.required:
            default = to_jsonable_python(parameter.default)
            schema["properties"][parameter.name]["default"] = default
    return schema


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop the titles that pydantic derives from names, but no property that is called `title`."""
    kept = {key: value for key, value in schema.items() if key != "title"}
    for group in ("properties", "$defs"):
        if group in kept:
            kept[group] = {name: _without_titles(part) for name, part in kept[group].items()}
    return kept
