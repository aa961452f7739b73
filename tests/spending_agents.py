"""Agents that use something up, for tests of what real workers make of it."""

from __future__ import annotations

import os

from rowlock import Run, agent, tool
from tests.agents_for_tests import Task, gate, leave_effect


@agent(name="spender")
async def spender(run: Run, task: Task) -> int:
    """Use ten tokens in each of so many steps."""

    async def spend(number: int) -> int:
        leave_effect(task.folder, run.id, f"spend-{number}", run.call_id, os.getpid())
        run.count_usage(9, 1, 1_000)
        if number in task.gates:
            await gate(task.folder, str(number))
        return number

    return sum([await run.step("spend", spend, n, key=n) for n in range(task.steps)])


@agent(name="wasteful")
async def wasteful(run: Run, task: Task) -> None:
    """Use ten tokens in each attempt, and fail."""

    async def waste() -> None:
        leave_effect(task.folder, run.id, f"waste-{run.attempt}", run.call_id, os.getpid())
        run.count_usage(9, 1)
        raise OSError("nothing came of it")

    await run.step("waste", waste, retries=0)


@agent(name="modest")
async def modest(run: Run, task: Task) -> str:
    """Succeed, but not as well as it should have."""

    async def look() -> str:
        run.mark_degraded("the index is a day old")
        return "found"

    async def wait() -> None:
        await gate(task.folder, "wait")

    found = await run.step("look", look)
    await run.step("wait", wait)
    run.mark_degraded("two pages were missing")
    return found


@agent(name="payer")
async def payer(run: Run, task: Task) -> str:
    """Pay once, at a provider that forgets its keys after an hour."""

    @tool(side_effects="idempotent", key_ttl=3600)
    async def pay() -> str:
        """Pay."""
        leave_effect(task.folder, run.id, "pay", run.call_id, os.getpid())
        await gate(task.folder, "pay")
        return "paid"

    return await run.step("pay", pay)
