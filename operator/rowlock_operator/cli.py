"""The console script `rowlock-operator`.

Exit codes: 0 after SIGTERM, 1 when something ended or did not come in time,
2 when a person must change the configuration.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import structlog
import typer
import uvloop

from rowlock import logs
from rowlock.errors import ConfigurationError, RowlockError
from rowlock_operator.intake.kopf_source import quiet_kopf
from rowlock_operator.lifecycle.operator import Operator
from rowlock_operator.settings import OperatorSettings, load_settings

log = structlog.get_logger(__name__)

_EXAMPLES = """
Runs AgentRuns on Kubernetes: takes them in, shows how they go, keeps WorkerPools in line.

Every flag has a variable, ROWLOCK_ and its name; flags win. The database URL has no flag,
so that it does not show in the process list: set ROWLOCK_DATABASE_URL.

Examples:

\b
  # in a Pod: service account, whole cluster
  rowlock-operator

\b
  # on a laptop, two namespaces, with the context of a kubeconfig, no other operator beside
  rowlock-operator --kubeconfig ~/.kube/config --context dev --namespaces team-a,team-b \\
    --no-election

\b
  # no Normal Events, at most 50 status writes a second, JSON logs
  rowlock-operator --no-normal-events --status-writes-per-second 50 --log-format json
"""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=_EXAMPLES)
def run(  # noqa: PLR0913, PLR0917  one parameter a flag
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Kubeconfig file; else KUBECONFIG, the Pod's, ~/.kube.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    namespaces: Annotated[
        str | None, typer.Option(help="Namespaces to watch, by commas; else all.")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option(help="Port of /livez, /readyz, /metrics; 0 for none.")
    ] = None,
    status_writes_per_second: Annotated[
        float | None, typer.Option(help="Status writes a second at most.")
    ] = None,
    normal_events: Annotated[
        bool | None,
        typer.Option(
            "--normal-events/--no-normal-events", help="Write Events of type Normal, too."
        ),
    ] = None,
    election: Annotated[
        bool | None,
        typer.Option(
            "--election/--no-election", help="Lead only while holding a Lease: for replicas."
        ),
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="console or json.")] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Run the operator."""
    if show_version:
        typer.echo(f"rowlock-operator {version('rowlock')}")
        return
    try:
        settings = load_settings(
            kubeconfig=kubeconfig,
            context=context,
            namespaces=namespaces,
            http_port=http_port,
            status_writes_per_second=status_writes_per_second,
            normal_events=normal_events,
            election=election,
            log_format=log_format,
            log_level=log_level,
        )
        _run(settings)
    except ConfigurationError as error:
        sys.stderr.write(f"rowlock-operator: {' '.join(str(error).split())}\n")
        raise typer.Exit(2) from None
    except RowlockError as error:
        log.error("The operator ends", error=f"{type(error).__name__}: {error}")
        raise typer.Exit(1) from None


def main() -> None:
    """Run the console script."""
    app()


def _run(settings: OperatorSettings) -> None:
    logs.configure(log_format=settings.log_format, level=settings.log_level)
    quiet_kopf()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Operator(settings).run())
