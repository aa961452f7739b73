"""Which Events a change of a WorkerPool's status is worth; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from rowlock_operator.api.pool_words import Limit, Why
from rowlock_operator.kube.conditions import condition_of
from rowlock_operator.kube.resources import WORKER_POOLS, ObjectKey
from rowlock_operator.mirror.announcements import Announcement
from rowlock_operator.pools.availability import TROUBLES

#: (condition, status, reasons) -> what is announced when that becomes so.
_NEWS: tuple[tuple[str, str, frozenset[str], str], ...] = (
    ("ScalingActive", "False", frozenset({Why.UNKNOWN.value}), "PoolScalingHeld"),
    ("ScalingLimited", "True", frozenset({Limit.DOWNSTREAM.value}), "PoolScalingHeld"),
    ("ScalingLimited", "True", frozenset({Limit.MAXIMUM.value}), "PoolAtMaximum"),
    ("Available", "False", TROUBLES, "PoolUnhealthy"),
    ("OldBuildsKept", "True", frozenset({"PinnedRuns"}), "PoolKeepsBuild"),
    ("OldBuildsKept", "False", frozenset({"TemplateLost"}), "PoolLacksBuild"),
)


def announcements(
    key: ObjectKey, before: Mapping[str, Any], after: Mapping[str, Any], *, now: datetime
) -> list[Announcement]:
    """Return one Event for each thing that is new in a status."""
    number = int(now.timestamp() * 1000)
    return [
        Announcement(key, reason, number, note, now, about=WORKER_POOLS)
        for reason, note in _said(before, after)
    ]


def _said(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    scaled = after.get("lastScale")
    if scaled and scaled != before.get("lastScale"):
        workers = f"from {scaled['fromReplicas']} to {scaled['toReplicas']} workers"
        yield "PoolScaled", f"{workers}: {scaled['reason']}"
    for type_, status, reasons, event in _NEWS:
        now = condition_of(after, type_)
        if (now.get("status"), now.get("reason")) != (status, _one_of(reasons, now)):
            continue
        then = condition_of(before, type_)
        if (then.get("status"), then.get("reason")) != (status, now["reason"]):
            yield event, f"{now['reason']}: {now.get('message', '')}"


def _one_of(reasons: frozenset[str], condition: Mapping[str, Any]) -> str | None:
    reason = condition.get("reason")
    return reason if reason in reasons else None
