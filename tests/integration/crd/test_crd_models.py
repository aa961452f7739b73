"""The models read whatever the API server lets through, and write what it takes."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from functools import reduce
from operator import getitem
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rowlock_operator.api.agent import Agent
from rowlock_operator.api.agentrun import AgentRun
from rowlock_operator.api.agentrun_status import AgentRunStatus
from rowlock_operator.api.agentrunapproval import AgentRunApproval
from rowlock_operator.api.agentrunbatch import AgentRunBatch
from rowlock_operator.api.kinds import KINDS
from rowlock_operator.api.resource import Resource
from rowlock_operator.api.workerpool import WorkerPool

from .server import JSON, SMALLEST, Objects

pytestmark = pytest.mark.cluster

NOW = "2026-09-01T10:00:00Z"

CONDITION: JSON = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 1,
    "lastTransitionTime": NOW,
    "reason": "Valid",
    "message": "",
}
_LIMITS: JSON = {
    "workerPoolRef": {"name": "default"},
    "queueDeadlineSeconds": 3600,
    "activeDeadlineSeconds": 1800,
    "maxAttempts": 2,
    "maxTakeovers": 5,
    "retryBackoffSeconds": 1,
    "maxRetryBackoffSeconds": 60,
    "budget": {"maxTotalTokens": 200_000, "maxCostMicroUSD": 2_500_000},
    "ttlSecondsAfterFinished": 86_400,
}

#: Every field of every kind, as the server stores it.
FULL: dict[type[Resource], tuple[JSON, JSON]] = {
    AgentRun: (
        {
            **_LIMITS,
            "agentRef": {"name": "triage"},
            "input": {"text": '{"issue": 4711}'},
            "priority": 10,
            "concurrencyKey": "customer-17",
            "idempotencyKey": "issue-4711",
            "approval": {"timeoutSeconds": 60},
            "desiredState": "Suspend",
            "desiredStateReason": "maintenance",
            "redrive": 0,
        },
        {
            "observedGeneration": 1,
            "revision": 17,
            "runID": "7184533445",
            "phase": "Running",
            "reason": "LeaseExpired",
            "attempt": 1,
            "takeovers": 1,
            "redrive": 0,
            "worker": "default-xk2p4",
            "leaseEpoch": 2,
            "agentRevision": "5f2c9e1d",
            "queueTime": NOW,
            "startTime": NOW,
            "completionTime": NOW,
            "lastTakeover": {
                "time": NOW,
                "reason": "LeaseExpired",
                "fromWorker": "default-9mzqd",
                "toWorker": "default-xk2p4",
                "resumedFromStep": 14,
                "leaseEpoch": 2,
            },
            "history": [
                {
                    "leaseEpoch": 1,
                    "attempt": 1,
                    "worker": "default-9mzqd",
                    "startTime": NOW,
                    "endTime": NOW,
                    "outcome": "LeaseExpired",
                }
            ],
            "historyTruncated": False,
            "usage": {"inputTokens": 51_234, "outputTokens": 6_120, "costMicroUSD": 410_000},
            "outcome": "ok",
            "result": {"preview": "{}", "uri": "rowlock://1", "sizeBytes": 2, "sha256": "ab"},
            "failure": {"reason": "AgentError", "message": "boom", "step": 3},
            "pendingApproval": {
                "name": "triage-1",
                "tool": "send_mail",
                "digest": "sha256:ab",
                "expirationTime": NOW,
            },
            "traceID": "0af7651916cd43dd8448eb211c80319c",
            "conditions": [CONDITION],
        },
    ),
    Agent: (
        {
            "description": "Labels new issues",
            "entrypoint": "acme.triage:agent",
            "model": {"provider": "openai", "name": "gpt", "secretRef": {"name": "key"}},
            "prompt": {"configMapKeyRef": {"name": "prompts", "key": "system.md"}},
            "tools": [{"name": "mail", "sideEffects": "NonIdempotent", "approval": "Always"}],
            "runDefaults": _LIMITS,
            "intake": "Paused",
            "maxConcurrentRuns": 20,
            "maxConcurrentRunsPerKey": 2,
            "startsPerMinutePerKey": 30,
            "versionPolicy": "Pinned",
            "approval": {"timeoutSeconds": 60, "onTimeout": "Approve"},
        },
        {"observedGeneration": 3, "revision": "5f2c9e1d", "conditions": [CONDITION]},
    ),
    WorkerPool: (
        {
            "image": "acme/agents:1.4.2",
            "serviceAccountName": "worker",
            "databaseSecretRef": {"name": "database", "key": "dsn"},
            "slotsPerWorker": 8,
            "processesPerWorker": 2,
            "stallCeilingSeconds": 30,
            "replicas": 3,
            "autoscaling": {
                "mode": "None",
                "minReplicas": 0,
                "maxReplicas": 20,
                "targetSlotUtilizationPercent": 80,
                "targetQueueWaitSeconds": 20,
                "pollPeriodSeconds": 5,
                "scaleUp": {"stabilizationWindowSeconds": 10, "maxStepPercent": 200},
                "scaleDown": {"stabilizationWindowSeconds": 60, "maxStepPercent": 20},
            },
            "lease": {"durationSeconds": 30, "renewPeriodSeconds": 10},
            "drain": {"mode": "Finish", "deadlineSeconds": 600},
            "podTemplate": {"spec": {"nodeSelector": {"pool": "agents"}, "x": [None]}},
        },
        {
            "observedGeneration": 2,
            "replicas": 6,
            "readyReplicas": 5,
            "desiredReplicas": 7,
            "selector": "rowlock.dev/pool=default",
            "queue": {
                "queuedRuns": 3,
                "runningRuns": 33,
                "oldestQueuedTime": NOW,
                "sampleTime": NOW,
            },
            "lastScale": {
                "time": NOW,
                "fromReplicas": 4,
                "toReplicas": 6,
                "reason": "SlotUtilization",
            },
            "conditions": [CONDITION],
        },
    ),
    AgentRunApproval: (
        {
            "runRef": {"name": "triage-4711"},
            "tool": "send_mail",
            "callID": "send_mail:1.0",
            "digest": "9b1c0f6e2d4a8b7c",
            "summary": 'send_mail(to="ops@acme.example")',
            "expirationTime": NOW,
        },
        {
            "observedGeneration": 1,
            "phase": "Approved",
            "decidedTime": NOW,
            "conditions": [CONDITION],
        },
    ),
    AgentRunBatch: (
        {
            "runTemplate": {
                **_LIMITS,
                "agentRef": {"name": "triage"},
                "priority": 10,
                "concurrencyKey": "customer-17",
                "approval": {"timeoutSeconds": 60},
            },
            "items": [{"id": "one", "text": "1"}, {"id": "two", "text": "{}"}],
            "parallelism": 50,
            "maxFailedPercent": 10,
            "materialize": "Failed",
            "desiredState": "Suspend",
            "ttlSecondsAfterFinished": 604_800,
        },
        {
            "observedGeneration": 1,
            "batchID": "17",
            "phase": "Running",
            "total": 2000,
            "queued": 1420,
            "running": 50,
            "succeeded": 523,
            "failed": 7,
            "cancelled": 0,
            "takeovers": 3,
            "failedItems": [{"id": "i-0031", "reason": "AgentError"}],
            "failedItemsTruncated": True,
            "startTime": NOW,
            "completionTime": NOW,
            "conditions": [CONDITION],
        },
    ),
}

ODD_TIMES: list[Any] = [
    [],
    [1],
    "2026-09-01t10:00:00z",
    "2026-09-01T10:00:00.123456789Z",
    "2026-09-01T10:00:00,5Z",
    "2026-09-01T10:00:00x5Z",
    "2026-09-01T10:00:00.12345678901234567890Z",
    "2026-09-01T10:00:00+23:59",
    "2026-09-01T10:00:00-24:00",
    "2026-09-01T10:00:00+99:99",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-23:00",
]
ODD_VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1.0,
    2**31,
    2**63 - 1,
    "",
    "ü" * 70,
    "a\n",
    NOW,
    [],
    {},
    [None],
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_full_object_comes_back_as_it_was(
    objects: dict[type[Resource], Objects], kind: type[Resource]
) -> None:
    """What is read from the server and written again is the same, field by field."""
    spec, status = FULL[kind]
    stored = objects[kind].get(objects[kind].make(spec, status)).body

    written = kind.model_validate(stored).to_dict()

    assert stored["spec"] == spec
    assert written["spec"] == spec
    assert written["status"] == status


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_full_objects_have_every_field(kind: type[Resource]) -> None:
    """A new field needs a value above."""
    spec, status = FULL[kind]
    model = kind.model_validate({"metadata": {"name": "a"}, "spec": spec, "status": status})
    written = model.model_dump(mode="json")
    missing = [path for path, value in _leaves(written) if value is None and "metadata" not in path]

    assert set(missing) <= {
        "spec.input.configMapKeyRef",
        "spec.input.uri",
        "spec.prompt.text",
        "spec.batchItemRef",
        "spec.decision",
        "spec.itemsFrom",
    }


def _leaves(node: Any, path: str = "") -> list[tuple[str, Any]]:
    if not isinstance(node, dict) or path == "spec.podTemplate":
        return [(path, node)]
    return [
        leaf
        for name, value in node.items()
        for leaf in _leaves(value, f"{path}.{name}" if path else name)
    ]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_metadata_is_read(objects: dict[type[Resource], Objects], kind: type[Resource]) -> None:
    """Name, namespace, uid, generation and times are there, typed."""
    stored = objects[kind].get(objects[kind].make()).body
    metadata = kind.model_validate(stored).metadata

    assert metadata.name == stored["metadata"]["name"]
    assert metadata.namespace == objects[kind].namespace
    assert metadata.uid == stored["metadata"]["uid"]
    assert metadata.generation == 1
    assert metadata.resource_version == stored["metadata"]["resourceVersion"]
    assert metadata.creation_timestamp is not None
    assert abs((metadata.creation_timestamp - datetime.now(UTC)).total_seconds()) < 60
    assert metadata.deletion_timestamp is None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_model_has_the_servers_defaults(
    objects: dict[type[Resource], Objects], kind: type[Resource]
) -> None:
    """What the server fills in, the model fills in, too."""
    stored = objects[kind].create(dry=True).body
    unfilled = {**stored, "spec": SMALLEST[kind]}

    assert kind.model_validate(unfilled) == kind.model_validate(stored)


@pytest.mark.parametrize("time", ODD_TIMES, ids=str)
def test_odd_time_that_the_server_takes_is_read(runs: Objects, time: object) -> None:
    """No time in a status makes an object unreadable or unwritable."""
    name = runs.make()
    written = runs.patch(name, {"status": {"startTime": time}}, sub="/status")
    run = AgentRun.model_validate(written.body)

    assert written.message == ""
    assert run.status is not None
    assert run.status.start_time is not None
    again = runs.patch(name, {"status": run.status.to_dict()}, sub="/status")
    assert again.message == ""


def test_status_is_written_in_whole_seconds_of_utc(runs: Objects) -> None:
    """Times look as Kubernetes' own do."""
    status = AgentRunStatus.model_validate({"startTime": "2026-09-01T12:00:00.999999+02:00"})
    name = runs.make(status=status.to_dict())

    assert runs.get(name).body["status"]["startTime"] == NOW


