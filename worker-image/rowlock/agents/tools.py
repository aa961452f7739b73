"""Tools: functions that a model may call, declared with what repeating them would do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import cleandoc
from typing import Any, Generic, Literal, ParamSpec, TypeVar, get_args

import msgspec
from pydantic import ValidationError

from rowlock.agents import checks
from rowlock.agents.blocking import Crossing, needs_executor
from rowlock.agents.codec import PlainCodec, TypedCodec, result_codec
from rowlock.agents.identity import RESERVED_NAMES
from rowlock.agents.located import check_declared, locate
from rowlock.agents.problems import Misfit, describe_misfit
from rowlock.agents.questions import Approval, Rule
from rowlock.agents.retry import (
    KEY_TTL_SECONDS,
    SIDE_EFFECTS,
    Policy,
    SideEffects,
    checked,
)
from rowlock.agents.run import Run
from rowlock.agents.signature import (
    Declared,
    declaration,
)
from rowlock.agents.tool_arguments import arguments_schema, arguments_validator
from rowlock.agents.work import call_function
from rowlock.errors import AgentDefinitionError, PermanentError

P = ParamSpec("P")
R = TypeVar("R")

OnInterrupt = Literal["tell_model", "ask", "fail"]

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

#: What history calls entries that are no tool's.
_RESERVED = RESERVED_NAMES | {"model"}


#: Names of all tools of this process: a durable function does not say before which it calls.
DECLARED: set[str] = set()


class Tool(Declared, Generic[P, R]):
    """A declared tool; calling it calls its function.

    Attributes
    ----------
    name, description, policy, on_interrupt, approval
        As declared.
    parameters
        JSON Schema of its arguments.
    """

    fn: Callable[P, R]

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        name: str | None,
        policy: Policy,
        on_interrupt: OnInterrupt,
        approval: Approval = None,
        approval_timeout: float | None = None,
        blocking: bool | None = None,
    ) -> None:
        checks.function(fn, owner="@tool")
        self.name = _checked_name(name or fn.__name__)
        rule = Rule(approval, tool=self.name, expires_in=approval_timeout)
        super().__init__(fn, policy, approval=rule, blocking=blocking)
        self.approval: Rule = rule
        self.description = cleandoc(fn.__doc__ or "")
        self.on_interrupt = on_interrupt
        owner = f"Tool {self.name!r}"
        checked(policy, owner=owner)
        checks.flag(blocking, "blocking", owner=owner)
        declared = declaration(fn, owner=owner, run_type=Run)
        self._takes_run, self._is_async = declared.takes_run, declared.is_async
        #: Each call is made in an executor process.
        self.crosses = needs_executor(is_async=self._is_async, blocking=blocking, owner=owner)
        if self.crosses:
            check_declared(fn, owner=owner)
        arguments = arguments_validator(self.name, declared)
        self._validate = arguments.validator.validate_json
        self.parameters = arguments_schema(arguments, declared, owner)
        rule.check({one.name: one.required for one in declared.parameters})
        self.codec = ToolCodec(
            result_codec(declared.returns, owner=f"The result of tool {self.name!r}")
        )
        DECLARED.add(self.name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: no step, no record."""
        return self.fn(*args, **kwargs)

    def schema(self) -> dict[str, Any]:
        """Return what the model is told about it."""
        function = {"name": self.name, "description": self.description}
        return {"type": "function", "function": {**function, "parameters": self.parameters}}

    def parse(self, arguments: str) -> Mapping[str, Any]:
        """Return the arguments that a model wrote, validated.

        Raises
        ------
        Misfit
            They do not fit; the message is for the model.
        """
        try:
            return self._validate(arguments or "{}")  # type: ignore[no-any-return]
        except ValidationError as error:
            raise Misfit(describe_misfit(error, root="the arguments")) from error

    async def answer(self, run: Run, arguments: Mapping[str, Any]) -> Any:
        """Call the function for a model: a permanent error is an answer, too."""
        args = (run,) if self._takes_run else ()
        try:
            return await call_function(self.fn, args, arguments, is_async=self._is_async)
        except PermanentError as error:
            return ToolError(str(error) or "The call failed.")

    def answer_here(self, run: Run, arguments: Mapping[str, Any]) -> Any:
        """Call a plain function at once, as `answer` does from the loop."""
        fn: Callable[..., Any] = self.fn
        try:
            return fn(run, **arguments) if self._takes_run else fn(**arguments)
        except PermanentError as error:
            return ToolError(str(error) or "The call failed.")

    def crossing(self, arguments: str) -> Crossing:
        """Return how to make a call in an executor with what a model wrote.

        Raises
        ------
        AgentDefinitionError
            No executor could find the function.
        """
        location = locate(self.fn, owner=f"Tool {self.name!r}")
        return Crossing(location, (arguments or "{}").encode(), as_tool=True)


