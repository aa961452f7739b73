"""A model that says what a script says, at once or at a model's pace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rowlock.agents.messages import ModelRequest, ModelTurn, ToolCall, Usage
from rowlock.clock import Clock, SystemClock
from rowlock.errors import PermanentError
from rowlock.testing.voices import Voices

#: What a script may hold for a turn.
Scripted = str | ToolCall | Sequence[ToolCall] | ModelTurn
Turn = Scripted | Callable[[ModelRequest], Scripted]

_CHARACTERS_PER_TOKEN = 4


class ScriptedModel:
    """A `Model` without a provider.

    It answers by the number of the turn and keeps nothing of a run:
    any process gives the same answers, also in the middle of a conversation.

    Parameters
    ----------
    turns
        One entry for each turn: text, tool calls, a whole `ModelTurn`,
        or a function that makes one of these from the request.
    first_token_seconds, tokens_per_second
        Its pace: seconds before a turn's first token, and tokens per second after it.
        None is at once.
    clock
        Waits.

    Attributes
    ----------
    calls
        How many turns it was asked for, by all runs of this process.
    """

    def __init__(
        self,
        turns: Sequence[Turn],
        *,
        name: str = "scripted",
        first_token_seconds: float = 0.0,
        tokens_per_second: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.calls = 0
        self._turns = tuple(turns)
        self._first_token_seconds = first_token_seconds
        self._tokens_per_second = tokens_per_second
        self._clock = clock or SystemClock()
        self._voices = Voices(self._clock)

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Answer as the script says.

        Raises
        ------
        PermanentError
            The script has no such turn.
        """
        self.calls += 1
        if request.turn > len(self._turns):
            raise PermanentError(
                f"Turn {request.turn} was asked for, the script has {len(self._turns)}."
            )
        turn = _turn(self._turns[request.turn - 1], request)
        await self._speak(turn, request.emit)
        return turn

    async def _speak(self, turn: ModelTurn, emit: Callable[[str], None]) -> None:
        if self._tokens_per_second is None:
            if self._first_token_seconds:
                await self._clock.sleep(self._first_token_seconds)
            if turn.text:
                emit(turn.text)
            return
        seconds = turn.usage.tokens_out / self._tokens_per_second
        silent = self._first_token_seconds
        await self._voices.speak(turn.text, emit, silent_seconds=silent, seconds=seconds)


def tool_call(name: str, call_id: str = "", /, **arguments: Any) -> ToolCall:
    """Return a call as a model would write it.

    Parameters
    ----------
    call_id
        The model's own name of the call; by default made from the tool's name.
    """
    return ToolCall(call_id or f"call_{name}", name, msgspec.json.encode(arguments).decode())


def _turn(scripted: Turn, request: ModelRequest) -> ModelTurn:
    if callable(scripted):
        scripted = scripted(request)
    if isinstance(scripted, str):
        scripted = ModelTurn(scripted)
    elif isinstance(scripted, ToolCall):
        scripted = ModelTurn(tool_calls=(scripted,))
    elif not isinstance(scripted, ModelTurn):
        scripted = ModelTurn(tool_calls=tuple(scripted))
    return scripted if scripted.usage.tokens_out else _with_usage(scripted, request)


def _with_usage(turn: ModelTurn, request: ModelRequest) -> ModelTurn:
    """Return `turn` with the tokens that its length suggests."""
    said = len(turn.text) + sum(len(call.arguments) for call in turn.tool_calls)
    heard = sum(map(len, request.messages))
    usage = Usage(heard // _CHARACTERS_PER_TOKEN, math.ceil(said / _CHARACTERS_PER_TOKEN))
    return ModelTurn(turn.text, turn.tool_calls, usage)
