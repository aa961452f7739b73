"""What of an AgentRun can change, and when: each rule, both ways round, with its message."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from rowlock_operator.api.agentrun import AgentRunSpec

from .server import JSON, Objects

pytestmark = pytest.mark.cluster

NOW = "2026-09-01T10:00:00Z"
FIXED: dict[str, tuple[Any, Any]] = {
    "input": ({"text": "one"}, {"text": "two"}),
    "workerPoolRef": ({"name": "default"}, {"name": "large"}),
    "concurrencyKey": ("customer-1", "customer-2"),
    "idempotencyKey": ("issue-1", "issue-2"),
    "queueDeadlineSeconds": (60, 61),
    "activeDeadlineSeconds": (60, 61),
    "budget": ({"maxTotalTokens": 10}, {"maxTotalTokens": 11}),
    "approval": ({"timeoutSeconds": 60}, {"timeoutSeconds": 61}),
    "maxAttempts": (2, 3),
    "maxTakeovers": (2, 0),
    "retryBackoffSeconds": (5, 0),
    "maxRetryBackoffSeconds": (50, 60),
}
#: Fields that are no part of what was asked for; the values are steps of one life.
FREE: dict[str, list[Any]] = {
    "desiredStateReason": [None, "maintenance", "done", None],
    "ttlSecondsAfterFinished": [None, 60, 0, None],
    "priority": [None, 5, -5, None],
}

STAYS_CANCELLED = (
    "a cancelled run stays cancelled: raise redrive by one in the same change to run it again"
)
ONE_AFTER_THE_END = "redrive may be raised by one, and only after the run has finished"


def condition(type_: str, status: str) -> JSON:
    """Return a condition."""
    return {
        "type": type_,
        "status": status,
        "lastTransitionTime": NOW,
        "reason": "Test",
        "message": "",
    }


def finished(*, redrive: int | None = 0, status: str = "True") -> JSON:
    """Return the status of a run that has ended, as far as rules read it."""
    answer: JSON = {} if redrive is None else {"redrive": redrive}
    return {
        "conditions": [condition("Accepted", "True"), condition("Finished", status)],
        **answer,
    }


@pytest.fixture(scope="module")
def full(runs: Objects) -> str:
    """A run that has every field that is fixed."""
    return runs.make({field: first for field, (first, _) in FIXED.items()})


@pytest.fixture(scope="module")
def bare(runs: Objects) -> str:
    """A run that has none of them."""
    return runs.make()


@pytest.mark.parametrize("field", FIXED)
def test_fixed_field_cannot_change(runs: Objects, full: str, field: str) -> None:
    """Another value is refused; the same one again is no change."""
    first, second = FIXED[field]

    assert runs.change(full, {field: first}).message == ""
    assert f"{field} is immutable: create a new AgentRun" in (
        runs.change(full, {field: second}).message
    )


@pytest.mark.parametrize("field", FIXED)
def test_fixed_field_cannot_go(runs: Objects, full: str, field: str) -> None:
    """To remove an optional field is a change, too."""
    refused = runs.change(full, {field: None})

    assert f"{field} is immutable: create a new AgentRun" in refused.message


@pytest.mark.parametrize("field", FIXED)
def test_fixed_field_cannot_come(runs: Objects, bare: str, field: str) -> None:
    """To add an optional field is a change, too."""
    refused = runs.change(bare, {field: FIXED[field][0]})

    assert f"{field} is immutable: create a new AgentRun" in refused.message


def test_agent_cannot_change(runs: Objects, bare: str) -> None:
    """A run stays with its Agent."""
    refused = runs.change(bare, {"agentRef": {"name": "other"}})

    assert "agentRef is immutable: create a new AgentRun" in refused.message


@pytest.mark.parametrize("field", FREE)
def test_free_field_comes_changes_and_goes(runs: Objects, field: str) -> None:
    """A run that has not started can be given it, given another, and be without it again."""
    name = runs.make()

    for value in FREE[field]:
        assert runs.change(name, {field: value}, dry=False).message == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Run", "Run"),
        ("Run", "Suspend"),
        ("Run", "Cancel"),
        ("Suspend", "Run"),
        ("Suspend", "Cancel"),
        ("Cancel", "Cancel"),
    ],
)
def test_wish_can_move(runs: Objects, before: str, after: str) -> None:
    """A run can be held, let go and cancelled, at any time."""
    name = runs.make({"desiredState": before})

    assert runs.change(name, {"desiredState": after}).message == ""


@pytest.mark.parametrize("after", ["Run", "Suspend", None])
@pytest.mark.parametrize("status", [None, finished()], ids=["unfinished", "finished"])
def test_cancel_is_final(runs: Objects, status: JSON | None, after: str | None) -> None:
    """No wish replaces Cancel, nor does its removal, which would mean Run."""
    name = runs.make({"desiredState": "Cancel"}, status)

    assert STAYS_CANCELLED in runs.change(name, {"desiredState": after}).message


def test_reason_of_a_cancel_can_still_change(runs: Objects) -> None:
    """What does not touch the wish is allowed after Cancel."""
    name = runs.make({"desiredState": "Cancel"})

    assert runs.change(name, {"desiredStateReason": "budget cut"}).message == ""


@pytest.mark.parametrize("after", ["Run", "Suspend"])
def test_redrive_in_the_same_change_leaves_cancel(runs: Objects, after: str) -> None:
    """A cancelled run that has ended runs again when both are asked for at once."""
    name = runs.make({"desiredState": "Cancel"}, finished())

    assert runs.change(name, {"desiredState": after, "redrive": 1}).message == ""


def test_wish_before_redrive_is_refused(runs: Objects) -> None:
    """To leave Cancel first and to raise redrive then fails at the first step."""
    name = runs.make({"desiredState": "Cancel"}, finished())

    assert STAYS_CANCELLED in runs.change(name, {"desiredState": "Run"}, dry=False).message
    assert runs.change(name, {"redrive": 1, "desiredState": "Run"}).message == ""


def test_redrive_before_wish_is_too_late(runs: Objects) -> None:
    """To raise redrive alone keeps Cancel; both together work once that has ended, too."""
    name = runs.make({"desiredState": "Cancel"}, finished())

    assert runs.change(name, {"redrive": 1}, dry=False).message == ""
    assert STAYS_CANCELLED in runs.change(name, {"desiredState": "Run"}).message
    assert runs.patch(name, {"status": {"redrive": 1}}, sub="/status").message == ""
    assert runs.change(name, {"redrive": 2, "desiredState": "Run"}).message == ""


@pytest.mark.parametrize(
    ("spec", "status", "redrive"),
    [
        pytest.param(0, None, 1, id="without-status"),
        pytest.param(0, {"redrive": 0}, 1, id="without-conditions"),
        pytest.param(0, finished(status="False"), 1, id="unfinished"),
        pytest.param(0, finished(status="Unknown"), 1, id="unknown"),
        pytest.param(0, finished(redrive=None), 1, id="status-silent-on-redrive"),
        pytest.param(1, finished(redrive=0), 2, id="last-redrive-unanswered"),
        pytest.param(0, finished(), 2, id="by-two"),
        pytest.param(1, finished(redrive=1), 0, id="lowered"),
        pytest.param(1, finished(redrive=1), None, id="removed"),
    ],
)
def test_redrive_is_refused(
    runs: Objects, spec: int, status: JSON | None, redrive: int | None
) -> None:
    """Only the end of what was asked for last can be followed by one more."""
    name = runs.make({"redrive": spec}, status)

    assert ONE_AFTER_THE_END in runs.change(name, {"redrive": redrive}).message


@pytest.mark.parametrize("spec", [0, 1, 999])
def test_redrive_is_raised_by_one_after_the_end(runs: Objects, spec: int) -> None:
    """A finished run runs again, as often as one likes."""
    name = runs.make({"redrive": spec}, finished(redrive=spec))

    assert runs.change(name, {"redrive": spec + 1}).message == ""


@pytest.mark.parametrize("status", [None, {"phase": "Queued"}, {"queueTime": NOW}], ids=str)
def test_priority_can_change_before_the_start(runs: Objects, status: JSON | None) -> None:
    """A run that waits can be moved forward."""
    name = runs.make({"priority": 1}, status)

    assert runs.change(name, {"priority": 2}).message == ""


@pytest.mark.parametrize("value", [2, 0, None])
def test_priority_is_fixed_after_the_start(runs: Objects, value: int | None) -> None:
    """A run that a worker has claimed keeps its place; other fields may still change."""
    name = runs.make({"priority": 1}, {"startTime": NOW})

    refused = runs.change(name, {"priority": value})

    assert "priority is fixed once the run has started" in refused.message
    assert runs.change(name, {"desiredState": "Suspend"}).message == ""


@pytest.mark.parametrize(
    "status",
    [{"runID": "2"}, {"runID": None}, {"runID": ""}, None],
    ids=["another", "removed", "emptied", "whole-status-removed"],
)
def test_run_id_is_written_once(runs: Objects, status: JSON | None) -> None:
    """An object stays with its row: not even the operator can point it at another."""
    name = runs.make(status={"runID": "1"})

    refused = runs.patch(name, {"status": status}, sub="/status")

    assert "status.runID is write-once" in refused.message
    assert runs.patch(name, {"status": {"phase": "Queued"}}, sub="/status").message == ""


def test_run_id_can_come_later(runs: Objects) -> None:
    """A status without a row, as of a refused run, can get one."""
    name = runs.make(status={"phase": "Pending"})

    assert runs.patch(name, {"status": {"runID": "1"}}, sub="/status").message == ""


def test_spec_and_status_have_separate_writers(runs: Objects) -> None:
    """Who writes a spec cannot forge a status, nor the other way round."""
    name = runs.make({"priority": 1}, {"runID": "1"})

    runs.patch(name, {"status": {"runID": "2"}, "spec": {"priority": 2}})
    runs.patch(name, {"status": {"phase": "Queued"}, "spec": {"priority": 3}}, sub="/status")
    stored = runs.get(name).body

    assert stored["spec"]["priority"] == 2
    assert stored["status"] == {"runID": "1", "phase": "Queued"}


def test_only_a_change_of_the_spec_raises_the_generation(runs: Objects) -> None:
    """A status write is no new wish; the mirror's own echo can be told by that."""
    name = runs.make()

    runs.patch(name, {"status": {"phase": "Queued"}}, sub="/status")
    after_status = runs.get(name).body["metadata"]["generation"]
    runs.change(name, {"desiredState": "Suspend"}, dry=False)

    assert (after_status, runs.get(name).body["metadata"]["generation"]) == (1, 2)


