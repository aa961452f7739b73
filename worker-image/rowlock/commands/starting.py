"""The command `rowlock run`: start a run, and wait for it or watch it if asked to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from rowlock.client.happenings import RunEvent
from rowlock.commands import verdict
from rowlock.commands.output import Format, Output, console, document, write
from rowlock.commands.progress import Waiting
from rowlock.commands.route import Flags, routed
from rowlock.commands.screen import Screen
from rowlock.commands.shapes import Name, Started, Told
from rowlock.commands.sides import Side, Starting
from rowlock.commands.way import INTERRUPTED, asked
from rowlock.dev.target import parse_input, read_input
from rowlock.states import Phase
from rowlock.terminal import one_line_errors

#: The exit code where the run has not ended in time, as that of timeout(1).
TIMED_OUT: Final = 124

AgentName = Annotated[
    str,
    typer.Argument(
        metavar="AGENT",
        help="The name of one that is registered, or module:agent of this folder; "
        "through the cluster the name of an Agent.",
    ),
]
Input = Annotated[
    str | None,
    typer.Option("--input", "-i", help="JSON, @file, or - for stdin; other text is a string."),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command line asks for.

    Parameters
    ----------
    timeout
        Seconds to wait for the end; None for ever.
    """

    starting: Starting
    wait: bool
    follow: bool
    timeout: float | None
    output: Format


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(routed(run))


def run(  # noqa: PLR0913, PLR0917  one parameter a flag
    flags: Flags,
    agent: AgentName,
    input: Input = None,  # noqa: A002  the flag's name
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Until it has ended.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show its steps meanwhile; waits, too.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="Wait for so many seconds at most; the run goes on. Waits, too."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the AgentRun; else the API server makes one up.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key and input again give the same run.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Whom it is for: limits per key count by it.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Whose workers run it.")] = None,
    priority: Annotated[int, typer.Option(min=-1000, max=1000, help="Higher goes first.")] = 0,
    output: Output = "text",
) -> None:
    """Start a run; with --wait, --follow or --timeout stay until it has ended.

    Through the cluster it creates an AgentRun, and shows its phases where the database shows
    steps; of a result over 1 KiB the cluster has the beginning alone.
    The result goes to standard output, all else to standard error.
    Exit codes: 0 it succeeded, or was started; 1 it failed or was cancelled;
    2 the command line is wrong, and nothing was started;
    124 it has not ended within --timeout, and goes on; 130 after Ctrl-C, and the run goes on.

    \b
    Examples:
      rowlock run support -i '{"order": 7}'            start it and print its number
      rowlock run support -i @order.json --wait        wait, and print the result
      rowlock run agents:kitchen -i '{"cups": 2}' -f   an agent of this folder, step by step
      rowlock run nightly --idempotency-key 2026-05-07 -o name
      rowlock run support --timeout 60 || echo "code $?"
      kubectl rowlock run support --name order-7 -i '{"order": 7}' --wait
    """
    with one_line_errors():
        text = read_input(input)
        parse_input(text)
    starting = Starting(agent, text, name, idempotency_key, key, pool, priority)
    waits = wait or follow or timeout is not None
    raise typer.Exit(_until_interrupted(flags, Asked(starting, waits, follow, timeout, output)))


def _until_interrupted(flags: Flags, wanted: Asked) -> int:
    started: list[Name] = []
    try:
        return asked(flags, lambda side: _run(side, wanted, started))
    except KeyboardInterrupt:
        if not started:
            raise
        _goes_on(started[0], "")
        return INTERRUPTED


async def _run(side: Side, wanted: Asked, started: list[Name]) -> int:
    begun = await side.start(wanted.starting)
    started.append(begun.run)
    if not wanted.wait:
        _started(begun, wanted.output)
        return 0
    screen = Screen(console(stderr=True))
    screen.note(_said(begun))
    try:
        async with asyncio.timeout(wanted.timeout) as limit:
            with _shown(wanted, begun.run, screen) as show:
                told = await side.until_end(begun.run, show)
    except TimeoutError:
        if not limit.expired():
            raise
        _goes_on(begun.run, f"has not ended within {wanted.timeout:g} s, and ")
        return TIMED_OUT
    return _ended(wanted.output, told, screen)


def _goes_on(run: Name, why: str) -> None:
    Screen(console(stderr=True)).note(f"run {run} {why}goes on: rowlock describe {run}")


def _started(begun: Started, output: Format) -> None:
    if output == "text":
        write(_said(begun))
    elif output == "name":
        write(str(begun.run))
    else:
        write(document(begun, output))


def _said(begun: Started) -> str:
    if not begun.created:
        return f"run {begun.run}: was there before"
    # An AgentRun is queued when the operator has written it to the database.
    return f"run {begun.run}: {'queued' if isinstance(begun.run, int) else 'created'}"


@contextlib.contextmanager
def _shown(wanted: Asked, run: Name, screen: Screen) -> Iterator[Callable[[RunEvent], None]]:
    """Yield what shows an event: line after line, or on a bar that goes with the end."""
    if wanted.follow:
        yield lambda event: follow_event(screen, run, event)
        return
    with Waiting(console(stderr=True)) as bar:
        yield bar.show


def follow_event(screen: Screen, run: Name, event: RunEvent) -> None:
    """Show an event, and what a person could do where the run waits for one."""
    screen.show(event)
    if event.kind != "state":
        return
    data = event.data or {}
    phase = data.get("phase")
    if phase == Phase.AWAITING_APPROVAL:
        screen.warn(f"? it waits for a person: rowlock approvals {run}")
    elif phase == Phase.SUSPENDED:
        screen.warn(f"? it is suspended: rowlock continue {run}")
    elif isinstance(run, str):  # the cluster shows no steps
        by = f", {data['worker']}" if data.get("worker") else ""
        screen.note(f"· {phase}: {data.get('reason') or 'not taken in yet'}{by}")


def _ended(output: Format, told: Told, screen: Screen) -> int:
    info, good = told.info, verdict.good(told.info)
    screen.verdict(verdict.said(info), good=good)
    if told.preview is not None and output != "name":
        screen.warn("its result is over 1 KiB: the cluster has the beginning, the database all")
    if output == "name":
        write(str(info.run))
    elif output != "text":
        write(document(verdict.document(info, told.result) | {"preview": told.preview}, output))
    elif told.preview is not None:
        Screen(console()).result(told.preview)
    elif good:
        Screen(console()).result(told.result)
    return 0 if good else 1
