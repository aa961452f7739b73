"""Which way a command goes, what kubectl's errors mean, and what objects say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from rowlock.agents.messages import ModelTurn, ReplyCodec
from rowlock.client.happenings import RunEvent
from rowlock.cluster import objects, telling
from rowlock.cluster.kubectl import Kubectl
from rowlock.cluster.names import keyed_name, prefix, run_name
from rowlock.cluster.podlogs import log_line, pods
from rowlock.cluster.refusals import refusal
from rowlock.cluster.starting import manifest
from rowlock.cluster.watching import news
from rowlock.commands.following import event_line, log_text
from rowlock.commands.route import Flags, ToCluster, ToStore, decide
from rowlock.commands.saying import said_by
from rowlock.commands.shapes import Happening, LogLine
from rowlock.commands.sides import Starting
from rowlock.commands.store_side import StoreSide
from rowlock.errors import (
    AlreadyInCluster,
    ClusterError,
    ClusterForbids,
    ClusterRefuses,
    ClusterUnavailable,
    ConfigurationError,
    InvalidRequest,
    NotInCluster,
    TooLarge,
)

URL = "postgresql://u@db/rowlock"
NOW = datetime(2026, 5, 7, 12, tzinfo=UTC)
CLUSTER = ToCluster(Kubectl())


@pytest.mark.parametrize(
    ("flags", "variable", "called", "way"),
    [
        (Flags(database_url=URL), "", "rowlock", ToStore(URL)),
        (Flags(database_url=URL), "", "kubectl-rowlock", ToStore(URL)),
        (Flags(database_url=URL, namespace="a"), "other", "rowlock", ToStore(URL, "a")),
        (Flags(), URL, "/usr/bin/rowlock", ToStore(URL)),
        (Flags(namespace="a"), URL, "rowlock", ToStore(URL, "a")),
        (Flags(), "", "/usr/bin/kubectl-rowlock", CLUSTER),
        (Flags(), URL, "kubectl-rowlock", CLUSTER),
        (Flags(cluster=True), URL, "rowlock", CLUSTER),
        (Flags(context="dev"), URL, "rowlock", ToCluster(Kubectl("dev"))),
        (Flags(kubeconfig="f"), URL, "rowlock", ToCluster(Kubectl(None, "f"))),
        (Flags(namespace="a"), "", "rowlock", ToCluster(Kubectl(None, None, "a"))),
    ],
)
def test_the_way_is_chosen_by_what_is_typed_and_then_by_the_environment(
    flags: Flags, variable: str, called: str, way: object
) -> None:
    assert decide(flags, variable=variable, called=called) == way


def test_neither_way_and_both_are_one_clear_error() -> None:
    with pytest.raises(ConfigurationError, match=r"ROWLOCK_DATABASE_URL is not set.*--cluster"):
        decide(Flags(), variable="", called="rowlock")
    with pytest.raises(InvalidRequest, match="--database-url and --context: give one of them"):
        decide(Flags(database_url=URL, context="dev"), variable="", called="rowlock")


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        (
            'Error from server (NotFound): agentruns.rowlock.dev "x" not found',
            NotInCluster,
            "there is no 'x' in agentruns",
        ),
        (
            'error: error from server (NotFound): pods "p" not found in namespace "a"',
            NotInCluster,
            "there is no 'p' in pods",
        ),
        (
            'Error from server (NotFound): error when creating "STDIN": namespaces "nix" not found',
            NotInCluster,
            "there is no 'nix' in namespaces",
        ),
        (
            (
                'Error from server (Forbidden): agentruns.rowlock.dev "x" is forbidden: User "bob" '
                'cannot patch resource "agentruns" in API group "rowlock.dev" in the namespace "a"'
            ),
            ClusterForbids,
            "you (bob) may not patch agentruns in namespace a",
        ),
        (
            "Error from server (Forbidden): a webhook said no",
            ClusterForbids,
            "the cluster forbids it: a webhook said no",
        ),
        (
            "error: You must be logged in to the server (Unauthorized)",
            ClusterForbids,
            (
                "the cluster does not take your credentials: "
                "You must be logged in to the server (Unauthorized)"
            ),
        ),
        (
            (
                "E1130 21:25:39.789631   26070 memcache.go:265] noise\n"
                "The connection to the server 127.0.0.1:1 was refused - did you specify it?"
            ),
            ClusterUnavailable,
            (
                "the cluster is out of reach: "
                "The connection to the server 127.0.0.1:1 was refused - did you specify it?"
            ),
        ),
        (
            "Unable to connect to the server: dial tcp: lookup x: no such host",
            ClusterUnavailable,
            (
                "the cluster is out of reach: "
                "Unable to connect to the server: dial tcp: lookup x: no such host"
            ),
        ),
        (
            'The AgentRun "x" is invalid: <nil>: Invalid value: "object": redrive may be raised',
            ClusterRefuses,
            "redrive may be raised",
        ),
        (
            (
                'The AgentRun "x" is invalid: \n* spec.priority: too large\n'
                "* <nil>: Invalid value: null: some validation rules were not checked because the "
                "object was invalid; correct the existing errors to complete validation"
            ),
            ClusterRefuses,
            "spec.priority: too large",
        ),
        (
            (
                'Error from server (AlreadyExists): error when creating "STDIN": '
                'agentruns.rowlock.dev "x" already exists'
            ),
            AlreadyInCluster,
            'error when creating "STDIN": agentruns.rowlock.dev "x" already exists',
        ),
        (
            'error: the server doesn\'t have a resource type "agentruns"',
            ConfigurationError,
            "this cluster knows no agentruns: install Rowlock's CRDs, or choose another --context",
        ),
        (
            'error: context "nix" does not exist',
            ConfigurationError,
            'kubectl: context "nix" does not exist',
        ),
        (
            "error: stat /nix: no such file or directory",
            ConfigurationError,
            "kubectl: stat /nix: no such file or directory",
        ),
        ("error: what\never", ClusterError, "kubectl: what ever"),
        ("", ClusterError, "kubectl: kubectl said nothing"),
    ],
)
def test_each_error_of_kubectl_is_one_readable_line(said: str, kind: type, text: str) -> None:
    error = refusal(said)

    assert (type(error), str(error)) == (kind, text)


def run(**status: Any) -> dict[str, Any]:
    """Return an AgentRun."""
    return {
        "metadata": {
            "name": "order-7",
            "namespace": "a",
            "uid": "u",
            "creationTimestamp": "2026-05-07T12:00:00Z",
        },
        "spec": {"agentRef": {"name": "support"}, "priority": 5, "concurrencyKey": "ann"},
        "status": status,
    }


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    """Return a condition of an AgentRun."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-05-07T12:00:01Z",
    }


