"""Options of a declaration that cannot work, refused where their author sees it: at import."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rowlock.errors import AgentDefinitionError

T = TypeVar("T")


def function(given: Any, *, owner: str) -> Callable[..., Any]:
    """Return `given` if a decorator can read it.

    Raises
    ------
    AgentDefinitionError
        It is no function: a class, a `functools.partial`, something that is declared already.
    """
    if inspect.isroutine(given):
        return given
    raise AgentDefinitionError(
        f"{owner} is put on {given!r}, which is no function: put it on a `def` or an `async def`, "
        "one decorator on each."
    )


def flag(given: Any, parameter: str, *, owner: str) -> bool | None:
    """Return `given` if it is True, False or None.

    Raises
    ------
    AgentDefinitionError
        It is something else, which would count as True.
    """
    if given is None or isinstance(given, bool):
        return given
    raise AgentDefinitionError(f"{owner}: {parameter} must be True or False, not {given!r}.")


def whole_number(given: Any, parameter: str, *, least: int, owner: str) -> int:
    """Return `given` if it is a whole number from `least` on.

    Raises
    ------
    AgentDefinitionError
        It is not; the message names `owner` and `parameter`.
    """
    if isinstance(given, int) and not isinstance(given, bool) and given >= least:
        return given
    raise AgentDefinitionError(
        f"{owner}: {parameter} must be a whole number from {least} on, not {given!r}."
    )


def seconds(given: Any, parameter: str, *, owner: str) -> float | None:
    """Return `given` if it is a length of time above 0, or None.

    Raises
    ------
    AgentDefinitionError
        It is neither.
    """
    if given is None:
        return None
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if number and 0 < given < math.inf:
        return float(given)
    raise AgentDefinitionError(f"{owner}: {parameter} must be seconds above 0, not {given!r}.")


def text(given: Any, parameter: str, *, owner: str) -> str:
    """Return `given` if it is a string.

    Raises
    ------
    AgentDefinitionError
        It is not.
    """
    if isinstance(given, str):
        return given
    raise AgentDefinitionError(f"{owner}: {parameter} must be a text, not {given!r}.")


def several(given: Sequence[T], parameter: str, *, owner: str) -> Sequence[T]:
    """Return `given` if it is a list or a tuple.

    Raises
    ------
    AgentDefinitionError
        It is one thing, or can be read only once.
    """
    if isinstance(given, list | tuple):
        return given
    raise AgentDefinitionError(f"{owner}: {parameter} must be a list, not {given!r}.")


def instance(given: Any, kind: type[T], parameter: str, *, owner: str) -> T:
    """Return `given` if it is a `kind`.

    Raises
    ------
    AgentDefinitionError
        It is something else.
    """
    if isinstance(given, kind):
        return given
    raise AgentDefinitionError(f"{owner}: {parameter} must be a {kind.__name__}, not {given!r}.")


def model(given: T, *, owner: str) -> T:
    """Return `given` if it has what a model needs.

    Raises
    ------
    AgentDefinitionError
        A name is missing, or its `turn` would hold the event loop.
    """
    named = isinstance(getattr(given, "name", None), str)
    if named and inspect.iscoroutinefunction(getattr(given, "turn", None)):
        return given
    raise AgentDefinitionError(
        f"{owner}: {given!r} is no model: it needs a `name` and `async def turn(request)`."
    )
