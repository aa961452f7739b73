"""Names the code that holds the event loop: a loop that does not tick cannot say so itself.

A thread looks ten times a second whether the loop has ticked.
If it has not, the thread reads the loop's call stack, where step, run and line can be seen.
One look may hit anything that is busy for a moment;
a warning takes two that meet the same step, with no tick in between for a quarter of a second.

Code in C that keeps the GIL keeps this thread from looking, too.
Then only `rowlock_loop_lag_seconds` tells of it, and the supervisor after its ceiling.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import structlog

from rowlock.agents.execution import Execution
from rowlock.engine.board import TICK, Board
from rowlock.engine.onloop import OnLoop

log = structlog.get_logger(__name__)

PERIOD = 0.1
#: A loop that has ticked within so many seconds is only busy.
BLOCKED_SECONDS = 0.25
#: The same line is named once in so many seconds.
QUIET_SECONDS = 60.0

_OURS = f"{Path(__file__).parents[1]}/"
_MOST_LINES = 256


@dataclass(frozen=True, slots=True)
class Blocker:
    """What holds the loop.

    Parameters
    ----------
    run
        Its number, as people see it.
    step
        Key of the step; empty for the agent's own code.
    where
        File, line and function: the author's, and the innermost one if that is another.
    """

    run: str
    step: str
    where: str


def blocker(frame: FrameType | None) -> Blocker | None:
    """Return what `frame`, the innermost one of a loop's thread, belongs to; None: to no run."""
    stack = []
    while frame is not None:
        stack.append(frame)
        if frame.f_code is Execution._call.__code__:
            execution = frame.f_locals["self"]
            run, step = execution._journal.run_id, execution._work.key
            return Blocker(str(run), step, _where(stack))
        if frame.f_code is OnLoop.send.__code__:
            return Blocker(str(frame.f_locals["self"]._run_id), "", _where(stack))
        frame = frame.f_back
    return None


def _where(stack: list[FrameType]) -> str:
    """Return the author's line and the innermost one of `stack`, which begins with that."""
    innermost = stack[0]
    author = next(
        (one for one in reversed(stack) if not one.f_code.co_filename.startswith(_OURS)), innermost
    )
    if author is innermost:
        return _line(author)
    return f"{_line(author)}, which is in {_line(innermost)}"


def _line(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} ({code.co_qualname})"


class BlockWatch:
    """Looks at one loop.

    Parameters
    ----------
    thread
        Of the loop.
    """

    def __init__(self, board: Board, thread: int) -> None:
        self._cells = board.cells
        self._thread = thread
        self._stop = threading.Event()
        self._ticks = -1
        self._ticked_at = 0.0
        self._before: Blocker | None = None
        #: Each line that was named, and when.
        self._named: dict[str, float] = {}

    def start(self) -> None:
        """Look from now on, in a thread."""
        threading.Thread(target=self._run, name="block-watch", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(PERIOD):
            self.look(time.monotonic())

    def look(self, now: float) -> Blocker | None:
        """Look once, at `now` (monotonic seconds); return what was warned of."""
        ticks = self._cells[TICK]
        if ticks != self._ticks:
            self._ticks, self._ticked_at, self._before = ticks, now, None
            return None
        found = blocker(sys._current_frames().get(self._thread))
        same = found is not None and self._before is not None and found.step == self._before.step
        self._before = found
        if found is None or not same or now - self._ticked_at < BLOCKED_SECONDS:
            return None
        return self._warn(found, now)

    def _warn(self, found: Blocker, now: float) -> Blocker | None:
        line = f"{found.step.partition('#')[0].partition(':')[0]} {found.where}"
        if now - self._named.get(line, -QUIET_SECONDS) < QUIET_SECONDS:
            return None
        if len(self._named) >= _MOST_LINES:
            self._named.clear()
        self._named[line] = now
        log.warning(
            "A step holds the event loop, and all runs beside it: make it a plain `def`, "
            "which runs in a process of its own, or await what it waits for",
            run=found.run,
            step=found.step or "(the agent's own code)",
            where=found.where,
            seconds=round(now - self._ticked_at, 2),
        )
        return found
