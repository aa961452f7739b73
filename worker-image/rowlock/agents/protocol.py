"""The seam between what authors write and what runs it.

`agents` turns decorated functions into steps; it knows the journal below and nothing of the engine.
The engine (or an in-memory store, for tests) supplies a `Journal` for each run it executes.

What a `Journal` must keep:

* an entry that `write` returned for is never lost, and `recall` answers it after any takeover;
* when the lease is lost, `write` never returns: the run's task is cancelled;
* entries of one run are stored in the order in which `write` and `note` were called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rowlock.agents.crossing import BlockingAnswer, BlockingCall
from rowlock.options import RunOptions
from rowlock.states import EventKind


@dataclass(frozen=True, slots=True)
class Entry:
    """What history holds of one step.

    Parameters
    ----------
    kind
        `STEP_INTENT` (begun, outcome unknown), `STEP_DONE` or `STEP_FAILED`: the newest of its key.
    tries
        How often the step was tried, 1 for the first.
    body
        Raw JSON as it was written, decompressed.
    """

    kind: EventKind
    key: str
    tries: int
    body: bytes


class Seat(Protocol):
    """The right to make one blocking call at a time, outside the event loop."""

    async def call(self, call: BlockingCall) -> BlockingAnswer:
        """Make the call and return how it ended; a cancel ends it.

        Raises
        ------
        TimeoutError
            It did not end within `call.timeout` and was killed.
        NotStarted
            The function surely did not begin.
        ExecutorLost
            The process that made the call died.
        """
        ...

    def leave(self) -> None:
        """Let the next one have it; twice does no harm."""
        ...


class Journal(Protocol):
    """One run's history, as its agent sees it."""

    run_id: int
    attempt: int
    epoch: int
    options: RunOptions

    def recall(self, key: str) -> Entry | None:
        """Return what this attempt or an earlier one recorded of the step `key`; no I/O."""
        ...

    async def write(
        self, kind: EventKind, key: str, body: bytes, *, tries: int = 1, dur_ms: int | None = None
    ) -> None:
        """Store an entry durably and return after its commit.

        Raises
        ------
        TooLarge
            `body` is over the cap for a step's result.
        """
        ...

    def note(self, kind: EventKind, key: str, body: bytes) -> None:
        """Store an entry without waiting, but before the next `write`."""
        ...

    async def executor(self) -> Seat:
        """Wait for a place to make a blocking call; asked for before `boundary`.

        Waiting is no effect: a drain or a cancel ends the task meanwhile.
        """
        ...

    async def boundary(self) -> None:
        """Wait before each effect until the lease is sure; ends the task when draining."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait `seconds` between two tries; a drain or a cancel ends the task meanwhile."""
        ...

    def watched(self) -> bool:
        """Tell whether somebody looks at live text now."""
        ...

    def publish(self, text: str) -> None:
        """Show `text` to whoever watches; never stored."""
        ...

    def count_usage(self, tokens_in: int, tokens_out: int, cost_micro: int) -> None:
        """Add to what this run has used; stored with the run's end, a step's body has its own."""
        ...


class Agent(Protocol):
    """What an entry point must name: the engine calls nothing else.

    `@agent` functions and `ChatAgent` are such objects.
    """

    name: str

    def check_input(self, value: Any) -> Any:
        """Return the validated input.

        Raises
        ------
        InvalidInput
            With the path of the field and what would be right.
        """
        ...

    async def execute(self, journal: Journal, value: Any) -> Result:
        """Run to the end on a validated input, replaying what the journal recalls.

        Raises
        ------
        RunError
            The attempt ends with that reason.
        """
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """What an agent returned.

    Parameters
    ----------
    body
        The result as JSON.
    degraded
        Why it is not as good as it should be; empty for a good one.
    """

    body: bytes
    degraded: tuple[str, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int = 0
    steps: int = 0
