"""An agent that does nothing, for loads that measure everything else."""

from __future__ import annotations

from pydantic import BaseModel

from rowlock import Run
from rowlock import agent as durable


class Task(BaseModel):
    """What the load gives."""

    text: str


@durable(name="instant")
async def agent(_run: Run, task: Task) -> int:
    """Return the length of the text."""
    return len(task.text)
