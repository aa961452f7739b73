"""Commands about many runs: list, queue, pools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from rowlock.commands.output import (
    Output,
    ago,
    cell,
    document,
    lasted,
    phase_text,
    show,
    table,
    until,
    write,
)
from rowlock.commands.route import Flags, routed
from rowlock.commands.shapes import PoolShape, RunShape, WaitShape
from rowlock.commands.sides import Side, Wanted
from rowlock.commands.way import asked
from rowlock.errors import InvalidRequest
from rowlock.store import reading

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN: Final = re.compile(r"(\d{1,6})([smhdw])")


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("list")(routed(list_runs))
    app.command("queue")(routed(queue))
    app.command("pools")(routed(pools))


def list_runs(
    flags: Flags,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    phase: Annotated[
        str | None,
        typer.Option(
            help=f"Only runs that stand here: {', '.join(reading.LISTED)}; "
            "through the cluster Pending, too."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only runs with this concurrency key.")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only runs accepted since: 30s, 10m, 2h, 7d, or 2026-05-07T09:00Z."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 50,
    output: Output = "text",
) -> None:
    """List runs, the newest first.

    \b
    Examples:
      rowlock list                              the newest fifty
      rowlock list --agent support --since 2h   of one agent, of two hours
      rowlock list --phase failed -o name       their numbers, for a loop
      rowlock list -n team-a -o json            of a namespace, for a program
      kubectl rowlock list --phase running      AgentRuns, of the context's namespace
    """

    async def look(side: Side) -> list[RunShape]:
        return await side.runs(Wanted(agent, phase, key, moment(since), limit))

    found = asked(flags, look)
    _tell(output, found, names=[str(info.run) for info in found], people=_runs)


def queue(
    flags: Flags,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Where this run stands.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Only what waits for this pool.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Runs of each line.")] = 20,
    output: Output = "text",
) -> None:
    """Show which runs wait, who is next, and why each does not run yet.

    A place counts all runs of the pool, or with ConcurrencyLimit all of the agent, where keys
    take turns; runs that wait for a time or for a person have none. The cluster knows reasons
    and no places: there each line is shown by priority, and then by age.

    \b
    Examples:
      rowlock queue                   the front of each line
      rowlock queue --pool gpu        of one pool
      rowlock queue 2531771558        where one run stands
      kubectl rowlock queue order-7   why an AgentRun waits
    """

    async def look(side: Side) -> list[WaitShape]:
        return await side.queue(None if run is None else side.name(run), pool, limit)

    found = asked(flags, look)
    _tell(output, found, names=[str(one.run) for one in found], people=_lines)


def pools(flags: Flags, output: Output = "text") -> None:
    """Show what each pool has to do, and who does it.

    \b
    Examples:
      rowlock pools                   is there a worker for what waits?
      rowlock pools -n team-a -o json
      kubectl rowlock pools           WorkerPools, with the workers that they want
    """
    found = asked(flags, lambda side: side.pools())
    names = [_full_name(one.namespace, one.name) for one in found]
    _tell(output, found, names=names, people=_pools)


def moment(text: str | None, now: datetime | None = None) -> datetime | None:
    """Return the time that a person means: a length of time ago, or a date.

    Raises
    ------
    InvalidRequest
        It is neither.
    """
    if text is None:
        return None
    span = _SPAN.fullmatch(text)
    try:
        if span:
            return (now or datetime.now(UTC)) - timedelta(**{_UNITS[span[2]]: int(span[1])})
        given = datetime.fromisoformat(text)
        return given if given.tzinfo else given.astimezone()
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"--since: {text[:40]!r} is no time: 30s, 10m, 2h, 7d, or 2026-05-07T09:00Z"
        ) from None


def _tell(output: Any, found: Sequence[Any], *, names: list[str], people: Any) -> None:
    if output == "text":
        people(found)
    elif output == "name":
        for name in names:
            write(name)
    else:
        write(document(found, output))


def _runs(found: Sequence[RunShape]) -> None:
    made = table(
        "run", "agent", "phase", "age", "took", "attempt", "takeovers", "key", "why",
        right=("age", "took", "attempt", "takeovers"),
    )  # fmt: skip
    now = datetime.now(UTC)
    for info in found:
        end = info.finished_at or now
        made.add_row(
            cell(info.run),
            cell(info.agent),
            phase_text(info.phase),
            ago(info.created_at, now),
            lasted(end - info.started_at) if info.started_at else "",
            cell(info.attempt),
            cell(info.takeovers or None),
            cell(info.key),
            cell(info.reason or (info.outcome if info.outcome != "ok" else None)),
        )
    show(made)


def _lines(found: Sequence[WaitShape]) -> None:
    made = table(
        "pool", "reason", "place", "run", "agent", "key", "priority", "waits", "due in",
        right=("place", "priority", "waits", "due in"),
    )  # fmt: skip
    now = datetime.now(UTC)
    for one in found:
        made.add_row(
            cell(_full_name(one.namespace, one.pool) if one.pool else ""),
            cell(one.reason),
            cell(one.place),
            cell(one.run),
            cell(one.agent),
            cell(one.key),
            cell(one.priority),
            ago(one.since, now),
            until(one.due_at, now),
        )
    show(made)


def _pools(found: Sequence[PoolShape]) -> None:
    wants = any(one.desired is not None for one in found)
    figures = (
        "workers", *(("desired",) if wants else ()), "slots", "running", "claimable",
        "quarantined", "waiting", "oldest",
    )  # fmt: skip
    made = table("pool", *figures, *(("why",) if wants else ()), right=figures)
    for one in found:
        made.add_row(
            cell(_full_name(one.namespace, one.name)),
            cell(one.workers),
            *([cell(one.desired)] if wants else []),
            *map(cell, (one.slots, one.running, one.claimable)),
            *map(cell, (one.quarantined, one.waiting, ago(one.oldest_ready_at))),
            *([cell(one.available)] if wants else []),
        )
    show(made)


def _full_name(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
