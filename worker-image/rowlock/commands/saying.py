"""What the database keeps of what a run has said: its texts, and what went wrong; pure.

Live text passes by and is stored nowhere, and what the agent's code logs stays with its worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from rowlock.client.happenings import RunEvent
from rowlock.commands.shapes import LogLine
from rowlock.commands.timeline import note, step_name
from rowlock.states import Phase

_LEVELS: Final = {
    "progress": "info",
    "step_done": "info",
    "step_failed": "error",
    "decided": "info",
    "taken_over": "warning",
    "handed_over": "info",
    "attempt_failed": "error",
    "parked": "info",
    "state": "info",
}
_ENDS: Final = {Phase.SUCCEEDED: "info", Phase.FAILED: "error", Phase.CANCELLED: "warning"}


def said_by(event: RunEvent) -> Iterator[LogLine]:
    """Yield a line where an event says something to a person."""
    text = _TEXTS.get(event.kind, note)(event)
    if not text:
        return
    level = _LEVELS.get(event.kind, "info")
    if event.kind == "state":
        level = _ENDS.get(Phase(str((event.data or {}).get("phase"))), level)
    data = {"step": event.step} if event.step else {}
    yield LogLine(
        at=event.at,
        level=level,
        source=event.kind,
        message=text,
        worker=(event.data or {}).get("worker") if event.kind == "state" else None,
        data={**data, "attempt": event.attempt, "epoch": event.epoch},
    )


def _progress(event: RunEvent) -> str:
    return str((event.data or {}).get("text", ""))


def _done(event: RunEvent) -> str:
    """Return what a model has written, for a step that asked one."""
    held: Any = event.data or {}
    if not (event.step or "").startswith("model:"):
        return ""
    answer = held.get("result")
    return str(answer.get("content") or "") if isinstance(answer, dict) else ""


def _failed(event: RunEvent) -> str:
    return f"{step_name(event.step or '')}: {note(event)}"


def _state(event: RunEvent) -> str:
    data = event.data or {}
    if data.get("phase") not in _ENDS:
        return ""
    why = ": ".join(str(data[name]) for name in ("reason", "message") if data.get(name))
    return f"{str(data['phase']).lower()}{': ' if why else ''}{why}"


_TEXTS: Final[dict[str, Callable[[RunEvent], str]]] = {
    "progress": _progress,
    "step_done": _done,
    "step_failed": _failed,
    "step_intent": lambda _: "",
    "sleep": lambda _: "",
    "state": _state,
}
