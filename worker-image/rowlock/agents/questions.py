"""Questions to people: which calls need one, what it shows, and what an answer says.

A question is about one call: its step, its tool and its arguments.
Its digest stands for tool and arguments, so an answer never holds for other ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from rowlock.agents.identity import digest_bytes
from rowlock.agents.protocol import Question, Reply
from rowlock.errors import AgentDefinitionError, AgentError

#: `always`, or a function that gets the call's arguments and says whether a person must agree.
Approval = Literal["always"] | Callable[..., bool] | None


class Rule:
    """When calls of one tool need a person's agreement.

    Parameters
    ----------
    when
        As declared.
    expires_in
        Seconds for an answer; None for no limit.

    Raises
    ------
    AgentDefinitionError
        Neither `always` nor a function.
    """

    __slots__ = ("_tool", "_when", "expires_in", "never")

    def __init__(self, when: Approval, *, tool: str, expires_in: float | None) -> None:
        if not (when is None or when == "always" or callable(when)):
            raise AgentDefinitionError(
                f"Tool {tool!r}: approval={when!r} is neither 'always' nor a function."
            )
        if expires_in is not None and expires_in <= 0:
            raise AgentDefinitionError(
                f"Tool {tool!r}: approval_timeout={expires_in!r} must be above 0 seconds."
            )
        if inspect.iscoroutinefunction(when):
            raise AgentDefinitionError(
                f"Tool {tool!r}: approval= takes a plain function that looks at the arguments "
                "alone, not an `async def`, whose answer would always count as yes."
            )
        self._when = when
        #: No call needs one.
        self.never = when is None
        self._tool = tool
        self.expires_in = expires_in

    def check(self, parameters: Mapping[str, bool]) -> None:
        """Refuse a function that could not be called with the tool's arguments.

        Parameters
        ----------
        parameters
            Names of the tool's, and whether a model must give each.

        Raises
        ------
        AgentDefinitionError
            Its parameters are others.
        """
        if not callable(self._when):
            return
        try:
            signature = inspect.signature(self._when)
            signature.bind(**dict.fromkeys(parameters))
            signature.bind(**{name: None for name, required in parameters.items() if required})
        except (TypeError, ValueError) as error:
            raise AgentDefinitionError(
                f"Tool {self._tool!r}: approval= must take the tool's arguments by their names, "
                f"with defaults where the tool has some: {error}."
            ) from error

    def question(
        self,
        key: str,
        arguments: bytes,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        always: bool = False,
    ) -> Question | None:
        """Return what to ask before a call of step `key`; None if nobody need be asked.

        Parameters
        ----------
        arguments
            The arguments as JSON; `args` and `kwargs` are the same as the function gets them.
        always
            Ask whatever the code says.

        Raises
        ------
        AgentError
            The tool's own function cannot say.
        """
        if not always and (self._when is None or not self._asks(args, kwargs)):
            return None
        return make_question(key, self._tool, arguments, expires_in=self.expires_in)

    def _asks(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        if not callable(self._when):
            return True
        try:
            return bool(self._when(*args, **kwargs))
        except Exception as error:
            raise AgentError(
                f"The approval function of tool {self._tool!r} failed, so nobody knows "
                f"whether to ask: {type(error).__name__}: {error}"
            ) from error


def make_question(
    key: str,
    tool: str,
    arguments: bytes,
    *,
    expires_in: float | None = None,
    note: str = "",
    repeats: bool = False,
) -> Question:
    """Return a question about a call.

    Parameters
    ----------
    note
        What a person should know beside tool and arguments.
    repeats
        It is about a call that may have happened.
    """
    shown: dict[str, Any] = {"tool": tool, "arguments": msgspec.Raw(arguments)}
    shown |= ({"note": note} if note else {}) | ({"repeats": True} if repeats else {})
    digest = digest_bytes(tool.encode() + b"\0" + arguments)
    return Question(key, digest, tool, msgspec.json.encode(shown), expires_in, repeats)


def denial(reply: Reply) -> str:
    """Return what whoever wanted the call is told."""
    if reply.expired:
        return "Denied: nobody approved this call in time."
    who = f" by {reply.by}" if reply.by else ""
    return f"Denied{who}{': ' + reply.reason if reply.reason else '.'}"
