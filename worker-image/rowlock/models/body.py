"""The JSON of a request, put together from bytes that are there already."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, get_args

import msgspec

from rowlock.agents.messages import ModelRequest
from rowlock.errors import AgentDefinitionError

#: How a typed answer is asked for.
StructuredOutput = Literal["json_schema", "json_object", "prompt"]

_OURS = {"messages", "model", "n", "response_format", "stream", "tools"}


class Bodies:
    """What all requests of one model have in common.

    Parameters
    ----------
    options
        Further fields of the request; None leaves one out that would be sent otherwise.
    structured_output
        `json_schema`: in `response_format`, with the schema.
        `json_object`: in `response_format`, the schema among the instructions.
        `prompt`: among the instructions alone.

    Raises
    ------
    AgentDefinitionError
        An option is no JSON, or is the client's own business.
    """

    def __init__(
        self, model: str, options: Mapping[str, Any], structured_output: StructuredOutput
    ) -> None:
        if structured_output not in get_args(StructuredOutput):
            allowed = ", ".join(get_args(StructuredOutput))
            raise AgentDefinitionError(
                f"structured_output={structured_output!r} is not one of {allowed}."
            )
        self._structured = structured_output
        self._start = _start(model, options)

    def body(self, request: ModelRequest) -> bytes:
        """Return the body of one request."""
        first, asked = request.messages[0], b""
        if request.output_schema is not None:
            first, asked = self._typed(first, request.output_schema)
        messages = b",".join([first, *request.messages[1:]])
        tools = b"" if request.tools == b"[]" else b',"tools":' + request.tools
        return b'%b,"messages":[%b]%b%b}' % (self._start, messages, tools, asked)

    def _typed(self, first: bytes, schema: bytes) -> tuple[bytes, bytes]:
        """Return the first message and the field that ask for an answer of a type."""
        # The API takes objects only; a list or a number is asked for in words.
        described = _is_object(schema)
        if self._structured == "json_schema" and described:
            wanted = b'{"name":"answer","schema":%b}' % schema
            field = b'{"type":"json_schema","json_schema":%b}' % wanted
            return first, b',"response_format":' + field
        in_json = self._structured == "json_object" and described
        asked = b',"response_format":{"type":"json_object"}' if in_json else b""
        return _instructed(first, schema), asked


def _start(model: str, options: Mapping[str, Any]) -> bytes:
    """Return the beginning of every request, without its last bracket."""
    for name in _OURS & set(options):
        raise AgentDefinitionError(f"The option {name!r} is set by the client itself.")
    fields = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        **options,
    }
    try:
        return msgspec.json.encode({k: v for k, v in fields.items() if v is not None})[:-1]
    except (TypeError, ValueError) as error:
        raise AgentDefinitionError(f"The options of {model!r} must be JSON: {error}") from error


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
