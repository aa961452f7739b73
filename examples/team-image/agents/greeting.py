"""An agent of the team: greets a customer, in two durable steps."""

from __future__ import annotations

from humanize import ordinal
from pydantic import BaseModel, Field

from rowlock import Run, agent


class Visit(BaseModel):
    """Who comes, and for which time."""

    name: str
    visit: int = Field(ge=1)


async def count(visit: int) -> str:
    """Return the visit as people say it."""
    return ordinal(visit)


async def compose(name: str, visit: str) -> str:
    """Return the greeting."""
    return f"Welcome, {name}, for the {visit} time!"


@agent(name="greeting")
async def greeting(run: Run, visit: Visit) -> str:
    """Greet."""
    counted = await run.step("count", count, visit.visit)
    return await run.step("compose", compose, visit.name, counted)
