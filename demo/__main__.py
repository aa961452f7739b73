"""`python -m demo`: exit code 0 only if every run succeeded, once."""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from demo.stage import DemoError, stage
from demo.story import how_to_look_around, play
from localcluster import LocalClusterError
from rowlock.errors import RowlockError

_EPILOG = (
    "Examples:  python -m demo  |  python -m demo --keep  |  python -m demo --context kind-kind"
)


def main(
    keep: Annotated[bool, typer.Option(help="Leave everything running until Ctrl-C.")] = False,
    context: Annotated[
        str | None, typer.Option(help="Use this context of your kubeconfig.")
    ] = None,
) -> None:
    """Apply three AgentRuns, kill the worker that holds one, and watch another finish it."""
    began = time.monotonic()
    console = Console(highlight=False, soft_wrap=True)

    def say(text: str) -> None:
        console.print(f"[bold cyan]{time.monotonic() - began:5.1f} s[/]  [bold]{text}[/]")

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with stage(context, say) as here:
            verdict = play(here, say, began)
            if keep:
                print(how_to_look_around(here))
                threading.Event().wait()
    except (DemoError, LocalClusterError, RowlockError) as error:
        print(f"demo: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(0 if keep else 130) from None
    print(verdict)
    raise typer.Exit(0 if verdict.good else 1)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    app = typer.Typer(add_completion=False)
    app.command(epilog=_EPILOG)(main)
    app()
