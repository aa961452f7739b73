"""The API server refuses every value beyond a bound, saying which, and takes the bound itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rowlock_operator.api.agent import Agent
from rowlock_operator.api.agentrun import AgentRun
from rowlock_operator.api.agentrunapproval import AgentRunApproval
from rowlock_operator.api.agentrunbatch import AgentRunBatch
from rowlock_operator.api.crd import crd
from rowlock_operator.api.kinds import KINDS
from rowlock_operator.api.resource import Resource
from rowlock_operator.api.workerpool import WorkerPool

from .server import JSON, Objects, Reply

pytestmark = pytest.mark.cluster

INT32, INT64 = 2**31 - 1, 2**63 - 1
NOW = "2026-09-01T10:00:00Z"
CONDITION: JSON = {
    "type": "Ready",
    "status": "True",
    "lastTransitionTime": NOW,
    "reason": "Valid",
    "message": "",
}

#: What must stand beside the last field of a path so that only that field can be wrong.
BESIDE: dict[str, JSON] = {
    "spec.autoscaling": {"maxReplicas": 1000},
    "spec.databaseSecretRef": {"name": "database"},
    "spec.input.configMapKeyRef": {"name": "inputs", "key": "one"},
    "spec.lease": {"durationSeconds": 3600, "renewPeriodSeconds": 1},
    "spec.model": {"name": "gpt"},
    "spec.model.secretRef": {"name": "key"},
    "spec.prompt.configMapKeyRef": {"name": "prompts", "key": "one"},
    "spec.items": {"id": "one", "text": "1"},
    "spec.itemsFrom.configMapKeyRef": {"name": "items", "key": "one"},
    "spec.runTemplate": {"agentRef": {"name": "triage"}},
    "spec.tools": {"name": "search"},
    "status.conditions": CONDITION,
    "status.failedItems": {"id": "one", "reason": "AgentError"},
    "status.history": {"leaseEpoch": 1},
}

INTEGERS: dict[type[Resource], dict[str, tuple[int | None, int | None]]] = {
    AgentRun: {
        "spec.priority": (-1000, 1000),
        "spec.redrive": (0, 1000),
        "spec.queueDeadlineSeconds": (1, 2_592_000),
        "spec.activeDeadlineSeconds": (1, 604_800),
        "spec.maxAttempts": (1, 20),
        "spec.maxTakeovers": (0, 100),
        "spec.retryBackoffSeconds": (0, INT32),
        "spec.maxRetryBackoffSeconds": (0, INT32),
        "spec.ttlSecondsAfterFinished": (0, INT32),
        "spec.budget.maxTotalTokens": (1, None),
        "spec.budget.maxCostMicroUSD": (1, None),
        "spec.approval.timeoutSeconds": (1, 2_592_000),
        "status.observedGeneration": (0, None),
        "status.revision": (0, None),
        "status.attempt": (0, None),
        "status.takeovers": (0, None),
        "status.redrive": (0, None),
        "status.leaseEpoch": (0, None),
        "status.lastTakeover.resumedFromStep": (0, None),
        "status.lastTakeover.leaseEpoch": (0, None),
        "status.conditions.observedGeneration": (0, None),
    },
    Agent: {
        "spec.runDefaults.queueDeadlineSeconds": (1, 2_592_000),
        "spec.runDefaults.activeDeadlineSeconds": (1, 604_800),
        "spec.runDefaults.maxAttempts": (1, 20),
        "spec.runDefaults.maxTakeovers": (0, 100),
        "spec.runDefaults.retryBackoffSeconds": (0, INT32),
        "spec.runDefaults.maxRetryBackoffSeconds": (0, INT32),
        "spec.runDefaults.ttlSecondsAfterFinished": (0, INT32),
        "spec.runDefaults.budget.maxTotalTokens": (1, None),
        "spec.runDefaults.budget.maxCostMicroUSD": (1, None),
        "spec.maxConcurrentRuns": (1, INT32),
        "spec.maxConcurrentRunsPerKey": (1, INT32),
        "spec.startsPerMinutePerKey": (1, 100_000),
        "spec.approval.timeoutSeconds": (1, 2_592_000),
        "status.observedGeneration": (0, None),
        "status.conditions.observedGeneration": (0, None),
    },
    AgentRunApproval: {
        "status.observedGeneration": (0, None),
        "status.conditions.observedGeneration": (0, None),
    },
    WorkerPool: {
        "spec.slotsPerWorker": (1, 4096),
        "spec.processesPerWorker": (1, 64),
        "spec.stallCeilingSeconds": (5, 3600),
        "spec.replicas": (0, 1000),
        "spec.autoscaling.minReplicas": (0, 1000),
        "spec.autoscaling.maxReplicas": (1, 1000),
        "spec.autoscaling.targetSlotUtilizationPercent": (10, 100),
        "spec.autoscaling.targetQueueWaitSeconds": (1, INT32),
        "spec.autoscaling.pollPeriodSeconds": (1, 300),
        "spec.autoscaling.scaleUp.stabilizationWindowSeconds": (0, 3600),
        "spec.autoscaling.scaleUp.maxStepPercent": (1, 1000),
        "spec.autoscaling.scaleDown.stabilizationWindowSeconds": (0, 3600),
        "spec.autoscaling.scaleDown.maxStepPercent": (1, 100),
        "spec.lease.durationSeconds": (5, 3600),
        "spec.lease.renewPeriodSeconds": (1, 1200),
        "spec.drain.deadlineSeconds": (0, 86_400),
        "status.observedGeneration": (0, None),
        "status.conditions.observedGeneration": (0, None),
    },
    AgentRunBatch: {
        "spec.parallelism": (1, 10_000),
        "spec.maxFailedPercent": (0, 100),
        "spec.ttlSecondsAfterFinished": (0, INT32),
        "spec.runTemplate.priority": (-1000, 1000),
        "spec.runTemplate.queueDeadlineSeconds": (1, 2_592_000),
        "spec.runTemplate.activeDeadlineSeconds": (1, 604_800),
        "spec.runTemplate.maxAttempts": (1, 20),
        "spec.runTemplate.maxTakeovers": (0, 100),
        "spec.runTemplate.retryBackoffSeconds": (0, INT32),
        "spec.runTemplate.maxRetryBackoffSeconds": (0, INT32),
        "spec.runTemplate.ttlSecondsAfterFinished": (0, INT32),
        "spec.runTemplate.budget.maxTotalTokens": (1, None),
        "spec.runTemplate.budget.maxCostMicroUSD": (1, None),
        "spec.runTemplate.approval.timeoutSeconds": (1, 2_592_000),
        "status.observedGeneration": (0, None),
        "status.conditions.observedGeneration": (0, None),
    },
}

_CONDITION_STRINGS = {
    "status.conditions.type": (0, 64),
    "status.conditions.reason": (1, 64),
    "status.conditions.message": (0, 256),
}

STRINGS: dict[type[Resource], dict[str, tuple[int, int]]] = {
    AgentRun: {
        "spec.agentRef.name": (1, 63),
        "spec.workerPoolRef.name": (1, 63),
        "spec.input.text": (0, 65_536),
        "spec.input.uri": (0, 2048),
        "spec.input.configMapKeyRef.name": (1, 253),
        "spec.input.configMapKeyRef.key": (1, 253),
        "spec.concurrencyKey": (1, 128),
        "spec.idempotencyKey": (1, 128),
        "spec.desiredStateReason": (0, 256),
        "status.runID": (0, 64),
        "status.reason": (0, 64),
        "status.worker": (0, 253),
        "status.agentRevision": (0, 64),
        "status.outcome": (0, 64),
        "status.traceID": (0, 32),
        "status.lastTakeover.reason": (0, 64),
        "status.lastTakeover.fromWorker": (0, 253),
        "status.lastTakeover.toWorker": (0, 253),
        "status.history.worker": (0, 253),
        "status.history.outcome": (0, 64),
        "status.result.preview": (0, 1024),
        "status.result.uri": (0, 2048),
        "status.result.sha256": (0, 64),
        "status.failure.reason": (0, 64),
        "status.failure.message": (0, 1024),
        "status.pendingApproval.name": (0, 253),
        "status.pendingApproval.tool": (0, 128),
        "status.pendingApproval.digest": (0, 80),
        **_CONDITION_STRINGS,
    },
    Agent: {
        "spec.description": (0, 512),
        "spec.entrypoint": (1, 253),
        "spec.model.name": (0, 128),
        "spec.model.provider": (0, 64),
        "spec.model.secretRef.name": (1, 63),
        "spec.prompt.text": (0, 65_536),
        "spec.prompt.configMapKeyRef.name": (1, 253),
        "spec.prompt.configMapKeyRef.key": (1, 253),
        "spec.tools.name": (1, 128),
        "spec.runDefaults.workerPoolRef.name": (1, 63),
        "status.revision": (0, 64),
        **_CONDITION_STRINGS,
    },
    AgentRunApproval: {
        "spec.runRef.name": (1, 63),
        "spec.tool": (1, 128),
        "spec.callID": (0, 128),
        "spec.digest": (8, 80),
        "spec.summary": (0, 1024),
        **_CONDITION_STRINGS,
    },
    WorkerPool: {
        "spec.image": (1, 512),
        "spec.serviceAccountName": (0, 253),
        "spec.databaseSecretRef.name": (0, 253),
        "spec.databaseSecretRef.key": (0, 253),
        "status.selector": (0, 1024),
        "status.lastScale.reason": (0, 64),
        **_CONDITION_STRINGS,
    },
    AgentRunBatch: {
        "spec.items.id": (1, 40),
        "spec.items.text": (0, 2048),
        "spec.itemsFrom.uri": (0, 2048),
        "spec.itemsFrom.configMapKeyRef.name": (1, 253),
        "spec.itemsFrom.configMapKeyRef.key": (1, 253),
        "spec.runTemplate.agentRef.name": (1, 63),
        "spec.runTemplate.workerPoolRef.name": (1, 63),
        "spec.runTemplate.concurrencyKey": (1, 128),
        "status.batchID": (0, 64),
        "status.failedItems.id": (0, 40),
        "status.failedItems.reason": (0, 64),
        **_CONDITION_STRINGS,
    },
}

_TRUTH = ("True", "False", "Unknown")
PHASES = (
    "Pending",
    "Queued",
    "Running",
    "AwaitingApproval",
    "Suspended",
    "Retrying",
    "Succeeded",
    "Failed",
    "Cancelled",
)

ENUMS: dict[type[Resource], dict[str, tuple[str, ...]]] = {
    AgentRun: {
        "spec.desiredState": ("Run", "Suspend", "Cancel"),
        "status.phase": PHASES,
        "status.conditions.status": _TRUTH,
    },
    Agent: {
        "spec.intake": ("Open", "Paused"),
        "spec.versionPolicy": ("Latest", "Pinned"),
        "spec.tools.sideEffects": ("None", "Idempotent", "NonIdempotent"),
        "spec.tools.approval": ("Never", "Always"),
        "spec.approval.onTimeout": ("Deny", "Approve"),
        "status.conditions.status": _TRUTH,
    },
    AgentRunApproval: {
        "status.phase": ("Pending", "Approved", "Denied", "Expired", "Withdrawn"),
        "status.conditions.status": _TRUTH,
    },
    WorkerPool: {
        "spec.autoscaling.mode": ("Internal", "External", "None"),
        "spec.drain.mode": ("Checkpoint", "Finish"),
        "status.conditions.status": _TRUTH,
    },
    AgentRunBatch: {
        "spec.desiredState": ("Run", "Suspend", "Cancel"),
        "spec.materialize": ("None", "Failed", "All"),
        "status.phase": ("Pending", "Running", "Suspended", "Succeeded", "Failed", "Cancelled"),
        "status.conditions.status": _TRUTH,
    },
}

#: Lists: how many entries they hold, and the field that tells the entries apart.
LISTS: dict[type[Resource], dict[str, tuple[int, str]]] = {
    AgentRun: {"status.history": (10, "leaseEpoch"), "status.conditions": (12, "type")},
    Agent: {"spec.tools": (64, "name"), "status.conditions": (6, "type")},
    WorkerPool: {"status.conditions": (8, "type")},
    AgentRunApproval: {"status.conditions": (4, "type")},
    AgentRunBatch: {
        "spec.items": (100, "id"),
        "status.failedItems": (20, "id"),
        "status.conditions": (8, "type"),
    },
}

DNS_LABELS: list[tuple[type[Resource], str]] = [
    (kind, path)
    for kind, path in (
        (AgentRun, "spec.agentRef.name"),
        (AgentRun, "spec.workerPoolRef.name"),
        (Agent, "spec.model.secretRef.name"),
        (Agent, "spec.runDefaults.workerPoolRef.name"),
        (AgentRunApproval, "spec.runRef.name"),
        (AgentRunBatch, "spec.runTemplate.agentRef.name"),
        (AgentRunBatch, "spec.runTemplate.workerPoolRef.name"),
    )
]
#: DNS labels that are shorter than the others; the longest of those is tried on them elsewhere.
ITEM_IDS: list[tuple[type[Resource], str]] = [(AgentRunBatch, "spec.items.id")]
REASONS = [(kind, "status.conditions.reason") for kind in KINDS]

TIMES: dict[type[Resource], tuple[str, ...]] = {
    AgentRun: (
        "status.queueTime",
        "status.startTime",
        "status.completionTime",
        "status.lastTakeover.time",
        "status.history.startTime",
        "status.history.endTime",
        "status.pendingApproval.expirationTime",
        "status.conditions.lastTransitionTime",
    ),
    Agent: ("status.conditions.lastTransitionTime",),
    AgentRunApproval: (
        "spec.expirationTime",
        "status.decidedTime",
        "status.conditions.lastTransitionTime",
    ),
    WorkerPool: (
        "status.queue.oldestQueuedTime",
        "status.queue.sampleTime",
        "status.lastScale.time",
        "status.conditions.lastTransitionTime",
    ),
    AgentRunBatch: (
        "status.startTime",
        "status.completionTime",
        "status.conditions.lastTransitionTime",
    ),
}

REQUIRED: dict[type[Resource], tuple[str, ...]] = {
    AgentRun: (
        "spec.agentRef",
        "spec.agentRef.name",
        "spec.workerPoolRef.name",
        "spec.input.configMapKeyRef.name",
        "spec.input.configMapKeyRef.key",
        "status.history.leaseEpoch",
        *(f"status.conditions.{name}" for name in CONDITION),
    ),
    Agent: (
        "spec.entrypoint",
        "spec.model.name",
        "spec.model.secretRef.name",
        "spec.prompt.configMapKeyRef.name",
        "spec.prompt.configMapKeyRef.key",
        "spec.tools.name",
        "spec.runDefaults.workerPoolRef.name",
        *(f"status.conditions.{name}" for name in CONDITION),
    ),
    AgentRunApproval: (
        "spec.tool",
        "spec.digest",
        "spec.runRef.name",
        *(f"status.conditions.{name}" for name in CONDITION),
    ),
    WorkerPool: (
        "spec.image",
        "spec.databaseSecretRef.name",
        *(f"status.conditions.{name}" for name in CONDITION),
    ),
    AgentRunBatch: (
        "spec.runTemplate",
        "spec.runTemplate.agentRef",
        "spec.runTemplate.agentRef.name",
        "spec.runTemplate.workerPoolRef.name",
        "spec.items.id",
        "spec.items.text",
        "spec.itemsFrom.configMapKeyRef.name",
        "spec.itemsFrom.configMapKeyRef.key",
        "status.failedItems.id",
        "status.failedItems.reason",
        *(f"status.conditions.{name}" for name in CONDITION),
    ),
}


#: Objects that cannot be given at the creation, or not beside others: test_crd_approvals.py.
ELSEWHERE = ("spec.decision", "spec.batchItemRef")


def cases(table: Mapping[type[Resource], Mapping[str, Any]]) -> list[Any]:
    """Return one named test for each field of a table."""
    return [
        pytest.param(kind, path, value, id=f"{kind.__name__}.{path}")
        for kind, fields in table.items()
        for path, value in fields.items()
    ]


def places(pairs: list[tuple[type[Resource], str]]) -> list[Any]:
    """Return one named test for each field of a list."""
    return [pytest.param(kind, path, id=f"{kind.__name__}.{path}") for kind, path in pairs]


class Asker:
    """Ask the server, without storing anything, whether it takes a value for a field."""

    def __init__(self, objects: Mapping[type[Resource], Objects]) -> None:
        self._objects = objects
        self._names = {kind: these.make() for kind, these in objects.items()}

    def __call__(self, kind: type[Resource], path: str, value: object) -> Reply:
        """Ask for a value; for a path that names a list, the value is the list."""
        root, *inner = path.split(".")
        body: JSON = {root: _around(root, inner, value)}
        if root == "status":
            return self._objects[kind].patch(self._names[kind], body, sub="/status", dry=True)
        if path.startswith("spec.itemsFrom"):  # in place of those of the smallest spec
            body["spec"]["items"] = None
        return self._objects[kind].create(body["spec"], dry=True)


def _around(where: str, inner: list[str], value: object) -> object:
    """Wrap a value into the objects and one-entry lists around it."""
    if not inner:
        return value
    name, *rest = inner
    path = f"{where}.{name}"
    is_list = any(path in lists for lists in LISTS.values())
    below = _around(path, rest, value)
    return {**BESIDE.get(where, {}), name: [below] if is_list and rest else below}


@pytest.fixture(scope="module")
def ask(objects: dict[type[Resource], Objects]) -> Asker:
    """One asker for all tests: it stores nothing but an object of each kind."""
    return Asker(objects)


@pytest.mark.parametrize(("kind", "path", "bounds"), cases(INTEGERS))
def test_integer_is_taken_up_to_its_bounds(
    ask: Asker, kind: type[Resource], path: str, bounds: tuple[int | None, int | None]
) -> None:
    """Both bounds are accepted, one beyond is refused with the bound in the message."""
    low, high = bounds
    accepted = [ask(kind, path, value).message for value in (low, high or INT64)]
    below = ask(kind, path, low - 1 if low is not None else None)

    assert accepted == ["", ""]
    assert f"{_last(path)} in body should be greater than or equal to {low}" in below.message
    if high is not None:
        above = ask(kind, path, high + 1)
        assert f"{_last(path)} in body should be less than or equal to {high}" in above.message


@pytest.mark.parametrize("value", ["3", 1.5, True, [1], {}, 2**63], ids=str)
def test_integer_is_no_other_type(ask: Asker, value: object) -> None:
    """A number in quotes, a fraction, a truth, a number beyond 64 bits are refused."""
    refused = ask(AgentRun, "spec.maxAttempts", value)

    assert "spec.maxAttempts in body must be of type integer" in refused.message


@pytest.mark.parametrize(("kind", "path", "lengths"), cases(STRINGS))
def test_string_is_taken_up_to_its_length(
    ask: Asker, kind: type[Resource], path: str, lengths: tuple[int, int]
) -> None:
    """The shortest and the longest are accepted, one more or less is refused, naming the length."""
    shortest, longest = lengths
    accepted = [ask(kind, path, "a" * length).message for length in lengths]
    too_long = ask(kind, path, "a" * (longest + 1))
    too_short = ask(kind, path, "a" * (shortest - 1)) if shortest else None
    least = f"should be at least {shortest} chars long"

    assert accepted == ["", ""]
    assert f"Too long: may not be more than {longest} bytes" in too_long.message
    assert too_short is None or least in too_short.message


def test_length_counts_characters_not_bytes(ask: Asker) -> None:
    """Text of another alphabet may be as long as one in ASCII."""
    assert ask(AgentRun, "spec.desiredStateReason", "é" * 256).message == ""
    assert not ask(AgentRun, "spec.desiredStateReason", "é" * 257).ok


@pytest.mark.parametrize(("kind", "path", "values"), cases(ENUMS))
def test_enum_is_one_of_its_words(
    ask: Asker, kind: type[Resource], path: str, values: tuple[str, ...]
) -> None:
    """Every word is accepted; another one, or another case, is refused with the list of words."""
    accepted = [ask(kind, path, value).message for value in values]
    refused = [ask(kind, path, value) for value in ("Other", values[0].lower(), "")]
    supported = ", ".join(f'"{value}"' for value in values)

    assert accepted == [""] * len(values)
    assert all(f"supported values: {supported}" in reply.message for reply in refused)


@pytest.mark.parametrize(("kind", "path", "limit"), cases(LISTS))
def test_list_holds_so_many_different_entries(
    ask: Asker, kind: type[Resource], path: str, limit: tuple[int, str]
) -> None:
    """A full list is accepted; one entry more, or a key twice, is refused."""
    most, key = limit
    entries = [{**BESIDE[path], key: _key(key, number)} for number in range(most + 1)]

    assert ask(kind, path, entries[:most]).message == ""
    assert f"{path}: Too many: {most + 1}: must have at most {most} items" in (
        ask(kind, path, entries).message
    )
    assert f"{path}[1]: Duplicate value" in ask(kind, path, entries[:1] * 2).message


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a--b", "9" * 63], ids=lambda name: name[:5])
@pytest.mark.parametrize(("kind", "path"), places(DNS_LABELS))
def test_reference_is_a_dns_label(ask: Asker, kind: type[Resource], path: str, name: str) -> None:
    """What can name an object can be referred to."""
    assert ask(kind, path, name).message == ""


@pytest.mark.parametrize("name", ["A", "a.b", "a_b", "-a", "a-", "a b", "a\n", "ä"], ids=repr)
@pytest.mark.parametrize(("kind", "path"), places([*DNS_LABELS, *ITEM_IDS]))
def test_reference_is_nothing_but_a_dns_label(
    ask: Asker, kind: type[Resource], path: str, name: str
) -> None:
    """What can never name an object is refused at once, not waited for."""
    refused = ask(kind, path, name)

    assert f"{_last(path)} in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'" in (
        refused.message
    )


@pytest.mark.parametrize(("kind", "path"), places(REASONS))
def test_reason_is_one_word(ask: Asker, kind: type[Resource], path: str) -> None:
    """A reason is a word for programs: letters first, then letters, digits, underscores."""
    refused = [ask(kind, path, value) for value in ("two words", "1st", "_x", "a-b", "a\n")]

    assert ask(kind, path, "LeaseExpired_2").message == ""
    assert all("should match '^[A-Za-z][A-Za-z0-9_]*$'" in reply.message for reply in refused)


@pytest.mark.parametrize(
    ("kind", "path"), places([(kind, path) for kind, paths in TIMES.items() for path in paths])
)
def test_time_is_a_full_time(ask: Asker, kind: type[Resource], path: str) -> None:
    """A time has a date, seconds and a zone."""
    refused = [ask(kind, path, value) for value in ("", "2026-09-01", "2026-09-01T10:00:00", "now")]

    assert [ask(kind, path, value).message for value in (NOW, "2026-09-01T10:00:00.5+02:00")] == [
        "",
        "",
    ]
    assert all("must be of type date-time" in reply.message for reply in refused)


@pytest.mark.parametrize(
    ("kind", "path"), places([(kind, path) for kind, paths in REQUIRED.items() for path in paths])
)
def test_required_field_is_missed(ask: Asker, kind: type[Resource], path: str) -> None:
    """An object without a required field is refused, naming the field."""
    parent, _, name = path.rpartition(".")
    without = {**BESIDE.get(parent, {}), name: None}
    refused = (
        ask(kind, path, None)
        if parent == "spec"
        else ask(kind, parent, _one(kind, parent, without))
    )

    assert f"{name}: Required value" in refused.message


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_spec_is_required(objects: dict[type[Resource], Objects], kind: type[Resource]) -> None:
    """An object without a spec is refused."""
    manifest = objects[kind].manifest()
    del manifest["spec"]

    assert "spec: Required value" in objects[kind].post(manifest, dry=True).message


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_bound_of_the_schema_is_tested_here(kind: type[Resource]) -> None:
    """A new bound needs a line in one of the tables above."""
    schema = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found = dict(_bounded(schema))

    found = {path: node for path, node in found.items() if not path.startswith(ELSEWHERE)}
    assert _with(found, "minimum", "maximum") == set(INTEGERS[kind])
    assert _with(found, "minLength", "maxLength") == set(STRINGS[kind])
    assert _with(found, "enum") == set(ENUMS[kind])
    assert _with(found, "maxItems", "minItems") == set(LISTS[kind])
    assert {path for path, node in found.items() if node.get("format") == "date-time"} == set(
        TIMES[kind]
    )
    patterns = {path for where, path in [*DNS_LABELS, *ITEM_IDS, *REASONS] if where is kind}
    assert _with(found, "pattern") == patterns


def _bounded(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, field in node.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        yield where, field
        yield from _bounded(field.get("items", field), where)


def _with(found: Mapping[str, Mapping[str, Any]], *keywords: str) -> set[str]:
    return {path for path, node in found.items() if any(word in node for word in keywords)}


def _one(kind: type[Resource], path: str, entry: JSON) -> object:
    return [entry] if path in LISTS[kind] else entry


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _key(field: str, number: int) -> object:
    return number if field == "leaseEpoch" else f"key{number}"
