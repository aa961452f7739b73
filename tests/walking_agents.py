"""Agents that end in every way that the walk through all states needs."""

from __future__ import annotations

from rowlock import Run, agent
from tests.agents_for_tests import Task, leave_effect


@agent(name="liar")
async def liar(run: Run, task: Task) -> int:
    """Return what it does not promise."""
    return "no number"  # type: ignore[return-value]


@agent(name="fickle")
async def fickle(run: Run, task: Task) -> str:
    """Give its first step another argument each time its code is run."""

    async def effect(number: int) -> int:
        return number

    leave_effect(task.folder, "boot")
    boots = (task.folder / "effects").read_text().count("boot")
    await run.step("step", effect, boots, key="one")
    await run.sleep(3)
    return "never"
