"""Real helm on a real API server: install, upgrade, roll back, uninstall.

There is no kubelet, so no Pod starts: what is looked at are the objects, and what the API server,
its admission and the controllers make of them. It is a cluster of this module's own, since the
definitions of another test would not belong to the release.
"""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster import Cluster, start
from tests.charts import CHART, CRDS, done, helm, objects, pods

pytestmark = pytest.mark.cluster

SPACE = "rowlock-system"
MOST_BYTES_OF_A_RELEASE = 200_000
MOST_BYTES_OF_A_DEFINITION = 100_000


@pytest.fixture(name="own", scope="module")
def own_fixture() -> Iterator[Cluster]:
    """Give a cluster that has no definitions but those of the chart."""
    with start(name="charts") as cluster:
        yield cluster


@pytest.fixture(name="helms", scope="module")
def helms_fixture(
    own: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Give helm on that cluster, with the definitions installed."""
    home = tmp_path_factory.mktemp("helm")

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return helm(*arguments, home=home, kubeconfig=own.kubeconfig)

    done(run("install", "kinds", CRDS))
    names = [f"crd/{name}.rowlock.dev" for name in ("agentruns", "agents", "workerpools")]
    kubectl(own, "wait", "--for=condition=Established", *names, "--timeout=60s")
    return run


def kubectl(own: Cluster, *arguments: str, **options: Any) -> str:
    """Return what kubectl prints as administrator."""
    return own.kubectl(*arguments, **options).stdout


Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(name="space", scope="module")
def space_fixture(own: Cluster) -> str:
    """Give a namespace that enforces restricted pod security; each test cleans up after itself."""
    kubectl(own, "create", "namespace", SPACE)
    kubectl(own, "label", "namespace", SPACE, "pod-security.kubernetes.io/enforce=restricted")
    return SPACE


def eventually(look: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """Return the first thing that is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.1)
    pytest.fail(f"no {what} within {seconds} s")


def left_of(own: Cluster, release: str) -> set[str]:
    """Return all objects in the cluster that carry the label of the release."""
    found = set()
    for scope in ("true", "false"):
        listed = kubectl(own, "api-resources", "--verbs=list", f"--namespaced={scope}", "-o=name")
        kinds = sorted(set(listed.split()) - {"events", "events.events.k8s.io"})
        everywhere = ["--all-namespaces"] if scope == "true" else []
        label = f"app.kubernetes.io/instance={release}"
        answer = kubectl(own, "get", ",".join(kinds), *everywhere, "-l", label, "-o", "name")
        found |= set(answer.split())
    return found


def get(own: Cluster, *names: str) -> dict[str, Any]:
    """Return an object of the release's namespace."""
    answer: dict[str, Any] = json.loads(kubectl(own, "-n", SPACE, "get", *names, "-o", "json"))
    return answer


def test_a_release_from_install_to_uninstall(own: Cluster, helms: Helm, space: str) -> None:
    here = ("-n", space)
    trial = ("-f", CHART / "values-bench-2vcpu.yaml")
    notes = done(helms("install", "rowlock", CHART, *here, *trial)).split("NOTES:")[1]
    assert "rollout status deployment/rowlock-operator" in notes
    assert "kubectl wait --for=condition=Finished agentrun/" in notes
    pool = get(own, "workerpool", "default")["spec"]
    assert pool["databaseSecretRef"] == {"name": "rowlock-database", "key": "url"}
    assert pool["image"] == "rowlock-worker:0.1.0"
    password = get(own, "secret", "rowlock-database")["data"]["password"]
    # Admission let the Pods in: the controllers could create them.
    eventually(
        lambda: len(get(own, "pods", "-l", "app.kubernetes.io/instance=rowlock")["items"]) == 2,
        "Pods of operator and database",
    )
    settings = ("--set", "operator.replicas=2,dashboards.enabled=true")
    done(helms("upgrade", "rowlock", CHART, *here, *trial, *settings))
    assert get(own, "deployment", "rowlock-operator")["spec"]["replicas"] == 2
    assert get(own, "pdb", "rowlock-operator")["spec"]["maxUnavailable"] == 1
    dashboards = get(own, "configmaps", "-l", "grafana_dashboard=1")["items"]
    assert "rowlock-dashboard-queue" in {each["metadata"]["name"] for each in dashboards}
    assert get(own, "secret", "rowlock-database")["data"]["password"] == password
    done(helms("rollback", "rowlock", "1", *here))
    assert get(own, "deployment", "rowlock-operator")["spec"]["replicas"] == 1
    assert not get(own, "pdb")["items"]
    for secret in get(own, "secrets", "-l", "owner=helm")["items"]:
        assert len(secret["data"]["release"]) < MOST_BYTES_OF_A_RELEASE
        stored = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        assert b'"name":"rowlock"' in gzip.decompress(stored)
    assert left_of(own, "rowlock")
    done(helms("uninstall", "rowlock", *here))
    eventually(lambda: not left_of(own, "rowlock"), "end of what the release left")
    assert not get(own, "secrets")["items"]


