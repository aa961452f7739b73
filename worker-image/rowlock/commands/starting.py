"""The command `rowlock run`: start a run, and wait for it or watch it if asked to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from rowlock import logs
from rowlock.client.client import Client
from rowlock.client.handle import RunHandle
from rowlock.client.happenings import RunEvent
from rowlock.commands import verdict
from rowlock.commands.listing import Namespace
from rowlock.commands.output import Format, Output, console, document, write
from rowlock.commands.progress import Waiting
from rowlock.commands.screen import Screen
from rowlock.dev.target import import_from_here, parse_input, read_input
from rowlock.settings import DatabaseSettings, load
from rowlock.states import Phase
from rowlock.store.reading import RunInfo
from rowlock.terminal import database_url, one_line_errors

INTERRUPTED: Final = 130

AgentName = Annotated[
    str,
    typer.Argument(
        metavar="AGENT", help="The name of one that is registered, or module:agent of this folder."
    ),
]
Input = Annotated[
    str | None,
    typer.Option("--input", "-i", help="JSON, @file, or - for stdin; other text is a string."),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command line asks for."""

    agent: str
    value: Any
    namespace: str
    options: dict[str, Any]
    wait: bool
    follow: bool
    output: Format


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(run)


def run(  # noqa: PLR0913, PLR0917  one parameter a flag
    agent: AgentName,
    input: Input = None,  # noqa: A002  the flag's name
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Until it has ended.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show its steps meanwhile; waits, too.")
    ] = False,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key and input again give the same run.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Whom it is for: limits per key count by it.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Whose workers run it.")] = None,
    priority: Annotated[int, typer.Option(min=-1000, max=1000, help="Higher goes first.")] = 0,
    namespace: Namespace = "",
    output: Output = "text",
) -> None:
    """Start a run; with --wait or --follow stay until it has ended.

    The result goes to standard output, all else to standard error.
    Exit codes: 0 it succeeded, or was started; 1 it failed or was cancelled;
    2 the command line is wrong, and nothing was started; 130 after Ctrl-C, and the run goes on.

    \b
    Examples:
      rowlock run support -i '{"order": 7}'            start it and print its number
      rowlock run support -i @order.json --wait        wait, and print the result
      rowlock run agents:kitchen -i '{"cups": 2}' -f   an agent of this folder, step by step
      rowlock run nightly --idempotency-key 2026-05-07 -o name
    """
    with one_line_errors():
        logs.configure(level="ERROR")  # the client logs that it waits for the database
        asked = Asked(
            agent,
            parse_input(read_input(input)),
            namespace,
            {
                "idempotency_key": idempotency_key,
                "key": key,
                "pool": pool,
                "priority": priority,
            },
            wait or follow,
            follow,
            output,
        )
        import_from_here()
        code = _until_interrupted(asked)
    raise typer.Exit(code)


def _until_interrupted(asked: Asked) -> int:
    started: list[int] = []
    try:
        return asyncio.run(_run(asked, started))
    except KeyboardInterrupt:
        if not started:
            raise
        screen = Screen(console(stderr=True))
        screen.note(f"run {started[0]} goes on: rowlock describe {started[0]}")
        return INTERRUPTED


async def _run(asked: Asked, started: list[int]) -> int:
    url = database_url(load(DatabaseSettings))
    async with Client(url, namespace=asked.namespace) as client:
        handle = await client.start(asked.agent, asked.value, **asked.options)
        started.append(handle.id)
        if not asked.wait:
            _started(asked, handle)
            return 0
        screen = Screen(console(stderr=True))
        screen.note(_said(handle))
        with _shown(asked, handle.id, screen) as show:
            async for event in handle.events():
                show(event)
        info = await handle.info()
        result = await client.run(handle.id).wait() if verdict.good(info) else None
    return _ended(asked, info, result, screen)


def _started(asked: Asked, handle: RunHandle[Any]) -> None:
    if asked.output == "text":
        write(_said(handle))
    elif asked.output == "name":
        write(str(handle.id))
    else:
        told = {"run": handle.id, "agent": asked.agent, "created": handle.created}
        write(document(told, asked.output))


def _said(handle: RunHandle[Any]) -> str:
    return f"run {handle.id}: {'queued' if handle.created else 'was there before'}"


@contextlib.contextmanager
def _shown(asked: Asked, run_id: int, screen: Screen) -> Iterator[Callable[[RunEvent], None]]:
    """Yield what shows an event: line after line, or on a bar that goes with the end."""
    if asked.follow:
        yield lambda event: follow_event(screen, run_id, event)
        return
    with Waiting(console(stderr=True)) as bar:
        yield bar.show


def follow_event(screen: Screen, run_id: int, event: RunEvent) -> None:
    """Show an event, and what a person could do where the run waits for one."""
    screen.show(event)
    phase = (event.data or {}).get("phase") if event.kind == "state" else None
    if phase == Phase.AWAITING_APPROVAL:
        screen.warn(f"? it waits for a person: rowlock approvals {run_id}")
    elif phase == Phase.SUSPENDED:
        screen.warn(f"? it is suspended: rowlock continue {run_id}")


def _ended(asked: Asked, info: RunInfo, result: Any, screen: Screen) -> int:
    good = verdict.good(info)
    screen.verdict(verdict.said(info), good=good)
    if asked.output == "name":
        write(str(info.id))
    elif asked.output != "text":
        write(document(verdict.document(info, result), asked.output))
    elif good:
        Screen(console()).result(result)
    return 0 if good else 1
