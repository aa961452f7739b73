"""What the programs of a node are told: their configuration files and command lines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from localcluster.addresses import HOST, PODS_AND_NODES, address_of, pods_of

from .place import group
from .requirements import CNI_FOLDER

PAUSE_IMAGE = "localhost/rowlock-pause:1"
"""Image of the process that holds a pod's namespaces."""

DOMAIN = "cluster.local"


@dataclass(frozen=True)
class NodeFiles:
    """The folder of one node.

    Args:
        folder: Of this node alone.
        number: Counted from 1.
        ca: Certificate of the cluster's authority.
        kubeconfigs: By user: this node's and kube-proxy's.
    """

    folder: Path
    number: int
    ca: Path
    kubelet_kubeconfig: Path
    proxy_kubeconfig: Path

    @property
    def name(self) -> str:
        """Name of the Node."""
        return f"node-{self.number}"

    @property
    def group(self) -> str:
        """Its control group, below the root of each hierarchy."""
        return f"{group()}/{self.name}"

    @property
    def socket(self) -> Path:
        """Where containerd listens."""
        return self.folder / "containerd.sock"

    def log(self, program: str) -> Path:
        """Return the log of a program."""
        return self.folder / f"{program}.log"

    def write(self) -> None:
        """Write every configuration file."""
        (self.folder / "cni").mkdir(parents=True, exist_ok=True)
        self._containerd_file.write_text(_containerd(self))
        self._kubelet_file.write_text(json.dumps(_kubelet(self), indent=2))
        (self.folder / "cni" / "10-rowlock.conflist").write_text(json.dumps(_cni(self), indent=2))

    def containerd(self, binary: Path) -> list[str]:
        """Return containerd's command line."""
        return [str(binary), "--config", str(self._containerd_file)]

    def kubelet(self, binary: Path) -> list[str]:
        """Return kubelet's command line."""
        return [
            str(binary),
            f"--config={self._kubelet_file}",
            f"--kubeconfig={self.kubelet_kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={address_of(self.number)}",
            f"--root-dir={self.folder / 'kubelet'}",
            f"--cert-dir={self.folder / 'kubelet-pki'}",
        ]

    def kube_proxy(self, binary: Path) -> list[str]:
        """Return kube-proxy's command line."""
        return [
            str(binary),
            f"--kubeconfig={self.proxy_kubeconfig}",
            f"--hostname-override={self.name}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={PODS_AND_NODES}",
            # These are settings of the host's kernel, which are not a test's to change.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        ]

    @property
    def _containerd_file(self) -> Path:
        return self.folder / "containerd.toml"

    @property
    def _kubelet_file(self) -> Path:
        return self.folder / "kubelet.json"


def _containerd(node: NodeFiles) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""\
version = 2
root = "{node.folder / "containerd"}"
state = "/run/containerd"
[grpc]
address = "{node.socket}"
[{cri}]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
disable_apparmor = true
[{cri}.containerd]
snapshotter = "overlayfs"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
SystemdCgroup = false
[{cri}.cni]
bin_dir = "{CNI_FOLDER}"
conf_dir = "{node.folder / "cni"}"
"""


def _kubelet(node: NodeFiles) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(node.ca)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.group,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "clusterDNS": [HOST],
        "clusterDomain": DOMAIN,
        "resolvConf": "",
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        # A lost node is noticed within the 8 s that the controller manager is told.
        "nodeLeaseDurationSeconds": 8,
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "5s",
        # No limit of 5 requests a second: a test's pods come at once.
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "registryPullQPS": 0,
    }


def _cni(node: NodeFiles) -> dict[str, object]:
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": pods_of(node.number)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(node.folder / "addresses"),
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "rowlock", "plugins": [bridge, portmap]}
