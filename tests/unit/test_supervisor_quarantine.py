"""When a process of quarantine is started or a place lent, and when its run may go back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rowlock.engine.probation import Probation
from rowlock.settings import WorkerSettings
from rowlock.store.types import AgentId, Claimed, PoolId, RevisionId, RunId
from rowlock.supervisor.plans import make_plans, quarantine_plans
from rowlock.supervisor.quarantine import Outlook, Step, decide


@pytest.mark.parametrize(
    ("outlook", "most", "step"),
    [
        (Outlook(waiting=0, free=0), 1, Step.NOTHING),
        (Outlook(waiting=1, free=0), 1, Step.START),
        # Another worker has one at hand.
        (Outlook(waiting=1, free=1), 1, Step.NOTHING),
        (Outlook(waiting=2, free=1), 1, Step.START),
        (Outlook(waiting=9, free=0, extra=1), 1, Step.NOTHING),
        (Outlook(waiting=9, free=0, extra=1), 2, Step.START),
        (Outlook(waiting=9, free=0, extra=2), 2, Step.NOTHING),
        # None may be started.
        (Outlook(waiting=1, free=0), 0, Step.LEND),
        (Outlook(waiting=1, free=0, lent=True), 0, Step.NOTHING),
        (Outlook(waiting=0, free=0), 0, Step.NOTHING),
        # None can be started.
        (Outlook(waiting=1, free=0, failures=2), 1, Step.START),
        (Outlook(waiting=1, free=0, failures=3), 1, Step.LEND),
        (Outlook(waiting=1, free=0, failures=3, lent=True), 1, Step.NOTHING),
        (Outlook(waiting=0, free=0, failures=3), 1, Step.NOTHING),
    ],
)
def test_what_a_round_does(outlook: Outlook, most: int, step: Step) -> None:
    assert decide(outlook, most=most) is step


@pytest.mark.parametrize(("most", "labels"), [(0, ["q0"]), (1, ["q0"]), (3, ["q0", "q1", "q2"])])
def test_plans_of_quarantine_hold_one_run_under_names_of_their_own(
    most: int, labels: list[str]
) -> None:
    settings = WorkerSettings(
        pod_name="pod", instance="pod-1/main", processes=2, quarantine_processes=most
    )
    plans = quarantine_plans(settings, PoolId(3))
    assert [plan.boot.label for plan in plans] == labels
    for plan, label in zip(plans, labels, strict=True):
        assert (plan.boot.slots, plan.boot.quarantine, plan.worker.quarantine) == (1, True, True)
        assert plan.boot.name == plan.worker.name == f"pod/{label}"
        # So that a boot of the same worker fences it with the others.
        assert plan.worker.instance == f"pod-1/main/{label}"
    others = make_plans(settings, PoolId(3))
    assert [plan.boot.label for plan in others] == ["0", "1"]
    assert not any(plan.boot.quarantine or plan.worker.quarantine for plan in others)


def held(run: int = 7, *, epoch: int = 1, wait: float | None = 30) -> Claimed:
    fields: dict[str, Any] = {"attempt": 1, "key": None, "takeovers": 2, "max_takeovers": 5}
    return Claimed(
        RunId(run),
        epoch,
        agent_id=AgentId(1),
        revision_id=RevisionId(1),
        active_ms=0,
        linked=False,
        claimed_at=datetime(2026, 9, 1, tzinfo=UTC),
        probation_seconds=wait,
        **fields,
    )


def test_a_probation_counts_from_when_the_run_came() -> None:
    probation = Probation()
    assert not probation.over([held()], 100)
    assert not probation.over([held()], 129)
    assert probation.over([held()], 130)


def test_another_run_or_another_lease_begins_anew() -> None:
    probation = Probation()
    assert not probation.over([held()], 100)
    assert not probation.over([], 110)
    assert not probation.over([held()], 131)
    assert not probation.over([held(epoch=2)], 162)
    assert not probation.over([held(8)], 193)
    assert probation.over([held(8)], 223)


def test_who_is_no_suspect_is_on_no_probation() -> None:
    probation = Probation()
    assert not probation.over([held(wait=None)], 0)
    assert not probation.over([held(wait=None)], 10**6)
