"""From a snapshot of rows to a status, an Event and a counter: no I/O."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowlock.states import (
    KUBERNETES_EVENTS,
    ChangeKind,
    ConditionType,
    EventKind,
    FailureReason,
    FinalStatus,
    Phase,
    Place,
    TimerReason,
    WaitReason,
)
from rowlock.store import bodies
from rowlock.store.types import Carry, Change, LifecycleEvent, RunId, RunSnapshot
from rowlock_operator.api.agentrun_status import AgentRunStatus
from rowlock_operator.kube.conditions import holds
from rowlock_operator.mirror.announcements import announcement, event_body
from rowlock_operator.mirror.backlog import Backlog
from rowlock_operator.mirror.fit import MAX_STATUS_BYTES, size
from rowlock_operator.mirror.notices import EndNotice, SeenNotice, WaitNotice, notice_status
from rowlock_operator.mirror.scope import Scope
from rowlock_operator.mirror.score import Score, score
from rowlock_operator.mirror.status import run_status

T0 = datetime(2026, 9, 1, 10, 0, 0, tzinfo=UTC)
NOW = T0 + timedelta(hours=1)
FINISHED = [{"type": "Finished", "status": "True"}]


def snap(place: Place = Place.READY, **more: Any) -> RunSnapshot:
    given = {
        "run_id": RunId(77),
        "cluster": "c",
        "uid": "0123456789abcdef",
        "namespace": "ns",
        "name": "run",
        "generation": 1,
        "place": place,
        "revision": 10,
        "epoch": 0,
        "attempt": 1,
        "takeovers": 0,
        "max_takeovers": 5,
        "created_at": T0,
        "agent_revision": "abcd",
        "ready_at": T0,
    }
    return RunSnapshot(**(given | more))  # type: ignore[arg-type]


def leased(**more: Any) -> RunSnapshot:
    at = T0 + timedelta(seconds=3)
    holder = {"worker": "worker-a", "pod_uid": "uid-a"}
    given = {"epoch": 1, **holder, "claimed_at": at, "started_at": at}
    return snap(Place.LEASE, **(given | more))


def final(status: FinalStatus = FinalStatus.SUCCEEDED, **more: Any) -> RunSnapshot:
    at = T0 + timedelta(seconds=3)
    given = {
        "epoch": 1,
        "worker": "worker-a",
        "claimed_at": at,
        "started_at": at,
        "finished_at": T0 + timedelta(seconds=9),
        "status": status,
        "step": 4,
    }
    return snap(Place.FINAL, **(given | more))


def moved(
    number: int,
    *,
    kind: EventKind = EventKind.TAKEN_OVER,
    reason: str = "LeaseExpired",
    **more: Any,
) -> LifecycleEvent:
    """Return the event of the owner at epoch `number` + 1."""
    body = {
        "from": f"worker-{number}",
        "to": f"worker-{number + 1}",
        "reason": reason,
        "epoch": number,
        "claimed_at": T0.isoformat(),
        "at": (T0 + timedelta(minutes=number)).isoformat(),
        "step": 14,
        "takeovers": number,
        "max_takeovers": 5,
        **more,
    }
    at = T0 + timedelta(minutes=number, seconds=5)
    return LifecycleEvent(number, number + 1, 1, kind, at, bodies.encode(body))


def shown(snapshot: RunSnapshot, before: dict[str, Any] | None = None, generation: int = 1) -> Any:
    status = run_status(snapshot, generation=generation, before=before or {}, now=NOW)
    AgentRunStatus.model_validate(status)
    return status


def states(status: dict[str, Any]) -> dict[str, str]:
    return {it["type"]: f"{it['status']}/{it['reason']}" for it in status["conditions"]}


@pytest.mark.parametrize(
    ("snapshot", "phase", "reason", "running"),
    [
        (snap(), "Queued", "WaitingForWorker", "False/WaitingForWorker"),
        (snap(Place.BACKLOG), "Queued", "ConcurrencyLimit", "False/ConcurrencyLimit"),
        (
            snap(Place.TIMER, timer_reason=TimerReason.RETRY_BACKOFF, due_at=NOW),
            "Retrying",
            "RetryBackoff",
            "False/RetryBackoff",
        ),
        (
            snap(Place.TIMER, timer_reason=TimerReason.TAKEOVER_BACKOFF, due_at=NOW),
            "Retrying",
            "TakeoverBackoff",
            "False/TakeoverBackoff",
        ),
        (snap(quarantined=True), "Queued", "Quarantined", "False/Quarantined"),
        (
            snap(Place.BACKLOG, quarantined=True),
            "Queued",
            "ConcurrencyLimit",
            "False/ConcurrencyLimit",
        ),
        (
            snap(Place.TIMER, timer_reason=1, due_at=NOW, quarantined=True),
            "Retrying",
            "TakeoverBackoff",
            "False/TakeoverBackoff",
        ),
        (leased(quarantined=True), "Running", "LeaseHeld", "True/LeaseHeld"),
        (leased(), "Running", "LeaseHeld", "True/LeaseHeld"),
        (leased(cancel_asked=True), "Running", "Cancelling", "True/Cancelling"),
        (snap(cancel_asked=True), "Queued", "Cancelling", "False/WaitingForWorker"),
        (final(), "Succeeded", "Completed", "False/Finished"),
        (final(outcome="degraded"), "Succeeded", "Degraded", "False/Finished"),
        (
            final(FinalStatus.FAILED, reason="AgentError"),
            "Failed",
            "AgentError",
            "False/Finished",
        ),
        (
            final(FinalStatus.CANCELLED, reason="Cancelled"),
            "Cancelled",
            "Cancelled",
            "False/Finished",
        ),
    ],
)
def test_where_a_run_stands_in_words(
    snapshot: RunSnapshot, phase: str, reason: str, running: str
) -> None:
    status = shown(snapshot)
    assert (status["phase"], status["reason"]) == (phase, reason)
    assert states(status)["Running"] == running
    assert set(states(status)) == {it.value for it in ConditionType}


@pytest.mark.parametrize(
    ("snapshot", "finished", "succeeded"),
    [
        (snap(), "False/InProgress", "Unknown/InProgress"),
        (leased(), "False/InProgress", "Unknown/InProgress"),
        (final(), "True/Completed", "True/Completed"),
        (final(FinalStatus.CANCELLED), "True/Cancelled", "False/Cancelled"),
        (final(FinalStatus.FAILED, reason="TooLarge"), "True/TooLarge", "False/TooLarge"),
    ],
)
def test_finished_ends_for_good_and_bad(
    snapshot: RunSnapshot, finished: str, succeeded: str
) -> None:
    found = states(shown(snapshot))
    assert (found["Finished"], found["Succeeded"]) == (finished, succeeded)


def test_a_transition_time_moves_only_when_a_status_flips() -> None:
    queued = shown(snap())
    running = shown(leased(), queued)
    times = {it["type"]: it["lastTransitionTime"] for it in running["conditions"]}
    assert times["Running"] == "2026-09-01T10:00:03Z"
    assert times["Accepted"] == times["Finished"] == "2026-09-01T10:00:00Z"
    later = shown(leased(claimed_at=NOW, epoch=2), running)
    assert {it["type"]: it["lastTransitionTime"] for it in later["conditions"]} == times


def test_the_generation_is_observed_everywhere() -> None:
    status = shown(final(), generation=3)
    assert status["observedGeneration"] == 3
    assert {it["observedGeneration"] for it in status["conditions"]} == {3}


def test_a_takeover_is_shown_and_stays() -> None:
    status = shown(leased(epoch=2, takeovers=1, worker="worker-2", lifecycle=(moved(1),)))
    assert status["reason"] == "Resumed"
    assert states(status)["Resumed"] == "True/LeaseExpired"
    assert status["lastTakeover"] == {
        "time": "2026-09-01T10:01:05Z",
        "reason": "LeaseExpired",
        "fromWorker": "worker-1",
        "toWorker": "worker-2",
        "resumedFromStep": 14,
        "leaseEpoch": 2,
    }
    ended = shown(final(epoch=2, takeovers=1, lifecycle=(moved(1),)), status)
    assert states(ended)["Resumed"] == "True/LeaseExpired"


def test_a_takeover_says_how_many_of_them_count() -> None:
    lost = moved(3, reason="WorkerDied", counted=1, blame="displaced")
    status = shown(leased(epoch=4, takeovers=3, worker="worker-4", lifecycle=(lost,)))
    assert status["takeovers"] == 3
    [resumed] = [it for it in status["conditions"] if it["type"] == "Resumed"]
    assert resumed["message"] == (
        "takeover 3 (1 of 5 counted): from worker-3 to worker-4, resumed at step 14"
    )


def test_who_waits_to_go_on_alone_is_told_why() -> None:
    [running] = [
        it for it in shown(snap(quarantined=True))["conditions"] if it["type"] == "Running"
    ]
    assert "processes died that it may have killed" in running["message"]


def test_a_takeover_that_nobody_went_on_with_yet_is_in_the_history_alone() -> None:
    carry = Carry(EventKind.TAKEN_OVER, 1, 1, "worker-a", "WorkerDied", T0, NOW)
    status = shown(snap(epoch=1, takeovers=1, carry=(carry,)))
    assert states(status)["Resumed"] == "False/NotTakenOver"
    assert status["takeovers"] == 1
    [lease] = status["history"]
    assert (lease["worker"], lease["outcome"]) == ("worker-a", "WorkerDied")


def test_history_shows_the_last_ten_leases() -> None:
    events = tuple(moved(number) for number in range(1, 15))
    status = shown(leased(epoch=15, worker="worker-15", lifecycle=events))
    assert [it["leaseEpoch"] for it in status["history"]] == list(range(6, 16))
    assert status["historyTruncated"] is True
    assert "endTime" not in status["history"][-1]


def test_a_run_cancelled_in_the_queue_has_no_lease() -> None:
    status = shown(snap(Place.FINAL, status=FinalStatus.CANCELLED, finished_at=NOW, ready_at=None))
    assert "history" not in status
    assert "worker" not in status
    assert status["completionTime"] == "2026-09-01T11:00:00Z"


def test_a_result_is_previewed_with_its_size_and_hash() -> None:
    raw = json.dumps("ü" * 4000, ensure_ascii=False).encode()
    status = shown(final(result=bodies.pack(raw), outcome="ok"))
    result = status["result"]
    assert len(result["preview"].encode()) <= 1024
    assert result["preview"].startswith('"üü')
    assert result["sizeBytes"] == len(raw)
    assert len(result["sha256"]) == 64


def test_the_failure_of_the_last_attempt_shows_while_the_next_one_waits() -> None:
    carry = Carry(EventKind.ATTEMPT_FAILED, 1, 1, "w", "AgentError", T0, NOW, "boom")
    status = shown(
        snap(Place.TIMER, timer_reason=TimerReason.RETRY_BACKOFF, attempt=2, carry=(carry,))
    )
    assert status["failure"] == {"reason": "AgentError", "message": "boom"}
    assert shown(final(lifecycle=(moved(1, kind=EventKind.ATTEMPT_FAILED),))).get("failure") is None


def test_an_unreadable_event_does_not_hide_the_run() -> None:
    broken = LifecycleEvent(1, 2, 1, EventKind.TAKEN_OVER, T0, b"\x28\xb5\x2f\xfd not zstd")
    status = shown(leased(epoch=2, lifecycle=(broken,)))
    assert states(status)["Resumed"] == "True/TakenOver"


nasty = st.text(alphabet=st.sampled_from('a"\\\n\t\x01€😀ü'), max_size=3000)


@settings(max_examples=60, deadline=None)
@given(nasty, nasty, st.integers(0, 30), st.integers(1, 253))
def test_no_text_makes_a_status_larger_than_8_kib(
    message: str, result: str, takeovers: int, width: int
) -> None:
    long = "w" * width
    events = tuple(
        moved(number, reason=message[:80], to=long, **{"from": long})  # type: ignore[arg-type]
        for number in range(1, takeovers + 1)
    )
    status = FinalStatus.FAILED if len(message) % 2 else FinalStatus.SUCCEEDED
    snapshot = final(
        status,
        epoch=takeovers + 1,
        worker=long,
        lifecycle=events,
        message=message,
        reason=message or None,
        result=bodies.encode(result),
    )
    found = shown(snapshot)
    assert size(found) <= MAX_STATUS_BYTES
    assert found["history"][-1]["leaseEpoch"] == takeovers + 1


BEFORE_ROW = {"runID": "77", "conditions": [], "revision": 3, "phase": "Running"}


def told(notice: Any, before: dict[str, Any] | None = None) -> Any:
    status = notice_status(notice, generation=2, before=before or {}, now=NOW)
    if status is not None:
        AgentRunStatus.model_validate(status)
    return status


@pytest.mark.parametrize("reason", list(WaitReason))
def test_a_waiting_run_shows_all_conditions(reason: WaitReason) -> None:
    status = told(WaitNotice(reason, "why"))
    phase = "Pending" if reason is WaitReason.DATABASE_UNAVAILABLE else "Queued"
    assert (status["phase"], status["reason"]) == (phase, reason.value)
    assert states(status)["Accepted"] == f"Unknown/{reason.value}"
    assert set(states(status)) == {it.value for it in ConditionType}
    assert "runID" not in status


@pytest.mark.parametrize("reason", list(FailureReason))
def test_a_refused_run_ends(reason: FailureReason) -> None:
    status = told(EndNotice(reason, "why"))
    cancelled = reason is FailureReason.CANCELLED
    assert status["phase"] == (Phase.CANCELLED if cancelled else Phase.FAILED)
    assert holds(status, "Finished")
    assert states(status)["Succeeded"] == f"False/{reason.value}"
    assert status["completionTime"] == "2026-09-01T11:00:00Z"


def test_a_notice_never_replaces_the_status_of_a_row() -> None:
    assert told(WaitNotice(WaitReason.AGENT_NOT_FOUND, ""), BEFORE_ROW) is None
    assert told(EndNotice(FailureReason.INVALID_SPEC, ""), BEFORE_ROW) is None
    ended = told(EndNotice(FailureReason.INVALID_SPEC, ""))
    assert told(WaitNotice(WaitReason.AGENT_NOT_FOUND, ""), ended) is None


def test_a_missing_row_keeps_what_it_had_shown() -> None:
    before = shown(leased(epoch=2, takeovers=1, lifecycle=(moved(1),)))
    status = told(EndNotice(FailureReason.ROW_MISSING, "gone"), before)
    assert status["runID"] == "77"
    assert status["history"] == before["history"]
    assert states(status)["Accepted"] == "False/RowMissing"
    assert states(status)["Resumed"] == "True/LeaseExpired"
    assert holds(status, "Finished")


def test_a_new_generation_changes_nothing_else() -> None:
    before = told(EndNotice(FailureReason.INVALID_SPEC, "why"))
    after = notice_status(SeenNotice(), generation=5, before=before, now=NOW)
    assert after is not None
    assert after["observedGeneration"] == 5
    assert states(after) == states(before)


def change(kind: ChangeKind, seq: int = 10, epoch: int = 1, run: int = 77) -> Change:
    return Change(seq, RunId(run), kind, epoch, T0)


@pytest.mark.parametrize(
    ("it", "snapshot", "reason", "note", "pod"),
    [
        (change(ChangeKind.QUEUED), snap(), "RunQueued", "run 77 waits for a worker", ""),
        (change(ChangeKind.CLAIMED), leased(), "RunStarted", "claimed by worker-a", "worker-a"),
        (
            change(ChangeKind.TAKEN_OVER, epoch=2),
            leased(epoch=2, lifecycle=(moved(1),)),
            "RunTakenOver",
            "from worker-1 to worker-2, resumed at step 14, takeover 1 of 5: LeaseExpired",
            "worker-2",
        ),
        (
            change(ChangeKind.TAKEN_OVER, epoch=3),
            leased(epoch=3, lifecycle=(moved(2, reason="WorkerDied", counted=0),)),
            "RunTakenOver",
            (
                "from worker-2 to worker-3, resumed at step 14, "
                "takeover 2 (0 of 5 counted): WorkerDied"
            ),
            "worker-3",
        ),
        (
            change(ChangeKind.HANDED_OVER, epoch=2),
            leased(epoch=2, lifecycle=(moved(1, kind=EventKind.HANDED_OVER),)),
            "RunHandedOver",
            "from worker-1 to worker-2, resumed at step 14",
            "worker-2",
        ),
        (
            change(ChangeKind.HANDED_OVER, epoch=2),
            leased(
                epoch=2,
                lifecycle=(moved(1, kind=EventKind.HANDED_OVER, message="step 'a' differs"),),
            ),
            "RunHandedOver",
            "from worker-1 to worker-2, resumed at step 14: step 'a' differs",
            "worker-2",
        ),
        (
            change(ChangeKind.RETRYING),
            snap(Place.TIMER, attempt=2, due_at=NOW),
            "RunRetrying",
            "attempt 2 follows, not before 11:00:00Z",
            "",
        ),
        (
            change(ChangeKind.ENDED),
            final(outcome="ok"),
            "RunSucceeded",
            "finished with a result (ok)",
            "",
        ),
        (
            change(ChangeKind.ENDED),
            final(FinalStatus.FAILED, reason="AgentError", message="boom"),
            "RunFailed",
            "AgentError: boom",
            "",
        ),
        (change(ChangeKind.ENDED), final(FinalStatus.CANCELLED), "RunCancelled", "Cancelled", ""),
    ],
)
def test_changes_are_announced(
    it: Change, snapshot: RunSnapshot, reason: str, note: str, pod: str
) -> None:
    said = announcement(it, snapshot)
    assert said is not None
    assert (said.reason, said.note, said.pod) == (reason, note, pod)
    body = event_body(said, instance="operator-0")
    assert body["metadata"]["name"] == f"run.01234567.{reason.lower()}.10"
    assert body["metadata"]["name"] == body["metadata"]["name"].lower()
    assert body["type"] == KUBERNETES_EVENTS[reason].type
    assert body["regarding"]["uid"] == snapshot.uid
    assert ("related" in body) is bool(pod)
    assert body["eventTime"] == "2026-09-01T10:00:00.000000Z"


@pytest.mark.parametrize(
    ("it", "snapshot"),
    [
        (change(ChangeKind.CLAIMED, epoch=2), leased(epoch=2)),
        (change(ChangeKind.WORKER_LOST), snap()),
        (change(ChangeKind.RELEASED), snap()),
        (change(ChangeKind.WOKEN), snap()),
        (change(ChangeKind.TAKEN_OVER, epoch=9), leased(epoch=2, lifecycle=(moved(1),))),
    ],
)
def test_other_changes_are_not(it: Change, snapshot: RunSnapshot) -> None:
    assert announcement(it, snapshot) is None


@pytest.mark.parametrize(
    ("worker", "pod_uid", "related"),
    [
        ("worker-2", "uid-2", {"name": "worker-2", "uid": "uid-2"}),
        ("worker-3", "uid-3", {"name": "worker-2"}),
        ("worker-2", None, None),
    ],
)
def test_an_event_points_at_the_pod_that_went_on(
    worker: str, pod_uid: str | None, related: dict[str, str] | None
) -> None:
    held = leased(epoch=2, lifecycle=(moved(1),), worker=worker, pod_uid=pod_uid)
    said = announcement(change(ChangeKind.TAKEN_OVER, epoch=2), held)
    assert said is not None
    found = event_body(said, instance="operator").get("related")
    pod = {"apiVersion": "v1", "kind": "Pod", "namespace": "ns"}
    assert found == (pod | related if related else None)


def test_a_process_of_a_pod_is_no_pod_by_itself() -> None:
    said = announcement(change(ChangeKind.CLAIMED), leased(worker="pod-1/0", pod_uid="uid"))
    assert said is not None
    assert (said.pod, said.pod_uid) == ("pod-1", "uid")


def test_a_note_is_cut_in_bytes() -> None:
    said = announcement(
        change(ChangeKind.ENDED), final(FinalStatus.FAILED, reason="AgentError", message="€" * 9000)
    )
    assert said is not None
    assert len(said.note.encode()) <= 1000


def test_urgent_changes_are_due_at_once_and_others_share_a_write() -> None:
    backlog = Backlog(delay=0.3)
    backlog.add([change(ChangeKind.QUEUED, 1), change(ChangeKind.QUEUED, 2, run=8)], now=10)
    assert backlog.due(now=10.2, limit=9) == []
    backlog.add([change(ChangeKind.ENDED, 3)], now=10.1)
    [entry] = backlog.due(now=10.2, limit=9)
    assert sorted(entry.changes) == [1, 3]
    assert [it.run_id for it in backlog.due(now=10.3, limit=9)] == [77, 8]
    assert [it.run_id for it in backlog.due(now=10.3, limit=1)] == [77]


def test_a_change_is_taken_once_and_what_comes_meanwhile_stays() -> None:
    backlog = Backlog(delay=0)
    assert [backlog.add([change(ChangeKind.QUEUED, 1)], now=0) for _ in range(2)] == [1, 0]
    backlog.add([change(ChangeKind.CLAIMED, 2)], now=0)
    backlog.done(RunId(77), [1])
    assert len(backlog) == backlog.runs == 1
    assert RunId(77) in backlog
    backlog.done(RunId(77), [2])
    assert len(backlog) == backlog.runs == 0


def test_a_shown_change_whose_event_waits_is_not_shown_again() -> None:
    backlog = Backlog(delay=0)
    backlog.add([change(ChangeKind.QUEUED, 1)], now=0)
    backlog.keep([1])
    backlog.done(RunId(77), [1])
    assert backlog.add([change(ChangeKind.QUEUED, 1), change(ChangeKind.CLAIMED, 2)], now=0) == 1
    assert len(backlog) == 1
    backlog.let_go([1])
    assert backlog.add([change(ChangeKind.QUEUED, 1)], now=0) == 1


def test_failures_wait_longer_each_time_and_news_do_not_shorten_that() -> None:
    backlog = Backlog(delay=0)
    backlog.add([change(ChangeKind.QUEUED, 1)], now=0)
    assert [backlog.retry(RunId(77), now=0) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    backlog.add([change(ChangeKind.ENDED, 2)], now=1)
    assert backlog.due(now=29, limit=9) == []
    assert backlog.retry(RunId(77), now=0, floor=600) == 600
    assert backlog.retry(RunId(5), now=0) == 0


def test_the_oldest_change_is_known() -> None:
    backlog = Backlog(delay=0)
    assert backlog.oldest() is None
    backlog.add([change(ChangeKind.QUEUED, 1)], now=0)
    oldest = backlog.oldest()
    assert oldest is not None
    assert oldest.seq == 1


@pytest.mark.parametrize(
    ("before", "snapshot", "wanted"),
    [
        ({}, snap(), Score()),
        ({}, leased(), Score(started=True)),
        ({"startTime": "x"}, leased(), Score()),
        ({}, final(), Score(started=True, ended="Succeeded")),
        (
            {"startTime": "x", "conditions": [{"type": "Finished", "status": "True"}]},
            final(),
            Score(),
        ),
        (
            {"startTime": "x"},
            final(FinalStatus.FAILED, reason="TooLarge"),
            Score(ended="Failed", failure="TooLarge"),
        ),
        (
            {"startTime": "x", "lastTakeover": {"leaseEpoch": 2}},
            leased(epoch=4, lifecycle=(moved(1), moved(2), moved(3, reason="NodeLost"))),
            Score(takeovers=("LeaseExpired", "NodeLost"), recoveries=(5.0, 5.0)),
        ),
    ],
)
def test_each_step_is_counted_once(
    before: dict[str, Any], snapshot: RunSnapshot, wanted: Score
) -> None:
    assert score(before, snapshot) == wanted


def test_runs_of_other_clusters_and_namespaces_are_left_to_others() -> None:
    scope = Scope("c", ["ns"])
    assert not scope.leaves(snap())
    assert not scope.leaves(None)
    assert scope.leaves(snap(cluster="other"))
    assert scope.may_be_ours([change(ChangeKind.QUEUED)]) == []
    assert Scope("c").leaves(snap(namespace="x")) is False
    assert Scope("c", ["y"]).leaves(snap(namespace="x"))


def test_a_status_survives_json() -> None:
    status = shown(leased(lifecycle=(moved(1),)))
    assert msgspec.json.decode(msgspec.json.encode(status)) == status
