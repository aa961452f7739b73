"""`@agent`: an async function that runs durably."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, ParamSpec, TypeVar

from rowlock.agents import checks
from rowlock.agents.budget import Budget, checked_budget
from rowlock.agents.codec import result_codec
from rowlock.agents.outcome import outcome_errors, output_body, read_result
from rowlock.agents.protocol import Journal, Result
from rowlock.agents.run import Run
from rowlock.agents.signature import Declaration, check_agent_name, declaration
from rowlock.agents.tightening import check_names
from rowlock.agents.tools import DECLARED
from rowlock.agents.typed_input import NoInput, TypedInput
from rowlock.errors import AgentDefinitionError

P = ParamSpec("P")
R = TypeVar("R")


class AgentFunction(Generic[P, R]):
    """A declared durable function: what an Agent resource's entry point names.

    Attributes
    ----------
    name, budget
        As declared.
    input_schema
        JSON Schema of its input; None when it takes none.
    """

    def __init__(
        self, fn: Callable[P, Awaitable[R]], *, name: str, budget: Budget | None = None
    ) -> None:
        owner = f"Agent {name!r}"
        checks.function(fn, owner=f"@agent(name={name!r})")
        self.budget = checked_budget(budget, owner=owner)
        declared = _declaration(fn, owner)
        self.name = name
        self.__doc__ = fn.__doc__
        self.__module__ = fn.__module__
        self._fn: Callable[..., Awaitable[Any]] = fn
        self._input = _input(declared, name)
        self._output = result_codec(declared.returns, owner=f"The result of agent {name!r}")

    @property
    def input_schema(self) -> dict[str, Any] | None:
        """Describe the input."""
        return self._input.schema

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """Call the function itself, as a part of another agent's run."""
        return self._fn(*args, **kwargs)

    def check_input(self, value: Any) -> Any:
        """Return `value`, decoded from JSON, as the function's input.

        Raises
        ------
        InvalidInput
            It does not fit; the message names each field and what would be right.
        """
        return self._input.check(value)

    def read_result(self, body: bytes) -> R:
        """Return the result of a run, as its JSON was stored, as the declared type.

        Raises
        ------
        InvalidOutput
            It was stored by code with another return annotation.
        """
        return read_result(self._output, body, agent=self.name)  # type: ignore[no-any-return]

    async def execute(self, journal: Journal, value: Any) -> Result:
        """Run the function to its end on a checked input.

        Raises
        ------
        RunError
            The attempt ends with that reason.
        """
        run = Run(journal, budget=self.budget)
        if journal.options.tools:
            check_names(journal.options.tools, DECLARED, agent=self.name)
        with outcome_errors():
            returned = await self._fn(run, *self._input.arguments(value))
        return run._result(output_body(self._output, returned, agent=self.name))


def agent(
    fn: None = None, /, *, name: str = "", budget: Budget | None = None
) -> Callable[[Callable[P, Awaitable[R]]], AgentFunction[P, R]]:
    """Declare a durable function: `async def f(run: Run, input: T) -> R`, or without an input.

    Parameters
    ----------
    name
        Lower-case letters, digits and '-'.
    budget
        What a run may use up.

    Raises
    ------
    AgentDefinitionError
        The function's declaration cannot work.
    """
    if fn is not None:
        raise AgentDefinitionError("Write @agent(name='…') with a name.")
    checked = check_agent_name(name)
    return lambda fn: AgentFunction(fn, name=checked, budget=budget)


def _declaration(fn: Callable[..., Any], owner: str) -> Declaration:
    declared = declaration(fn, owner=owner, run_type=Run)
    if not declared.is_async:
        raise AgentDefinitionError(f"{owner} must be an `async def`: put blocking code into steps.")
    if not declared.takes_run:
        raise AgentDefinitionError(f"{owner} must take `run: Run` as its first parameter.")
    if len(declared.parameters) > 1:
        raise AgentDefinitionError(f"{owner} takes one input after `run`: join several in a model.")
    return declared


def _input(declared: Declaration, name: str) -> TypedInput | NoInput:
    if not declared.parameters:
        return NoInput(name)
    parameter = declared.parameters[0]
    return TypedInput(parameter.annotation, agent=name, default=parameter)
