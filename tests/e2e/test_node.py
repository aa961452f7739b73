"""The local node runs pods as a node does: network, names, logs, exec, limits, loss."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster import Cluster
from localcluster.node.images import write_single
from localcluster.node.requirements import find

pytestmark = [pytest.mark.node, pytest.mark.timeout(300)]

IMAGE = "localhost/busybox:1"
SPACE = "pods"


@pytest.fixture(scope="module")
def pods(node_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A namespace under restricted pod security, and an image with busybox in it."""
    archive = tmp_path_factory.mktemp("image") / "busybox.tar"
    write_single(Path(str(find("busybox"))), IMAGE, archive, platform.machine())
    for node in node_cluster.nodes:
        node.load_archive(archive)
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": SPACE, "labels": restricted}
    apply(node_cluster, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    yield node_cluster
    node_cluster.kubectl("delete", "namespace", SPACE, "--wait=false")


def apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(items))


def container(*args: str, memory: str = "64Mi") -> dict[str, Any]:
    return {
        "name": "main",
        "image": IMAGE,
        "args": list(args),
        "resources": {"limits": {"memory": memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def pod_spec(*args: str, **more: Any) -> dict[str, Any]:
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "securityContext": security,
        "terminationGracePeriodSeconds": 1,
        "containers": [container(*args, **more)],
    }


def deployment(name: str, replicas: int, spec: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def in_space(cluster: Cluster, *arguments: str) -> str:
    return cluster.kubectl("-n", SPACE, *arguments).stdout


def eventually(holds: Callable[[], bool], what: str, within: float = 90) -> None:
    until, pause = time.monotonic() + within, threading.Event()
    while not holds():
        assert time.monotonic() < until, f"not within {within} s: {what}"
        pause.wait(0.1)


def test_pods_serve_are_found_by_name_log_and_run_commands(pods: Cluster) -> None:
    served = pod_spec("httpd", "-f", "-v", "-p", "8080", "-h", "/")
    probe = {"httpGet": {"path": "/busybox", "port": 8080}, "periodSeconds": 1}
    served["containers"][0]["readinessProbe"] = probe
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": SPACE},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    asker = deployment("asker", 1, pod_spec("sleep", "3600"))
    apply(pods, deployment("web", 2, served), service, asker)
    for name in ("web", "asker"):
        in_space(pods, "rollout", "status", f"deployment/{name}", "--timeout=90s")

    for host in (in_space(pods, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"), "web"):
        asked = ("/busybox", "wget", "-T", "10", "-qO", "/dev/null", f"http://{host}/busybox")
        in_space(pods, "exec", "deploy/asker", "--", *asked)
    mounted = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert in_space(pods, "exec", "deploy/asker", "--", "/busybox", "head", "-c3", mounted) == "eyJ"
    assert "GET /busybox" in in_space(pods, "logs", "-l", "app=web", "--tail=-1") or "url:" in (
        in_space(pods, "logs", "-l", "app=web", "--tail=-1")
    )


def test_a_container_over_its_memory_is_killed_for_that(pods: Cluster) -> None:
    # Reading without a line's end, sort keeps all of it.
    greedy = pod_spec("sort", "/dev/zero", memory="16Mi") | {"restartPolicy": "Never"}
    metadata = {"name": "greedy", "namespace": SPACE}
    apply(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": greedy})
    why = "jsonpath={.status.containerStatuses[0].state.terminated.reason}"
    eventually(
        lambda: in_space(pods, "get", "pod", "greedy", "-o", why) == "OOMKilled", "OOMKilled"
    )


def test_a_pod_that_breaks_the_restrictions_is_refused(pods: Cluster) -> None:
    spec = pod_spec("sleep", "1")
    spec["containers"][0]["securityContext"]["privileged"] = True
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad", "namespace": SPACE}}
    refused = pods.kubectl("apply", "-f", "-", input=json.dumps(pod | {"spec": spec}), check=False)
    assert "violates PodSecurity" in refused.stderr


def test_a_lost_node_is_noticed_and_its_containers_go_on_until_it_is_destroyed(
    pods: Cluster, tmp_path: Path
) -> None:
    second = pods.add_node(within=120)
    archive = tmp_path / "busybox.tar"
    write_single(Path(str(find("busybox"))), IMAGE, archive, platform.machine())
    second.load_archive(archive)
    there = pod_spec("sh", "-c", "while :; do date +%s%N; sleep 0.1; done")
    there["containers"][0]["args"] = ["sh", "-c", "while :; do echo on; /busybox sleep 0.1; done"]
    metadata = {"name": "there", "namespace": SPACE}
    there["nodeName"] = second.name
    apply(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": there})
    in_space(pods, "wait", "--for=condition=Ready", "pod/there", "--timeout=90s")

    def ready() -> str:
        status = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        return pods.kubectl("get", "node", second.name, "-o", status).stdout

    second.kill_kubelet()
    eventually(lambda: ready() == "Unknown", "a lost node")
    assert any("echo on" in line for line in command_lines())
    second.start_kubelet()
    eventually(lambda: ready() == "True", "the node is back")

    second.cut()
    eventually(lambda: ready() == "Unknown", "a node that is cut off")
    second.mend()
    eventually(lambda: ready() == "True", "the node is joined again")

    pods.destroy_node(second)
    eventually(lambda: not any("echo on" in line for line in command_lines()), "no container")
    eventually(lambda: ready() == "Unknown", "a destroyed node")
    pods.kubectl("delete", "node", second.name)


LAUNCHER = """
import signal
from localcluster import start
with start(name="launcher", nodes=1, within=120) as cluster:
    print(cluster.kubeconfig.parent, flush=True)
    signal.pause()
"""


def command_lines() -> list[str]:
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except (FileNotFoundError, ProcessLookupError, UnicodeDecodeError):
                continue
    return lines
