"""The local node runs pods as a node does: network, names, logs, exec, limits, loss."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster import Cluster
from localcluster.node import Node
from tests import busybox

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

SPACE = "pods"
# Seconds that nothing else on this machine sleeps for.
LONG = "86423"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"


@pytest.fixture(scope="module")
def pods(node_cluster: Cluster) -> Iterator[Cluster]:
    """A namespace under restricted pod security, on nodes that have the image."""
    node_cluster.load_image(busybox.build_image())
    busybox.apply(node_cluster, busybox.restricted_space(SPACE))
    yield node_cluster
    node_cluster.kubectl("delete", "namespace", SPACE, "--wait=false")


@pytest.fixture(scope="module")
def web(pods: Cluster) -> Cluster:
    """Two pods that serve their token's folder by HTTP, a Service, and a pod to ask from."""
    served = busybox.spec("httpd", "-f", "-v", "-p", "8080", "-h", "/")
    probe = {"httpGet": {"path": busybox.BUSYBOX, "port": 8080}, "periodSeconds": 1}
    served["containers"][0]["readinessProbe"] = probe
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": SPACE},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    asker = busybox.deployment("asker", SPACE, 1, busybox.spec("sleep", "3600"))
    busybox.apply(pods, busybox.deployment("web", SPACE, 2, served), service, asker)
    for name in ("web", "asker"):
        in_space(pods, "rollout", "status", f"deployment/{name}", "--timeout=120s")
    return pods


def in_space(cluster: Cluster, *arguments: str) -> str:
    return cluster.kubectl("-n", SPACE, *arguments).stdout


def in_asker(cluster: Cluster, *command: str) -> str:
    return in_space(cluster, "exec", "deploy/asker", "--", busybox.BUSYBOX, *command)


@pytest.mark.parametrize("host", ["by address", "web", f"web.{SPACE}.svc.cluster.local"])
def test_a_service_is_reached_from_a_pod(web: Cluster, host: str) -> None:
    if host == "by address":
        host = in_space(web, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    # The kernel's rules for a Service come a moment after its pods.
    ask = ("timeout", "10", busybox.BUSYBOX, "wget", "-qO", "-", f"http://{host}{TOKEN}")

    def answered() -> bool:
        asked = web.kubectl(
            "-n", SPACE, "exec", "deploy/asker", "--", busybox.BUSYBOX, *ask, check=False
        )
        return asked.stdout.startswith("eyJ")

    busybox.eventually(answered, f"an answer of {host}")


def test_the_token_of_a_pod_is_that_of_its_service_account(web: Cluster) -> None:
    token = in_asker(web, "cat", TOKEN)
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    }
    asked = web.kubectl("create", "-f", "-", "-o", "json", input=json.dumps(review))
    user = json.loads(asked.stdout)["status"]["user"]
    assert user["username"] == f"system:serviceaccount:{SPACE}:default"
    assert user["extra"]["authentication.kubernetes.io/pod-name"][0].startswith("asker-")


def test_a_pod_reaches_the_api_server_by_its_service(web: Cluster) -> None:
    # It answers plain HTTP on this port with a hint.
    ask = ("timeout", "20", busybox.BUSYBOX, "wget", "-O", "-", "http://kubernetes.default:443/")
    command = ("-n", SPACE, "exec", "deploy/asker", "--", busybox.BUSYBOX, *ask)
    assert "400 Bad Request" in web.kubectl(*command, check=False).stderr


def test_logs_tell_what_a_container_wrote(web: Cluster) -> None:
    busybox.eventually(
        lambda: "response:200" in in_space(web, "logs", "-l", "app=web", "--tail=-1"),
        "the probes in the log",
    )


