"""What the charts render, over a matrix of values, and what they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rowlock_operator.settings import OperatorSettings, RunDefaults
from tests.charts import CHART, CRDS, ROOT, done, helm, objects, pods

Render = Callable[..., list[dict[str, Any]]]

DATABASE = "database.existingSecret.name=database"
MATRIX = {
    "existing Secret": ["--set", DATABASE],
    "trial": ["--set", "database.dev.enabled=true"],
    "ha": ["--set", DATABASE, "-f", str(CHART / "values-ha.yaml")],
    "bench": ["-f", str(CHART / "values-bench-2vcpu.yaml")],
    "namespaces": ["--set", f"{DATABASE},rbac.namespaces={{team-a,team-b}}"],
    "no cluster rights": [
        "--set",
        (
            f"{DATABASE},rbac.namespaces={{team-a}},rbac.readCluster=false,rbac.userRoles=false,"
            "operator.settings.clusterId=here"
        ),
    ],
    "no election": ["--set", f"{DATABASE},operator.election=false"],
    "bare": [
        "--set",
        (
            f"{DATABASE},rbac.create=false,serviceAccount.create=false,serviceAccount.name=mine,"
            "networkPolicy.enabled=false,test.enabled=false,database.migrations.enabled=false"
        ),
    ],
}
every_profile = pytest.mark.parametrize("values", MATRIX.values(), ids=list(MATRIX))


@pytest.fixture(name="render")
def render_fixture(tmp_path: Path) -> Render:
    """Render the chart of the operator as release `rowlock` in namespace `system`."""

    def render(*values: str) -> list[dict[str, Any]]:
        place = ("template", "rowlock", CHART, "--namespace", "system")
        return objects(done(helm(*place, *values, home=tmp_path)))

    return render


def one(rendered: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """Return the object of that kind and name."""
    [found] = [o for o in rendered if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def environment(rendered: list[dict[str, Any]]) -> dict[str, str]:
    """Return the variables of the operator that have a value of their own."""
    spec = pods(rendered)["Deployment/rowlock-operator"]
    return {each["name"]: each["value"] for each in spec["containers"][0]["env"] if "value" in each}


@every_profile
def test_lint_has_nothing_to_say(values: list[str], tmp_path: Path) -> None:
    said = done(helm("lint", "--strict", "--quiet", CHART, *values, home=tmp_path))
    assert "WARNING" not in said


def test_lint_has_nothing_to_say_about_the_definitions(tmp_path: Path) -> None:
    done(helm("lint", "--strict", "--quiet", CRDS, home=tmp_path))


@every_profile
def test_every_pod_is_restricted(values: list[str], render: Render) -> None:
    found = pods(render(*values))
    assert "Deployment/rowlock-operator" in found
    for name, spec in found.items():
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            limits = container["securityContext"]
            assert limits["readOnlyRootFilesystem"] is True, name
            assert limits["allowPrivilegeEscalation"] is False, name
            assert limits["capabilities"] == {"drop": ["ALL"]}, name


@every_profile
def test_no_budget_holds_back_a_drain(values: list[str], render: Render) -> None:
    for each in render(*values):
        if each["kind"] == "PodDisruptionBudget":
            assert each["spec"]["maxUnavailable"] == 1
            assert "minAvailable" not in each["spec"]


def test_only_two_replicas_have_a_budget(render: Render) -> None:
    kinds = {each["kind"] for each in render("--set", DATABASE)}
    assert "PodDisruptionBudget" not in kinds
    budget = one(render(*MATRIX["ha"]), "PodDisruptionBudget", "rowlock-operator")
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def documented() -> list[list[dict[str, Any]]]:
    """Return the rules that the page names: the operator's, the cluster's, the leader's."""
    page = (ROOT / "docs" / "how-to" / "run-the-operator.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    return [yaml.safe_load(block)["rules"] for block in blocks]


def test_the_rights_are_the_documented_ones(render: Render) -> None:
    operator, cluster, leader = documented()
    wide = render("--set", DATABASE)
    assert one(wide, "ClusterRole", "system-rowlock-operator")["rules"] == operator
    assert one(wide, "ClusterRole", "system-rowlock-cluster-id")["rules"] == cluster
    assert one(wide, "Role", "rowlock-operator-leader")["rules"] == leader


def test_a_list_of_namespaces_gives_no_right_elsewhere(render: Render) -> None:
    rendered = render(*MATRIX["no cluster rights"])
    roles = [o for o in rendered if o["kind"] == "Role" and o["metadata"]["name"] != "rowlock-test"]
    assert not [o for o in rendered if o["kind"].startswith("Cluster")]
    places = {(o["metadata"]["name"], o["metadata"]["namespace"]) for o in roles}
    assert places == {("rowlock-operator", "team-a"), ("rowlock-operator-leader", "system")}
    [team] = [o for o in roles if o["metadata"]["namespace"] == "team-a"]
    assert team["rules"] == documented()[0]
    assert environment(rendered)["ROWLOCK_NAMESPACES"] == "team-a"


@every_profile
def test_every_binding_names_a_role_and_the_account_of_its_pod(
    values: list[str], render: Render
) -> None:
    rendered = render(*values)
    accounts = {spec.get("serviceAccountName") for spec in pods(rendered).values()}
    for each in rendered:
        if each["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            assert one_role(rendered, each)
            assert {who["name"] for who in each["subjects"]} <= accounts
            assert {who["namespace"] for who in each["subjects"]} == {"system"}


def one_role(rendered: list[dict[str, Any]], binding: dict[str, Any]) -> bool:
    """Tell whether the role of a binding is rendered beside it."""
    wanted = (binding["roleRef"]["kind"], binding["roleRef"]["name"])
    place = binding["metadata"].get("namespace")
    return any(
        (o["kind"], o["metadata"]["name"]) == wanted and o["metadata"].get("namespace") == place
        for o in rendered
    )


def test_the_roles_of_people_are_those_of_the_example(render: Render) -> None:
    rendered = render("--set", DATABASE)
    example = yaml.safe_load_all((ROOT / "examples" / "approvals" / "roles.yaml").read_text())
    for role in example:
        ours = one(rendered, "ClusterRole", f"system-{role['metadata']['name']}")
        assert role["rules"] == ours["rules"]
        assert role["metadata"].get("labels", {}).items() <= ours["metadata"]["labels"].items()


REFUSED = {
    "operator.replica=2": "/operator': additional properties 'replica'",
    "operator.settings.sweepSecond=9": "/operator/settings': additional properties 'sweepSecond'",
    "operator.runDefaults.attempts=2": "/operator/runDefaults': additional properties 'attempts'",
    "operator.replicas=3": "/operator/replicas'",
    "operator.settings.logLevel=LOUD": "/operator/settings/logLevel'",
    "operator.resources.request.cpu=1": "/operator/resources': additional properties 'request'",
    "database.existingSecret.nme=x": "/database/existingSecret': additional properties 'nme'",
    "database.password=x": "/database': additional properties 'password'",
    "rbac.namespaces={Team_A}": "/rbac/namespaces/0'",
    "workerPools.a.replica=2": "/workerPools/a': additional properties 'replica'",
    "workerPools.a.slotsPerWorker=0": "/workerPools/a/slotsPerWorker'",
    "workerPools.a.autoscaling.scaleUp.maxStep=5": "/workerPools/a/autoscaling/scaleUp'",
    "workerPools.a.databaseSecretRef.nme=x": "/workerPools/a/databaseSecretRef'",
    "workerPools.A_b.image=x": "invalid propertyName 'A_b'",
    "agents.a.entrypoin=x:y": "/agents/a': additional properties 'entrypoin'",
    "agents.a.intake=Open": "/agents/a': missing property 'entrypoint'",
    "agents.a.runDefaults.maxAttempt=2": "/agents/a/runDefaults'",
    "agents.a.tools[0].approvl=Always": "/agents/a/tools/0'",
    "databse.dev.enabled=true": "additional properties 'databse'",
}


@pytest.mark.parametrize(("value", "path"), REFUSED.items(), ids=list(REFUSED))
def test_a_typo_is_refused_with_its_path(value: str, path: str, tmp_path: Path) -> None:
    ended = helm("template", "r", CHART, "--set", DATABASE, "--set", value, home=tmp_path)
    assert ended.returncode != 0
    assert path in ended.stderr


CONTRADICTIONS = {
    "operator.settings.logLevel=INFO": "database.existingSecret.name is empty",
    f"{DATABASE},database.dev.enabled=true": "not both",
    f"{DATABASE},operator.replicas=2,operator.election=false": "operator.replicas must be 1",
    f"{DATABASE},rbac.readCluster=false": "operator.settings.clusterId",
}


@pytest.mark.parametrize(("values", "says"), CONTRADICTIONS.items(), ids=list(CONTRADICTIONS))
def test_values_that_contradict_each_other_are_refused(
    values: str, says: str, tmp_path: Path
) -> None:
    ended = helm("template", "r", CHART, "--set", values, home=tmp_path)
    assert ended.returncode != 0
    assert says in ended.stderr


OF_THE_CHART = {
    "database_url", "kubeconfig", "context", "namespaces", "http_host", "http_port", "election",
    "lease_name", "lease_namespace", "run_defaults",
}  # fmt: skip


def camel(name: str) -> str:
    """Return a setting's name as values write it."""
    first, *others = name.split("_")
    return first + "".join(other.title() for other in others)


def test_every_setting_of_the_operator_can_be_given() -> None:
    defined = json.loads((CHART / "values.schema.json").read_text())["$defs"]
    wanted = {camel(name) for name in OperatorSettings.model_fields if name not in OF_THE_CHART}
    assert set(defined["settings"]["properties"]) == wanted
    assert set(defined["runDefaults"]["properties"]) == set(map(camel, RunDefaults.model_fields))


def test_bounds_of_settings_are_the_operators() -> None:
    defined = json.loads((CHART / "values.schema.json").read_text())["$defs"]
    for model, kind in ((OperatorSettings, "settings"), (RunDefaults, "runDefaults")):
        for name, field in model.model_json_schema()["properties"].items():
            if name in OF_THE_CHART:
                continue
            [wanted] = [s for s in field.get("anyOf", [field]) if s.get("type") != "null"]
            shown = ("description", "title", "default")
            rules = {key: value for key, value in wanted.items() if key not in shown}
            assert defined[kind]["properties"][camel(name)] == rules, name


def test_settings_reach_the_operator_as_it_reads_them(
    render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "operator": {
            "settings": {
                "statusWritesPerSecond": 50,
                "showDelaySeconds": 0.25,
                "deletionHold": True,
                "clusterId": "prod",
            },
            "runDefaults": {"maxCostMicroUsd": 250_000_000, "queueDeadlineSeconds": 60},
        }
    }
    rendered = render("--set", DATABASE, "--set-json", f"operator={json.dumps(given['operator'])}")
    for name, value in environment(rendered).items():
        monkeypatch.setenv(name, value)
    settings = OperatorSettings()
    assert settings.status_writes_per_second == 50
    assert settings.show_delay_seconds == 0.25
    assert settings.deletion_hold is True
    assert settings.cluster_id == "prod"
    assert (settings.election, settings.lease_name) == (True, "rowlock-operator")
    defaults = RunDefaults()
    assert defaults.max_cost_micro_usd == 250_000_000
    assert defaults.queue_deadline_seconds == 60


def test_probes_and_migration_are_the_operators(render: Render) -> None:
    spec = pods(render("--set", f"{DATABASE},database.migrations.existingSecret.name=owner"))[
        "Deployment/rowlock-operator"
    ]
    [migrate], [operator] = spec["initContainers"], spec["containers"]
    assert migrate["command"] == ["rowlock", "migrate", "--phase", "pre", "--wait", "60"]
    assert migrate["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "owner", "key": "url"}
    assert operator["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "database", "key": "url"}
    assert operator["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert operator["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


def test_the_benchmark_fits_two_cores(render: Render) -> None:
    rendered = render(*MATRIX["bench"])
    pool = one(rendered, "WorkerPool", "default")["spec"]
    workers = [pool["podTemplate"]["spec"]["containers"][0]] * pool["replicas"]
    kept = [spec for name, spec in pods(rendered).items() if not name.startswith("Pod/")]
    limits = [c["resources"]["limits"] for s in kept for c in s["containers"]]
    limits += [worker["resources"]["limits"] for worker in workers]
    assert sum(int(each["cpu"].removesuffix("m")) for each in limits) <= 1400
    assert sum(int(each["memory"].removesuffix("Mi")) for each in limits) <= 2048


def test_the_definitions_stay_and_are_those_of_the_folder(tmp_path: Path) -> None:
    rendered = objects(done(helm("template", "kinds", CRDS, home=tmp_path)))
    plain = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    for each in rendered:
        assert each["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert sorted(rendered, key=lambda o: str(o["metadata"]["name"])) == plain
