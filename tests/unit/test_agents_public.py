"""What authors import is listed once, and the list is true."""

from __future__ import annotations

import subprocess
import sys
import types

import rowlock
import rowlock.testing
from rowlock import ChatAgent, agent
from rowlock.agents.function import AgentFunction
from rowlock.agents.protocol import Agent, Journal, Result
from rowlock.testing import MemoryJournal, ScriptedModel


def lazy(module: types.ModuleType) -> set[str]:
    """Return the names that are loaded when they are first asked for."""
    found: set[str] = getattr(module, "_OF_CLIENT", set())
    assert all(isinstance(getattr(module, name), type) for name in found)
    return set(found)


def test_agents_are_imported_without_a_database_driver() -> None:
    """Executors have no way into the database: `import rowlock` must not bring one."""
    code = (
        "import sys, rowlock; sys.exit('asyncpg' in sys.modules or 'rowlock.store' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names_and_reality_agree() -> None:
    """Every listed name exists, every name that is there is listed, and the list is sorted."""
    for module in (rowlock, rowlock.testing):
        for name in module.__all__:
            getattr(module, name)  # some are loaded when asked for
        public = {
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and not isinstance(value, types.ModuleType)
        }

        assert public | lazy(module) == set(module.__all__)
        assert module.__all__ == sorted(module.__all__)


def test_public_names_are_documented() -> None:
    """Each says in its first line what it is."""
    for module in (rowlock, rowlock.testing):
        for name in module.__all__:
            assert (getattr(module, name).__doc__ or "").strip(), name


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
