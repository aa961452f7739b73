"""A turn out of the pieces in which a server sends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rowlock.agents.messages import ToolCall
from rowlock.models.faults import Redact, from_event


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Fragment(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[_Fragment] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    #: A streamed piece, or the whole message of a server that does not stream.
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class TokenCount(msgspec.Struct):
    """What the server counted; the cached ones are part of those in the prompt."""

    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: _Details | None = None

    @property
    def cached(self) -> int:
        """Tokens of the prompt that the server had seen before."""
        details = self.prompt_tokens_details
        return (details.cached_tokens or 0) if details else 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: TokenCount | None = None
    error: Any = None


class _Call:
    """One tool call that is being put together."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""
        self.arguments: list[str] = []

    def add(self, function: _Function | None) -> None:
        """Take one more fragment."""
        if function is None:
            return
        self.name = self.name or function.name or ""
        arguments = function.arguments
        if isinstance(arguments, str):
            self.arguments.append(arguments)
        elif arguments is not None:
            self.arguments.append(msgspec.json.encode(arguments).decode())


_decode = msgspec.json.Decoder(_Chunk).decode


class Assembly:
    """What has come of one turn so far.

    Attributes
    ----------
    finish
        Why the model stopped; empty as long as it has not said.
    done
        The server said that nothing follows.
    """

    __slots__ = (
        "_calls",
        "_places",
        "_redact",
        "_refusals",
        "_shown",
        "_texts",
        "done",
        "finish",
        "tokens",
    )

    def __init__(self, redact: Redact) -> None:
        self.finish = ""
        self.done = False
        self.tokens = TokenCount()
        self._redact = redact
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._shown = 0
        self._calls: list[_Call] = []
        self._places: dict[int, _Call] = {}

    @property
    def begun(self) -> bool:
        """The model has said something, a tool's name included."""
        return bool(self._texts or self._calls or self._refusals)

    @property
    def whole(self) -> bool:
        """Nothing of the answer is missing, though perhaps what it cost."""
        return self.done or bool(self.finish)

    @property
    def text(self) -> str:
        """All text."""
        return "".join(self._texts)

    @property
    def refusal(self) -> str:
        """What the model said instead of an answer."""
        return "".join(self._refusals)

    def fresh(self) -> str:
        """Return the text that came since this was last asked."""
        texts = self._texts[self._shown :]
        self._shown = len(self._texts)
        return "".join(texts)

    def calls(self, turn: int) -> tuple[ToolCall, ...]:
        """Return the tool calls in their order; one without an id is named by its place."""
        return tuple(
            ToolCall(call.id or f"call_{turn}_{place}", call.name, "".join(call.arguments) or "{}")
            for place, call in enumerate(self._calls)
        )

    def add(self, events: Sequence[bytes]) -> None:
        """Take the data of some events.

        Raises
        ------
        msgspec.MsgspecError
            One is not what the API sends.
        ModelUnavailable
            The server says that it cannot go on.
        ModelRefused
            The server says that it will not.
        """
        for event in events:
            if event == b"[DONE]":
                self.done = True
                return
            self._add(_decode(event))

    def _add(self, chunk: _Chunk) -> None:
        if chunk.error:
            raise from_event(chunk.error, redact=self._redact)
        if chunk.usage is not None:
            self.tokens = chunk.usage
        for choice in chunk.choices or ():
            if choice.index:
                continue
            said = choice.delta or choice.message
            if said is not None:
                self._hear(said)
            if choice.finish_reason:
                self.finish = choice.finish_reason

    def _hear(self, said: _Delta) -> None:
        if said.content:
            text = said.content if isinstance(said.content, str) else _text(said.content)
            self._texts.append(text)
        if said.refusal:
            self._refusals.append(said.refusal)
        if said.tool_calls:
            for fragment in said.tool_calls:
                self._call_of(fragment).add(fragment.function)

    def _call_of(self, fragment: _Fragment) -> _Call:
        """Return the call that a fragment belongs to.

        By its index; servers that give none, or the same to all, tell calls apart by their ids.
        """
        known = self._calls[-1] if fragment.index is None and self._calls else None
        if fragment.index is not None:
            known = self._places.get(fragment.index)
        if known is None or (fragment.id and known.id and fragment.id != known.id):
            known = _Call(fragment.id or "")
            self._calls.append(known)
            if fragment.index is not None:
                self._places[fragment.index] = known
        known.id = known.id or fragment.id or ""
        return known


def _text(parts: list[Any]) -> str:
    """Return the text of a content that comes in parts, without what the model only thought."""
    return "".join(
        part["text"]
        for part in parts
        if isinstance(part, dict)
        and part.get("type") == "text"
        and isinstance(part.get("text"), str)
    )
