"""What a loop process does beside its work for somebody who tries an agent out.

It sends live text up, and dies where it is told to: behind the effect of a step, before that is
recorded, which is the worst moment there is. No worker of a pool does either.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from rowlock.agents.context import CURRENT
from rowlock.engine.journal import RunJournal
from rowlock.engine.live import LiveText
from rowlock.states import EventKind
from rowlock.store.types import Claimed


class Rehearsal:
    """How the runs of this process are tried out.

    Parameters
    ----------
    crash_at
        Key of a step, or its name alone; empty for no crash.
    """

    def __init__(self, live: LiveText, *, crash_at: str) -> None:
        self.live = live
        self._crash_at = crash_at

    def journal(self, claimed: Claimed) -> Callable[..., RunJournal]:
        """Return what makes the journal of a run; one that was taken over crashes no more."""
        crash_at = "" if claimed.takeovers else self._crash_at
        return partial(RehearsalJournal, live=self.live, crash_at=crash_at)


class RehearsalJournal(RunJournal):
    """A journal with a viewer, and perhaps a death to die."""

    __slots__ = ("_crash_at", "_live")

    def __init__(self, *args: Any, live: LiveText, crash_at: str, **named: Any) -> None:
        super().__init__(*args, **named)
        self._live = live
        self._crash_at = crash_at

    async def write(
        self, kind: EventKind, key: str, body: bytes, *, tries: int = 1, dur_ms: int | None = None
    ) -> None:
        """Store an entry, or die before that."""
        if self._crash_at and kind is not EventKind.STEP_INTENT and is_step(key, self._crash_at):
            self._live.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        await super().write(kind, key, body, tries=tries, dur_ms=dur_ms)

    def watched(self) -> bool:
        """Tell that somebody looks."""
        return True

    def publish(self, text: str) -> None:
        """Send live text up."""
        self._live.say(self.run_id, _current_step(), text)


def _current_step() -> str:
    """Return the key of the step that the current task does, as far as its call's id holds it."""
    call = CURRENT.get()
    return call.id.partition("/")[2].rpartition("/")[0] if call else ""


def is_step(key: str, asked: str) -> bool:
    """Say whether `asked` is the key of a step or the name in it."""
    return asked in (key, key.partition("#")[0], key.partition(":")[0])