def _paths(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    pairs = enumerate(node) if isinstance(node, list) else node.items()
    inner = [(value, (*path, key)) for key, value in pairs]
    deeper = [_paths(value, where) for value, where in inner if isinstance(value, dict | list)]
    return [*(where for _, where in inner), *(found for these in deeper for found in these)]


def _with(node: JSON, edits: dict[tuple[Any, ...], Any]) -> JSON:
    edited = copy.deepcopy(node)
    # Inner fields first: an outer edit may put something else in their parent's place.
    for *parents, last in sorted(edits, key=len, reverse=True):
        target = reduce(getitem, parents, edited)
        target[last] = edits[*parents, last]
    return edited


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_the_server_takes_the_model_reads(
    objects: dict[type[Resource], Objects], kind: type[Resource], data: st.DataObject
) -> None:
    """Odd values in any fields of a full spec are refused by the server, or read."""
    spec, _ = FULL[kind]
    edits = st.dictionaries(
        st.sampled_from(_paths(spec)), st.sampled_from([*ODD_VALUES, *ODD_TIMES]), max_size=3
    )
    reply = objects[kind].create(_with(spec, data.draw(edits)), dry=True)

    if reply.ok:
        kind.model_validate(reply.body).to_dict()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_status_the_server_takes_the_model_reads(
    objects: dict[type[Resource], Objects],
    kind: type[Resource],
    data: st.DataObject,
    blank: dict[type[Resource], str],
) -> None:
    """The same for a status."""
    _, status = FULL[kind]
    edits = st.dictionaries(
        st.sampled_from(_paths(status)), st.sampled_from([*ODD_VALUES, *ODD_TIMES]), max_size=3
    )
    edited = _with(status, data.draw(edits))
    reply = objects[kind].patch(blank[kind], {"status": edited}, sub="/status", dry=True)

    if reply.ok:
        kind.model_validate(reply.body).to_dict()


@pytest.fixture(scope="module")
def blank(objects: dict[type[Resource], Objects]) -> dict[type[Resource], str]:
    """An object of each kind without a status."""
    return {kind: these.make() for kind, these in objects.items()}
