"""What goes to a model and what comes back, and how both are written down.

A message is serialized once, as the chat-completions API has it.
The same bytes go into the conversation, its digest and, for a model's turn, history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from rowlock.agents.problems import Misfit


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens and cost; `cost_micro` is in millionths of a US dollar."""

    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int = 0


class ToolCall(msgspec.Struct, frozen=True):
    """One tool that the model wants called.

    Parameters
    ----------
    id
        The model's own name of the call.
    arguments
        JSON text as the model wrote it, checked or not.
    """

    id: str
    name: str
    arguments: str = "{}"


def always() -> bool:
    """Return True: somebody may look at any time."""
    return True


class ModelTurn(msgspec.Struct, frozen=True):
    """What a model answered: text, tools to call, or both; without tools it is the final answer.

    Parameters
    ----------
    finish
        Why the model stopped, in its server's words; `length` if it was cut off.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish: str = ""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model.

    Parameters
    ----------
    turn
        The number of this turn in its run, from 1.
    messages
        Each message as JSON, the system's first. Read only.
    tools
        JSON list of the tools' schemas, `[]` for none.
    output_schema
        JSON Schema of the final answer; None for free text.
    emit
        Call it with each piece of text as it comes; what it is given is shown, never stored.
    watched
        Tells whether somebody looks at that text now; while nobody does, it need not be made.
    """

    turn: int
    messages: Sequence[bytes]
    tools: bytes
    output_schema: bytes | None
    emit: Callable[[str], None]
    watched: Callable[[], bool] = always

    def body(self) -> bytes:
        """Return all messages as one JSON list."""
        return b"[" + b",".join(self.messages) + b"]"

    def message(self, index: int) -> dict[str, Any]:
        """Return one message decoded; -1 is the last."""
        return msgspec.json.decode(self.messages[index])  # type: ignore[no-any-return]


class Model(Protocol):
    """What `ChatAgent` asks.

    One object serves all runs of a process at once, so it keeps nothing of a single run.
    """

    @property
    def name(self) -> str:
        """What people and metrics call it."""
        ...

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Answer once.

        Raises
        ------
        PermanentError
            The same question will never be answered, for example a wrong key.
        Exception
            Anything else is tried again; an attribute `retry_after` says after how many seconds.
        """
        ...


class _System(msgspec.Struct, tag_field="role", tag="system"):
    content: str


class _User(msgspec.Struct, tag_field="role", tag="user"):
    content: str


class _Tool(msgspec.Struct, tag_field="role", tag="tool"):
    tool_call_id: str
    content: str


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    id: str
    function: _Function
    type: str = "function"


class _Assistant(msgspec.Struct, tag_field="role", tag="assistant", omit_defaults=True):
    content: str
    tool_calls: list[_Call] = []


_encode = msgspec.json.Encoder().encode
_decode_assistant = msgspec.json.Decoder(_Assistant).decode


def system_message(content: str) -> bytes:
    """Return the instructions as a message."""
    return _encode(_System(content))


def user_message(content: str) -> bytes:
    """Return what the user said as a message."""
    return _encode(_User(content))


def tool_message(call_id: str, content: str) -> bytes:
    """Return a tool's answer as a message."""
    return _encode(_Tool(call_id, content))


class Reply(msgspec.Struct, frozen=True):
    """A model's turn as it stands in the conversation and in history."""

    message: bytes
    text: str
    tool_calls: tuple[ToolCall, ...]


class ReplyCodec:
    """Records a turn as the assistant's message; what it used stands beside it in the record."""

    def accept(self, value: Any) -> tuple[bytes, Reply]:
        """Encode a `ModelTurn` and read it back."""
        if not isinstance(value, ModelTurn):
            raise Misfit(f"a model must return a ModelTurn, not {type(value).__name__}")
        calls = [_Call(call.id, _Function(call.name, call.arguments)) for call in value.tool_calls]
        try:
            body = _encode(_Assistant(value.text, calls))
        except (TypeError, ValueError) as error:
            raise Misfit(f"the model's turn cannot be written as JSON: {error}") from error
        return body, self.read(body)

    def read(self, body: bytes) -> Reply:
        """Decode a recorded turn."""
        try:
            message = _decode_assistant(body)
        except msgspec.MsgspecError as error:
            raise Misfit(f"this is no model's turn: {error}") from error
        calls = message.tool_calls
        return Reply(
            body,
            message.content,
            tuple(ToolCall(c.id, c.function.name, c.function.arguments) for c in calls),
        )
