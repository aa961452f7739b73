"""The command `rowlock`.

Exit codes: 0 all went well, 1 it did not, 2 the command line or the configuration is wrong.
An error that a person can mend is one line on stderr, without a traceback.
"""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import version
from typing import Annotated, Literal

import typer

from rowlock import logs, run_commands
from rowlock.settings import DatabaseSettings, WorkerSettings, load
from rowlock.store import migrate as migrations
from rowlock.supervisor.supervisor import Supervisor
from rowlock.terminal import database_url, one_line_errors

_EXAMPLES = """
Durable AI-agent runs, checkpointed in PostgreSQL.

\b
All commands read ROWLOCK_DATABASE_URL,
such as postgresql://user:password@host:5432/name.

\b
Examples:
  rowlock migrate                          create or update the schema
  rowlock worker --pool default            run a pool's agents, a process a core
  rowlock worker --processes 1 --slots 32  a small one, on a laptop
  rowlock suspend 2531771558               hold a run; continue it, cancel it
  rowlock approvals                        what waits for somebody's yes or no
  rowlock approve 2531771558               say yes, if there is one question
  rowlock retry 2531771558                 another attempt; finished steps stay
"""

app = typer.Typer(
    help=_EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"rowlock {version('rowlock')}")
        raise typer.Exit


@app.callback()
def rowlock(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Durable AI-agent runs, checkpointed in PostgreSQL."""


rowlock.__doc__ = _EXAMPLES


@app.command()
def migrate(
    phase: Annotated[
        migrations.Phase,
        typer.Option(help="pre: before new code runs; post: after no old code runs any more; all."),
    ] = "all",
    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="How to answer.")
    ] = "text",
) -> None:
    """Create or update Rowlock's schema; safe to repeat and to run at once from many places."""
    with one_line_errors():
        url = database_url(load(DatabaseSettings))
        say = typer.echo if output == "text" else None
        applied = asyncio.run(migrations.migrate(url, phase=phase, progress=say))
        if output == "json":
            typer.echo(json.dumps({"applied": applied}))
        else:
            typer.echo(f"{len(applied)} applied" if applied else "up to date")


@app.command()
def worker(  # noqa: PLR0913, PLR0917  one parameter a flag
    pool: Annotated[str | None, typer.Option(help="The WorkerPool to serve.")] = None,
    namespace: Annotated[str | None, typer.Option(help="The pool's namespace.")] = None,
    processes: Annotated[
        int | None, typer.Option(help="Loop processes; default one per core.")
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Runs at once, over all processes.")] = None,
    lease_seconds: Annotated[
        float | None, typer.Option(help="For how long a silent worker keeps its runs.")
    ] = None,
    renew_seconds: Annotated[
        float | None, typer.Option(help="Between two beats; at most a third of the lease.")
    ] = None,
    stall_ceiling_seconds: Annotated[
        float | None, typer.Option(help="A loop that stands still for so long is killed.")
    ] = None,
    drain_seconds: Annotated[
        float | None, typer.Option(help="After SIGTERM, to reach a step boundary.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option(help="Name that stays over restarts of this worker.")
    ] = None,
    connect_timeout: Annotated[
        float | None,
        typer.Option(
            "--connect-timeout",
            "--connect-timeout-seconds",
            help="For how long to wait for an absent PostgreSQL at the start.",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port of /metrics and /livez; 0 for none.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="console or json.")] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
) -> None:
    """Run the agents of a pool until SIGTERM; then hand over what is not finished.

    Each flag can be given as an environment variable too: --lease-seconds is ROWLOCK_LEASE_SECONDS.
    A second SIGTERM ends the drain at once.
    """
    with one_line_errors():
        settings = load(
            WorkerSettings,
            pool=pool,
            namespace=namespace,
            processes=processes,
            slots=slots,
            lease_seconds=lease_seconds,
            renew_seconds=renew_seconds,
            stall_ceiling_seconds=stall_ceiling_seconds,
            drain_seconds=drain_seconds,
            instance=instance,
            connect_timeout_seconds=connect_timeout,
            metrics_port=metrics_port,
            log_format=log_format,
            log_level=log_level,
        )
        database_url(settings)
        logs.configure(log_format=settings.log_format, level=settings.log_level)
        code = asyncio.run(_supervise(settings))
    raise typer.Exit(code)


async def _supervise(settings: WorkerSettings) -> int:
    return await Supervisor(settings).run()


run_commands.register(app)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