def test_a_port_is_forwarded(web: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "forward.log"
    with log.open("w") as output:
        forward = web.start_kubectl(
            "-n", SPACE, "port-forward", "deploy/web", ":8080", output=output
        )
    try:
        busybox.eventually(lambda: "->" in log.read_text(), "a forwarded port")
        port = log.read_text().split("->")[0].rpartition(":")[2].strip()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{TOKEN}", timeout=30) as answer:
            assert answer.read().startswith(b"eyJ")
    finally:
        forward.terminate()
        forward.wait()


def test_a_container_over_its_memory_is_killed_for_that(pods: Cluster) -> None:
    # Waiting for the end of a line, sort keeps all that it reads.
    greedy = busybox.spec("sort", "/dev/zero", memory="16Mi") | {"restartPolicy": "Never"}
    busybox.apply(pods, busybox.pod("greedy", SPACE, greedy))
    why = "jsonpath={.status.containerStatuses[0].state.terminated.reason}"
    busybox.eventually(
        lambda: in_space(pods, "get", "pod", "greedy", "-o", why) == "OOMKilled", "OOMKilled"
    )


def test_a_pod_that_breaks_the_restrictions_is_refused(pods: Cluster) -> None:
    spec = busybox.spec("sleep", "1")
    spec["hostNetwork"] = True
    bad = json.dumps(busybox.pod("bad", SPACE, spec))
    refused = pods.kubectl("apply", "-f", "-", input=bad, check=False)
    assert "violates PodSecurity" in refused.stderr


def test_an_image_that_no_node_has_is_not_run(pods: Cluster) -> None:
    spec = busybox.spec("sleep", "1")
    spec["containers"][0]["image"] = "localhost/never-loaded:1"
    busybox.apply(pods, busybox.pod("strange", SPACE, spec))
    why = "jsonpath={.status.containerStatuses[0].state.waiting.reason}"
    busybox.eventually(
        lambda: in_space(pods, "get", "pod", "strange", "-o", why) == "ErrImageNeverPull",
        "a refusal to pull",
    )


@pytest.fixture
def second(pods: Cluster) -> Iterator[Node]:
    """A second node with a pod on it that sleeps; away afterwards."""
    node = pods.add_node(within=180)
    node.load(busybox.IMAGE)
    there = busybox.spec("sleep", LONG) | {"nodeName": node.name}
    busybox.apply(pods, busybox.pod("there", SPACE, there))
    in_space(pods, "wait", "--for=condition=Ready", "pod/there", "--timeout=120s")
    yield node
    if node in pods.nodes:
        pods.destroy_node(node)
    in_space(pods, "delete", "pod", "there", "--force", "--grace-period=0", "--ignore-not-found")
    pods.kubectl("delete", "node", node.name)


def test_a_lost_node_is_noticed_and_its_containers_go_on_until_it_is_destroyed(
    pods: Cluster, second: Node
) -> None:
    def ready(status: str) -> bool:
        path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        return pods.kubectl("get", "node", second.name, "-o", path).stdout == status

    def marked_for_deletion() -> bool:
        path = "jsonpath={.metadata.deletionTimestamp}"
        return in_space(pods, "get", "pod", "there", "-o", path) != ""

    second.kill_kubelet()
    busybox.eventually(lambda: ready("Unknown"), "a node without a kubelet is noticed")
    busybox.eventually(marked_for_deletion, "its pod is given up")
    assert sleepers(), "the container should go on: nobody is there to end it"

    pods.destroy_node(second)
    assert not sleepers(), "a container outlived its node"
    assert not second.socket.exists()


def test_a_node_that_is_cut_off_is_noticed_and_comes_back(pods: Cluster, second: Node) -> None:
    def ready(status: str) -> bool:
        path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        return pods.kubectl("get", "node", second.name, "-o", path).stdout == status

    second.cut()
    busybox.eventually(lambda: ready("Unknown"), "a node that is cut off is noticed")
    assert sleepers()
    second.mend()
    busybox.eventually(lambda: ready("True"), "it is back")


def sleepers() -> list[str]:
    """Return the processes of this machine that sleep for `LONG`."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, NotADirectoryError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if entry.name.isdigit() and LONG.encode() in words:
                found.append(entry.name)
    return found


def test_the_rules_of_services_are_the_nodes_own(web: Cluster) -> None:
    saved = subprocess.run(["/usr/sbin/iptables-save"], capture_output=True, text=True, check=True)
    assert "KUBE-" not in saved.stdout
