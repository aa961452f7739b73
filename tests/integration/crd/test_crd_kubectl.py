"""What people see and type: columns, selectors, short names, categories, messages, help."""

from __future__ import annotations

import json
import re
from subprocess import CompletedProcess

import pytest

from localcluster import Cluster
from rowlock_operator.api.kinds import KINDS
from rowlock_operator.api.resource import Resource

from .server import JSON, Objects

pytestmark = pytest.mark.cluster

NOW = "2026-09-01T10:00:00Z"
DIGEST = "0123456789ab"
AGO = re.compile(r"\d+[smhdy]\w*")


def condition(type_: str, status: str) -> JSON:
    """Return a condition."""
    return {
        "type": type_,
        "status": status,
        "lastTransitionTime": NOW,
        "reason": "Test",
        "message": "",
    }


#: Spec and status of an object, and what its columns show; a pattern for what depends on now.
SHOWN: dict[str, tuple[JSON, JSON, dict[str, str | re.Pattern[str]]]] = {
    "AgentRun": (
        {"agentRef": {"name": "triage"}, "ttlSecondsAfterFinished": 3600},
        {
            "phase": "Running",
            "reason": "TakenOver",
            "attempt": 2,
            "takeovers": 3,
            "worker": "default-7c9f",
            "outcome": "degraded",
            "revision": 41,
            "startTime": "2020-01-01T00:00:00Z",
        },
        {
            "AGENT": "triage",
            "PHASE": "Running",
            "REASON": "TakenOver",
            "ATTEMPT": "2",
            "TAKEOVERS": "3",
            "WORKER": "default-7c9f",
            "OUTCOME": "degraded",
            "REVISION": "41",
            "TTL": "3600",
            "STARTED": re.compile(r"\d+y\w*"),
            "AGE": AGO,
        },
    ),
    "Agent": (
        {
            "entrypoint": "acme:agent",
            "model": {"name": "gpt"},
            "intake": "Paused",
            "runDefaults": {"workerPoolRef": {"name": "large"}},
        },
        {
            "revision": "5f2c",
            "conditions": [condition("Ready", "False"), condition("Accepted", "True")],
        },
        {
            "MODEL": "gpt",
            "INTAKE": "Paused",
            "ACCEPTED": "True",
            "READY": "False",
            "POOL": "large",
            "REVISION": "5f2c",
            "AGE": AGO,
        },
    ),
    "WorkerPool": (
        {
            "image": "acme/agents:1",
            "slotsPerWorker": 8,
            "autoscaling": {"mode": "External", "minReplicas": 2, "maxReplicas": 20},
        },
        {
            "desiredReplicas": 6,
            "readyReplicas": 5,
            "queue": {"queuedRuns": 33},
            "lastScale": {"time": "2020-01-01T00:00:00Z"},
            "conditions": [condition("Available", "Unknown")],
        },
        {
            "AVAILABLE": "Unknown",
            "MODE": "External",
            "MIN": "2",
            "MAX": "20",
            "DESIRED": "6",
            "READY": "5",
            "QUEUED": "33",
            "SLOTS": "8",
            "SCALED": re.compile(r"\d+y\w*"),
            "AGE": AGO,
        },
    ),
    "AgentRunApproval": (
        {
            "runRef": {"name": "triage-4711"},
            "tool": "send_mail",
            "digest": DIGEST,
            "expirationTime": "2020-01-01T00:00:00Z",
        },
        {"phase": "Approved"},
        {
            "RUN": "triage-4711",
            "TOOL": "send_mail",
            "PHASE": "Approved",
            "DECIDEDBY": "ada",
            "EXPIRES": re.compile(r"\d+y\w*"),
            "AGE": AGO,
        },
    ),
    "AgentRunBatch": (
        {},
        {
            "phase": "Running",
            "total": 2000,
            "running": 50,
            "succeeded": 523,
            "failed": 7,
            "takeovers": 3,
        },
        {
            "AGENT": "triage",
            "PHASE": "Running",
            "TOTAL": "2000",
            "RUNNING": "50",
            "SUCCEEDED": "523",
            "FAILED": "7",
            "TAKEOVERS": "3",
            "AGE": AGO,
        },
    ),
}
#: What can only be written after the creation.
LATER: dict[str, JSON] = {
    "AgentRunApproval": {"decision": {"action": "Approve", "decidedBy": "ada", "digest": DIGEST}}
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_column_shows_its_value(
    cluster: Cluster, objects: dict[type[Resource], Objects], kind: type[Resource]
) -> None:
    """`kubectl get -o wide` has the columns of the definition in order, and no empty cell."""
    spec, status, expected = SHOWN[kind.definition.kind]
    name = made(objects[kind], spec, status)

    shown = table(cluster, objects[kind], name, "-o", "wide")

    assert list(shown) == ["NAME", *(column.name.upper() for column in kind.definition.columns)]
    assert list(expected) == list(shown)[1:]
    wrong = {
        column: shown[column]
        for column, value in expected.items()
        if not (
            value.fullmatch(shown[column])
            if isinstance(value, re.Pattern)
            else value == shown[column]
        )
    }
    assert wrong == {}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_narrow_list_leaves_wide_columns_out(
    cluster: Cluster, objects: dict[type[Resource], Objects], kind: type[Resource]
) -> None:
    """Without `-o wide` the list fits a terminal."""
    spec, status, _ = SHOWN[kind.definition.kind]
    name = made(objects[kind], spec, status)
    narrow = [column.name.upper() for column in kind.definition.columns if not column.wide]

    assert list(table(cluster, objects[kind], name)) == ["NAME", *narrow]


def made(objects: Objects, spec: JSON, status: JSON) -> str:
    """Create an object with all that its columns show, and return its name."""
    name = objects.make(spec, status)
    later = LATER.get(objects.kind.definition.kind)
    if later:
        changed = objects.change(name, later, dry=False)
        assert changed.ok, changed.message
    return name


def table(cluster: Cluster, objects: Objects, name: str, *arguments: str) -> dict[str, str]:
    """Return one row of `kubectl get` by column; a blank cell would shift the row and raise."""
    plural = objects.kind.definition.plural
    printed = cluster.kubectl("get", plural, name, "-n", objects.namespace, *arguments).stdout
    header, row = (line.split() for line in printed.splitlines())
    return dict(zip(header, row, strict=True))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_name_of_a_kind_works(
    cluster: Cluster, objects: dict[type[Resource], Objects], kind: type[Resource]
) -> None:
    """Plural, singular, kind and short names mean the same to kubectl."""
    name = objects[kind].make()
    definition = kind.definition
    names = (definition.plural, definition.kind.lower(), definition.kind, *definition.short_names)
    where = ("-n", objects[kind].namespace, "-o", "name")

    printed = {word: cluster.kubectl("get", word, name, *where).stdout.strip() for word in names}

    expected = f"{definition.kind.lower()}.rowlock.dev/{name}"
    assert printed == dict.fromkeys(names, expected)


def test_category_lists_every_kind(
    cluster: Cluster, objects: dict[type[Resource], Objects], namespace: str
) -> None:
    """`kubectl get rowlock` shows all that belongs to Rowlock."""
    made = {
        f"{kind.__name__.lower()}.rowlock.dev/{these.make()}" for kind, these in objects.items()
    }

    printed = cluster.kubectl("get", "rowlock", "-n", namespace, "-o", "name").stdout

    assert made <= set(printed.split())


def test_deleting_all_agents_deletes_nothing_else(
    cluster: Cluster, objects: dict[type[Resource], Objects], namespace: str
) -> None:
    """No category has the name of a kind, so that `--all` means one kind."""
    made = {these: these.make() for these in objects.values()}

    cluster.kubectl("delete", "agents", "--all", "-n", namespace)

    left = {these.kind.__name__ for these, name in made.items() if these.get(name).ok}
    assert left == {"AgentRun", "WorkerPool", "AgentRunApproval", "AgentRunBatch"}


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("spec.agentRef.name=select-me", {"running", "held"}),
        ("spec.agentRef.name=select-me,spec.desiredState=Suspend", {"held"}),
        ("spec.agentRef.name=select-me,spec.desiredState!=Suspend", {"running"}),
        ("spec.agentRef.name=select-me,status.phase=Running", {"running"}),
        ("spec.agentRef.name=select-me,status.phase=Failed", set()),
    ],
)
def test_field_selector_finds_its_runs(
    cluster: Cluster, runs: Objects, selector: str, found: set[str]
) -> None:
    """Runs can be asked for by agent, wish and phase."""
    spec: JSON = {"agentRef": {"name": "select-me"}}
    names = {
        runs.make(spec, {"phase": "Running"}): "running",
        runs.make({**spec, "desiredState": "Suspend"}, {"phase": "Suspended"}): "held",
    }

    printed = cluster.kubectl(
        *("get", "arun", "-n", runs.namespace, "-o", "name", "--field-selector", selector)
    ).stdout

    listed = {line.rpartition("/")[2] for line in printed.split()}
    assert {names[name] for name in listed & set(names)} == found


