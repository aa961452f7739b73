"""Plain functions and how they are called: which go into an executor, and how arguments cross.

A step's arguments are written as JSON by the annotations of its parameters and read back by them,
as its result is. A parameter without an annotation takes plain JSON values only:
a model would arrive as a dict, and that must not happen in silence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from rowlock.agents.codec import PlainCodec, TypedCodec, codec
from rowlock.agents.crossing import BlockingCall
from rowlock.agents.located import Location
from rowlock.agents.problems import Misfit
from rowlock.agents.signature import hints_of
from rowlock.errors import AgentDefinitionError, AgentError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_raw: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


def needs_executor(*, is_async: bool, blocking: bool | None, owner: str) -> bool:
    """Decide where a function runs: an `async def` on the loop, a plain `def` in an executor.

    Parameters
    ----------
    blocking
        None: by its kind. False: a plain one runs in a thread. True: it must be a plain one.

    Raises
    ------
    AgentDefinitionError
        An `async def` was said to be blocking.
    """
    if is_async and blocking:
        raise AgentDefinitionError(
            f"{owner} is an `async def` and runs on the event loop: blocking=True is for a plain "
            "`def`, which runs in an executor process. Make it one, or leave blocking= out."
        )
    return not is_async and blocking is not False


@dataclass(frozen=True, slots=True)
class Crossing:
    """A function that is called in another process, with its arguments as JSON."""

    location: Location
    arguments: bytes
    as_tool: bool

    def request(
        self, *, run_id: int, attempt: int, call_id: str, timeout: float | None
    ) -> BlockingCall:
        """Return the call as it crosses."""
        return BlockingCall(
            *self.location,
            as_tool=self.as_tool,
            arguments=self.arguments,
            run_id=run_id,
            attempt=attempt,
            call_id=call_id,
            timeout=timeout,
        )


class Arguments:
    """How the arguments of one step function cross.

    Parameters
    ----------
    takes_run
        Its first parameter is the run, which does not cross.
    """

    def __init__(self, fn: Callable[..., Any], *, takes_run: bool) -> None:
        self._name = getattr(fn, "__qualname__", str(fn))
        self._parameters, self._rest = _positional(fn)
        if takes_run:
            del self._parameters[0]
        self._hints = hints_of(fn, owner=f"Step function {self._name!r}")
        self._codecs: dict[str, PlainCodec[Any] | TypedCodec[Any]] = {}

    def dump(self, args: Sequence[Any]) -> bytes:
        """Return `args` as a JSON array.

        Raises
        ------
        AgentError
            One is not what its parameter declares, or would arrive as something else.
        AgentDefinitionError
            A parameter's type cannot go through JSON.
        """
        return b"[%b]" % b",".join(self._written(index, value) for index, value in enumerate(args))

    def read(self, body: bytes) -> list[Any]:
        """Return the arguments that `dump` wrote.

        Raises
        ------
        Misfit
            One does not fit: the code here is not the code there.
        """
        return [self._codec(index).read(bytes(raw)) for index, raw in enumerate(_raw.decode(body))]

    def _written(self, index: int, value: Any) -> bytes:
        try:
            body = self._codec(index).dump(value)
            if self._annotation(index) is Any and self._codec(index).read(body) != value:
                raise Misfit("would arrive as plain JSON: annotate the parameter with its type")
        except Misfit as error:
            what = f"argument {self._parameter(index)!r} of {self._name!r}"
            raise AgentError(f"The {what}, which crosses into an executor: {error}") from error
        return body

    def _codec(self, index: int) -> PlainCodec[Any] | TypedCodec[Any]:
        name = self._parameter(index)
        found = self._codecs.get(name)
        if found is None:
            owner = f"Parameter {name!r} of step function {self._name!r}"
            found = codec(self._annotation(index), owner=owner, what="the value")
            self._codecs[name] = found
        return found

    def _annotation(self, index: int) -> Any:
        return self._hints.get(self._parameter(index), Any)

    def _parameter(self, index: int) -> str:
        """Return the name of the parameter that takes the argument at `index`."""
        return self._parameters[index] if index < len(self._parameters) else self._rest


@lru_cache(1024)
def arguments_of(fn: Callable[..., Any], takes_run: bool) -> Arguments:
    """Return how the arguments of a step function cross, worked out once."""
    return Arguments(fn, takes_run=takes_run)


def _positional(fn: Callable[..., Any]) -> tuple[list[str], str]:
    """Return the names of `fn`'s positional parameters and of the one that takes all others."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:  # a function written in C may not tell
        return [], "*"
    names = [one.name for one in parameters if one.kind in _POSITIONAL]
    rest = [one.name for one in parameters if one.kind is inspect.Parameter.VAR_POSITIONAL]
    return names, rest[0] if rest else "*"
