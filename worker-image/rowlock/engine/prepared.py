"""What a run brings to this process, and what it finds here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from rowlock import options as run_options
from rowlock.agents.protocol import Agent, Seat
from rowlock.clock import Clock
from rowlock.engine.board import Board
from rowlock.engine.journal import RunJournal
from rowlock.engine.trust import Trust
from rowlock.engine.writer import Writer
from rowlock.metrics import Tally
from rowlock.options import RunOptions
from rowlock.store.bodies import unpack
from rowlock.store.types import Answer, Claimed, Event, RunBody

_DEFAULT_OPTIONS = RunOptions()
_input: msgspec.json.Decoder[object] = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Revision:
    """What an agent was when the run was accepted."""

    entrypoint: str
    agent: str

    @property
    def module(self) -> str:
        """The module that names the agent."""
        return self.entrypoint.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A claimed run with all that was read for it.

    Parameters
    ----------
    body
        None if it is gone.
    unreadable
        Why its history cannot be read.
    answers
        Of people to its questions.
    """

    claimed: Claimed
    revision: Revision
    body: RunBody | None
    history: Sequence[Event] = ()
    unreadable: Exception | None = None
    answers: Sequence[Answer] = ()

    def options(self) -> RunOptions:
        """Return its limits; raises `msgspec.MsgspecError` if what is stored makes no sense."""
        if self.body is None or self.body.options == b"{}":
            return _DEFAULT_OPTIONS
        return run_options.decode(self.body.options)

    def input(self) -> object:
        """Return its input, decoded from JSON."""
        return _input.decode(unpack(self.body.input)) if self.body else None


class Seats(Protocol):
    """Where blocking calls are made."""

    async def seat(self, entrypoint: str) -> Seat:
        """Wait for a place to make one in."""
        ...


async def _nobody(_: str) -> bool:
    return False


@dataclass(slots=True)
class Surroundings:
    """What all runs of a process share.

    Parameters
    ----------
    name
        This process, as people see it.
    load
        Returns the agent of a prepared run.
    journal
        Returns what makes the journal of a claimed run.
    park_seconds
        A shorter wait of a run is spent in the process.
    build
        What this process runs.
    build_lives
        Tells whether a worker of another build may take a run; retries until PostgreSQL answers.
    """

    name: str
    writer: Writer
    trust: Trust
    board: Board
    tally: Tally
    clock: Clock
    load: Callable[[Prepared], Agent]
    executors: Seats
    max_result_bytes: int
    journal: Callable[[Claimed], Callable[..., RunJournal]] = lambda _: RunJournal
    park_seconds: float = 5.0
    build: str = ""
    build_lives: Callable[[str], Awaitable[bool]] = _nobody
