"""The steps of a run as lines of a table, made from the events of its history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from rowlock.client.happenings import RunEvent
from rowlock.states import Decision

#: Events that concern the whole run, and how a person calls them.
_LIFECYCLE = {
    "taken_over": "taken over",
    "handed_over": "handed over",
    "attempt_failed": "attempt failed",
    "parked": "waits",
    "decided": "decided",
    "sleep": "sleeps",
}


class Tells(Protocol):
    """What says why it happened."""

    @property
    def kind(self) -> str:
        """As `RunEvent` has it."""

    @property
    def data(self) -> dict[str, Any] | None:
        """As `RunEvent` has it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line.

    Parameters
    ----------
    what
        Key of a step, or what happened to the run.
    status
        `done`, `failed`, `interrupted`, or `event` for what happened to the run.
    started
        Seconds after the run's first event.
    seconds
        How long it took; None where nobody measured it.
    tries
        How often it was tried.
    epoch
        Number of the worker's lease that did it.
    note
        Why, in a few words.
    """

    what: str
    status: str
    started: float
    seconds: float | None
    tries: int
    attempt: int
    epoch: int
    note: str = ""

    def as_plain(self) -> dict[str, Any]:
        """Return it for a document."""
        return {
            "what": self.what,
            "status": self.status,
            "started": round(self.started, 3),
            "seconds": self.seconds,
            "tries": self.tries,
            "attempt": self.attempt,
            "epoch": self.epoch,
            "note": self.note,
        }


def timeline(events: Iterable[RunEvent]) -> list[Line]:
    """Return a line for each step and each loss or hand-over of a worker, in their order."""
    rows = [event for event in events if event.kind != "state" and event.at is not None]
    if not rows:
        return []
    begun = min(map(_begin, rows))
    lines = [_line(event, begun) for event in rows if event.kind not in ("progress", "step_intent")]
    return lines + _interrupted(rows, begun)


def _line(event: RunEvent, begun: float) -> Line:
    lifecycle = _LIFECYCLE.get(event.kind)
    status = "event" if lifecycle else event.kind.removeprefix("step_")
    return Line(
        what=lifecycle or event.step or event.kind,
        status=status,
        started=max(0.0, _begin(event) - begun),
        seconds=None if event.duration_ms is None else event.duration_ms / 1000,
        tries=event.tries,
        attempt=event.attempt,
        epoch=event.epoch,
        note=note(event),
    )


def _decision(data: dict[str, Any]) -> str:
    try:
        return Decision(data.get("decision", 0)).name.lower()
    except ValueError:
        return "answered"


def note(event: Tells) -> str:
    """Return why something happened, in a few words."""
    data = event.data or {}
    if event.kind == "taken_over":
        return f"{data.get('reason')}, takeover {data.get('takeovers')}"
    if event.kind == "decided":
        step = step_name(str(data.get("step_key", "")))
        return f"{step}: {_decision(data)} by {data.get('by')}".lstrip(": ")
    if event.kind in ("handed_over", "attempt_failed", "parked"):
        said = data.get("waits_for") or data.get("message") or data.get("reason") or ""
        return ", ".join(said) if isinstance(said, list) else str(said)
    return str(data.get("error") or "")


def step_name(key: str) -> str:
    """Return how a person calls a step: without the digest of its arguments."""
    name, mark, rest = key.partition("#")
    nth = rest.rpartition(".")[2]
    if not mark or not nth.isdigit():
        return key
    return name if nth == "0" else f"{name} ({int(nth) + 1})"


def _interrupted(rows: list[RunEvent], begun: float) -> list[Line]:
    """Return steps that were announced and never ended."""
    ended = {event.step for event in rows if event.kind in ("step_done", "step_failed")}
    left = {e.step: e for e in rows if e.kind == "step_intent" and e.step not in ended}
    return [
        Line(str(step), "interrupted", _begin(e) - begun, None, e.tries, e.attempt, e.epoch)
        for step, e in left.items()
    ]


def _begin(event: RunEvent) -> float:
    at: datetime = event.at  # type: ignore[assignment]  # rows of history have a time
    return at.timestamp() - (event.duration_ms or 0) / 1000
