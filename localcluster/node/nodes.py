"""The nodes of one cluster, and what they share: network, name server, rights."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from localcluster.access import Access, run_kubectl
from localcluster.addresses import HOST, MOST_NODES
from localcluster.controlplane import ControlPlane
from localcluster.errors import ComponentError, UsageError
from localcluster.layout import last_lines

from . import groups, images
from .files import DOMAIN, NodeFiles
from .network import Network
from .node import Node
from .place import group

_RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: localcluster:apiserver-to-kubelet}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:kubelet-api-admin"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: kube-apiserver}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: localcluster:coredns}
rules:
- apiGroups: [""]
  resources: [endpoints, services, pods, namespaces]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: localcluster:coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "localcluster:coredns"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "localcluster:coredns"}]
"""


class Nodes:
    """Starts the nodes of a cluster and knows those that are left.

    Args:
        plane: The control plane; its API server listens at `addresses.HOST`.
        binaries: Paths of `binaries.OF_NODES`.
    """

    def __init__(self, plane: ControlPlane, binaries: Mapping[str, Path]) -> None:
        self._plane = plane
        self._binaries = binaries
        self._network = Network(plane.processes)
        self._nodes: list[Node] = []
        self._made = 0

    @property
    def all(self) -> tuple[Node, ...]:
        """Those that were started and not destroyed."""
        return tuple(self._nodes)

    def join_host(self) -> None:
        """Make the network: the API server can listen once it is there."""
        self._plane.processes.at_end([sys.executable, "-I", "-S", groups.__file__, group()])
        self._network.start()

    def start(self, count: int, access: Access, *, within: float) -> None:
        """Start name server and nodes, and return once the nodes are Ready.

        Raises:
            ComponentError: A part of it ended or was not ready in time.
        """
        run_kubectl(access, "apply", "-f", "-", stdin=_RIGHTS)
        self._start_coredns()
        for _ in range(count):
            self.add(access, within=within)

    def add(self, access: Access, *, within: float) -> Node:
        """Start one more node and return it once it is Ready.

        Raises:
            UsageError: There are as many as there can be.
            ComponentError: A part of it ended or was not ready in time.
        """
        if self._made == MOST_NODES:
            raise UsageError(f"a cluster has at most {MOST_NODES} nodes")
        self._made += 1
        layout = self._plane.plan.layout
        files = NodeFiles(
            layout.root / f"node-{self._made}",
            self._made,
            layout.ca,
            layout.kubeconfig(f"node-{self._made}"),
            layout.kubeconfig("kube-proxy"),
        )
        node = Node(
            files,
            processes=self._plane.processes,
            network=self._network,
            binaries=self._binaries,
        )
        node.start(within=within)
        self._nodes.append(node)
        _await_ready(access, files, within=within)
        return node

    def destroy(self, node: Node) -> None:
        """Kill a node with every container on it; its Node object stays."""
        self._nodes.remove(node)
        node.destroy()

    def load(self, image: str) -> None:
        """Bring an image of buildah's store into every node."""
        images.import_built(image, [node.socket for node in self._nodes])

    def _start_coredns(self) -> None:
        layout = self._plane.plan.layout
        corefile = layout.root / "Corefile"
        corefile.write_text(_corefile(layout.kubeconfig("coredns")))
        self._plane.processes.start(
            "coredns", [str(self._binaries["coredns"]), "-conf", str(corefile)]
        )


def _corefile(kubeconfig: Path) -> str:
    return f"""\
{DOMAIN} in-addr.arpa {{
    bind {HOST}
    errors
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
    }}
    cache 5
}}
"""


def _await_ready(access: Access, files: NodeFiles, *, within: float) -> None:
    until = time.monotonic() + within
    for condition in ("create", "condition=Ready"):
        left = max(1, round(until - time.monotonic()))
        wait = ("wait", f"--for={condition}", f"--timeout={left}s", f"node/{files.name}")
        done = run_kubectl(access, *wait, check=False)
        if done.returncode != 0:
            tail = last_lines(files.log("kubelet"))
            raise ComponentError(f"{files.name} is not Ready: {done.stderr.strip()}\n{tail}")
