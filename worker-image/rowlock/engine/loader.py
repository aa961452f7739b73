"""From an agent's revision to the object that runs it.

Loading imports customers' code on the event loop: slow imports hold up the process's other runs,
so it happens once for each revision.
"""

from __future__ import annotations

import importlib
from typing import cast

from rowlock.agents.protocol import Agent
from rowlock.clock import Clock
from rowlock.engine import collector
from rowlock.engine.endings import chain
from rowlock.errors import AgentLoadError
from rowlock.store.types import RevisionId

#: A failed import is not tried again for so long: what it waited for may be back by then.
_FAILURE_SECONDS = 30.0


class Loader:
    """Agents by revision."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._agents: dict[RevisionId, Agent] = {}
        self._failures: dict[RevisionId, tuple[float, AgentLoadError]] = {}

    def load(self, revision: RevisionId, entrypoint: str) -> Agent:
        """Return the agent that `entrypoint` ("module:attribute") names.

        Raises
        ------
        AgentLoadError
            It cannot be imported or is no agent; the cause says why.
        """
        agent = self._agents.get(revision)
        if agent is None:
            agent = self._agents[revision] = self._import(revision, entrypoint)
        return agent

    def _import(self, revision: RevisionId, entrypoint: str) -> Agent:
        failed = self._failures.get(revision)
        if failed and self._clock.monotonic() - failed[0] < _FAILURE_SECONDS:
            raise _again(failed[1])
        try:
            agent = find_agent(entrypoint)
        except AgentLoadError as error:
            self._failures[revision] = (self._clock.monotonic(), error)
            raise _again(error) from error.__cause__
        collector.leave_out_loaded()
        return agent


def _again(error: AgentLoadError) -> AgentLoadError:
    """Return a copy: raising one object in many runs would let its traceback grow for ever."""
    copy = AgentLoadError(str(error))
    copy.__cause__ = error.__cause__
    return copy


def find_agent(entrypoint: str) -> Agent:
    """Import the agent that `entrypoint` names.

    Raises
    ------
    AgentLoadError
        It cannot be imported or is no agent.
    """
    module, colon, attribute = entrypoint.partition(":")
    if not (module and colon and attribute):
        raise AgentLoadError(f"entry point {entrypoint!r} does not look like module:attribute")
    try:
        found: object = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except BaseException as error:  # an import may raise anything, sys.exit included
        text = f"entry point {entrypoint!r} cannot be imported: {chain(error)}{_cure(error)}"
        raise AgentLoadError(text) from error
    if not callable(getattr(found, "execute", None)):
        raise AgentLoadError(
            f"entry point {entrypoint!r} is a {type(found).__name__}, not an agent"
        )
    return cast("Agent", found)


def _cure(error: BaseException) -> str:
    """Return what helps a module that is a program, too, and runs itself when it is imported."""
    if "cannot be called from a running event loop" not in str(error):
        return ""
    return (
        "; a worker imports the module, so what only a program does belongs below "
        "`if __name__ == '__main__':`, or into a file of its own"
    )
