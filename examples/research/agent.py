"""The research agent: read a report page by page, a call of a vision model each, and sum it up.

Each page is a step. A page that was read is recorded, so neither a lost worker nor a re-drive
reads it, or pays for it, a second time.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from rowlock import Run, agent

from .vision import Note, read_page


class Task(BaseModel):
    """What a run is given."""

    document: str = "annual-report"
    pages: int = Field(default=40, ge=1, le=1000)
    #: How long a call of the vision model takes.
    seconds: float = Field(default=2.5, ge=0)


class Summary(BaseModel):
    """What a run returns."""

    document: str
    pages: int
    words: int
    text: str


@agent(name="research")
async def research(run: Run, task: Task) -> Summary:
    """Read all pages and sum them up."""
    notes: list[Note] = []
    for page in range(1, task.pages + 1):
        # The page's number is the step's identity. One more try for a call that fails by chance;
        # an outage is longer than any wait, so then the run fails and is re-driven afterwards.
        note = await run.step(
            "read", read_page, task.document, page, task.seconds, key=page, retries=1
        )
        notes.append(note)
    return summary(task, notes)


def summary(task: Task, notes: list[Note]) -> Summary:
    """Return what all pages say; plain computing needs no step."""
    longest = max(notes, key=lambda note: note.words)
    return Summary(
        document=task.document,
        pages=len(notes),
        words=sum(note.words for note in notes),
        text=f"{len(notes)} pages; most is said on page {longest.page}: {longest.text}",
    )
