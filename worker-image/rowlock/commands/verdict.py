"""How a run ended, in a line and in a document."""

from __future__ import annotations

from typing import Any

from rowlock.commands.shapes import RunShape
from rowlock.states import Phase


def good(info: RunShape) -> bool:
    """Tell whether the run has a result."""
    return info.phase == Phase.SUCCEEDED


def said(info: RunShape) -> str:
    """Return how a run ended, and why."""
    text = f"run {info.run} {info.phase.lower()} in {seconds(info):.2f} s"
    if info.takeovers:
        text += f", taken over {info.takeovers} time{'s' * (info.takeovers > 1)}"
    if info.outcome == "degraded":
        text += f", degraded: {info.message}"
    if not good(info):
        text += f": {info.reason}: {info.message}"
    return text


def seconds(info: RunShape) -> float:
    """Return how long a run took from its first claim to its end; 0 for one that has none."""
    if info.finished_at is None:
        return 0.0
    return (info.finished_at - (info.started_at or info.created_at)).total_seconds()


def document(info: RunShape, result: Any) -> dict[str, Any]:
    """Return the end of a run for a program."""
    return {
        "run": info.run,
        "agent": info.agent,
        "phase": info.phase,
        "result": result,
        "reason": info.reason,
        "message": info.message,
        "outcome": info.outcome,
        "attempt": info.attempt,
        "takeovers": info.takeovers,
        "seconds": seconds(info),
    }
