"""The line that `run --wait` keeps moving while it waits."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rowlock.client.happenings import RunEvent
from rowlock.commands.timeline import step_name

#: What `run.progress("12 of 40 pages")` tells of a whole.
_SHARE: Final = re.compile(r"(?<![\d.])(\d{1,9})\s*(?:of|/)\s*(\d{1,9})(?![\d.])")
_LONGEST: Final = 60


def share(text: str) -> tuple[int, int] | None:
    """Return how much of what is done, where a progress text says so."""
    found = _SHARE.search(text)
    if found is None:
        return None
    done, whole = int(found[1]), int(found[2])
    return (done, whole) if whole > 0 and done <= whole else None


class Waiting:
    """A bar with phase, steps and time; without a terminal nothing.

    Parameters
    ----------
    console
        Where to draw.
    """

    def __init__(self, console: Console) -> None:
        self.steps = 0
        self._said = ""
        self._phase = ""
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("Queued", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, event: RunEvent) -> None:
        """Take in what happened."""
        data = event.data or {}
        if event.kind == "state":
            self._phase = str(data.get("phase", ""))
        elif event.kind == "step_done":
            self.steps += 1
            self._said = step_name(event.step or "")
        elif event.kind == "progress":
            self._said = str(data.get("text", ""))
            part = share(self._said)
            if part:
                self._progress.update(self._task, completed=part[0], total=part[1])
        self._progress.update(self._task, description=escape(self.line()))

    def line(self) -> str:
        """Return what stands before the bar."""
        steps = f"{self.steps} step{'s' * (self.steps != 1)}" if self.steps else ""
        return " · ".join(part for part in (self._phase, steps, self._said[:_LONGEST]) if part)
