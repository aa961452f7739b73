"""The command `rowlock dev`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console

from rowlock import logs
from rowlock.commands import verdict
from rowlock.commands.rows import of_info
from rowlock.commands.screen import Screen
from rowlock.commands.timeline import Line, timeline
from rowlock.dev.database import trial_database
from rowlock.dev.reload import own_command, run_again_and_again
from rowlock.dev.session import Interrupted, Outcome, Session
from rowlock.dev.target import Target, load_target, read_input
from rowlock.engine.parent import die_with_parent
from rowlock.terminal import one_line_errors

#: What `--watch` tells the processes that it starts: the database, and whose children they are.
_URL = "ROWLOCK_DEV_DATABASE_URL"
_PARENT = "ROWLOCK_DEV_PARENT"

_INTERRUPTED = 130

AgentOption = Annotated[
    str, typer.Argument(metavar="MODULE:AGENT", help="The agent, as this folder's code names it.")
]
InputOption = Annotated[
    str | None,
    typer.Option("--input", "-i", help="JSON, @file, or - for stdin; other text is a string."),
]
CrashOption = Annotated[
    str,
    typer.Option(help="Kill the worker behind the effect of this step, to see a takeover."),
]
WatchOption = Annotated[bool, typer.Option("--watch", help="Run again when a .py file changes.")]
DatabaseOption = Annotated[
    str | None,
    typer.Option(help="Keep the history in this database, whose schema is up to date."),
]
OutputOption = Annotated[
    Literal["text", "json"], typer.Option("--output", "-o", help="How to answer.")
]


def dev(
    agent: AgentOption,
    input: InputOption = None,  # noqa: A002  the flag's name
    crash_at: CrashOption = "",
    watch: WatchOption = False,
    database: DatabaseOption = None,
    output: OutputOption = "text",
) -> None:
    """Run an agent once, here: with a PostgreSQL and a worker of its own, and no cluster.

    Live text, steps and progress are shown as they come, then a timeline and the result.
    The exit code is 0 when the run succeeded, 1 when it did not,
    2 for a wrong command line, and 130 after Ctrl-C.

    \b
    Examples:
      rowlock dev agents:kitchen -i '{"cups": 2}'
      rowlock dev agents:kitchen -i @order.json --watch
      rowlock dev agents:kitchen -i '{"cups": 2}' --crash-at boil
    """
    if _PARENT in os.environ:
        die_with_parent(int(os.environ.pop(_PARENT)), code=1)
    signal.signal(signal.SIGTERM, _terminated)
    screen = Screen(Console(stderr=output == "json"))
    with one_line_errors():
        text = read_input(input)
        given = database or os.environ.pop(_URL, None)
        if watch:
            code = _watch(agent, text, crash_at, given, output, screen)
        else:
            code = _once(load_target(agent, text), crash_at, given, output, screen)
    raise typer.Exit(code)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="dev")(dev)


def _once(target: Target, crash_at: str, given: str | None, output: str, screen: Screen) -> int:
    logs.configure(level="ERROR")  # a death and its takeover are shown as the run's own events
    try:
        with trial_database(given) as url:
            session = Session(url, target, screen, kept=given is not None, crash_at=crash_at)
            outcome = asyncio.run(session.run())
            return _tell(outcome, output, screen)
    except (Interrupted, KeyboardInterrupt):
        screen.note("interrupted")
        return _INTERRUPTED


def _tell(outcome: Outcome, output: str, screen: Screen) -> int:
    lines = timeline(outcome.events)
    screen.table(lines)
    screen.verdict(verdict.said(of_info(outcome.info)), good=outcome.good)
    if output == "json":
        sys.stdout.write(json.dumps(_document(outcome, lines), default=str) + "\n")
        sys.stdout.flush()
    elif outcome.good:
        screen.result(outcome.result)
    return 0 if outcome.good else 1


def _document(outcome: Outcome, lines: list[Line]) -> dict[str, Any]:
    return verdict.document(of_info(outcome.info), outcome.result) | {
        "timeline": [line.as_plain() for line in lines]
    }


def _watch(
    agent: str, text: str | None, crash_at: str, given: str | None, output: str, screen: Screen
) -> int:
    """Keep one database over all trials; each is a process of its own."""
    with tempfile.TemporaryDirectory(prefix="rowlock-dev-") as folder:
        arguments = [agent, "--output", output, "--crash-at", crash_at]
        if text is not None:
            file = Path(folder) / "input"
            file.write_text(text, encoding="utf-8")
            arguments += ["--input", f"@{file}"]
        try:
            with trial_database(given) as url:
                environment = {**os.environ, _URL: url, _PARENT: str(os.getpid())}
                run_again_and_again(own_command(arguments), environment, Path.cwd(), screen.note)
        except KeyboardInterrupt:
            pass  # before the first trial
    return _INTERRUPTED


def _terminated(*_: object) -> NoReturn:
    raise KeyboardInterrupt
