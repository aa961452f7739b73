"""An agent whose code differs from build to build: each gives its first step another argument."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel

from rowlock import Run, agent
from tests.agents_for_tests import leave_effect

BUILD = os.environ.get("RECIPE", "")


class Dish(BaseModel):
    """What the test wants; it sleeps for so many seconds between two steps."""

    folder: Path
    seconds: float = 0.2


@agent(name="cook")
async def cook(run: Run, dish: Dish) -> str:
    """Do a step, leave the worker, do another."""

    async def effect(what: str) -> str:
        leave_effect(dish.folder, run.id, what, run.call_id, os.getpid())
        return what

    first = await run.step("prepare", effect, f"prepare-{BUILD}", key="first")
    await run.sleep(dish.seconds)
    return f"{first} {await run.step('serve', effect, f'serve-{BUILD}', key='second')}"
