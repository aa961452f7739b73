"""What authors write is what the engine takes."""

from __future__ import annotations

import subprocess
import sys

import rowlock
from rowlock import ChatAgent, agent
from rowlock.agents.function import AgentFunction
from rowlock.agents.protocol import Agent, Journal, Result
from rowlock.testing import MemoryJournal, ScriptedModel


def test_agents_are_imported_without_a_database_driver() -> None:
    """Executors have no way into the database: `import rowlock` must not bring one."""
    code = (
        "import sys, rowlock; sys.exit('asyncpg' in sys.modules or 'rowlock.store' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_both_kinds_of_agents_are_what_an_entry_point_names() -> None:
    """Checked by the type checker; here that both really have a name."""

    @agent(name="function")
    async def function(run: rowlock.Run) -> None:
        """Do nothing."""

    kinds: list[Agent] = [function, ChatAgent("chat", ScriptedModel([]), "")]
    journal: Journal = MemoryJournal()

    assert [kind.name for kind in kinds] == ["function", "chat"]
    assert isinstance(function, AgentFunction)
    assert journal.recall("x") is None
    assert Result(b"null").steps == 0
