"""The JSON of a request, put together from bytes that are there already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rowlock.agents.messages import ModelRequest
from rowlock.errors import AgentDefinitionError
from rowlock.models.forms import StructuredOutput, asked

_OURS = {"messages", "model", "n", "response_format", "stream", "tools"}


class Bodies:
    """What all requests of one model have in common.

    Parameters
    ----------
    options
        Further fields of the request; None leaves one out that would be sent otherwise.

    Raises
    ------
    AgentDefinitionError
        An option is no JSON, or is the client's own business.
    """

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        self._start = _start(model, options)

    def body(self, request: ModelRequest, form: StructuredOutput = "prompt") -> bytes:
        """Return the body of one request, which asks for a typed answer in this form."""
        first, field = request.messages[0], b""
        if request.output_schema is not None:
            first, field = asked(form, first, request.output_schema)
        messages = b",".join([first, *request.messages[1:]])
        tools = b"" if request.tools == b"[]" else b',"tools":' + request.tools
        return b'%b,"messages":[%b]%b%b}' % (self._start, messages, tools, field)


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
