"""The base of every model here: camelCase outside, snake_case inside, rules beside the fields.

A model is read from what the API server hands out, so it takes whatever that lets through:
unknown fields are dropped, and the CEL rules are left to the server, which checked them.
Docstrings below fields are their descriptions, in `kubectl explain` and in docs/reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

_INITIALISMS = {"id": "ID", "usd": "USD"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One validation rule of the API server.

    Parameters
    ----------
    rule
        CEL expression over `self` and, for changes only, `oldSelf`.
    message
        What the user reads when it does not hold.
    at_creation
        A rule over `oldSelf` that is checked at the creation, too: there `oldSelf` is an optional
        without a value.
    """

    rule: str
    message: str
    at_creation: bool = False

    def to_dict(self) -> dict[str, str | bool]:
        """Return the rule as one entry of `x-kubernetes-validations`."""
        entry: dict[str, str | bool] = {"rule": self.rule, "message": self.message}
        return {**entry, "optionalOldSelf": True} if self.at_creation else entry


def unchanged(field: str) -> str:
    """Return the CEL expression that holds while an optional field is not added, changed, removed.

    A rule on the field itself is not evaluated when the field comes or goes, so it stands on the
    parent; comparing optional values (`self.?x == oldSelf.?x`) exceeds the server's cost budget.
    """
    was, now = f"oldSelf.{field}", f"self.{field}"
    return f"has({now}) == has({was}) && (!has({now}) || {now} == {was})"


def camel(name: str) -> str:
    """Return the Kubernetes name of a Python field, as `runID` for `run_id`."""
    first, *rest = name.split("_")
    return first + "".join(_INITIALISMS.get(word, word.capitalize()) for word in rest)


class Part(BaseModel):
    """An object of the schema; `rules` are checked by the API server wherever it stands."""

    model_config = ConfigDict(
        alias_generator=camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        """Add the rules to the model's JSON schema, and put inherited fields last."""
        schema = handler(core_schema)
        target = handler.resolve_ref_schema(schema)
        own = {camel(name) for name in cls.__annotations__}
        fields = target.get("properties", {}).items()
        target["properties"] = dict(sorted(fields, key=lambda field: field[0] not in own))
        if cls.rules:
            target["x-kubernetes-validations"] = [rule.to_dict() for rule in cls.rules]
        return schema

    def to_dict(self) -> dict[str, Any]:
        """Return the object as it goes to the API server: its names, and nothing that is None."""
        return self.model_dump(mode="json", exclude_none=True)
