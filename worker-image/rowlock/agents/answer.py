"""The final answer of a chat agent: free text, or JSON of a declared type."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import ValidationError

from rowlock.agents.codec import schema_of, type_adapter
from rowlock.agents.problems import Misfit, describe_misfit

_text: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)


class FreeText:
    """The model's text is the result."""

    schema: bytes | None = None

    def body(self, text: str) -> bytes:
        """Return the result as JSON."""
        return msgspec.json.encode(text)

    def read(self, body: bytes) -> str:
        """Return a recorded result."""
        return _text.decode(body)


class TypedAnswer:
    """The model's text must be JSON that fits a type."""

    def __init__(self, annotation: Any, *, agent: str) -> None:
        owner = f"The output of agent {agent!r}"
        self._adapter = type_adapter(annotation, owner=owner)
        self.schema: bytes | None = msgspec.json.encode(schema_of(self._adapter, owner=owner))

    def body(self, text: str) -> bytes:
        """Return the result as JSON.

        Raises
        ------
        Misfit
            The text does not fit; the message is for the model.
        """
        try:
            return self._adapter.dump_json(self._adapter.validate_json(_unfenced(text)))
        except ValidationError as error:
            raise Misfit(describe_misfit(error, root="the answer")) from error

    def read(self, body: bytes) -> Any:
        """Return a recorded result.

        Raises
        ------
        Misfit
            It was recorded with another type.
        """
        try:
            return self._adapter.validate_json(body)
        except ValidationError as error:
            raise Misfit(describe_misfit(error, root="the result")) from error


def _unfenced(text: str) -> str:
    """Return JSON without the code fence that many models put around it."""
    stripped = text.strip()
    if not stripped.startswith("```") or not stripped.endswith("```"):
        return stripped
    return stripped[3:-3].removeprefix("json")