SOURCES: dict[str, Any] = {
    "text": "hello",
    "configMapKeyRef": {"name": "inputs", "key": "one"},
    "uri": "s3://inputs/one",
}


CHOICES = [names for size in range(4) for names in combinations(SOURCES, size)]


@pytest.mark.parametrize("chosen", CHOICES, ids=lambda chosen: "+".join(chosen) or "none")
def test_input_has_exactly_one_source(runs: Objects, chosen: tuple[str, ...]) -> None:
    """No source, two or three are refused."""
    reply = runs.create({"input": {name: SOURCES[name] for name in chosen}}, dry=True)

    message = "input must have exactly one of text, configMapKeyRef, uri"
    assert reply.ok == (len(chosen) == 1)
    assert reply.ok or message in reply.message


@pytest.mark.parametrize(
    ("first", "most", "ok"), [(1, 1, True), (1, 2, True), (2, 1, False), (1, 0, False)]
)
def test_backoff_starts_below_its_maximum(runs: Objects, first: int, most: int, ok: bool) -> None:
    """The first wait cannot exceed the longest."""
    reply = runs.create({"retryBackoffSeconds": first, "maxRetryBackoffSeconds": most}, dry=True)

    assert reply.ok == ok
    assert ok or "retryBackoffSeconds must not exceed maxRetryBackoffSeconds" in reply.message


@pytest.mark.parametrize("name", ["a", "0", "a-b-0", "a" * 63], ids=lambda name: name[:6])
def test_name_can_be_a_dns_label(runs: Objects, name: str) -> None:
    """A run's name can stand in labels, Events and host names."""
    assert runs.create(name=name, dry=True).message == ""


@pytest.mark.parametrize("name", ["a" * 64, "a.b"], ids=["64-characters", "dotted"])
def test_name_is_nothing_but_a_dns_label(runs: Objects, name: str) -> None:
    """What Kubernetes would take as a name but no label can hold is refused."""
    refused = runs.create(name=name, dry=True)

    assert "name must be a DNS label of at most 63 characters" in refused.message


def test_model_knows_every_fixed_field() -> None:
    """A rule for one more field needs a line in the table above."""
    messages = [rule.message for rule in AgentRunSpec.rules]
    immutable = {message.split()[0] for message in messages if "is immutable" in message}

    assert immutable == {"agentRef", *FIXED}
