"""Commands that tell of one run: describe, events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from rowlock import logs
from rowlock.client import wishes
from rowlock.client.client import Client
from rowlock.client.happenings import RunEvent, recorded
from rowlock.client.wishes import PendingApproval
from rowlock.commands import verdict
from rowlock.commands.listing import waits
from rowlock.commands.output import (
    Output,
    Plain,
    ago,
    console,
    document,
    facts,
    lasted,
    plain,
    show,
    until,
    write,
)
from rowlock.commands.screen import Screen, steps_table, took
from rowlock.commands.steering import Run
from rowlock.commands.timeline import note, step_name, timeline
from rowlock.errors import UnknownRun
from rowlock.settings import DatabaseSettings, load
from rowlock.states import Phase
from rowlock.store import lines, reading
from rowlock.store.bodies import unpack
from rowlock.store.connection import Connection
from rowlock.store.lines import Waiting
from rowlock.store.reading import RunInfo
from rowlock.store.types import RunId
from rowlock.terminal import database_url, one_line_errors, with_store

_LONGEST = 160


@dataclass(frozen=True, slots=True)
class Told:
    """All that there is to tell of a run.

    Parameters
    ----------
    result
        JSON of one that succeeded.
    """

    info: RunInfo
    waiting: Waiting | None
    events: list[RunEvent]
    questions: list[PendingApproval]
    result: bytes | None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run has used."""

    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int = 0

    def __str__(self) -> str:
        if self == Usage():
            return ""
        cost = f", ${self.cost_micro / 1e6:.6f}" if self.cost_micro else ""
        return f"{self.tokens_in:,} tokens in, {self.tokens_out:,} out{cost}"


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(describe)
    app.command()(events)


def describe(run: Run, output: Output = "text") -> None:
    """Tell all of a run: where it stands and why, its steps, losses, questions, usage and result.

    \b
    Examples:
      rowlock describe 2531771558
      rowlock describe 2531771558 -o json | jq .timeline
    """
    with one_line_errors():
        told = asyncio.run(with_store(lambda conn: _told(conn, RunId(run))))
    if output == "text":
        _show(told)
    elif output == "name":
        write(str(run))
    else:
        write(document(_document(told), output))


def events(
    run: Run,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")
    ] = False,
    after: Annotated[
        int, typer.Option(min=0, help="Only what stands behind this number of the history.")
    ] = 0,
    output: Plain = "text",
) -> None:
    """Print the history of a run, a line for each thing that happened, and last where it stands.

    With -o json each line is a document; `seq` is what --after goes on behind.
    With --follow the exit code is 0 if the run succeeded and 1 if it did not.

    \b
    Examples:
      rowlock events 2531771558                      what happened until now
      rowlock events 2531771558 --follow             and what happens next
      rowlock events 2531771558 --after 40 -o json   only what is new, for a program
    """
    with one_line_errors():
        logs.configure(level="ERROR")  # the client logs that it waits for the database
        if follow:
            last = asyncio.run(_follow(RunId(run), after, output))
            raise typer.Exit(0 if last == Phase.SUCCEEDED else 1)
        found = asyncio.run(with_store(lambda conn: recorded(conn, RunId(run), after=after)))
        for event in found:
            _tell(event, output)


async def _follow(run_id: RunId, after: int, output: str) -> str:
    phase = ""
    async with (
        Client(database_url(load(DatabaseSettings))) as client,
        contextlib.aclosing(client.events(run_id, after=after)) as happenings,  # type: ignore[type-var]
    ):
        async for event in happenings:
            _tell(event, output)
            if event.kind == "state":
                phase = str((event.data or {}).get("phase"))
    return phase


def _tell(event: RunEvent, output: str) -> None:
    if output == "text":
        write(event_line(event))
    elif output == "json":
        write(document(event, "json"))
    else:
        write(f"---\n{document(event, 'yaml')}")


def event_line(event: RunEvent) -> str:
    """Return an event on one line: when, number, attempt and lease, what, and what it says."""
    at = f"{event.at.astimezone():%Y-%m-%d %H:%M:%S}" if event.at else ""
    step = f" {step_name(event.step)}" if event.step and event.kind != "decided" else ""
    tries = f" (try {event.tries})" if event.tries > 1 else ""
    length = "" if event.duration_ms is None else f" {took(event.duration_ms / 1000)}"
    says = _says(event)
    return (
        f"{at:<19} {event.seq:>4} {event.attempt}/{event.epoch} "
        f"{event.kind}{step}{tries}{length}{': ' if says else ''}{says}"
    )


