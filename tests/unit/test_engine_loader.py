"""Agents by their entry points, and what somebody is told whose module cannot be one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rowlock.engine.loader import find_agent
from rowlock.errors import AgentLoadError

PROGRAM = """
import asyncio

async def main():
    pass

work = main()
try:
    asyncio.run(work)
finally:
    work.close()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module that runs itself when it is imported."""
    (tmp_path / "a_program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "a_program", raising=False)
    return "a_program"


async def test_a_module_that_runs_itself_is_told_how_not_to(module: str) -> None:
    """Workers import agents on their event loop, where `asyncio.run` cannot be."""
    with pytest.raises(AgentLoadError, match="belongs below `if __name__ == '__main__':`"):
        find_agent(f"{module}:agent")


def test_another_failure_is_told_as_it_is() -> None:
    """With the entry point, and no advice that does not fit."""
    with pytest.raises(AgentLoadError, match=r"'no\.such:agent' cannot be imported: .*'no'$"):
        find_agent("no.such:agent")
