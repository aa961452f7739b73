"""When an AgentRun is deleted, and when its deletion is held: the decisions, without any I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rowlock.states import FailureReason
from rowlock_operator.api.names import HOLD
from rowlock_operator.intake.expiries import Fate, fate, seconds_left
from rowlock_operator.intake.holds import Hold, decide
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.resources import ObjectKey
from rowlock_operator.mirror.notices import RedriveNotice, notice_status

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FINISHED = {"conditions": [{"type": "Finished", "status": "True"}]}


def seen(status: dict[str, Any], *, redrive: int = 0, deleting: bool = False) -> Seen:
    key = ObjectKey("ns", "run", "u")
    return Seen("AgentRun", key, 1, "1", {"redrive": redrive}, status, deleting=deleting)


@pytest.mark.parametrize(
    ("it", "becomes"),
    [
        (None, Fate.GONE),
        (seen(FINISHED), Fate.DELETE),
        (seen({}), Fate.STAY),
        (seen(FINISHED, redrive=1), Fate.STAY),
        (seen({**FINISHED, "redrive": 1}, redrive=1), Fate.DELETE),
        (seen(FINISHED, deleting=True), Fate.STAY),
    ],
)
def test_only_what_is_over_and_wants_nothing_more_is_deleted(
    it: Seen | None, becomes: Fate
) -> None:
    assert fate(it, uid="u") is becomes


def test_a_namesake_is_never_deleted() -> None:
    assert fate(seen(FINISHED), uid="older") is Fate.GONE


@pytest.mark.parametrize(
    ("status", "ttl", "left"),
    [
        ({}, 0, None),
        ({"completionTime": "2026-01-01T11:59:00Z"}, 60, 0),
        ({"completionTime": "2026-01-01T11:59:30Z"}, 60, 30),
        ({"completionTime": "2026-01-01T11:00:00Z"}, 60, -3540),
        ({"completionTime": "2026-01-01T12:00:00Z"}, 0, 0),
    ],
)
def test_the_time_to_live_counts_from_the_completion(
    status: dict[str, Any], ttl: int, left: float | None
) -> None:
    assert seconds_left(status, ttl, now=NOW) == left


@pytest.mark.parametrize(
    ("held", "deleted", "live", "enabled", "becomes"),
    [
        (False, None, True, True, Hold.ADD),
        (False, None, True, False, Hold.KEEP),
        (False, None, False, True, Hold.KEEP),
        (False, "2026-01-01T11:59:00Z", True, True, Hold.KEEP),
        (True, None, True, True, Hold.KEEP),
        (True, None, True, False, Hold.RELEASE),
        (True, None, False, True, Hold.RELEASE),
        (True, "2026-01-01T11:59:00Z", True, True, Hold.KEEP),
        (True, "2026-01-01T11:59:00Z", True, False, Hold.KEEP),
        (True, "2026-01-01T11:59:00Z", False, True, Hold.RELEASE),
        (True, "2026-01-01T11:50:01Z", True, True, Hold.KEEP),
        (True, "2026-01-01T11:50:00Z", True, True, Hold.GIVE_UP),
        (True, "2026-01-01T11:50:00Z", False, True, Hold.RELEASE),
    ],
)
def test_a_deletion_is_held_until_the_run_has_ended_or_the_limit_is_over(
    *, held: bool, deleted: str | None, live: bool, enabled: bool, becomes: Hold
) -> None:
    metadata = {"finalizers": ["other", HOLD] if held else ["other"], "deletionTimestamp": deleted}
    assert decide(metadata, live=live, enabled=enabled, limit=600, now=NOW) is becomes


def test_a_refused_redrive_leaves_the_end_as_it_was() -> None:
    before = {
        "phase": "Succeeded",
        "reason": "Completed",
        "runID": "7",
        "redrive": 0,
        "conditions": [
            {"type": "Accepted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Finished", "status": "True", "reason": "Completed"},
        ],
    }
    notice = RedriveNotice(FailureReason.HISTORY_EXPIRED, 1)
    after = notice_status(notice, generation=3, before=before, now=NOW)
    assert after is not None
    accepted, finished = after["conditions"]
    assert (accepted["status"], accepted["reason"]) == ("False", "HistoryExpired")
    assert accepted["message"] == (
        "redrive 1 is refused: the steps of the run are not kept any more"
    )
    assert (finished["reason"], finished["observedGeneration"]) == ("Completed", 3)
    assert (after["phase"], after["reason"], after["redrive"]) == ("Succeeded", "HistoryExpired", 0)
    assert notice_status(notice, generation=3, before={"runID": "7"}, now=NOW) is None
