"""The final answer of a chat agent: free text, or JSON of a declared type."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import ValidationError

from rowlock.agents.codec import PlainCodec, TypedCodec, schema_of, type_adapter
from rowlock.agents.problems import Misfit, describe_misfit


class FreeText:
    """The model's text is the result."""

    schema: bytes | None = None
    codec: PlainCodec[Any] | TypedCodec[Any] = PlainCodec(str)

    def body(self, text: str) -> bytes:
        """Return the result as JSON.

        Raises
        ------
        Misfit
            There is none.
        """
        if not text.strip():
            raise Misfit("the answer is empty")
        return msgspec.json.encode(text)

    def complaint(self, problem: Misfit) -> str:
        """Return what the model is told about an answer that does not fit."""
        return f"Your answer does not fit: {problem}.\nAnswer again."


class TypedAnswer:
    """The model's text must be JSON that fits a type."""

    def __init__(self, annotation: Any, *, agent: str) -> None:
        owner = f"The output of agent {agent!r}"
        self._adapter = type_adapter(annotation, owner=owner)
        self.schema: bytes | None = msgspec.json.encode(schema_of(self._adapter, owner=owner))
        self.codec: PlainCodec[Any] | TypedCodec[Any] = TypedCodec(self._adapter)

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

    def complaint(self, problem: Misfit) -> str:
        """Return what the model is told about an answer that does not fit."""
        schema = (self.schema or b"").decode()
        return (
            f"Your answer does not fit: {problem}\n"
            f"Answer again with nothing but JSON of this schema:\n{schema}"
        )


def _unfenced(text: str) -> str:
    """Return JSON without the code fence that many models put around it."""
    stripped = text.strip()
    if not stripped.startswith("```") or not stripped.endswith("```"):
        return stripped
    return stripped[3:-3].removeprefix("json")
