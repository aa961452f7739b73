"""The seam between what authors write and what runs it.

`agents` turns decorated functions into steps; it knows the journal below and nothing of the engine.
The engine (or an in-memory store, for tests) supplies a `Journal` for each run it executes.

What a `Journal` must keep:

* an entry that `write` returned for is never lost, and `recall` answers it after any takeover;
* when the lease is lost, `write` never returns: the run's task is cancelled;
* entries of one run are stored in the order in which `write` and `note` were called;
* a long wait, or one for a person, may end the run's task: it begins again when the wait is over,
  and `recall`, `age` and `ask` then answer at once what is known.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    seq
        Its number in the run's history, over all attempts.
    """

    kind: EventKind
    key: str
    tries: int
    body: bytes
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """What a person must decide before a step may go on.

    Parameters
    ----------
    key
        The step that it is about.
    digest
        Of the tool and its arguments: an answer holds for no others.
    shown
        Tool, arguments and whatever else helps to decide, as JSON.
    expires_in
        Seconds until it expires; None for never.
    repeats
        It is about a call that may have happened: silence is never a yes.
    """

    key: str
    digest: str
    tool: str
    shown: bytes
    expires_in: float | None = None
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """How a question was answered.

    Parameters
    ----------
    by
        Who answered.
    expired
        Nobody did, in time.
    """

    approved: bool
    by: str = ""
    reason: str = ""
    expired: bool = False


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

    def recorded(self) -> Iterable[Entry]:
        """Return the newest entry of each step, by all attempts; no I/O."""
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

    def note(self, kind: EventKind, key: str, body: bytes, *, tries: int = 1) -> None:
        """Store an entry without waiting, but before the next `write`."""
        ...

    async def executor(self) -> Seat:
        """Wait for a place to make a blocking call; asked for before `boundary`.

        Waiting is no effect: a drain or a cancel ends the task meanwhile.
        """
        ...

    def age(self, key: str) -> float:
        """Return how many seconds ago the newest entry of `key` was stored; 0 for none."""
        ...

    async def boundary(self) -> None:
        """Wait before each effect until the lease is sure; ends the task when draining."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait `seconds` between two tries; a drain or a cancel ends the task meanwhile."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait outside of any step; the task may end meanwhile and begin again afterwards."""
        ...

    async def ask(self, question: Question) -> Reply:
        """Return the answer to a question, which stands once however often it is asked.

        Without an answer the task ends sooner or later, and begins again when there is one.
        """
        ...

    def watched(self) -> bool:
        """Tell whether somebody looks at live text now."""
        ...

    def publish(self, text: str) -> None:
        """Show `text` to whoever watches; never stored."""
        ...

    def count_usage(self, tokens_in: int, tokens_out: int, cost_micro: int) -> None:
        """Add to what this run has used in all; stored with its end, a step's body has its own."""
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
