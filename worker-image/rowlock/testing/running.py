"""Running an agent in a test as the engine would."""

from __future__ import annotations

from typing import Any

import msgspec

from rowlock.agents.protocol import Agent
from rowlock.testing.memory import MemoryJournal


async def run_agent(
    agent: Agent, value: Any = None, *, journal: MemoryJournal | None = None
) -> Any:
    """Run `agent` to its end and return its result, decoded from JSON.

    Parameters
    ----------
    value
        The input, as decoded from JSON.
    journal
        The history to go on from and to write to; a new one by default.

    Raises
    ------
    RunError
        The attempt failed.
    Crashed
        The journal was told to die there.
    """
    journal = journal or MemoryJournal()
    result = await agent.execute(journal, agent.check_input(value))
    return msgspec.json.decode(result.body)