def _says(event: RunEvent) -> str:
    if event.data is None:
        return "(over 64 KiB)"
    if event.kind == "progress":
        text = str(event.data.get("text", ""))
    elif event.kind == "state":
        text = _state(plain(event.data))
    else:
        text = note(event)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _state(data: dict[str, Any]) -> str:
    """Return a state without what is not so: a wait without a time, a run without a loss."""
    return " ".join(f"{name}={value}" for name, value in data.items() if value not in (None, "", 0))


async def _told(conn: Connection, run_id: RunId) -> Told:
    found = await reading.infos(conn, [run_id], namespace=None)
    if not found:
        raise UnknownRun(f"there is no run {run_id}")
    result = None
    if verdict.good(found[0]):
        for end in await reading.ends(conn, [run_id]):
            result = await reading.result(conn, end)
    return Told(
        found[0],
        await lines.place_of(conn, run_id),
        await recorded(conn, run_id),
        await wishes.pending(conn, run_id),
        result,
    )


def used(info: RunInfo, happenings: Iterable[RunEvent]) -> Usage:
    """Return what a run has used: as its end says, or by now as its steps do."""
    if info.finished_at is not None:
        return Usage(info.tokens_in, info.tokens_out, info.cost_micro)
    counts = [event.data["usage"] for event in happenings if event.data and "usage" in event.data]
    return Usage(*(sum(one) for one in zip(*counts, strict=True)))


def _show(told: Told) -> None:
    show(facts(summary(told)))
    steps = timeline(told.events)
    if steps:
        show("", steps_table(steps))
    for line in _questions(told.questions):
        show(Text(line, style="yellow"))
    if told.result is not None:
        show("")
        Screen(console()).result(_result(told))


def summary(told: Told) -> Sequence[tuple[str, str]]:
    """Return what stands above the timeline, name and value."""
    info = told.info
    return [
        ("run", str(info.id)),
        ("agent", info.agent),
        ("key", info.key or ""),
        ("priority", str(info.priority) if info.priority else ""),
        ("phase", info.phase.value),
        ("waits", _waits(told.waiting)),
        ("why", ": ".join(part for part in (info.reason, info.message) if part)),
        ("outcome", info.outcome or ""),
        ("attempt", str(info.attempt)),
        ("takeovers", str(info.takeovers) if info.takeovers else ""),
        ("worker", info.worker or ""),
        ("accepted", f"{ago(info.created_at)} ago"),
        ("took", _took(info)),
        ("used", str(used(info, told.events))),
    ]


def _waits(waiting: Waiting | None) -> str:
    if waiting is None:
        return ""
    text = f"{waits(waiting)}, for {ago(waiting.since)}"
    if waiting.nth is not None:
        text += f", place {waiting.nth} in line"
    if waiting.due_at is not None:
        text += f", {until(waiting.due_at)} to go"
    return text


def _took(info: RunInfo) -> str:
    if info.started_at is None:
        return ""
    if info.finished_at is None:
        return f"{ago(info.started_at)} so far"
    span = info.finished_at - info.started_at
    return took(span.total_seconds()) if span.total_seconds() < 60 else lasted(span)


def _questions(asked: Iterable[PendingApproval]) -> Iterable[str]:
    for one in asked:
        arguments = msgspec.json.encode(one.arguments).decode()
        note = f" ({one.note})" if one.note else ""
        yield f"? {one.tool} {arguments}{note}: rowlock approve {one.run_id} {one.step}"


def _document(told: Told) -> dict[str, Any]:
    info = told.info
    document = plain(info)
    document |= verdict.document(info, _result(told))
    document |= plain(used(info, told.events))
    document["waits"] = None
    if told.waiting is not None:
        document["waits"] = {
            "reason": waits(told.waiting),
            "place": told.waiting.nth,
            "since": told.waiting.since,
            "due_at": told.waiting.due_at,
        }
    document["questions"] = plain(told.questions)
    document["timeline"] = [line.as_plain() for line in timeline(told.events)]
    return dict(document)


def _result(told: Told) -> Any:
    return None if told.result is None else msgspec.json.decode(unpack(told.result))
