"""What a trial shows: live text, steps as they end, progress, and a table at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rowlock.client.happenings import RunEvent
from rowlock.commands.timeline import Line, step_name
from rowlock.engine.messages import Live

_MARKS = {
    "done": "[green]✓[/]",
    "failed": "[red]✗[/]",
    "interrupted": "[yellow]?[/]",
    "event": "[yellow]↻[/]",
}
_LONGEST_NOTE = 300


class Screen:
    """A terminal, or whatever stdout is.

    Parameters
    ----------
    console
        Where to write.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        #: The step whose text the cursor stands in.
        self._speaking: str | None = None

    def say(self, live: Live) -> None:
        """Show a piece of live text, each step's under its name."""
        if self._speaking != live.step:
            self._new_line()
            self._console.print(Text(f"{step_name(live.step) or 'run'} ", style="dim"), end="")
            self._speaking = live.step
        self._console.print(Text(live.text), end="", soft_wrap=True)

    def show(self, event: RunEvent) -> None:
        """Show what happened."""
        text = _shown(event)
        if text:
            self._new_line()
            self._console.print(text, soft_wrap=True)

    def note(self, text: str) -> None:
        """Show a line of our own."""
        self._new_line()
        self._console.print(f"[dim]{escape(text)}[/]", soft_wrap=True)

    def warn(self, text: str) -> None:
        """Show a line that a person should read."""
        self._new_line()
        self._console.print(f"[yellow]{escape(text)}[/]", soft_wrap=True)

    def table(self, lines: list[Line]) -> None:
        """Show the timeline."""
        self._new_line()
        if not lines:
            return
        self._console.print(steps_table(lines))

    def verdict(self, text: str, *, good: bool) -> None:
        """Show how it ended."""
        self._new_line()
        mark = "[green]✓[/]" if good else "[red]✗[/]"
        self._console.print(f"{mark} {escape(text)}", soft_wrap=True)

    def result(self, value: Any) -> None:
        """Show what came out."""
        self._new_line()
        if isinstance(value, str):
            self._console.print(Text(value), soft_wrap=True)
        else:
            self._console.print_json(data=value, default=str)

    def _new_line(self) -> None:
        if self._speaking is not None:
            self._console.print()
            self._speaking = None


def steps_table(lines: list[Line]) -> Table:
    """Return a timeline as a table; attempts stand in it where there is more than one."""
    again = any(line.attempt > 1 for line in lines)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (("", "left"), ("step", "left"), ("at", "right"), ("took", "right"),
                          ("tries", "right"), ("worker", "right"),
                          *((("attempt", "right"),) if again else ()), ("", "left")):  # fmt: skip
        table.add_column(name, justify=justify, overflow="fold")
    for line in lines:
        table.add_row(*_cells(line, again=again))
    return table


def _cells(line: Line, *, again: bool) -> list[str]:
    return [
        _MARKS[line.status],
        escape(step_name(line.what)),
        f"{line.started:.2f} s",
        took(line.seconds),
        "" if line.status == "event" else str(line.tries),
        str(line.epoch),
        *([str(line.attempt)] if again else []),
        escape(line.note[:_LONGEST_NOTE]),
    ]


def took(seconds: float | None) -> str:
    """Return how long something took, to the millisecond below a second."""
    if seconds is None:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _shown(event: RunEvent) -> str:
    show = _LINES.get(event.kind)
    return show(event, event.data or {}) if show else ""


def _done(event: RunEvent, _: dict[str, Any]) -> str:
    length = "" if event.duration_ms is None else took(event.duration_ms / 1000)
    return f"[green]✓[/] {_step(event)} [dim]{length}[/]"


def _failed(event: RunEvent, data: dict[str, Any]) -> str:
    return f"[red]✗[/] {_step(event)} [red]{escape(str(data.get('error', ''))[:_LONGEST_NOTE])}[/]"


def _taken_over(_: RunEvent, data: dict[str, Any]) -> str:
    return (
        f"[yellow]↻ taken over: {escape(str(data.get('reason')))} after "
        f"{data.get('step')} steps; the new worker goes on behind them[/]"
    )


def _step(event: RunEvent) -> str:
    return escape(step_name(event.step or ""))


_LINES: dict[str, Callable[[RunEvent, dict[str, Any]], str]] = {
    "step_done": _done,
    "step_failed": _failed,
    "taken_over": _taken_over,
    "progress": lambda _, data: f"[cyan]·[/] {escape(str(data.get('text', '')))}",
    "sleep": lambda event, _: f"[cyan]·[/] {_step(event)} [dim]waits[/]",
    "attempt_failed": lambda _, data: (
        f"[yellow]↻ attempt failed: {escape(str(data.get('message', '')))}[/]"
    ),
}
