"""Commands that tell what happens to a run, as it happens: events, logs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

import typer

from rowlock.client.happenings import RunEvent
from rowlock.commands.output import Plain, document, plain, write
from rowlock.commands.route import Flags, routed
from rowlock.commands.screen import took
from rowlock.commands.shapes import Happening, LogLine
from rowlock.commands.sides import Side
from rowlock.commands.steering import Run
from rowlock.commands.timeline import note, step_name
from rowlock.commands.way import INTERRUPTED, asked
from rowlock.states import Phase

_LONGEST = 160

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("events")(routed(events))
    app.command("logs")(routed(logs))


def events(
    flags: Flags,
    run: Run,
    follow: Follow = False,
    after: Annotated[
        int, typer.Option(min=0, help="Only what stands behind this number of the history.")
    ] = 0,
    output: Plain = "text",
) -> None:
    """Print what happened to a run, a line for each thing, and last where it stands.

    The database tells the history: steps, waits, takeovers. The cluster tells the Kubernetes
    events of the AgentRun, for as long as the API server keeps them (an hour by default).
    With -o json each line is a document; `seq` is what --after goes on behind.
    With --follow the exit code is 0 if the run succeeded and 1 if it did not.

    \b
    Examples:
      rowlock events 2531771558                      what happened until now
      rowlock events 2531771558 --follow             and what happens next
      rowlock events 2531771558 --after 40 -o json   only what is new, for a program
      kubectl rowlock events order-7 -f              queued, started, taken over, ended
    """

    async def tell(side: Side) -> str:
        phase = ""
        happenings = side.happenings(side.name(run), after=after, follow=follow)
        async with contextlib.aclosing(happenings) as found:  # type: ignore[type-var]
            async for event in found:
                _tell(event_line(event), event, output)
                if event.kind == "state":
                    phase = str((event.data or {}).get("phase"))
        return phase

    last = _until_interrupted(flags, tell)
    if last is None:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(1 if follow and last != Phase.SUCCEEDED else 0)


def logs(flags: Flags, run: Run, follow: Follow = False, output: Plain = "text") -> None:
    """Print what a run has said.

    Through the cluster: the log lines about the run, of the Pods that have held it, as kubectl
    logs has them; they need the right to read pods/log. A Pod that is gone took its log with it,
    and what a tool of another process or a library printed past the log belongs to no run.
    Through the database: what is kept there, which is progress texts, answers of models, failed
    steps, lost workers and the end. Log lines stay with the workers, and live text is never kept.
    With -o json each line is a document.

    \b
    Examples:
      kubectl rowlock logs order-7 -f            as its workers write them, through takeovers
      rowlock logs 2531771558                    what the database keeps
      rowlock logs 2531771558 -o json | jq -r 'select(.level == "error").message'
    """

    async def tell(side: Side) -> str:
        said = side.said(side.name(run), follow=follow)
        async with contextlib.aclosing(said) as found:  # type: ignore[type-var]
            async for line in found:
                _tell(log_text(line), line, output)
        return ""

    if _until_interrupted(flags, tell) is None:
        raise typer.Exit(INTERRUPTED)


def _until_interrupted(flags: Flags, tell: Any) -> str | None:
    try:
        return str(asked(flags, tell))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return None


def _tell(line: str, whole: object, output: str) -> None:
    if output == "text":
        write(line)
    elif output == "json":
        write(document(whole, "json"))
    else:
        write(f"---\n{document(whole, 'yaml')}")


def event_line(event: RunEvent | Happening) -> str:
    """Return an event on one line: when, number, attempt and lease, what, and what it says."""
    at = f"{event.at.astimezone():%Y-%m-%d %H:%M:%S}" if event.at else ""
    lease = "" if event.attempt is None else f" {event.attempt}/{event.epoch or 0}"
    step = f" {step_name(event.step)}" if event.step and event.kind != "decided" else ""
    tries = f" (try {event.tries})" if event.tries > 1 else ""
    length = "" if event.duration_ms is None else f" {took(event.duration_ms / 1000)}"
    says = _says(event)
    return (
        f"{at:<19} {event.seq:>4}{lease} "
        f"{event.kind}{step}{tries}{length}{': ' if says else ''}{says}"
    )


def log_text(line: LogLine) -> str:
    """Return a line of a log: when, how grave, by whom, and all that it says."""
    at = f"{line.at.astimezone():%Y-%m-%d %H:%M:%S}" if line.at else ""
    more = " ".join(f"{name}={value}" for name, value in line.data.items() if _is_short(value))
    return f"{at:<19} {line.level:<7} {line.source}: {line.message}{' ' if more else ''}{more}"


def _is_short(value: object) -> bool:
    return isinstance(value, int | float | bool) or (isinstance(value, str) and len(value) < 100)


def _says(event: RunEvent | Happening) -> str:
    if event.data is None:
        return "(over 64 KiB)"
    if event.kind == "progress":
        text = str(event.data.get("text", ""))
    elif event.kind == "state":
        text = _state(plain(event.data))
    elif event.attempt is None:
        text = str(event.data.get("note") or "")
    else:
        text = note(event)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _state(data: dict[str, Any]) -> str:
    """Return a state without what is not so: a wait without a time, a run without a loss."""
    return " ".join(f"{name}={value}" for name, value in data.items() if value not in (None, "", 0))
