"""The rules of Agents and WorkerPools, the defaults of all kinds, and what may be missing."""

from __future__ import annotations

import pytest

from rowlock_operator.api.agent import Agent
from rowlock_operator.api.agentrun import AgentRun
from rowlock_operator.api.agentrunapproval import AgentRunApproval
from rowlock_operator.api.agentrunbatch import AgentRunBatch
from rowlock_operator.api.kinds import KINDS
from rowlock_operator.api.resource import Resource
from rowlock_operator.api.workerpool import WorkerPool

from .server import JSON, SMALLEST, Objects

pytestmark = pytest.mark.cluster

DEFAULTS: dict[type[Resource], JSON] = {
    AgentRunApproval: {},
    AgentRun: {"desiredState": "Run", "priority": 0, "redrive": 0},
    Agent: {"intake": "Open", "versionPolicy": "Latest"},
    WorkerPool: {
        "slotsPerWorker": 256,
        "stallCeilingSeconds": 60,
        "lease": {"durationSeconds": 15, "renewPeriodSeconds": 5},
        "drain": {"mode": "Checkpoint", "deadlineSeconds": 300},
        "autoscaling": {
            "mode": "Internal",
            "minReplicas": 1,
            "maxReplicas": 10,
            "targetSlotUtilizationPercent": 75,
            "targetQueueWaitSeconds": 30,
            "pollPeriodSeconds": 10,
            "scaleUp": {"stabilizationWindowSeconds": 0, "maxStepPercent": 100},
            "scaleDown": {"stabilizationWindowSeconds": 300, "maxStepPercent": 50},
        },
    },
    AgentRunBatch: {"desiredState": "Run", "materialize": "None", "maxFailedPercent": 100},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_defaults_are_filled_in(objects: dict[type[Resource], Objects], kind: type) -> None:
    """An object with nothing but what is required gets exactly these."""
    created = objects[kind].create(dry=True)

    assert created.body["spec"] == {**SMALLEST[kind], **DEFAULTS[kind]}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_null_means_the_default(objects: dict[type[Resource], Objects], kind: type) -> None:
    """A field that a template renders as null is as if it were not there."""
    created = objects[kind].create(dict.fromkeys(DEFAULTS[kind]), dry=True)

    assert created.body["spec"] == {**SMALLEST[kind], **DEFAULTS[kind]}


def test_defaults_of_an_agents_inner_objects_are_filled_in(agents: Objects) -> None:
    """A tool needs no approval, and an expired question is denied, unless it is said."""
    created = agents.create({"tools": [{"name": "search"}], "approval": {}}, dry=True).body

    assert created["spec"]["tools"] == [{"name": "search", "approval": "Never"}]
    assert created["spec"]["approval"] == {"timeoutSeconds": 86_400, "onTimeout": "Deny"}


def test_defaults_of_a_pools_inner_objects_are_filled_in(pools: Objects) -> None:
    """Half an object is completed; a Secret's key is `url` unless it is said."""
    spec: JSON = {
        "databaseSecretRef": {"name": "database"},
        "lease": {"durationSeconds": 30},
        "drain": {"mode": "Finish"},
        "autoscaling": {"minReplicas": 0, "scaleUp": {"maxStepPercent": 10}},
    }
    created = pools.create(spec, dry=True).body["spec"]

    assert created["databaseSecretRef"] == {"name": "database", "key": "url"}
    assert created["lease"] == {"durationSeconds": 30, "renewPeriodSeconds": 5}
    assert created["drain"] == {"mode": "Finish", "deadlineSeconds": 300}
    assert created["autoscaling"]["scaleUp"] == {
        "stabilizationWindowSeconds": 0,
        "maxStepPercent": 10,
    }
    assert created["autoscaling"]["maxReplicas"] == 10


def test_run_has_no_defaults_that_would_hide_its_agents(runs: Objects) -> None:
    """What the Agent or the installation may decide stays unset."""
    assert set(runs.create(dry=True).body["spec"]) == {"agentRef", *DEFAULTS[AgentRun]}


@pytest.mark.parametrize(
    ("prompt", "ok"),
    [
        ({"text": "Be brief."}, True),
        ({"configMapKeyRef": {"name": "prompts", "key": "one"}}, True),
        ({}, False),
        ({"text": "Be brief.", "configMapKeyRef": {"name": "prompts", "key": "one"}}, False),
    ],
    ids=["text", "configmap", "none", "both"],
)
def test_prompt_has_exactly_one_source(agents: Objects, prompt: JSON, ok: bool) -> None:
    """No source or two are refused."""
    reply = agents.create({"prompt": prompt}, dry=True)

    assert reply.ok == ok
    assert ok or "exactly one of text, configMapKeyRef must be set" in reply.message


@pytest.mark.parametrize(
    ("duration", "renew", "ok"), [(15, 5, True), (14, 5, False), (5, 1, True), (5, 2, False)]
)
def test_lease_is_renewed_three_times(pools: Objects, duration: int, renew: int, ok: bool) -> None:
    """Two lost signs of life never cost a lease."""
    lease = {"durationSeconds": duration, "renewPeriodSeconds": renew}
    reply = pools.create({"lease": lease}, dry=True)

    assert reply.ok == ok
    assert ok or "renewPeriodSeconds must be at most a third of durationSeconds" in reply.message


@pytest.mark.parametrize(
    ("scaling", "ok"),
    [
        ({"minReplicas": 3, "maxReplicas": 3}, True),
        ({"minReplicas": 0, "maxReplicas": 1}, True),
        ({"minReplicas": 4, "maxReplicas": 3}, False),
        ({"minReplicas": 11}, False),
    ],
    ids=["equal", "zero", "above", "above-the-default"],
)
def test_minimum_stays_below_maximum(pools: Objects, scaling: JSON, ok: bool) -> None:
    """A pool cannot need more workers than it may have, also by default."""
    reply = pools.create({"autoscaling": scaling}, dry=True)

    assert reply.ok == ok
    assert ok or "minReplicas must not exceed maxReplicas" in reply.message


@pytest.mark.parametrize(
    ("kind", "length", "message"),
    [
        (Agent, 63, "name must be no more than 63 characters"),
        (WorkerPool, 52, "name must be no more than 52 characters (pod names append 11)"),
        (AgentRunBatch, 52, "name must be no more than 52 characters"),
    ],
    ids=["Agent", "WorkerPool", "AgentRunBatch"],
)
def test_name_leaves_room_for_what_is_derived_from_it(
    objects: dict[type[Resource], Objects], kind: type[Resource], length: int, message: str
) -> None:
    """The longest name is accepted, one character more is refused."""
    assert objects[kind].create(name="a" * length, dry=True).message == ""
    assert message in objects[kind].create(name="a" * (length + 1), dry=True).message


def test_everything_else_of_agents_and_pools_can_change(agents: Objects, pools: Objects) -> None:
    """Both live long and are edited; only runs are settled."""
    agent = agents.make({"prompt": {"text": "Be brief."}})
    pool = pools.make({"podTemplate": {"spec": {"nodeSelector": {"pool": "agents"}}}})

    assert agents.change(agent, {"entrypoint": "acme:other", "prompt": None}).message == ""
    assert pools.change(pool, {"image": "acme/agents:2", "podTemplate": None}).message == ""


def test_pod_template_keeps_what_the_schema_does_not_know(pools: Objects) -> None:
    """Anything of a Pod template goes through as it is, nulls too."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"hostUsers": False, "x": [1, None]}}

    assert pools.create({"podTemplate": template}, dry=True).body["spec"]["podTemplate"] == template