def test_a_run_without_a_status_is_pending() -> None:
    bare = {"metadata": {"name": "x", "creationTimestamp": "2026-05-07T12:00:00Z"}}

    shape = objects.run_shape(bare)

    assert (shape.run, shape.id, shape.phase, shape.agent) == ("x", None, "Pending", "")
    assert objects.waits(bare)
    assert objects.wait_shape(bare).reason == "Pending"
    assert telling.told(bare, None).result is None


def test_a_run_shows_what_its_status_says() -> None:
    item = run(
        runID="77", phase="Failed", reason="AgentError", attempt=2, takeovers=1, worker="w",
        startTime="2026-05-07T12:00:02Z", completionTime="2026-05-07T12:00:05Z",
        usage={"inputTokens": 3, "outputTokens": 2, "costMicroUSD": 9},
        failure={"reason": "AgentError", "message": "no kettle"},
        conditions=[condition("Finished", "True", "AgentError")],
    )  # fmt: skip

    shape = objects.run_shape(item)

    assert (shape.id, shape.reason, shape.message) == (77, "AgentError", "no kettle")
    assert (shape.attempt, shape.takeovers, shape.key, shape.priority) == (2, 1, "ann", 5)
    assert (shape.tokens_in, shape.tokens_out, shape.cost_micro) == (3, 2, 9)
    assert shape.finished_at == NOW + timedelta(seconds=5)
    assert not objects.waits(item)


def test_a_wait_says_why_since_when_and_until_when() -> None:
    item = run(
        phase="Retrying", reason="RetryBackoff", attempt=2,
        conditions=[
            condition("Running", "False", "RetryBackoff", "not before 2026-05-07T12:09:00Z")
        ],
    )  # fmt: skip

    shape = objects.wait_shape(item, {"support": "gpu"})

    assert (shape.pool, shape.reason, shape.place) == ("gpu", "RetryBackoff", None)
    assert shape.since == NOW + timedelta(seconds=1)
    assert shape.due_at == NOW + timedelta(minutes=9)


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"preview": '{"a": 1}', "sizeBytes": 8}, ({"a": 1}, None)),
        ({"preview": '"ä"', "sizeBytes": 4}, ("ä", None)),
        ({"preview": '{"a": 1', "sizeBytes": 9000}, (None, '{"a": 1')),
        ({"sizeBytes": 90_000_000}, (None, "")),
        ({}, (None, None)),
    ],
)
def test_a_result_is_whole_or_its_beginning(result: Any, shown: Any) -> None:
    assert telling.result(run(result=result)) == shown


def test_an_event_is_named_by_its_reason_and_numbered_by_its_change() -> None:
    item = {
        "metadata": {"name": "order-7.abc.runtakenover.12"},
        "reason": "RunTakenOver",
        "type": "Warning",
        "message": "from a to b",
        "eventTime": "2026-05-07T12:00:00.000000Z",
        "related": {"kind": "Pod", "name": "b"},
    }

    told = telling.happening(item)

    assert (told.seq, told.kind, told.at) == (12, "taken_over", NOW)
    assert told.data == {
        "reason": "RunTakenOver", "type": "Warning", "note": "from a to b", "worker": "b",
    }  # fmt: skip
    assert event_line(told)[19:] == "   12 taken_over: from a to b"


