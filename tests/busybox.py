"""Pods for tests of real nodes: a tiny image of one program, restricted like ours."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from localcluster import Cluster
from localcluster.node.requirements import find

IMAGE = "localhost/rowlock-test-busybox:1"
BUSYBOX = "/busybox"


def build_image() -> str:
    """Build the image with buildah from the busybox of this machine, and return its name."""
    buildah, busybox = find("buildah"), find("busybox")
    missing = [name for name, path in {"buildah": buildah, "busybox": busybox}.items() if not path]
    assert not missing, f"{missing}: apt-get install buildah busybox-static"

    def run(*arguments: str) -> str:
        command = [str(buildah), *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    container = run("from", "scratch")
    run("copy", "--quiet", container, str(busybox), BUSYBOX)
    run("config", "--entrypoint", json.dumps([BUSYBOX]), container)
    run("commit", "--quiet", "--rm", container, IMAGE)
    return IMAGE


def spec(*arguments: str, memory: str = "32Mi") -> dict[str, Any]:
    """Return a pod's spec that calls busybox, as restricted pod security wants it."""
    return {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "main",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "args": list(arguments),
                "resources": {"limits": {"memory": memory}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }


def pod(name: str, space: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Pod."""
    metadata = {"name": name, "namespace": space}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def deployment(name: str, space: str, replicas: int, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Deployment whose pods have the label ``app: NAME``."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def restricted_space(name: str) -> dict[str, Any]:
    """Return a Namespace that enforces restricted pod security."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    """Apply objects."""
    items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(items))


def eventually(holds: Callable[[], object], what: str, within: float = 120) -> None:
    """Return once `holds()` is true; fail after `within` seconds."""
    until, pause = time.monotonic() + within, threading.Event()
    while not holds():
        assert time.monotonic() < until, f"not within {within} s: {what}"
        pause.wait(0.1)
