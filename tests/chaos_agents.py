"""Agents whose effects tell more than those of `agents_for_tests`."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from rowlock import ChatAgent, ModelTurn, Run, agent, tool
from rowlock.testing import ScriptedModel, tool_call
from tests.agents_for_tests import Task, gate, leave_effect


@agent(name="stamped")
async def stamped(run: Run, task: Task) -> int:
    """Do steps that say when they begin, by the clock that all processes of a machine share."""

    async def effect(number: int) -> int:
        leave_effect(
            task.folder, run.id, f"step-{number}", run.call_id, os.getpid(), time.monotonic()
        )
        await asyncio.sleep(0.05)
        return number

    return sum([await run.step(f"step-{n}", effect, n) for n in range(task.steps)])


def wait_in_executor(run: Run, folder: str, name: str) -> str:
    """Wait for a gate in a process of its own."""
    leave_effect(Path(folder), run.id, name, run.call_id, os.getpid())
    while not (Path(folder) / f"gate-{name}").exists():
        time.sleep(0.01)
    return name


@agent(name="lingerer")
async def lingerer(run: Run, task: Task) -> list[str]:
    """Do two long steps at once, one on the loop and one in an executor."""

    async def linger() -> str:
        leave_effect(task.folder, run.id, "long-0", run.call_id, os.getpid())
        await gate(task.folder, "long-0")
        return "long-0"

    long = run.step("long-1", wait_in_executor, str(task.folder), "long-1")
    return list(await run.gather(run.step("long-0", linger), long))


@agent(name="clocked")
async def clocked(run: Run, task: Task) -> float:
    """Return how the wall clock of its process reads, after some steps."""

    async def effect(number: int) -> int:
        leave_effect(task.folder, run.id, f"step-{number}", run.call_id, os.getpid(), time.time())
        if number in task.gates:
            await gate(task.folder, str(number))
        return number

    for number in range(task.steps):
        await run.step(f"step-{number}", effect, number)
    return time.time()


@tool(side_effects="none")
async def look_up(page: int) -> str:
    """Read a page of equal length."""
    return f"page {page:04d} " * 40


def _turns(count: int) -> list[ModelTurn]:
    calling = [
        ModelTurn(f"Turn {turn:04d}.", (tool_call("look_up", f"c{turn:04d}", page=turn),))
        for turn in range(1, count)
    ]
    return [*calling, ModelTurn("Done.")]


def _talker(turns: int) -> ChatAgent:
    return ChatAgent(
        f"talker{turns}", ScriptedModel(_turns(turns)), "Read.", [look_up], max_turns=turns
    )


talker100, talker200 = _talker(100), _talker(200)
