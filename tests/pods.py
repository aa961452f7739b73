"""Worker pods on a real API server without a kubelet: a test makes them and writes their status.

The worker processes of such a pod run on this machine, with the pod's name and uid.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localcluster import LocalClusterError
from rowlock_operator.kube.errors import KubeError
from rowlock_operator.kube.resources import NAMESPACES, NODES, PODS
from rowlock_operator.kube.specs import labels
from tests.operators import Stage, eventually
from tests.workers import LocalWorker

#: Leases that no test outlives.
LONG = {"ROWLOCK_LEASE_SECONDS": "600", "ROWLOCK_RENEW_SECONDS": "2"}


@dataclass
class Pods:
    """The pods and nodes of one test."""

    stage: Stage
    nodes: list[str] = field(default_factory=list)
    workers: list[LocalWorker] = field(default_factory=list)
    watching: list[subprocess.Popen[str]] = field(default_factory=list)

    async def node(self) -> str:
        """Create a node that is ready, and takes in nobody."""
        name = f"node-{uuid.uuid4().hex[:8]}"
        spec = {"unschedulable": True}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
        await self.stage.client.create(NODES.path(), body)
        self.nodes.append(name)
        self.mark_node(name, ready="True")
        return name

    def mark_node(self, name: str, *, ready: str) -> None:
        """Set a node's Ready condition, as its kubelet or the node controller does."""
        said = {"type": "Ready", "status": ready, "reason": "Test", "message": ""}
        self._patch_status("node", name, {"conditions": [said]})

    async def pod(self, name: str, *, node: str, pool: str = "default") -> str:
        """Create a pod of a pool that runs, and return its uid."""
        namespace = self.stage.namespace
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels.labels(pool)},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 600,
                "automountServiceAccountToken": False,
                # The node controller would end it on a node that it takes for lost.
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "worker", "image": "example.test/agents:1"}],
            },
        }

        async def made() -> dict[str, Any] | None:
            try:
                created: dict[str, Any] = await self.stage.client.create(PODS.path(namespace), body)
            except KubeError:  # the namespace has no service account yet
                return None
            return created

        uid = str((await eventually(made, f"pod {name}"))["metadata"]["uid"])
        self.mark(name, phase="Running", ready=True)
        return uid

    def mark(self, name: str, *, phase: str, ready: bool = False, **status: Any) -> None:
        """Set the status of a pod."""
        said = "True" if ready else "False"
        conditions = [{"type": type_, "status": said} for type_ in ("Ready", "ContainersReady")]
        self._patch_status("pod", name, {"phase": phase, "conditions": conditions, **status})

    def mark_lost(self, name: str) -> None:
        """Do what the node controller does to pods of a node that it lost: only Ready changes."""
        self._patch_status("pod", name, {"conditions": [{"type": "Ready", "status": "False"}]})

    def remove(self, name: str) -> None:
        """Let a pod be gone, as the kubelet reports it at the end."""
        self.stage.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")

    async def cluster(self) -> str:
        """Return the name of this cluster in the database."""
        item = await self.stage.client.get(NAMESPACES.path(name="kube-system"))
        return str(item["metadata"]["uid"])

    async def worker(self, name: str, uid: str, **environment: str) -> LocalWorker:
        """Start a worker process that believes that it runs in a pod."""
        variables = {
            "ROWLOCK_NAMESPACE": self.stage.namespace,
            "ROWLOCK_POOL": "default",
            "ROWLOCK_CLUSTER": await self.cluster(),
            "ROWLOCK_POD_NAME": name,
            "ROWLOCK_POD_UID": uid,
            "ROWLOCK_PROCESSES": "1",
            **LONG,
            **environment,
        }
        log = self.stage.folder / f"worker-{len(self.workers)}.log"
        clean = {key: "" for key in os.environ if key.startswith("ROWLOCK_")}
        started = LocalWorker(self.stage.dsn, log, environment={**clean, **variables})
        self.workers.append(started)
        await started.says("Worker started")
        return started

    def watch_runs(self) -> Path:
        """Have `kubectl get agentruns -w` write into a file, until the end of the test."""
        file = self.stage.folder / "kubectl.txt"
        arguments = ("-n", self.stage.namespace, "get", "agentruns", "-w")
        with file.open("w") as output:
            self.watching.append(self.stage.cluster.start_kubectl(*arguments, output=output))
        return file

    async def close(self) -> None:
        """End and remove all of it."""
        for process in self.watching:
            process.kill()
            process.wait()
        for worker in self.workers:
            worker.destroy()
        for node in self.nodes:
            try:
                self.stage.cluster.kubectl("delete", "node", node, "--wait=false")
            except LocalClusterError:
                continue

    def _patch_status(self, kind: str, name: str, status: dict[str, Any]) -> None:
        patch = json.dumps({"status": status})
        self.stage.kubectl(
            "patch", kind, name, "--subresource=status", "--type=strategic", "-p", patch
        )
