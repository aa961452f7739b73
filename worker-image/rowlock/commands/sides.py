"""What both ways can do, so that commands need not know which one they go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from rowlock.client.happenings import RunEvent
from rowlock.commands.shapes import (
    Answered,
    Happening,
    LogLine,
    Name,
    PoolShape,
    QuestionShape,
    RunShape,
    Started,
    Told,
    WaitShape,
)
from rowlock.states import Decision


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs are to be listed; None leaves a thing open."""

    agent: str | None = None
    phase: str | None = None
    key: str | None = None
    since: datetime | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Starting:
    """What is to be started.

    Parameters
    ----------
    text
        The input as it was typed or read; None for none.
    name
        Of the AgentRun.
    """

    agent: str
    text: str | None = None
    name: str | None = None
    idempotency_key: str | None = None
    key: str | None = None
    pool: str | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person says to a question; `step` and `digest` say which one is meant."""

    decision: Decision
    by: str
    reason: str
    step: str | None = None
    digest: str | None = None


class Side(Protocol):
    """One way to the runs.

    Each method raises `UnknownRun` where there is no such run, `WishRefused` where it cannot be
    done to it, and the errors of its way.
    """

    def name(self, text: str) -> Name:
        """Return what somebody typed as RUN; raises `InvalidRequest` where it cannot be one."""

    async def start(self, asked: Starting) -> Started:
        """Start a run."""

    async def until_end(self, run: Name, show: Callable[[RunEvent], None]) -> Told:
        """Tell `show` what happens to a run, and return its end."""

    async def runs(self, wanted: Wanted) -> list[RunShape]:
        """Return runs, the newest first."""

    async def tell(self, run: Name) -> Told:
        """Return all that there is to tell of a run."""

    async def queue(self, run: Name | None, pool: str | None, limit: int) -> list[WaitShape]:
        """Return the runs that wait, or why this one does."""

    async def pools(self) -> list[PoolShape]:
        """Return what pools have to do."""

    def happenings(self, run: Name, *, after: int, follow: bool) -> AsyncIterator[Happening]:
        """Yield what has happened to a run, last where it stands; or go on until it has ended."""

    def said(self, run: Name, *, follow: bool) -> AsyncIterator[LogLine]:
        """Yield what a run has said; or go on until it has ended."""

    async def suspend(self, run: Name, *, by: str, reason: str | None) -> Answered:
        """Hold a run."""

    async def continue_(self, run: Name) -> Answered:
        """Let it go on."""

    async def cancel(self, run: Name, *, by: str, reason: str | None) -> Answered:
        """End it."""

    async def retry(self, run: Name, *, by: str) -> Answered:
        """Start another attempt."""

    async def questions(self, run: Name | None) -> list[QuestionShape]:
        """Return the questions that wait for a person, the oldest first."""

    async def answer(self, run: Name, answer: Answer) -> Answered:
        """Answer a question."""


def phase_named(text: str | None, known: tuple[Any, ...]) -> str | None:
    """Return the phase, however its letters were typed."""
    words = {str(phase).lower(): str(phase) for phase in known}
    return None if text is None else words.get(text.lower(), text)
