"""The command that tells all of one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from rowlock.commands import verdict
from rowlock.commands.following import event_line
from rowlock.commands.output import (
    Output,
    ago,
    cell,
    console,
    document,
    facts,
    lasted,
    plain,
    show,
    table,
    until,
    write,
)
from rowlock.commands.route import Flags, routed
from rowlock.commands.screen import Screen, steps_table, took
from rowlock.commands.shapes import QuestionShape, RunShape, Told, WaitShape
from rowlock.commands.sides import Side
from rowlock.commands.steering import Run
from rowlock.commands.way import asked


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(routed(describe))


def describe(flags: Flags, run: Run, output: Output = "text") -> None:
    """Tell all of a run: where it stands and why, losses, questions, usage and result.

    The database tells its steps; the cluster its conditions, the last ten leases and the
    Kubernetes events, and of a result the first KiB. What the other one knows is null in -o json.

    \b
    Examples:
      rowlock describe 2531771558
      rowlock describe 2531771558 -o json | jq .timeline
      kubectl rowlock describe order-7
      kubectl rowlock describe order-7 -o json | jq .leases
    """

    async def ask(side: Side) -> Told:
        return await side.tell(side.name(run))

    told = asked(flags, ask)
    if output == "text":
        _show(told)
    elif output == "name":
        write(str(told.info.run))
    else:
        write(document(document_of(told), output))


def _show(told: Told) -> None:
    show(facts(summary(told)))
    if told.timeline:
        show("", steps_table(told.timeline))
    for part in (_conditions(told.conditions), _leases(told.leases)):
        if part is not None:
            show("", part)
    if told.events:
        show("", *(Text(event_line(event)) for event in told.events))
    for line in _questions(told.questions):
        show(Text(line, style="yellow"))
    if told.preview is not None:
        show("", Text(told.preview), Text("(that is its beginning; the database has all of it)"))
    elif verdict.good(told.info):
        show("")
        Screen(console()).result(told.result)


def summary(told: Told) -> Sequence[tuple[str, str]]:
    """Return what stands above the timeline, name and value."""
    info = told.info
    through_cluster = info.run != info.id
    return [
        ("run", str(info.run)),
        ("number", str(info.id) if info.id and through_cluster else ""),
        ("namespace", (info.namespace or "") if through_cluster else ""),
        ("agent", info.agent),
        ("key", info.key or ""),
        ("priority", str(info.priority) if info.priority else ""),
        ("phase", info.phase),
        ("waits", _waits(told.waits)),
        ("why", _why(told)),
        ("outcome", info.outcome or ""),
        ("attempt", str(info.attempt)),
        ("takeovers", str(info.takeovers) if info.takeovers else ""),
        ("worker", info.worker or ""),
        ("accepted", f"{ago(info.created_at)} ago"),
        ("took", _took(info)),
        ("used", str(told.used)),
    ]


def _why(told: Told) -> str:
    info = told.info
    if told.waits is not None and info.reason == told.waits.reason:
        return info.message or ""
    return ": ".join(part for part in (info.reason, info.message) if part)


def _waits(waiting: WaitShape | None) -> str:
    if waiting is None:
        return ""
    text = f"{waiting.reason}, for {ago(waiting.since)}"
    if waiting.place is not None:
        text += f", place {waiting.place} in line"
    if waiting.due_at is not None:
        text += f", {until(waiting.due_at)} to go"
    return text


def _took(info: RunShape) -> str:
    if info.started_at is None:
        return ""
    if info.finished_at is None:
        return f"{ago(info.started_at)} so far"
    span = info.finished_at - info.started_at
    return took(span.total_seconds()) if span.total_seconds() < 60 else lasted(span)


def _conditions(found: list[dict[str, Any]] | None) -> Table | None:
    if not found:
        return None
    made = table("condition", "status", "reason", "since", "message", right=("since",))
    for one in found:
        made.add_row(
            cell(one.get("type")),
            cell(one.get("status")),
            cell(one.get("reason")),
            cell(_clock(one.get("lastTransitionTime"))),
            cell(one.get("message")),
        )
    return made


def _leases(found: list[dict[str, Any]] | None) -> Table | None:
    if not found:
        return None
    made = table(
        "lease", "attempt", "worker", "from", "to", "ended", right=("lease", "attempt")
    )  # fmt: skip
    for one in found:
        made.add_row(
            cell(one.get("leaseEpoch")),
            cell(one.get("attempt")),
            cell(one.get("worker")),
            cell(_clock(one.get("startTime"))),
            cell(_clock(one.get("endTime"))),
            cell(one.get("outcome") or "held"),
        )
    return made


def _clock(text: object) -> str:
    """Return a time of the API server without what all of them share."""
    return str(text or "").replace("T", " ").removesuffix("Z")


def _questions(found: Iterable[QuestionShape]) -> Iterable[str]:
    for one in found:
        arguments = (
            "" if one.arguments is None else f" {msgspec.json.encode(one.arguments).decode()}"
        )
        note = f" ({one.note})" if one.note else ""
        yield f"? {one.tool}{arguments}{note}: rowlock approve {one.run} {one.step}"


def document_of(told: Told) -> dict[str, Any]:
    """Return all that there is to tell for a program."""
    shown = plain(told.info) | verdict.document(told.info, told.result) | plain(told.used)
    shown["preview"] = told.preview
    shown["waits"] = None
    if told.waits is not None:
        kept = ("reason", "place", "since", "due_at")
        shown["waits"] = {name: value for name, value in plain(told.waits).items() if name in kept}
    shown["questions"] = plain(told.questions)
    shown["timeline"] = None if told.timeline is None else [it.as_plain() for it in told.timeline]
    for name in ("conditions", "leases", "events"):
        shown[name] = plain(getattr(told, name))
    return dict(shown)
