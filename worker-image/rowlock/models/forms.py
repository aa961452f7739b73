"""The forms in which an answer of a type can be asked for, from the firmest to a mere wish.

A server that refuses one is asked in the next at once, and from then on: which schemas and fields
a server knows is found out by asking it. The messages of the conversation, and so the digest of
the step, are the same in each form.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal, get_args

import msgspec
import structlog

from rowlock.errors import AgentDefinitionError
from rowlock.models.strict import strict

log = structlog.get_logger(__name__)

#: How a typed answer is asked for.
StructuredOutput = Literal["strict", "json_schema", "json_object", "prompt"]

_LADDER: Final[tuple[StructuredOutput, ...]] = get_args(StructuredOutput)


class Forms:
    """How one model is asked.

    Parameters
    ----------
    first
        The firmest form that is tried.

    Raises
    ------
    AgentDefinitionError
        There is no such form.
    """

    def __init__(self, first: StructuredOutput) -> None:
        if first not in _LADDER:
            allowed = ", ".join(_LADDER)
            raise AgentDefinitionError(f"structured_output={first!r} is not one of {allowed}.")
        self._first = first
        self._known: dict[bytes, StructuredOutput] = {}

    def of(self, schema: bytes | None) -> Iterator[StructuredOutput]:
        """Yield the forms for a schema, from the one that is known to be taken."""
        if schema is None:  # free text has no form
            yield "prompt"
            return
        start = _LADDER.index(self._known.get(schema, self._first))
        yield from (form for form in _LADDER[start:] if _possible(form, schema))

    def taken(self, schema: bytes, form: StructuredOutput, *, model: str, said: str) -> None:
        """Note that the server takes this form, after it refused a firmer one with these words."""
        log.warning(
            "The model's server refuses a form of structured output; it is asked in another one",
            model=model,
            structured_output=form,
            said=said,
        )
        self._known[schema] = form


def asked(form: StructuredOutput, first: bytes, schema: bytes) -> tuple[bytes, bytes]:
    """Return the first message, and the request's field, that ask for an answer in a form."""
    if form == "prompt":
        return _instructed(first, schema), b""
    if form == "json_object":
        return _instructed(first, schema), b',"response_format":{"type":"json_object"}'
    if form == "strict":
        wanted = b'{"name":"answer","strict":true,"schema":%b}' % (strict(schema) or schema)
    else:
        wanted = b'{"name":"answer","schema":%b}' % schema
    return first, b',"response_format":{"type":"json_schema","json_schema":%b}' % wanted


def _possible(form: StructuredOutput, schema: bytes) -> bool:
    """Tell whether a schema can be asked for like that: the API takes objects only."""
    if form == "strict":
        return strict(schema) is not None
    return form == "prompt" or _is_object(schema)


@lru_cache(256)
def _is_object(schema: bytes) -> bool:
    return bool(msgspec.json.decode(schema).get("type") == "object")


@lru_cache(256)
def _instructed(system: bytes, schema: bytes) -> bytes:
    """Return the instructions with the schema of the answer at their end."""
    message = msgspec.json.decode(system)
    message["content"] += (
        "\n\nGive your final answer as nothing but JSON of this schema:\n" + schema.decode()
    )
    return msgspec.json.encode(message)
