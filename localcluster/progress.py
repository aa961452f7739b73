"""Say what takes long: a live bar on a terminal, plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed


@dataclass
class Reporter:
    """Tells a person on standard error what is going on.

    Args:
        quiet: Say nothing at all.
    """

    quiet: bool = False
    _console: Console = field(init=False)

    def __post_init__(self) -> None:
        self._console = Console(stderr=True, quiet=self.quiet, highlight=False)

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def steps(self, total: int) -> Iterator[Steps]:
        """Report a known number of long steps within a `with` block."""
        if not self._console.is_terminal or self.quiet:
            yield Steps(self, total)
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20))
        with Progress(*columns, MofNCompleteColumn(), Elapsed(), console=self._console) as bar:
            yield _Bar(self, total, bar)


class Steps:
    """Long steps as lines of a log: one when a step begins, one a minute, one when it is done."""

    def __init__(self, reporter: Reporter, total: int) -> None:
        self._reporter = reporter
        self._total = total
        self._number = 0
        self._began = 0.0

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Report one step, such as ``building etcd``, within a `with` block."""
        self._number += 1
        self._began = time.monotonic()
        self._show(f"{what} ({self._number} of {self._total}) …")
        yield
        self._done(f"{what}: done in {self._elapsed()} s")

    def still(self, what: str) -> None:
        """Tell, about once a minute, that a step goes on."""
        self._reporter.say(f"{what}: {self._elapsed()} s so far")

    def _elapsed(self) -> int:
        return round(time.monotonic() - self._began)

    def _show(self, text: str) -> None:
        self._reporter.say(text)

    def _done(self, text: str) -> None:
        self._reporter.say(text)


class _Bar(Steps):
    """Long steps as one bar that moves on a terminal."""

    def __init__(self, reporter: Reporter, total: int, bar: Progress) -> None:
        super().__init__(reporter, total)
        self._bar = bar
        self._task = bar.add_task("", total=total)

    def still(self, what: str) -> None:
        """Do nothing: the bar shows the time."""

    def _show(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def _done(self, text: str) -> None:
        self._bar.advance(self._task)
        self._reporter.say(text)
