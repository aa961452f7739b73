"""How commands answer: rich tables for people, JSON, YAML or names for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

Format = Literal["text", "json", "yaml", "name"]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to answer.")]
#: For what has no name of its own.
Plain = Annotated[
    Literal["text", "json", "yaml"], typer.Option("--output", "-o", help="How to answer.")
]

#: Of lines that go into a file or a pipe: wide enough that nothing is folded.
_PIPE_WIDTH: Final = 240
_STYLES: Final = {
    "Succeeded": "green",
    "Failed": "red",
    "Cancelled": "red",
    "Running": "cyan",
    "Retrying": "yellow",
    "AwaitingApproval": "yellow",
    "Suspended": "yellow",
}


def console(*, stderr: bool = False) -> Console:
    """Return where people read: a terminal of its own width, or a wide pipe."""
    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made.width = _PIPE_WIDTH
    return made


def write(text: str) -> None:
    """Write a line to standard output at once: who reads a pipe follows it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def plain(value: object) -> Any:
    """Return `value` as JSON and YAML know it: times become text."""
    return msgspec.to_builtins(value, str_keys=True)


def document(value: object, output: Format) -> str:
    """Return `value` as JSON on one line, or as YAML."""
    if output != "yaml":
        return json.dumps(plain(value), ensure_ascii=False)
    import yaml  # noqa: PLC0415  a tenth of the start of every command

    text: str = yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table; columns in `right` hold figures."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def show(*parts: Table | Text | str) -> None:
    """Write parts below each other to standard output; a pipe gets no spaces at line ends."""
    out = console()
    if out.is_terminal:
        out.print(*parts, sep="\n")
        return
    with out.capture() as captured:
        out.print(*parts, sep="\n")
    write("\n".join(line.rstrip() for line in captured.get().splitlines()))


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and values; those without a value are left out."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim")
    made.add_column(overflow="fold")
    for name, value in rows:
        if value:
            made.add_row(name, phase_text(value))
    return made


def phase_text(word: str) -> Text:
    """Return a word in its colour, as it is: never as markup."""
    return Text(word, style=_STYLES.get(word, ""))


def cell(value: object) -> Text:
    """Return what stands in a cell; nothing for None."""
    return Text("" if value is None else str(value))


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago that was; `0s` where the database's clock is ahead of ours."""
    return "" if moment is None else lasted((now or datetime.now(UTC)) - moment)


def until(moment: datetime | None, now: datetime | None = None) -> str:
    """Return how long it is till then."""
    return "" if moment is None else lasted(moment - (now or datetime.now(UTC)))


def lasted(span: timedelta) -> str:
    """Return a length of time as a person would say it: 8s, 4m12s, 3h05m, 2d4h."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    if seconds < 86_400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{seconds // 86_400}d{seconds % 86_400 // 3600}h"
