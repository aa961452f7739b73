"""An agent that says something by every way there is."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from pydantic import BaseModel

from rowlock import Run, agent, tool

log = logging.getLogger("shop.talker")


class Talk(BaseModel):
    """What the test wants.

    Parameters
    ----------
    gates
        Names of the gates to wait at, one step each.
    fails
        End with an error.
    """

    folder: Path
    gates: list[str] = []
    fails: bool = False


@tool(side_effects="none")
def counted(cups: int) -> int:
    """Count in a process of its own, and tell."""
    print(f"counting {cups} cups")  # noqa: T201  printing is the point
    return cups


@agent(name="talker")
async def talker(run: Run, talk: Talk) -> str:
    """Log, report progress, and print in an executor."""
    log.info("the kettle is on")
    run.progress("1 of 2: boil")
    await run.step("count", counted, 2)
    for name in talk.gates:
        await run.step(f"gate-{name}", _wait, talk.folder, name)
        log.info("gate %s is passed", name)
    if talk.fails:
        raise ValueError("the kettle is empty")
    return "tea"


async def _wait(folder: Path, name: str) -> None:
    (folder / f"waiting-{name}").touch()
    while not (folder / f"gate-{name}").exists():  # noqa: ASYNC110  the test is another process
        await asyncio.sleep(0.01)