class ToolError(msgspec.Struct, frozen=True):
    """What a tool said when it refused for good."""

    error: str


class ToolCodec:
    """Records a tool's result as JSON; the conversation gets its text."""

    def __init__(self, returns: PlainCodec[Any] | TypedCodec[Any]) -> None:
        self._returns = returns

    def accept(self, value: Any) -> tuple[bytes, str]:
        """Encode what the function returned."""
        if isinstance(value, ToolError):
            body = msgspec.json.encode(value)
        else:
            body = self._returns.dump(value)
        return body, self.read(body)

    def read(self, body: bytes) -> str:
        """Return what the model sees: a string is shown as it is, all else as JSON."""
        return msgspec.json.decode(body, type=str) if body[:1] == b'"' else body.decode()


def tool(  # noqa: PLR0913  what an author may declare
    fn: None = None,
    /,
    *,
    side_effects: SideEffects = "non_idempotent",
    name: str | None = None,
    retries: int = 4,
    timeout: float | None = None,
    key_ttl: float = KEY_TTL_SECONDS,
    on_interrupt: OnInterrupt = "tell_model",
    approval: Approval = None,
    approval_timeout: float | None = None,
    blocking: bool | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]:
    """Declare a tool.

    Its docstring and annotations are what the model sees.
    A first parameter annotated `Run` is left out of that; `run.call_id` names the call.

    Parameters
    ----------
    side_effects
        `none`: it may be called again after a crash.
        `idempotent`: it may be repeated, because it hands `run.call_id` on.
        `non_idempotent`: it is called once; only `NotStarted` allows another try.
    retries, timeout
        Further tries after a failed one, and seconds for each.
    key_ttl
        For how many seconds the other side knows an idempotency key.
        An `idempotent` call that was interrupted longer ago counts as unknown.
    on_interrupt
        When nobody knows whether a call happened:
        tell the model so, ask a person whether to make it again, or fail the run.
    approval
        `always`, or a function that gets the call's arguments and says whether a person must agree.
        It may depend on nothing but the arguments: it is called again after a crash.
    approval_timeout
        Seconds after which a question that nobody answered counts as denied.
    blocking
        A plain `def` runs in an executor process, an `async def` on the event loop.
        False runs a plain one in a thread of the loop's process, which nothing can stop.
        True refuses an `async def`.

    Raises
    ------
    AgentDefinitionError
        The function's declaration cannot work.
    """
    if fn is not None:
        raise AgentDefinitionError("Write @tool(side_effects=…) with parentheses.")
    _check_choice("side_effects", side_effects, SIDE_EFFECTS)
    _check_choice("on_interrupt", on_interrupt, get_args(OnInterrupt))
    policy = Policy(side_effects, retries, timeout, key_ttl)
    return lambda fn: Tool(
        fn,
        name=name,
        policy=policy,
        on_interrupt=on_interrupt,
        approval=approval,
        approval_timeout=approval_timeout,
        blocking=blocking,
    )


def _check_choice(parameter: str, given: object, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise AgentDefinitionError(f"{parameter}={given!r} is not one of {', '.join(allowed)}.")


def _checked_name(name: Any) -> str:
    if name in _RESERVED:
        raise AgentDefinitionError(
            f"A tool cannot be called {name!r}, because history calls other entries so: "
            "give it another name with @tool(name=…)."
        )
    if isinstance(name, str) and _TOOL_NAME.fullmatch(name):
        return name
    raise AgentDefinitionError(
        f"A tool cannot be called {name!r}: models accept letters, digits, '_' and '-', at most 64."
    )
