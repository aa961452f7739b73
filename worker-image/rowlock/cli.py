"""The command `rowlock`.

Exit codes: 0 all went well, 1 it did not, 2 the command line or the configuration is wrong.
An error that a person can mend is one line on stderr, without a traceback.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from importlib.metadata import version
from typing import Annotated, Literal

import typer

from rowlock import logs
from rowlock.commands import describing, following, listing, starting, steering
from rowlock.commands.route import Flags, ToCluster, route, routed
from rowlock.dev import command as dev_command
from rowlock.doctor.examination import examine
from rowlock.doctor.findings import Finding, Verdict, worst
from rowlock.engine.parent import hide_memory
from rowlock.errors import InvalidRequest
from rowlock.settings import DatabaseSettings, RetentionSettings, WorkerSettings, load
from rowlock.store import migrate as migrations
from rowlock.store import retention
from rowlock.supervisor.supervisor import Supervisor
from rowlock.terminal import database_url, one_line_errors
from rowlock.traces import join_steps

_EXAMPLES = """
Durable AI-agent runs, checkpointed in PostgreSQL.

\b
Runs live in PostgreSQL: commands read ROWLOCK_DATABASE_URL,
such as postgresql://user:password@host:5432/name, or --database-url.
Those about runs and pools go through a cluster as well, with kubectl and its rights:
with --cluster, --context, --kubeconfig, as `kubectl rowlock`, or with -n and no database.

\b
Examples:
  rowlock migrate                          create or update the schema
  rowlock worker --pool default            run a pool's agents, a process a core
  rowlock worker --processes 1 --slots 32  a small one, on a laptop
  rowlock doctor                           is the database healthy?
  rowlock dev agents:kitchen -i '{"cups": 2}'  try an agent, with nothing else
  rowlock gc --history-retention-days 90   drop history that nobody needs
  rowlock run support -i @order.json -w    start a run and wait for its result
  rowlock list --phase failed --since 2h   what went wrong lately?
  rowlock describe 2531771558              its steps, losses, questions and usage
  rowlock events 2531771558 --follow       what happens to it, as it happens
  rowlock logs 2531771558                  what it has said
  rowlock queue                            who is next, and why the others wait
  rowlock pools                            is there a worker for what waits?
  rowlock suspend 2531771558               hold a run; continue it, cancel it
  rowlock approvals                        what waits for somebody's yes or no
  rowlock approve 2531771558               say yes, if there is one question
  rowlock retry 2531771558                 another attempt; finished steps stay
  kubectl rowlock describe order-7         an AgentRun, through the cluster
  rowlock list --context prod -n team-a    the same, without the plugin
"""

Output = Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="How to answer.")]

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
    wait: Annotated[
        float, typer.Option(help="Seconds that PostgreSQL may take to be reached.", min=0)
    ] = 0,
    output: Output = "text",
) -> None:
    """Create or update Rowlock's schema; safe to repeat and to run at once from many places.

    \b
    Examples:
      rowlock migrate               before anything else
      rowlock migrate --phase pre   before new code runs; then post, after the old is gone
    """
    with one_line_errors():
        url = database_url(load(DatabaseSettings))
        say = typer.echo if output == "text" else None
        applied = asyncio.run(migrations.migrate(url, phase=phase, progress=say, wait=wait))
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
    executors: Annotated[
        int | None, typer.Option(help="Blocking tools at once, in each loop process.")
    ] = None,
    quarantine_processes: Annotated[
        int | None, typer.Option(help="Extra processes at most, for runs that go on alone.")
    ] = None,
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

    \b
    Examples:
      rowlock worker --pool default --slots 256
      rowlock worker --processes 1 --slots 32 --log-format console   on a laptop
    """
    with one_line_errors():
        settings = load(
            WorkerSettings,
            pool=pool,
            namespace=namespace,
            processes=processes,
            slots=slots,
            executors=executors,
            quarantine_processes=quarantine_processes,
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
        if settings.traces:
            join_steps()  # says at once what is missing
        logs.configure(log_format=settings.log_format, level=settings.log_level)
        code = asyncio.run(_supervise(settings))
    raise typer.Exit(code)


@app.command()
@routed
def doctor(flags: Flags, output: Output = "text") -> None:
    """Check the database: schema, invariants, leases, bloat, transactions, connections, settings.

    It examines the database and nothing else: the cluster cannot show what it looks at.
    It changes nothing. The exit code is 1 when a check failed; warnings leave it at 0.

    \b
    Examples:
      rowlock doctor
      rowlock doctor -o json | jq '.checks[] | select(.verdict != "ok")'
    """
    with one_line_errors():
        way = route(flags)
        if isinstance(way, ToCluster):
            raise InvalidRequest(
                "doctor examines the database, which the cluster cannot show: "
                "give --database-url, or ROWLOCK_DATABASE_URL alone"
            )
        findings = asyncio.run(examine(way.url))
    if output == "json":
        checks = [dataclasses.asdict(finding) for finding in findings]
        typer.echo(json.dumps({"verdict": worst(findings), "checks": checks}))
    else:
        for finding in findings:
            typer.echo(_shown(finding))
    raise typer.Exit(1 if worst(findings) is Verdict.FAIL else 0)


def _shown(finding: Finding) -> str:
    cure = f"\n{'':19}→ {finding.cure}" if finding.cure else ""
    return f"{finding.verdict:<5} {finding.check:<12} {finding.says}{cure}"


@app.command()
def gc(
    history_retention_days: Annotated[
        int | None, typer.Option(help="Days that a run stays readable; 0 keeps all.")
    ] = None,
    wait_seconds: Annotated[
        float, typer.Option(min=1, help="For how long to wait for transactions on a table.")
    ] = 300,
    output: Output = "text",
) -> None:
    """Drop the days of history that nobody needs any more, and what they leave behind.

    It needs the owner of the schema, as `rowlock migrate` does: partitions are detached and
    dropped. Work goes on meanwhile. It may be killed at any point; the next call goes on.

    \b
    Examples:
      rowlock gc --history-retention-days 90
    """
    with one_line_errors():
        settings = load(RetentionSettings, history_retention_days=history_retention_days)
        url = database_url(settings)
        say = typer.echo if output == "text" else lambda _: None
        swept = asyncio.run(
            retention.sweep(
                url,
                retention_days=settings.history_retention_days,
                wait_seconds=wait_seconds,
                progress=say,
            )
        )
    typer.echo(_swept_json(swept) if output == "json" else _swept_text(swept))


def _swept_json(swept: retention.Swept) -> str:
    return json.dumps(
        {
            "dropped": [str(day) for day in swept.dropped],
            "kept": {str(day): why for day, why in swept.kept.items()},
            "orphans": swept.orphans,
            "analyzed": swept.analyzed,
            "partitions_made": swept.partitions_made,
            "history_floor": swept.history_floor,
        }
    )


def _swept_text(swept: retention.Swept) -> str:
    orphans = sum(swept.orphans.values())
    return f"{len(swept.dropped)} days dropped, {len(swept.kept)} kept, {orphans} orphans deleted"


async def _supervise(settings: WorkerSettings) -> int:
    hide_memory()
    return await Supervisor(settings).run()


for part in (starting, listing, describing, following, steering, dev_command):
    part.register(app)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
