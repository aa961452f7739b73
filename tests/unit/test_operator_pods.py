"""What becomes of a pod's workers: the decisions, without any I/O."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.store.types import WorkerId
from rowlock.store.workers import Silence
from rowlock_operator.pods.roster import PodSeen, Roster, pod_seen
from rowlock_operator.pods.verdicts import Verdict, confirmed, is_node_lost, judge


def item(
    *,
    phase: str = "Running",
    ready: str = "True",
    inside: str = "True",
    reason: str | None = None,
    disrupted: bool = False,
    spec: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a pod as the API server gives it."""
    conditions = [
        {"type": "Ready", "status": ready},
        {"type": "ContainersReady", "status": inside},
    ]
    if disrupted:
        conditions.append({"type": "DisruptionTarget", "status": "True"})
    return {
        "metadata": {"uid": "u", "namespace": "n", "name": "p"},
        "spec": {"nodeName": "node", **(spec or {})},
        "status": {"phase": phase, "conditions": conditions, "reason": reason},
    }


@pytest.mark.parametrize(
    ("pod", "verdict"),
    [
        (item(), Verdict.KEEP),
        (item(phase="Pending", ready="False", spec={"nodeName": None}), Verdict.KEEP),
        (item(ready="False", inside="False"), Verdict.ASK_NODE),
        (item(ready="False"), Verdict.ASK_NODE),
        (item(reason="NodeLost"), Verdict.ASK_NODE),
        (item(disrupted=True), Verdict.KEEP),
        (item(phase="Failed"), Verdict.DIED),
        (item(phase="Succeeded"), Verdict.DIED),
        (item(phase="Failed", reason="Evicted"), Verdict.EVICTED),
        (item(phase="Failed", disrupted=True), Verdict.EVICTED),
        (item(phase="Succeeded", disrupted=True), Verdict.EVICTED),
    ],
)
def test_a_pod_that_a_watch_shows_is_judged_by_its_status(
    pod: dict[str, Any], verdict: Verdict
) -> None:
    assert judge(pod_seen(pod), listed=True) is verdict
    assert confirmed(pod_seen(pod), uid="u") is verdict


def test_a_pod_that_nobody_shows_is_asked_for_once_its_namespace_was_listed() -> None:
    assert judge(None, listed=False) is Verdict.KEEP
    assert judge(None, listed=True) is Verdict.CONFIRM
    assert confirmed(None, uid="u") is Verdict.GONE
    assert confirmed(pod_seen(item()), uid="another") is Verdict.GONE
    assert confirmed(pod_seen(item()), uid="u") is Verdict.KEEP


@pytest.mark.parametrize(
    ("node", "lost"),
    [
        (None, True),
        ({}, False),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, False),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, True),
        ({"status": {"conditions": [{"type": "DiskPressure", "status": "True"}]}}, False),
        ({"spec": {"taints": [{"key": "node.kubernetes.io/unreachable"}]}}, True),
        ({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service"}]}}, True),
        ({"spec": {"taints": [{"key": "node.kubernetes.io/unschedulable"}]}}, False),
    ],
)
def test_a_node_is_lost_by_its_condition_or_its_taints(
    node: dict[str, Any] | None, lost: bool
) -> None:
    assert is_node_lost(node) is lost


@pytest.mark.parametrize(
    ("pod", "contradicted"),
    [
        (item(ready="False"), True),
        (item(ready="False", inside="False"), False),
        (item(ready="False", spec={"readinessGates": [{"conditionType": "x"}]}), False),
        (item(reason="NodeLost"), True),
        (item(), False),
    ],
)
def test_only_the_control_plane_says_unready_of_a_pod_with_ready_containers(
    pod: dict[str, Any], contradicted: bool
) -> None:
    assert pod_seen(pod).contradicted is contradicted


def test_a_roster_wakes_its_reader_for_what_matters_alone() -> None:
    roster = Roster()
    roster.put(PodSeen("1", "a", "p"))
    assert not roster.changed.is_set()
    roster.put(PodSeen("1", "a", "p", unready=True))
    assert roster.changed.is_set()
    roster.changed.clear()
    roster.put(PodSeen("1", "a", "p"))
    assert roster.changed.is_set(), "what was in doubt and is not any more has to be looked at too"
    roster.changed.clear()
    roster.drop("2")
    assert not roster.changed.is_set()
    roster.drop("1")
    assert roster.changed.is_set()


def test_a_list_of_one_namespace_replaces_its_pods_alone() -> None:
    roster = Roster()
    roster.replace("a", [PodSeen("1", "a", "p")])
    roster.replace("b", [PodSeen("2", "b", "p")])
    roster.replace("a", [PodSeen("3", "a", "q")])
    assert [roster.get(uid) is not None for uid in "123"] == [False, True, True]
    assert (roster.knows("a"), roster.knows("c")) == (True, False)
    roster.replace(None, [])
    assert (len(roster), roster.knows("c")) == (0, True)


def test_a_silence_that_a_lost_node_explains_is_not_doubted() -> None:
    mine, others = WorkerId(1), (WorkerId(2), WorkerId(3), WorkerId(4))
    doubtful = Silence((mine, *others), 5, 3, 15, None, explained=(mine,))
    assert doubtful.in_doubt
    assert doubtful.to_fence == [mine]
    sure = Silence((mine, *others), 50, 3, 15, None, explained=(mine,))
    assert sure.to_fence == [mine, *others]