def test_other_fields_cannot_be_selected(runs: Objects) -> None:
    """A selector that cannot work is an error, never an empty list."""
    reply = runs.api.call("GET", runs.path, fieldSelector="spec.priority=1")

    assert (reply.status, reply.message) == (400, "field label not supported: spec.priority")


@pytest.mark.parametrize(
    ("kind", "spec", "typo"),
    [
        ("AgentRun", {"agentRef": {"name": "a"}, "priorty": 1}, "spec.priorty"),
        ("AgentRun", {"agentRef": {"name": "a", "nam": "b"}}, "spec.agentRef.nam"),
        ("AgentRun", {"agentRef": {"name": "a"}, "agent_ref": 1}, "spec.agent_ref"),
        ("Agent", {"entrypoint": "a:b", "tool": []}, "spec.tool"),
        ("WorkerPool", {"image": "i", "autoscaling": {"min": 1}}, "spec.autoscaling.min"),
        ("AgentRunApproval", {"tool": "t", "digest": DIGEST, "args": "x"}, "spec.args"),
        ("AgentRunBatch", {"runTemplate": {"input": 1}}, "spec.runTemplate.input"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_typo_is_reported(
    cluster: Cluster, runs: Objects, kind: str, spec: JSON, typo: str
) -> None:
    """`kubectl apply` names a field that does not exist instead of dropping it."""
    refused = apply(cluster, runs, kind, spec)

    assert refused.returncode == 1
    assert f'unknown field "{typo}"' in refused.stderr


def test_message_of_a_rule_reaches_the_terminal(cluster: Cluster, runs: Objects) -> None:
    """A refused apply ends with 1 and tells what is wrong in our words."""
    refused = apply(cluster, runs, "AgentRun", {"agentRef": {"name": "a"}, "input": {}})

    assert refused.returncode == 1
    assert "input must have exactly one of text, configMapKeyRef, uri" in refused.stderr


def test_change_of_a_fixed_field_reaches_the_terminal(cluster: Cluster, runs: Objects) -> None:
    """Applying a changed manifest tells that a new run is needed."""
    name = runs.make({"maxAttempts": 1})

    refused = apply(cluster, runs, "AgentRun", {"agentRef": {"name": "b"}, "maxAttempts": 2}, name)

    assert "agentRef is immutable: create a new AgentRun" in refused.stderr
    assert "maxAttempts is immutable: create a new AgentRun" in refused.stderr


def apply(
    cluster: Cluster, runs: Objects, kind: str, spec: JSON, name: str = "applied"
) -> CompletedProcess[str]:
    """Apply an object with kubectl."""
    manifest = {**runs.manifest(name=name), "kind": kind, "spec": spec}
    return cluster.kubectl(
        "apply", "-n", runs.namespace, "-f", "-", input=json.dumps(manifest), check=False
    )


@pytest.mark.parametrize("status", ["True", "False"])
def test_wait_ends_at_finished(cluster: Cluster, runs: Objects, status: str) -> None:
    """`kubectl wait --for=condition=Finished` answers from the condition, also for an old one."""
    name = runs.make(status={"conditions": [condition("Finished", status)]})

    wait = ("wait", f"arun/{name}", "--for=condition=Finished", "--timeout=0")
    ended = cluster.kubectl(*wait, "-n", runs.namespace, check=False)

    assert (ended.returncode == 0) == (status == "True")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("agentrun.spec.redrive", "Raise it by one after the end to run again"),
        ("agentrun.spec.input.uri", "Address of an input"),
        ("agentrun.status.lastTakeover.reason", "Why the old worker lost it"),
        ("agent.spec.tools.sideEffects", "What repeating a call would do"),
        ("agentrunbatch.spec.parallelism", "Items under way at once"),
        ("workerpool.spec.lease.renewPeriodSeconds", "Seconds between two signs of life"),
        ("agentrunapproval.spec.decision.digest", "it proves what was decided"),
    ],
)
def test_explain_tells_what_a_field_means(
    cluster: Cluster, runs: Objects, field: str, text: str
) -> None:
    """`kubectl explain` has our description of every field."""
    printed = cluster.kubectl("explain", field).stdout

    assert text in " ".join(printed.split())