def test_what_is_new_of_a_run_is_told_once() -> None:
    first = run(phase="Running", reason="LeaseHeld", worker="a", attempt=1, takeovers=0)
    moved = run(
        phase="Running", reason="Resumed", worker="b", attempt=1, takeovers=1,
        lastTakeover={"reason": "NodeLost", "resumedFromStep": 4, "leaseEpoch": 2},
    )  # fmt: skip
    failed = run(
        phase="Retrying", reason="RetryBackoff", attempt=2, takeovers=1,
        lastTakeover={"leaseEpoch": 2}, failure={"message": "boom"},
    )  # fmt: skip

    def kinds(before: Any, now: Any) -> list[str]:
        return [event.kind for event in news(before, now)]

    assert kinds(None, first) == ["state"]
    assert kinds(first, first) == []
    assert kinds(first, moved) == ["taken_over", "state"]
    assert kinds(moved, failed) == ["attempt_failed", "state"]
    assert next(iter(news(first, moved))).data == {"reason": "NodeLost", "step": 4, "takeovers": 1}


@pytest.mark.parametrize("text", ["", "A", "a_b", "-a", "a-", "a.b", "a" * 64, "a b", "ä", "a\n"])
def test_what_no_run_can_be_called_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is no name of an AgentRun"):
        run_name(text)


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1.5", "²", "9" * 19, "1" * 5000, "order-7"])
def test_what_is_no_number_of_a_run_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is no number of a run") as caught:
        StoreSide(URL).name(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("agent", ["support", "a" * 63, "a.b", "a" * 57 + "-b"])
def test_made_names_are_names(agent: str) -> None:
    assert run_name(keyed_name(agent, "key")) == keyed_name(agent, "key")
    assert keyed_name(agent, "key") != keyed_name(agent, "other")
    assert run_name(f"{prefix(agent)}abcde")


def test_an_agentrun_says_what_was_typed_and_no_more() -> None:
    plain = manifest(Starting("support"))
    full = manifest(Starting("support", '{"a": 1}', "order-7", "k", "ann", "gpu", -3))

    assert plain["metadata"] == {"generateName": "support-"}
    assert plain["spec"] == {"agentRef": {"name": "support"}}
    assert full["metadata"] == {"name": "order-7"}
    assert full["spec"] == {
        "agentRef": {"name": "support"}, "input": {"text": '{"a": 1}'}, "priority": -3,
        "workerPoolRef": {"name": "gpu"}, "concurrencyKey": "ann", "idempotencyKey": "k",
    }  # fmt: skip
    with pytest.raises(InvalidRequest, match="an Agent's name is given"):
        manifest(Starting("shop:kitchen"))
    with pytest.raises(TooLarge, match="65537 characters"):
        manifest(Starting("support", "x" * 65_537))


def test_a_line_of_a_log_is_the_runs_own_or_left_out() -> None:
    line = '{"run": "77", "message": "hi", "level": "error", "logger": "shop", "cups": 2}'

    found = log_line(line, number=77, pod="p")

    assert found == LogLine(None, "error", "shop", "hi", "p", {"cups": 2})
    assert log_text(found).split() == ["error", "shop:", "hi", "cups=2"]
    for other in ('{"run": "78", "message": "77"}', "plain 77", '["77"]', '{"x": "77"', "77"):
        assert log_line(other, number=77, pod="p") is None
    assert log_line(line, number=None, pod="p") is None


def test_the_pods_of_a_run_are_told_once_each_in_their_order() -> None:
    history = [{"worker": "a/0"}, {"worker": "b/1"}, {"worker": "a/1"}, {}]

    assert pods(run(history=history, worker="c/0")) == ["a", "b", "c"]
    assert pods(run()) == []


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("progress", {"data": {"text": "half"}}, [("info", "half")]),
        ("step_failed", {"step": "pay#a.0", "data": {"error": "no"}}, [("error", "pay: no")]),
        ("step_done", {"step": "pay#a.0", "data": {"result": 3}}, []),
        ("step_done", {"step": "model:1", "data": None}, []),
        ("state", {"data": {"phase": "Running"}}, []),
        (
            "state",
            {"data": {"phase": "Failed", "reason": "AgentError", "message": "boom"}},
            [("error", "failed: AgentError: boom")],
        ),
    ],
)
def test_the_database_keeps_some_of_what_is_said(kind: str, fields: Any, said: Any) -> None:
    event = RunEvent(seq=1, kind=kind, at=NOW, attempt=1, epoch=1, **fields)

    assert [(line.level, line.message) for line in said_by(event)] == said


def test_what_a_model_has_written_is_kept_and_said() -> None:
    body, _ = ReplyCodec().accept(ModelTurn(text="Two cups, then."))
    turn = {"step": "model:1", "data": {"result": msgspec.json.decode(body)}}

    [line] = said_by(RunEvent(seq=1, kind="step_done", at=NOW, attempt=1, epoch=1, **turn))  # type: ignore[arg-type]

    assert line.message == "Two cups, then."


def test_a_happening_has_the_fields_of_an_event() -> None:
    """So that -o json has the same keys both ways."""
    assert Happening.__dataclass_fields__.keys() == RunEvent.__dataclass_fields__.keys()
