"""What a function's annotations say, read once and kept.

Decorators refuse what cannot work at import, where its author sees it.
Functions given to `run.step` need no annotations; what they have is used.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rowlock.agents.codec import PlainCodec, TypedCodec, codec
from rowlock.agents.problems import describe_misfit
from rowlock.agents.questions import Rule
from rowlock.agents.retry import Policy
from rowlock.errors import AgentDefinitionError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a declared function."""

    name: str
    annotation: Any
    default: Any = inspect.Parameter.empty

    @property
    def required(self) -> bool:
        """Tell whether a caller must give it."""
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Declaration:
    """A function whose parameters and result are all annotated.

    Parameters
    ----------
    takes_run
        Its first parameter is annotated `Run`; `parameters` leaves that one out.
    """

    is_async: bool
    takes_run: bool
    parameters: tuple[Parameter, ...]
    returns: Any


class Declared:
    """A function that says itself what repeating it would do."""

    #: As an Agent object calls it.
    name: str = ""

    def __init__(
        self,
        fn: Callable[..., Any],
        policy: Policy,
        *,
        approval: Rule | None = None,
        blocking: bool | None = None,
    ) -> None:
        self.fn = fn
        self.policy = policy
        self.approval = approval
        #: As declared: True, False, or None for what its kind says.
        self.blocking = blocking


@dataclass(frozen=True, slots=True)
class StepFunction:
    """What `run.step` has to know of a function."""

    is_async: bool
    takes_run: bool
    codec: PlainCodec[Any] | TypedCodec[Any]


def check_agent_name(name: object) -> str:
    """Return `name` if an Agent resource can have it."""
    if isinstance(name, str) and len(name) <= 63 and _NAME.fullmatch(name):
        return name
    raise AgentDefinitionError(
        f"An agent cannot be called {name!r}: use lower-case letters, digits and '-', "
        "at most 63 of them, as in @agent(name='support')."
    )


def declaration(fn: Callable[..., Any], *, owner: str, run_type: type) -> Declaration:
    """Read a declared function.

    Raises
    ------
    AgentDefinitionError
        A parameter or the result has no annotation, or one that cannot be resolved.
    """
    hints = _hints(fn, owner)
    parameters = list(_parameters(fn, hints, owner))
    if "return" not in hints:
        raise AgentDefinitionError(f"{owner} has no return annotation: write `-> …` with its type.")
    takes_run = bool(parameters) and parameters[0].annotation is run_type
    return Declaration(
        is_async=inspect.iscoroutinefunction(fn),
        takes_run=takes_run,
        parameters=tuple(parameters[1:] if takes_run else parameters),
        returns=hints["return"],
    )


def check_default(parameter: Parameter, adapter: TypeAdapter[Any], *, owner: str) -> None:
    """Refuse a default that is none of its annotation's values: nobody else would look at it.

    Raises
    ------
    AgentDefinitionError
        The default does not fit.
    """
    if parameter.required:
        return
    try:
        adapter.validate_python(parameter.default, strict=True)
    except ValidationError as error:
        raise AgentDefinitionError(
            f"{owner} has a default that does not fit: {describe_misfit(error, root='it')}."
        ) from error


def step_function(fn: Callable[..., Any], *, run_type: type) -> StepFunction:
    """Return what is known of `fn`; code that was seen before costs two look-ups."""
    if isinstance(fn, partial):
        return _bound(step_function(fn.func, run_type=run_type))
    if isinstance(fn, MethodType):
        return _bound(step_function(fn.__func__, run_type=run_type))
    try:
        known = _KNOWN.get(_identity(fn))
    except TypeError:  # an annotation that cannot be hashed
        return _inspected(fn, run_type)
    if known is None:
        known = _KNOWN[_identity(fn)] = _inspected(fn, run_type)
    return known


#: By code, not by function: a closure is a new function each time it is made.
_KNOWN: dict[Any, StepFunction] = {}


def _identity(fn: Callable[..., Any]) -> Any:
    """Return what `fn` shares with all functions that are inspected alike."""
    if type(fn) is FunctionType:
        return (fn.__code__, *fn.__annotations__.values())
    return type(fn)


def _bound(inner: StepFunction) -> StepFunction:
    return StepFunction(inner.is_async, takes_run=False, codec=inner.codec)


def _inspected(fn: Callable[..., Any], run_type: type) -> StepFunction:
    """Read only what counts: other annotations of a step function need not even resolve."""
    owner = f"The result of step function {getattr(fn, '__qualname__', fn)!r}"
    target = fn if inspect.isroutine(fn) or isinstance(fn, type) else type(fn).__call__
    returns, first = Any, None
    if isinstance(target, FunctionType):
        returns = _hints(_only(target, "return"), owner).get("return", Any)
        first = _first_annotation(target)
    return StepFunction(
        is_async=inspect.iscoroutinefunction(target),
        takes_run=target is fn and first is run_type,
        codec=codec(returns, owner=owner),
    )


def _first_annotation(fn: FunctionType) -> Any:
    name = next(iter(inspect.signature(fn).parameters), "")
    try:
        return typing.get_type_hints(_only(fn, name)).get(name)
    except (NameError, TypeError):
        return None


def hints_of(fn: Callable[..., Any], *, owner: str) -> dict[str, Any]:
    """Return the annotations of `fn`, resolved; none of what is no Python function."""
    return _hints(fn, owner) if isinstance(inspect.unwrap(fn), FunctionType) else {}


def _only(fn: FunctionType, name: str) -> Any:
    """Return a stand-in for `fn` that has one of its annotations."""
    kept = {key: value for key, value in fn.__annotations__.items() if key == name}
    scope = inspect.unwrap(fn).__globals__
    return SimpleNamespace(__annotations__=kept, __globals__=scope)


def _hints(fn: Callable[..., Any], owner: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except NameError as error:
        raise AgentDefinitionError(
            f"{owner} has an annotation that cannot be resolved ({error}): "
            "define or import that name at the top of its module."
        ) from error
    except TypeError as error:
        raise AgentDefinitionError(f"{owner} has a wrong annotation: {error}.") from error


def _parameters(
    fn: Callable[..., Any], hints: dict[str, Any], owner: str
) -> typing.Iterator[Parameter]:
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.kind in _VARIADIC or parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise AgentDefinitionError(
                f"{owner} may not have the parameter {parameter}: name each one."
            )
        if name in ("self", "cls") and name not in hints:
            raise AgentDefinitionError(
                f"{owner} is a method, and nobody would give it its {name!r}: "
                "make it a function at the top of its module."
            )
        if name not in hints:
            raise AgentDefinitionError(
                f"{owner} has no annotation for {name!r}: write `{name}: …`."
            )
        yield Parameter(name, hints[name], parameter.default)
