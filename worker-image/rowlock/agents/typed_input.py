"""An agent's input: JSON on one side, the annotated type on the other."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import BaseModel, ValidationError

from rowlock.agents.codec import schema_of, type_adapter
from rowlock.agents.problems import describe_misfit
from rowlock.agents.signature import Parameter, check_default
from rowlock.errors import InvalidInput


class TypedInput:
    """The input of an annotated type; its adapter is built once, at import.

    Parameters
    ----------
    default
        The function's parameter, whose default stands for no input.
    """

    def __init__(self, annotation: Any, *, agent: str, default: Parameter | None = None) -> None:
        owner = f"The input of agent {agent!r}"
        self._agent = agent
        self._adapter = type_adapter(annotation, owner=owner)
        self._from_nothing = isinstance(annotation, type) and issubclass(annotation, BaseModel)
        self.schema: dict[str, Any] | None = schema_of(self._adapter, owner=owner)
        self._default = default if default and not default.required else None
        if self._default:
            check_default(self._default, self._adapter, owner=owner)

    def check(self, value: Any) -> Any:
        """Validate; no input at all is the default, or `{}` where the type is a model.

        JSON's own rules apply (a strict model takes its dates as strings),
        so a value that fails as Python data is looked at once more as JSON.
        """
        if value is None and self._default:
            return self._default.default
        if value is None and self._from_nothing:
            value = {}
        try:
            return self._adapter.validate_python(value)
        except ValidationError:
            return self._check_json(value)

    def arguments(self, value: Any) -> tuple[Any, ...]:
        """Return what the function is called with after `run`."""
        return (value,)

    def _check_json(self, value: Any) -> Any:
        try:
            return self._adapter.validate_json(msgspec.json.encode(value))
        except ValidationError as error:
            problems = describe_misfit(error, root="the input")
            raise InvalidInput(
                f"The input does not fit agent {self._agent!r}: {problems}"
            ) from error


class NoInput:
    """For agents that take none."""

    schema: dict[str, Any] | None = None

    def __init__(self, agent: str) -> None:
        self._agent = agent

    def check(self, value: Any) -> None:
        """Accept nothing but nothing."""
        if value is not None and value != {}:
            raise InvalidInput(f"Agent {self._agent!r} takes no input: leave it out.")

    def arguments(self, _: Any) -> tuple[Any, ...]:
        """Return what the function is called with after `run`."""
        return ()