def test_the_definitions_outlive_their_release_and_are_taken_up_again(
    own: Cluster, helms: Helm
) -> None:
    kubectl(own, "create", "namespace", "kept")
    agent = {
        "apiVersion": "rowlock.dev/v1alpha1",
        "kind": "Agent",
        "metadata": {"name": "kept", "namespace": "kept"},
        "spec": {"entrypoint": "rowlock.hello:hello"},
    }
    kubectl(own, "apply", "-f", "-", input=json.dumps(agent))
    done(helms("uninstall", "kinds"))
    assert kubectl(own, "-n", "kept", "get", "agents", "-o", "name").split() == [
        "agent.rowlock.dev/kept"
    ]
    done(helms("install", "kinds", CRDS))
    for each in objects(done(helms("get", "manifest", "kinds"))):
        assert len(json.dumps(each)) < MOST_BYTES_OF_A_DEFINITION


@pytest.mark.parametrize(
    "values",
    [
        ("--set", "database.dev.enabled=true,rbac.namespaces={rowlock-system}"),
        ("--set", "database.existingSecret.name=db", "-f", str(CHART / "values-ha.yaml")),
        ("-f", str(CHART / "values-bench-2vcpu.yaml")),
    ],
    ids=["namespaces", "ha", "bench"],
)
def test_the_api_server_takes_every_object(
    own: Cluster, helms: Helm, space: str, values: tuple[str, ...]
) -> None:
    rendered = objects(done(helms("template", "rowlock", CHART, "-n", space, *values)))
    for name, spec in pods(rendered).items():
        # Bare, since admission only warns of a Deployment's Pods; their accounts are not there yet.
        bare = {key: value for key, value in spec.items() if key != "serviceAccountName"}
        bare["automountServiceAccountToken"] = False
        kind, named = name.split("/")
        metadata = {"name": f"{kind.lower()}-{named}", "namespace": space}
        rendered.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": bare})
    eventually(
        lambda: "default" in kubectl(own, "-n", space, "get", "serviceaccounts", "-o", "name"),
        "default account",
    )
    without = [o for o in rendered if o["kind"] != "Pod" or "serviceAccountName" not in o["spec"]]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": without})
    said = kubectl(
        own,
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "-",
        input=text,
    )
    assert len(said.splitlines()) == len(without)


def test_two_releases_share_nothing(own: Cluster, helms: Helm, space: str) -> None:
    base = ("-n", space, "--set", "database.existingSecret.name=db")
    done(helms("install", "one", CHART, *base))
    done(helms("install", "two", CHART, *base, "--set", "rbac.namespaces={rowlock-system}"))
    leases = {
        env["value"]
        for item in get(own, "deployments")["items"]
        for env in item["spec"]["template"]["spec"]["containers"][0]["env"]
        if env["name"] == "ROWLOCK_LEASE_NAME"
    }
    assert leases == {"one-operator", "two-operator"}
    ours = left_of(own, "one")
    done(helms("uninstall", "two", "-n", space))
    # The Pods of the first may have come meanwhile; nothing of it went.
    assert ours <= left_of(own, "one")
    done(helms("uninstall", "one", "-n", space))
    eventually(lambda: not left_of(own, "one"), "end of the first release")


PROGRAM = CHART / "files" / "carry_one_run.py"


def carry(
    own: Cluster, space: str, folder: Path, *, agent: str, seconds: str
) -> subprocess.Popen[str]:
    """Start the program of `helm test` as its Pod would, with the rights of its account."""
    account = folder / "account"
    account.mkdir()
    token = kubectl(own, "-n", space, "create", "token", agent).strip()
    (account / "token").write_text(token)
    config = json.loads(kubectl(own, "config", "view", "--raw", "--flatten", "-o", "json"))
    there = config["clusters"][0]["cluster"]
    (account / "ca.crt").write_bytes(base64.b64decode(there["certificate-authority-data"]))
    variables = {
        "ACCOUNT": str(account),
        "SERVER": there["server"],
        "NAMESPACE": space,
        "AGENT": agent,
        "TIMEOUT_SECONDS": seconds,
    }
    return subprocess.Popen(
        [sys.executable, PROGRAM],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    ("phase", "code", "says"),
    [("Succeeded", 0, "Succeeded"), ("Failed", 1, "ended Failed"), (None, 1, "did not end")],
)
def test_the_test_program_tells_how_its_run_ended(
    own: Cluster,
    helms: Helm,
    space: str,
    tmp_path: Path,
    phase: str | None,
    code: int,
    says: str,
) -> None:
    agent = f"try-{phase}-test".lower()
    values = ("-n", space, "--set", "database.dev.enabled=true")
    release = agent.removesuffix("-test")
    rendered = objects(done(helms("template", release, CHART, *values)))
    kinds = {"ServiceAccount", "Role", "RoleBinding", "WorkerPool", "Agent"}
    hooks = [o for o in rendered if o["metadata"]["name"] == agent and o["kind"] in kinds]
    assert {o["kind"] for o in hooks} == kinds
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": hooks})
    kubectl(own, "apply", "--server-side", "-f", "-", input=text)
    program = carry(own, space, tmp_path, agent=agent, seconds="60" if phase else "1")
    if phase:
        items = eventually(lambda: get(own, "agentruns")["items"], "AgentRun")
        name = items[0]["metadata"]["name"]
        patch = json.dumps({"status": {"phase": phase}})
        kubectl(
            own, "-n", space, "patch", "agentrun", name, "--subresource=status", "--type=merge",
            "-p", patch,
        )  # fmt: skip
    output, _ = program.communicate(timeout=90)
    assert says in output
    assert program.returncode == code, output
    assert not get(own, "agentruns")["items"]
