"""The tools of one chat agent: each call that a model asks for becomes a step."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from rowlock.agents.identity import digest_bytes
from rowlock.agents.messages import ToolCall
from rowlock.agents.problems import Misfit
from rowlock.agents.protocol import Question
from rowlock.agents.questions import make_question
from rowlock.agents.record import OutcomeUnknown
from rowlock.agents.run import Run
from rowlock.agents.steps import Steps
from rowlock.agents.tightening import check_names, stricter
from rowlock.agents.tools import Tool
from rowlock.agents.work import Work
from rowlock.errors import AgentDefinitionError, ApprovalDenied
from rowlock.options import ToolRule

AnyTool = Tool[..., Any]

_UNKNOWN = "Unknown outcome: the call was interrupted and may or may not have happened."
_DO_NOT_REPEAT = "Do not simply repeat it; find out, or tell the user."


class Toolbox:
    """Named tools, and what the model is told about them.

    Raises
    ------
    AgentDefinitionError
        Two tools have one name, or something is no tool.
    """

    def __init__(self, tools: Sequence[AnyTool], *, agent: str) -> None:
        self._tools: dict[str, AnyTool] = {}
        for tool in tools:
            self._add(tool, agent)
        self.schemas = msgspec.json.encode([tool.schema() for tool in tools])

    def check(self, rules: Iterable[ToolRule], *, agent: str) -> None:
        """Refuse an Agent object that knows other tools, or makes one looser.

        Raises
        ------
        AgentSpecRefused
            The message names tool and field.
        """
        rules = tuple(rules)
        check_names(rules, self._tools.keys(), agent=agent)
        for rule in rules:
            stricter(self._tools[rule.name].policy, rule)

    def call(
        self, run: Run, steps: Steps, call: ToolCall, *, place: str
    ) -> Coroutine[Any, Any, str]:
        """Return the awaitable answer to one call.

        A tool that does not exist, or arguments that do not fit, are answered, not raised:
        the model can do better in its next turn.

        Parameters
        ----------
        place
            Turn and position in it: models do not promise that their own call ids differ.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return _say(f"Error: there is no tool {call.name!r}. Tools: {known}.")
        try:
            arguments = tool.parse(call.arguments)
        except Misfit as error:
            return _say(f"Error: the arguments of {call.name!r} do not fit: {error}")
        given = (call.arguments or "{}").encode()
        rule = steps.rules.get(tool.name)
        work: Work[str] = Work(
            key=f"{tool.name}:{place}",
            args_digest=digest_bytes(call.arguments.encode()),
            fn=tool.answer,
            args=(run, arguments),
            codec=tool.codec,
            policy=stricter(tool.policy, rule) if rule else tool.policy,
            crossing=partial(tool.crossing, call.arguments) if tool.crosses else None,
        )
        return _answer(steps, work, tool, given, always=rule is not None and rule.always_ask)

    def _add(self, tool: AnyTool, agent: str) -> None:
        if not isinstance(tool, Tool):
            raise AgentDefinitionError(
                f"Agent {agent!r}: {tool!r} is no tool: put @tool(side_effects=…) on its function."
            )
        if tool.name in self._tools:
            raise AgentDefinitionError(
                f"Agent {agent!r} has two tools called {tool.name!r}: give one another name with "
                "@tool(name=…)."
            )
        self._tools[tool.name] = tool


async def _say(text: str) -> str:
    return text


async def _answer(
    steps: Steps, work: Work[str], tool: AnyTool, given: bytes, *, always: bool
) -> str:
    """Return what the model is told: the result, or why there is none."""
    if always or not tool.approval.never:
        work.question = tool.approval.question(work.key, given, (), work.args[1], always=always)
    ask: Question | None = None
    while True:
        try:
            return await (steps.repeat(work, ask) if ask else steps.perform(work))
        except ApprovalDenied as error:
            return str(error) if ask is None else f"{_UNKNOWN} A person decided: {error}"
        except OutcomeUnknown as error:
            if tool.on_interrupt == "fail":
                raise
            if tool.on_interrupt == "tell_model":
                return f"Unknown outcome: {error} {_DO_NOT_REPEAT}"
            ask = _whether_to_repeat(steps, work, tool, given, error)


def _whether_to_repeat(
    steps: Steps, work: Work[str], tool: AnyTool, given: bytes, error: OutcomeUnknown
) -> Question:
    """Return the question about this interruption: a yes to an earlier one does not count."""
    entry = steps.journal.recall(work.key)
    return make_question(
        f"{work.key}!{entry.seq if entry else 0}",
        tool.name,
        given,
        expires_in=tool.approval.expires_in,
        note=f"{error} Approve to make the call again.",
        repeats=True,
    )
