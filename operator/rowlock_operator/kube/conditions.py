"""Conditions of a status, and when they last flipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rowlock_operator.kube.text import cut, reason_word

_MESSAGE_BYTES = 256


@dataclass(frozen=True, slots=True)
class Condition:
    """One observation.

    Parameters
    ----------
    status
        True, False, or None for Unknown.
    at
        When it became so, if known; else the time of the write counts.
    """

    type: str
    status: bool | None
    reason: str
    message: str = ""
    at: datetime | None = None

    @property
    def word(self) -> str:
        """Return the status as the API server spells it."""
        return "Unknown" if self.status is None else str(self.status)


def merged(
    wanted: Iterable[Condition],
    before: Iterable[Mapping[str, Any]],
    *,
    generation: int,
    now: datetime,
) -> list[dict[str, Any]]:
    """Return `wanted` as it goes into a status.

    `lastTransitionTime` moves only when a status flips, so it is taken from `before` otherwise.

    Parameters
    ----------
    before
        The conditions that stand in the status now.
    generation
        The `metadata.generation` that they answer.
    """
    old = {condition.get("type"): condition for condition in before}
    return [_merged(condition, old.get(condition.type), generation, now) for condition in wanted]


def _merged(
    condition: Condition, old: Mapping[str, Any] | None, generation: int, now: datetime
) -> dict[str, Any]:
    kept = old is not None and old.get("status") == condition.word
    return {
        "type": condition.type,
        "status": condition.word,
        "observedGeneration": generation,
        "lastTransitionTime": (old or {})["lastTransitionTime"]
        if kept
        else timestamp(condition.at or now),
        "reason": reason_word(condition.reason),
        "message": cut(condition.message, _MESSAGE_BYTES),
    }


def timestamp(moment: datetime) -> str:
    """Return `moment` as Kubernetes writes it: UTC, whole seconds."""
    # A status holds a dozen of them; strftime takes ten times as long.
    return moment.astimezone(UTC).isoformat(timespec="seconds")[:19] + "Z"


def micro_timestamp(moment: datetime) -> str:
    """Return `moment` as a MicroTime, as in `Event.eventTime`."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"


def condition_of(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    """Return the condition of that type, or an empty mapping."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == type_:
            return dict(condition)
    return {}


def holds(status: Mapping[str, Any], type_: str) -> bool:
    """Tell whether the condition is True."""
    return condition_of(status, type_).get("status") == "True"
