"""Commands about many runs: list, queue, pools."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from rowlock.client.client import Client
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
from rowlock.errors import InvalidRequest, WishRefused
from rowlock.settings import DatabaseSettings, load
from rowlock.store import changes, lines, reading, redrive
from rowlock.store.connection import Connection
from rowlock.store.lines import Waiting
from rowlock.store.reading import RunInfo
from rowlock.store.types import PoolDemand, RunId
from rowlock.terminal import database_url, one_line_errors, with_store
from rowlock.waiting import wait_reason

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", envvar="ROWLOCK_NAMESPACE", help="Of the agents.")
]
AnyNamespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Of the pools; default: all.")
]

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN: Final = re.compile(r"(\d{1,6})([smhdw])")


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("list")(list_runs)
    app.command("queue")(queue)
    app.command("pools")(pools)


def list_runs(
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    phase: Annotated[
        str | None, typer.Option(help=f"Only runs that stand here: {', '.join(reading.LISTED)}.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only runs with this concurrency key.")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only runs accepted since: 30s, 10m, 2h, 7d, or 2026-05-07T09:00Z."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 50,
    namespace: Namespace = "",
    output: Output = "text",
) -> None:
    """List runs, the newest first.

    \b
    Examples:
      rowlock list                              the newest fifty
      rowlock list --agent support --since 2h   of one agent, of two hours
      rowlock list --phase failed -o name       their numbers, for a loop
      rowlock list -n team-a -o json            of a namespace, for a program
    """

    async def look() -> list[RunInfo]:
        async with Client(database_url(load(DatabaseSettings)), namespace=namespace) as client:
            return await client.list(
                agent=agent,
                key=key,
                phase=_phase(phase),
                since=moment(since),
                limit=limit,
            )

    with one_line_errors():
        found = asyncio.run(look())
    _tell(output, found, names=[str(info.id) for info in found], people=_runs)


def queue(
    run: Annotated[
        int | None, typer.Argument(metavar="[RUN]", min=1, help="Where this run stands.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Only what waits for this pool.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Runs of each line.")] = 20,
    namespace: AnyNamespace = None,
    output: Output = "text",
) -> None:
    """Show which runs wait, who is next, and why each does not run yet.

    A place counts all runs of the pool, or with ConcurrencyLimit all of the agent, where keys
    take turns; runs that wait for a time or for a person have none.

    \b
    Examples:
      rowlock queue                   the front of each line
      rowlock queue --pool gpu        of one pool
      rowlock queue 2531771558        where one run stands
    """

    async def look(conn: Connection) -> list[Waiting]:
        if run is not None:
            return [await _place(conn, RunId(run))]
        return await lines.waiting(conn, namespace=namespace, pool=pool, limit=limit)

    with one_line_errors():
        found = asyncio.run(with_store(look))
    plain = [_plain(one) for one in found]
    _tell(output, plain, names=[str(one.run_id) for one in found], people=lambda _: _lines(found))


def pools(namespace: AnyNamespace = None, output: Output = "text") -> None:
    """Show what each pool has to do, and who does it.

    \b
    Examples:
      rowlock pools                   is there a worker for what waits?
      rowlock pools -n team-a -o json
    """
    with one_line_errors():
        found = asyncio.run(with_store(changes.pool_demand))
    found = [one for one in found if namespace in (None, one.namespace)]
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


def waits(one: Waiting) -> str:
    """Return why a run waits."""
    return wait_reason(
        one.place,
        parked_for=one.parked_for,
        timer_reason=one.timer_reason,
        quarantined=one.quarantined,
    ).value


def _phase(text: str | None) -> str | None:
    """Return the phase, however its letters were typed; the client refuses all others."""
    known = {phase.value.lower(): phase.value for phase in reading.LISTED}
    return None if text is None else known.get(text.lower(), text)


async def _place(conn: Connection, run_id: RunId) -> Waiting:
    found = await lines.place_of(conn, run_id)
    if found is not None:
        return found
    stands = await redrive.standing(conn, run_id)
    if not stands.there:
        raise WishRefused(f"there is no run {run_id}")
    raise WishRefused(f"run {run_id} {'runs' if stands.live else 'has ended'}: it waits nowhere")


def _tell(output: Any, found: Sequence[Any], *, names: list[str], people: Any) -> None:
    if output == "text":
        people(found)
    elif output == "name":
        for name in names:
            write(name)
    else:
        write(document(found, output))


def _runs(found: Sequence[RunInfo]) -> None:
    made = table(
        "run", "agent", "phase", "age", "took", "attempt", "takeovers", "key", "why",
        right=("age", "took", "attempt", "takeovers"),
    )  # fmt: skip
    now = datetime.now(UTC)
    for info in found:
        end = info.finished_at or now
        made.add_row(
            cell(info.id),
            cell(info.agent),
            phase_text(info.phase.value),
            ago(info.created_at, now),
            lasted(end - info.started_at) if info.started_at else "",
            cell(info.attempt),
            cell(info.takeovers or None),
            cell(info.key),
            cell(info.reason or (info.outcome if info.outcome != "ok" else None)),
        )
    show(made)


def _plain(one: Waiting) -> dict[str, Any]:
    return {
        "run": one.run_id,
        "namespace": one.namespace,
        "pool": one.pool,
        "agent": one.agent,
        "key": one.key,
        "priority": one.priority,
        "attempt": one.attempt,
        "reason": waits(one),
        "place": one.nth,
        "since": one.since,
        "due_at": one.due_at,
    }


def _lines(found: Sequence[Waiting]) -> None:
    made = table(
        "pool", "reason", "place", "run", "agent", "key", "priority", "waits", "due in",
        right=("place", "priority", "waits", "due in"),
    )  # fmt: skip
    now = datetime.now(UTC)
    for one in found:
        made.add_row(
            cell(_full_name(one.namespace, one.pool)),
            cell(waits(one)),
            cell(one.nth),
            cell(one.run_id),
            cell(one.agent),
            cell(one.key),
            cell(one.priority),
            ago(one.since, now),
            until(one.due_at, now),
        )
    show(made)


def _pools(found: Sequence[PoolDemand]) -> None:
    made = table(
        "pool", "workers", "slots", "running", "claimable", "quarantined", "waiting", "oldest",
        right=("workers", "slots", "running", "claimable", "quarantined", "waiting", "oldest"),
    )  # fmt: skip
    for one in found:
        made.add_row(
            cell(_full_name(one.namespace, one.name)),
            *map(cell, (one.workers, one.slots, one.running, one.claimable)),
            *map(cell, (one.quarantined, one.waiting, ago(one.oldest_ready_at))),
        )
    show(made)


def _full_name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
