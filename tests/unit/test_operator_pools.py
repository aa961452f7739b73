"""WorkerPools: the Deployment they become, and what their status says."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.settings import WorkerSettings
from rowlock.store.scaling import PoolSignals
from rowlock.store.types import PoolDemand, PoolId
from rowlock_operator.api.agent import AgentStatus
from rowlock_operator.api.autoscaling import ScalingMode
from rowlock_operator.api.pool_words import POOL_CONDITIONS, POOL_REASONS, Limit, Why
from rowlock_operator.api.workerpool import WorkerPoolSpec, WorkerPoolStatus
from rowlock_operator.intake.agents import known_agent
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.resources import ObjectKey
from rowlock_operator.kube.specs import labels
from rowlock_operator.kube.specs.deployment import (
    PoolIdentity,
    PoolRefused,
    SecretKey,
    deployment,
    disruption_budget,
)
from rowlock_operator.kube.specs.network import metrics_service, network_policy
from rowlock_operator.kube.specs.template import MERGE_KEYS, merge
from rowlock_operator.pools.announcements import announcements
from rowlock_operator.pools.autoscaler import Scaled, Scaling, stands
from rowlock_operator.pools.availability import Availability, availability, needs_pods
from rowlock_operator.pools.replicas import fill, first_replicas
from rowlock_operator.pools.rollout import outdated, template_of
from rowlock_operator.pools.scaling import Decision, Outcome, Past
from rowlock_operator.pools.status import Applied, Demand, agent_status, differs, pool_status

NOW = datetime(2026, 9, 1, 10, tzinfo=UTC)
POOL = PoolIdentity("ns", "default", "uid-1")
DATABASE = SecretKey("db", "url")


def spec(**more: Any) -> WorkerPoolSpec:
    return WorkerPoolSpec.model_validate({"image": "agents:1", **more})


def worker_of(made: dict[str, Any]) -> dict[str, Any]:
    return next(
        it for it in made["spec"]["template"]["spec"]["containers"] if it["name"] == "worker"
    )


def env_of(made: dict[str, Any]) -> dict[str, Any]:
    return {it["name"]: it.get("value", it.get("valueFrom")) for it in worker_of(made)["env"]}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, 1),
        ({"replicas": 7}, 1),
        ({"autoscaling": {"mode": "None"}}, 1),
        ({"autoscaling": {"minReplicas": 0}}, 0),
        ({"autoscaling": {"mode": "None"}, "replicas": 7}, 7),
        ({"autoscaling": {"mode": "None"}, "replicas": 0}, 0),
        ({"autoscaling": {"mode": "External", "minReplicas": 2}}, 2),
        ({"autoscaling": {"mode": "External"}, "replicas": 9}, 9),
    ],
)
def test_how_many_workers_a_pool_begins_with(given: dict[str, Any], wanted: int) -> None:
    assert first_replicas(spec(**given)) == wanted


@pytest.mark.parametrize(
    ("given", "standing", "wanted"),
    [
        ({}, 3, None),
        ({"mode": "None"}, 3, None),
        ({"mode": "External", "minReplicas": 2}, None, 2),
        ({"mode": "External", "minReplicas": 0}, None, 0),
        # A pool that changes hands loses no workers.
        ({"mode": "External", "minReplicas": 2, "maxReplicas": 8}, 5, 5),
        ({"mode": "External", "minReplicas": 2, "maxReplicas": 8}, 0, 2),
        ({"mode": "External", "minReplicas": 2, "maxReplicas": 8}, 9, 8),
    ],
)
def test_absent_replicas_are_filled_for_others(
    given: dict[str, Any], standing: int | None, wanted: int | None
) -> None:
    assert fill(spec(autoscaling=given), standing=standing) == wanted
    assert fill(spec(autoscaling=given, replicas=1), standing=standing) is None


def test_every_variable_of_the_worker_is_one_that_it_knows() -> None:
    made = deployment(POOL, spec(processesPerWorker=2), replicas=1, database=DATABASE)
    known = {f"ROWLOCK_{name.upper()}" for name in WorkerSettings.model_fields}
    assert env_of(made).keys() <= known


def test_the_worker_gets_the_pools_limits() -> None:
    given = spec(
        slotsPerWorker=8,
        processesPerWorker=2,
        stallCeilingSeconds=9,
        lease={"durationSeconds": 30, "renewPeriodSeconds": 10},
        drain={"deadlineSeconds": 100},
    )
    made = deployment(POOL, given, replicas=3, database=DATABASE)
    env = env_of(made)
    assert {name: env[f"ROWLOCK_{name}"] for name in ("SLOTS", "PROCESSES", "POOL")} == {
        "SLOTS": "8",
        "PROCESSES": "2",
        "POOL": "default",
    }
    assert (env["ROWLOCK_LEASE_SECONDS"], env["ROWLOCK_RENEW_SECONDS"]) == ("30", "10")
    assert (env["ROWLOCK_STALL_CEILING_SECONDS"], env["ROWLOCK_DRAIN_SECONDS"]) == ("9", "100")
    assert env["ROWLOCK_DATABASE_URL"] == {"secretKeyRef": {"name": "db", "key": "url"}}
    assert env["ROWLOCK_NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert made["spec"]["replicas"] == 3
    assert made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 130


def test_pods_pass_the_restricted_standard() -> None:
    made = deployment(POOL, spec(), replicas=1, database=DATABASE)
    pod = made["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    context = worker_of(made)["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False


def test_a_pool_without_a_database_is_refused_unless_its_template_has_one() -> None:
    with pytest.raises(PoolRefused) as caught:
        deployment(POOL, spec(), replicas=1, database=None)
    assert caught.value.reason == "NoDatabase"
    env = [{"name": "ROWLOCK_DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "x"}}}]
    template = {"spec": {"containers": [{"name": "worker", "env": env}]}}
    assert deployment(POOL, spec(podTemplate=template), replicas=1, database=None)


def test_the_selector_cannot_be_broken_by_a_template() -> None:
    template = {"metadata": {"labels": {labels.POOL_LABEL: "other", "team": "a"}}}
    made = deployment(POOL, spec(podTemplate=template), replicas=1, database=DATABASE)
    found = made["spec"]["template"]["metadata"]["labels"]
    assert found["team"] == "a"
    assert made["spec"]["selector"]["matchLabels"].items() <= found.items()


@pytest.mark.parametrize(
    "template",
    [
        {"spec": None},
        {"spec": "odd"},
        {"metadata": 7},
        {"spec": {"containers": None}},
        {"spec": {"containers": ["odd"]}},
        {"spec": {"containers": [{"name": {}}]}},
    ],
)
def test_a_template_cannot_take_the_worker_away(template: dict[str, Any]) -> None:
    with pytest.raises(PoolRefused) as caught:
        deployment(POOL, spec(podTemplate=template), replicas=1, database=DATABASE)
    assert caught.value.reason == "InvalidPodTemplate"


names = st.sampled_from(
    ["spec", "metadata", "labels", "containers", "env", "volumes", "name", "worker", "ports"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(names, values, max_size=3))
def test_no_template_is_more_than_refused(template: dict[str, Any]) -> None:
    try:
        made = deployment(POOL, spec(podTemplate=template), replicas=1, database=DATABASE)
    except PoolRefused:
        return
    found = made["spec"]["template"]["metadata"]["labels"]
    assert made["spec"]["selector"]["matchLabels"].items() <= found.items()
    assert network_policy(POOL, made["spec"]["template"])


@pytest.mark.parametrize(
    "ports",
    [None, "x", ["x"], [{"containerPort": "http"}], [{"containerPort": 1, "protocol": {"x": 1}}]],
)
def test_ports_that_make_no_sense_open_nothing(ports: Any) -> None:
    containers = [{"name": "odd", "ports": ports}, None]
    assert network_policy(POOL, {"spec": {"containers": containers}})["spec"]["ingress"] == []


def test_a_template_is_told_from_another_one() -> None:
    def mark(**given: Any) -> str | None:
        made = deployment(POOL, spec(**given), replicas=1, database=DATABASE)
        return template_of(made["spec"]["template"])

    assert mark() == mark(autoscaling={"maxReplicas": 3}) is not None
    changed = {"metadata": {"annotations": None, "labels": {"team": "a"}}}
    assert len({mark(), mark(image="agents:2"), mark(podTemplate=changed)}) == 3


def old_and_new(*, new_ready: bool, stuck: bool = False) -> frozenset[str]:
    def item(uid: str, template: str, *, ready: bool, **metadata: Any) -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": str(ready)}]
        annotations = {labels.TEMPLATE_ANNOTATION: template}
        return {
            "metadata": {"uid": uid, "annotations": annotations, **metadata},
            "status": {"conditions": conditions},
        }

    progressing = {"type": "Progressing", "status": str(not stuck)}
    template = {"metadata": {"annotations": {labels.TEMPLATE_ANNOTATION: "new"}}}
    pods = [
        item("a", "old", ready=True),
        item("b", "old", ready=False),
        item("c", "new", ready=new_ready),
        item("d", "new", ready=True, deletionTimestamp="2026-09-01T10:00:00Z"),
    ]
    deployment_of_both = {
        "spec": {"template": template},
        "status": {"conditions": [progressing]},
    }
    return outdated(deployment_of_both, pods)


def test_old_workers_rest_once_a_new_one_is_ready() -> None:
    assert old_and_new(new_ready=False) == frozenset()
    assert old_and_new(new_ready=True) == {"a", "b"}
    assert old_and_new(new_ready=True, stuck=True) == frozenset()


def test_the_table_of_merge_keys_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "operator.md").read_text()
    rows = re.findall(r"^\| (`.*`) \| `(\w+)` \|$", page, re.MULTILINE)
    shown = {name: key for names_, key in rows for name in re.findall(r"`(\w+)`", names_)}
    assert shown == dict(MERGE_KEYS)


def test_the_disruption_budget_lets_one_pod_go() -> None:
    made = disruption_budget(POOL)
    assert made["spec"]["maxUnavailable"] == 1
    assert labels.is_owned(made, "uid-1")
    assert not labels.is_owned(made, "uid-2")
    assert not labels.is_owned({}, "uid-1")


@pytest.mark.parametrize(
    ("base", "patch", "merged"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]},
            {
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "value": "3"},
                    {"name": "C", "value": "4"},
                ]
            },
        ),
        (
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]},
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]},
        ),
        (
            {"containers": [{"name": "worker", "image": "i", "resources": {"limits": {"cpu": 1}}}]},
            {"containers": [{"name": "worker", "resources": {"limits": {"memory": 2}}}]},
            {
                "containers": [
                    {
                        "name": "worker",
                        "image": "i",
                        "resources": {"limits": {"cpu": 1, "memory": 2}},
                    }
                ]
            },
        ),
        (
            {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]},
            {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            {
                "volumeMounts": [
                    {"name": "tmp", "mountPath": "/tmp"},
                    {"name": "data", "mountPath": "/data"},
                ]
            },
        ),
        ({"env": [{"name": "A"}]}, {"env": "odd"}, {"env": "odd"}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": []}, {"tolerations": []}),
    ],
)
def test_templates_are_merged_by_the_documented_keys(
    base: dict[str, Any], patch: dict[str, Any], merged: dict[str, Any]
) -> None:
    assert merge(base, patch) == merged


def standing(*, replicas: int = 1, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"generation": 2},
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": 2, **status},
    }


def pod(*, waiting: str = "", unschedulable: bool = False) -> dict[str, Any]:
    status: dict[str, Any] = {}
    if waiting:
        state = {"waiting": {"reason": waiting, "message": "why"}}
        status["containerStatuses"] = [{"state": state}]
    if unschedulable:
        status["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        ]
    return {"metadata": {"name": "p"}, "status": status}


def test_the_last_line_of_a_worker_that_crashes_shows_on_its_pool() -> None:
    refused = "rowlock: PostgreSQL at db:5432 refuses this login"
    crashed = pod(waiting="CrashLoopBackOff")
    [container] = crashed["status"]["containerStatuses"]
    container["lastState"] = {"terminated": {"message": f"Waiting\n{refused}\n"}}
    assert availability(standing(), [crashed]).message == f"p: why; it said: {refused}"
    container["lastState"] = {"terminated": {"message": "x" * 9000}}
    assert len(availability(standing(), [crashed]).message) < 600


@pytest.mark.parametrize(
    ("item", "pods", "reason"),
    [
        (standing(readyReplicas=1, replicas=1), [], "Available"),
        (standing(replicas=0), [], "Available"),
        (standing(observedGeneration=1), [], "Progressing"),
        (standing(), [], "NotEnoughWorkers"),
        (standing(), [pod()], "NotEnoughWorkers"),
        (standing(), [pod(), pod(waiting="ImagePullBackOff")], "ImagePullBackOff"),
        (standing(), [pod(waiting="CrashLoopBackOff")], "CrashLoopBackOff"),
        (standing(), [pod(waiting="PodInitializing")], "NotEnoughWorkers"),
        (standing(), [pod(unschedulable=True)], "Unschedulable"),
        (
            standing(conditions=[{"type": "ReplicaFailure", "status": "True", "message": "quota"}]),
            [],
            "ReplicaFailure",
        ),
    ],
)
def test_what_is_in_the_way_is_named(
    item: dict[str, Any], pods: list[dict[str, Any]], reason: str
) -> None:
    found = availability(item, pods)
    assert found.reason == reason
    assert found.available is (reason == "Available")


def test_pods_are_read_only_when_some_are_missing() -> None:
    assert needs_pods(standing())
    assert not needs_pods(standing(readyReplicas=1))
    assert not needs_pods(standing(replicas=0))


def demand(**more: Any) -> Demand:
    numbers = {"running": 2, "claimable": 3, "waiting": 4, "workers": 1, "slots": 8}
    given = {"oldest_ready_at": NOW, **numbers, **more}
    return Demand(True, PoolSignals(PoolDemand(PoolId(1), "ns", "default", **given)))


def decided(limit: Limit | None = None, why: Why = Why.SLOTS) -> Scaling:
    outcome = Outcome.HELD if why is Why.UNKNOWN else Outcome.STEADY
    return Scaling(ScalingMode.INTERNAL, 2, Decision(outcome, 2, 3, why, Past(), limit, "because"))


def status_of(
    applied: Applied,
    asked: Demand,
    *,
    scaling: Scaling | None = None,
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    status = pool_status(
        "default", scaling or decided(), applied, asked, generation=4, before=before or {}, now=NOW
    )
    WorkerPoolStatus.model_validate(status)
    return status


def states(status: dict[str, Any]) -> dict[str, str]:
    return {it["type"]: f"{it['status']}/{it['reason']}" for it in status["conditions"]}


UP = Availability(True, "Available", "1 of 1 workers are ready", 1, 1)


@pytest.mark.parametrize(
    ("applied", "asked", "wanted"),
    [
        (Applied(availability=UP), demand(), {"Ready": "True/WorkersReady"}),
        (Applied(), demand(), {"Ready": "False/NoDeployment", "Available": "False/NoDeployment"}),
        (
            Applied(refusal=("NoDatabase", "why")),
            demand(),
            {"Ready": "False/NoDatabase", "Available": "False/NoDatabase"},
        ),
        (
            Applied(refusal=("InvalidPodTemplate", "why"), availability=UP),
            demand(),
            {"Ready": "False/InvalidPodTemplate", "Available": "True/Available"},
        ),
        (Applied(availability=UP), demand(), {"DatabaseReachable": "True/WorkersBeat"}),
        (Applied(availability=UP), demand(workers=0), {"DatabaseReachable": "False/NoWorkerBeats"}),
        (Applied(), demand(workers=0), {"DatabaseReachable": "Unknown/NoWorkers"}),
        (Applied(), Demand(False), {"DatabaseReachable": "Unknown/OperatorCannotReach"}),
    ],
)
def test_a_pool_says_how_it_stands(applied: Applied, asked: Demand, wanted: dict[str, str]) -> None:
    found = states(status_of(applied, asked))
    assert wanted.items() <= found.items()
    assert found.keys() == {
        "Ready",
        "Available",
        "DatabaseReachable",
        "ScalingActive",
        "ScalingLimited",
        "OldBuildsKept",
    }


@pytest.mark.parametrize(
    ("scaling", "active", "limited"),
    [
        (Scaling(ScalingMode.EXTERNAL, 2), "False/External", "False/NotScaling"),
        (Scaling(ScalingMode.NONE, 2), "False/Disabled", "False/NotScaling"),
        (Scaling(ScalingMode.INTERNAL, 0), "Unknown/NotDecided", "False/NotScaling"),
        (decided(), "True/SlotUtilization", "False/WithinLimits"),
        (decided(why=Why.WAIT), "True/QueueWait", "False/WithinLimits"),
        (decided(why=Why.UNKNOWN), "False/SignalStale", "False/WithinLimits"),
        (decided(Limit.MAXIMUM), "True/SlotUtilization", "True/AtMaximum"),
        (decided(Limit.STEP), "True/SlotUtilization", "True/StepLimit"),
        (decided(Limit.ROLLOUT), "True/SlotUtilization", "True/RollingOut"),
        (decided(Limit.DOWNSTREAM), "True/SlotUtilization", "True/DownstreamSaturated"),
        (decided(Limit.WINDOW), "True/SlotUtilization", "False/Stabilizing"),
    ],
)
def test_a_pool_says_who_scales_it_and_what_is_in_the_way(
    scaling: Scaling, active: str, limited: str
) -> None:
    found = states(status_of(Applied(), demand(), scaling=scaling))
    assert (found["ScalingActive"], found["ScalingLimited"]) == (active, limited)


@pytest.mark.parametrize(
    "scaling",
    [
        *(decided(limit) for limit in Limit),
        *(decided(why=why) for why in Why),
        *(Scaling(mode, 1) for mode in ScalingMode),
    ],
)
@pytest.mark.parametrize("applied", [Applied(), Applied(availability=UP)])
@pytest.mark.parametrize("asked", [demand(), demand(workers=0), Demand(False)])
def test_every_reason_is_explained(scaling: Scaling, applied: Applied, asked: Demand) -> None:
    for found in status_of(applied, asked, scaling=scaling)["conditions"]:
        kind, reason = found["type"], found["reason"]
        known = (kind, reason) in POOL_REASONS or ("Available", reason) in POOL_REASONS
        assert known, (kind, reason)
        assert kind in POOL_CONDITIONS


def said(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    key = ObjectKey("ns", "default", "uid-1")
    return [it.reason for it in announcements(key, before, after, now=NOW)]


def test_each_change_is_announced_once() -> None:
    up = Applied(availability=UP)
    calm = status_of(up, demand())
    full = status_of(up, demand(), scaling=decided(Limit.MAXIMUM))
    assert said(calm, full) == ["PoolAtMaximum"]
    assert said({}, full) == ["PoolAtMaximum"]
    assert said(full, full) == []
    assert said(full, calm) == []
    lost = status_of(up, Demand(False), scaling=decided(why=Why.UNKNOWN))
    assert said(calm, lost) == ["PoolScalingHeld"]
    assert said(lost, lost) == []
    downstream = status_of(up, demand(), scaling=decided(Limit.DOWNSTREAM))
    assert said(full, downstream) == ["PoolScalingHeld"]
    crash = Availability(False, "CrashLoopBackOff", "p: why", 1, 0)
    assert said(calm, status_of(Applied(availability=crash), demand())) == ["PoolUnhealthy"]
    slow = Availability(False, "NotEnoughWorkers", "0 of 1", 1, 0)
    assert said(calm, status_of(Applied(availability=slow), demand())) == []


def test_the_last_change_stays_in_the_status() -> None:
    scaled = Scaling(ScalingMode.INTERNAL, 4, None, Scaled(2, 4, "QueueWait", "why"))
    status = status_of(Applied(availability=UP), demand(), scaling=scaled)
    assert status["lastScale"] == {
        "time": "2026-09-01T10:00:00Z",
        "fromReplicas": 2,
        "toReplicas": 4,
        "reason": "QueueWait",
    }
    assert said({}, status) == ["PoolScaled"]
    later = status_of(Applied(availability=UP), demand(), before=status)
    assert later["lastScale"] == status["lastScale"]
    assert said(status, later) == []


@pytest.mark.parametrize(
    ("status", "rolling"),
    [
        ({"replicas": 2, "updatedReplicas": 2}, False),
        ({"replicas": 3, "updatedReplicas": 1}, True),
        ({"replicas": 2, "updatedReplicas": 0}, True),
        ({"replicas": 2, "updatedReplicas": 2, "observedGeneration": 1}, True),
        ({}, False),
    ],
)
def test_a_rollout_is_seen(status: dict[str, Any], rolling: bool) -> None:
    deployment = {
        "metadata": {"generation": 2},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 2, **status},
    }
    assert stands(deployment).rolling is rolling
    assert stands(deployment).desired == 2


def test_the_network_knows_a_pool_by_its_declared_ports() -> None:
    sidecar = {"name": "proxy", "image": "x", "ports": [{"containerPort": 8443}]}
    made = deployment(
        POOL,
        spec(podTemplate={"spec": {"containers": [sidecar]}}),
        replicas=1,
        database=DATABASE,
    )
    policy = network_policy(POOL, made["spec"]["template"])
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [
        {"ports": [{"port": 9464, "protocol": "TCP"}, {"port": 8443, "protocol": "TCP"}]}
    ]
    service = metrics_service(POOL)
    selector = made["spec"]["selector"]["matchLabels"]
    assert service["spec"]["selector"] == selector
    assert policy["spec"]["podSelector"]["matchLabels"] == selector
    for made_of in (service, policy):
        assert made_of["metadata"]["ownerReferences"][0]["uid"] == "uid-1"


def test_the_queue_is_shown_and_a_new_sample_alone_is_no_news() -> None:
    status = status_of(Applied(availability=UP), demand())
    assert status["queue"] == {
        "queuedRuns": 3,
        "runningRuns": 2,
        "oldestQueuedTime": "2026-09-01T10:00:00Z",
        "sampleTime": "2026-09-01T10:00:00Z",
    }
    later = {**status, "queue": {**status["queue"], "sampleTime": "2026-09-01T10:00:10Z"}}
    assert not differs(later, status)
    assert differs({**later, "queue": {**later["queue"], "queuedRuns": 4}}, status)


def agent(**more: Any) -> Any:
    content = {"entrypoint": "a:b", **more}
    return known_agent(Seen("Agent", ObjectKey("ns", "a", "u"), 2, "1", spec=content))


@pytest.mark.parametrize(
    ("known", "exists", "wanted"),
    [
        (agent(), True, {"Accepted": "True/Valid", "Ready": "True/PoolFound"}),
        (agent(), False, {"Accepted": "True/Valid", "Ready": "False/PoolNotFound"}),
        (
            agent(entrypoint=""),
            True,
            {"Accepted": "False/InvalidSpec", "Ready": "False/InvalidSpec"},
        ),
    ],
)
def test_an_agent_says_whether_it_is_ready(
    known: Any, exists: bool, wanted: dict[str, str]
) -> None:
    status = agent_status(known, pool="default", pool_exists=exists, before={}, now=NOW)
    AgentStatus.model_validate(status)
    assert states(status) == wanted
    assert status["revision"] == known.digest
