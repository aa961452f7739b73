"""`ChatAgent`: a model and its tools in turns, each turn and each tool call a durable step."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Generic, overload

import msgspec
from pydantic import BaseModel
from pydantic_core import to_json
from typing_extensions import TypeVar  # those of Python 3.11 have no default

from rowlock.agents import checks
from rowlock.agents.answer import FreeText, TypedAnswer
from rowlock.agents.budget import Budget, checked_budget
from rowlock.agents.conversation import Conversation
from rowlock.agents.messages import (
    Model,
    ModelRequest,
    ModelTurn,
    Reply,
    ReplyCodec,
    ToolCall,
    system_message,
    tool_message,
    user_message,
)
from rowlock.agents.outcome import outcome_errors, read_result
from rowlock.agents.parallel import settle
from rowlock.agents.problems import Misfit
from rowlock.agents.protocol import Journal, Result
from rowlock.agents.retry import Policy
from rowlock.agents.run import Run
from rowlock.agents.signature import check_agent_name
from rowlock.agents.toolbox import AnyTool, Toolbox
from rowlock.agents.typed_input import TypedInput
from rowlock.agents.work import Work
from rowlock.errors import AgentError, InvalidInput, InvalidOutput, ModelRefused

In = TypeVar("In", default=Any)
Out = TypeVar("Out", default=str)

_REPLY = ReplyCodec()
_POLICY = Policy("none")


class ChatAgent(Generic[In, Out]):
    """A conversation that ends with an answer.

    Parameters
    ----------
    name
        Lower-case letters, digits and '-'.
    instructions
        The system's message.
    tools
        Functions with `@tool`; those of one turn run at once.
    input
        Type of the input; None takes any JSON, a string as the user's words.
        Anything but a string is shown to the model as JSON.
    output
        Type of the final answer; None for text, which may not be empty.
    max_turns
        Bound of the model's turns.
    repairs
        How often an answer that does not fit is sent back, with what is wrong,
        before the run fails.
    budget
        What a run may use up.

    Raises
    ------
    AgentDefinitionError
        The declaration cannot work.
    """

    @overload
    def __init__(
        self,
        name: str,
        model: Model,
        instructions: str,
        tools: Sequence[AnyTool] = (),
        *,
        input: type[In] | None = None,
        output: type[Out] | None = None,
        max_turns: int = 20,
        repairs: int = 2,
        budget: Budget | None = None,
    ) -> None: ...

    @overload
    def __init__(  # unions and Annotated are no `type`
        self: ChatAgent[Any, Any],
        name: str,
        model: Model,
        instructions: str,
        tools: Sequence[AnyTool] = (),
        *,
        input: Any = None,
        output: Any = None,
        max_turns: int = 20,
        repairs: int = 2,
        budget: Budget | None = None,
    ) -> None: ...

    def __init__(  # noqa: PLR0913  each is an option of its own
        self,
        name: str,
        model: Model,
        instructions: str,
        tools: Sequence[AnyTool] = (),
        *,
        input: Any = None,  # noqa: A002 (what authors expect it to be called)
        output: Any = None,
        max_turns: int = 20,
        repairs: int = 2,
        budget: Budget | None = None,
    ) -> None:
        self.name = check_agent_name(name)
        # As a function knows it: under this module's name a worker imports it.
        self.__module__ = _defining_module()
        owner = f"Agent {name!r}"
        self.max_turns = checks.whole_number(max_turns, "max_turns", least=1, owner=owner)
        self.repairs = checks.whole_number(repairs, "repairs", least=0, owner=owner)
        self.budget = checked_budget(budget, owner=owner)
        self._model = checks.model(model, owner=owner)
        self._system = system_message(checks.text(instructions, "instructions", owner=owner))
        self._toolbox = Toolbox(checks.several(tools, "tools", owner=owner), agent=name)
        self._input = None if input is None else TypedInput(input, agent=name)
        self._output = FreeText() if output is None else TypedAnswer(output, agent=name)

    @property
    def input_schema(self) -> dict[str, Any] | None:
        """JSON Schema of the input; None when any is accepted."""
        return self._input.schema if self._input else None

    def check_input(self, value: Any) -> In:
        """Return `value`, decoded from JSON, as the agent's input.

        Raises
        ------
        InvalidInput
            It does not fit, or there is none.
        """
        if self._input is not None:
            return self._input.check(value)  # type: ignore[no-any-return]
        if value is None or value == "":
            raise InvalidInput(f"Agent {self.name!r} needs an input: what the user says.")
        return value  # type: ignore[no-any-return]

    def read_result(self, body: bytes) -> Out:
        """Return the result of a run, as its JSON was stored, as the declared type.

        Raises
        ------
        InvalidOutput
            It was stored by code with another type.
        """
        return read_result(self._output.codec, body, agent=self.name)  # type: ignore[no-any-return]

    async def execute(self, journal: Journal, value: Any) -> Result:
        """Hold the conversation to its end.

        Raises
        ------
        InvalidOutput
            The final answer did not fit, nor did the repaired ones.
        RunError
            The attempt ends with that reason.
        """
        run = Run(journal, budget=self.budget)
        if journal.options.tools:
            self._toolbox.check(journal.options.tools, agent=self.name)
        with outcome_errors():
            return run._result(await self._converse(run, value))

    async def _converse(self, run: Run, value: Any) -> bytes:
        talk = Conversation(self._system)
        talk.add(user_message(_as_text(value)))
        repairs = self.repairs
        for turn in range(1, self.max_turns + 1):
            reply = await self._ask(run, talk, turn)
            talk.add(reply.message)
            if reply.tool_calls:
                await self._use_tools(run, talk, turn, reply.tool_calls)
                continue
            try:
                return self._output.body(reply.text)
            except Misfit as error:
                if not repairs or turn == self.max_turns:
                    raise self._unfit(error) from error
                repairs -= 1
                talk.add(user_message(self._output.complaint(error)))
        raise AgentError(
            f"Agent {self.name!r} gave no answer within max_turns={self.max_turns} turns."
        )

    def _ask(self, run: Run, talk: Conversation, turn: int) -> Any:
        request = ModelRequest(
            turn,
            talk.messages,
            self._toolbox.schemas,
            self._output.schema,
            run.text,
            run._steps.journal.watched,
        )
        work: Work[Reply] = Work(
            key=f"model:{turn}",
            args_digest=talk.digest(turn),
            fn=self._turn,
            args=(run, request),
            codec=_REPLY,
            policy=_POLICY,
        )
        return run._steps.perform(work)

    async def _turn(self, run: Run, request: ModelRequest) -> ModelTurn:
        try:
            turn = await self._model.turn(request)
        except ModelRefused as error:
            run.count_usage(*error.used)
            raise
        if isinstance(turn, ModelTurn):
            used = turn.usage
            run.count_usage(used.tokens_in, used.tokens_out, used.cost_micro)
            if turn.finish == "length" and not turn.tool_calls:
                run.mark_degraded("the model's answer was cut off at its limit of tokens")
        return turn

    async def _use_tools(
        self, run: Run, talk: Conversation, turn: int, calls: Sequence[ToolCall]
    ) -> None:
        """Do all calls of a turn at once and add their results in the order asked."""
        answers = [
            self._toolbox.call(run, run._steps, call, place=f"{turn}.{index}")
            for index, call in enumerate(calls)
        ]
        contents = [await answers[0]] if len(answers) == 1 else await settle(answers)
        for call, content in zip(calls, contents, strict=True):
            talk.add(tool_message(call.id, content))

    def _unfit(self, problem: Misfit) -> InvalidOutput:
        return InvalidOutput(f"The final answer of agent {self.name!r} does not fit: {problem}")


def _as_text(value: Any) -> str:
    """Return what the user's message says."""
    if isinstance(value, str):
        return value
    return (to_json(value) if isinstance(value, BaseModel) else msgspec.json.encode(value)).decode()


def _defining_module() -> str:
    """Return the module in which an agent is being made; `ChatAgent[In, Out](…)` goes by typing."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") == "typing":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))
