"""The components of a control plane: their binaries, ports and command lines.

Everything here is decided from its arguments; `controlplane` acts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import UsageError
from .layout import Layout
from .pki import SERVICE_CIDR

COMPONENTS = ("etcd", "apiserver", "controller-manager", "scheduler")
"""Every component, in the order in which they start."""

_NEEDED = ("etcd", "apiserver")

LOOPBACK = "127.0.0.1"
"""Where a cluster without nodes listens."""


@dataclass(frozen=True)
class Ports:
    """The ports on which the components of one cluster listen."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int

    def of(self, component: str) -> int:
        """Return the port on which a component answers probes."""
        port: int = getattr(self, component.replace("-", "_"))
        return port


@dataclass(frozen=True)
class Plan:
    """What one cluster runs.

    Args:
        layout: The cluster's folder.
        ports: Where the components listen.
        components: Those that run, in starting order.
        address: Where the API server listens: `LOOPBACK`, or where nodes reach it.
    """

    layout: Layout
    ports: Ports
    components: tuple[str, ...]
    address: str = LOOPBACK

    @property
    def url(self) -> str:
        """Address of the API server."""
        return f"https://{self.address}:{self.ports.apiserver}"

    @property
    def has_nodes(self) -> bool:
        """Tell whether nodes join."""
        return self.address != LOOPBACK

    def address_of(self, component: str) -> str:
        """Return the address on which a component listens."""
        return self.address if component == "apiserver" else LOOPBACK

    def arguments(self, component: str) -> list[str]:
        """Return the arguments of a component, without its binary."""
        return _ARGUMENTS[component](self)


def binary_of(component: str) -> str:
    """Return the name of the binary that runs a component."""
    return component if component == "etcd" else f"kube-{component}"


def in_order(components: Sequence[str]) -> tuple[str, ...]:
    """Return the components in starting order.

    Raises:
        UsageError: One is unknown, or etcd or the API server is missing.
    """
    if unknown := sorted(set(components) - set(COMPONENTS)):
        raise UsageError(f"unknown components {unknown}: choose from {list(COMPONENTS)}")
    if missing := [name for name in _NEEDED if name not in components]:
        raise UsageError(f"no cluster without {' and '.join(missing)}")
    return tuple(name for name in COMPONENTS if name in components)


def _etcd(plan: Plan) -> list[str]:
    client = f"https://127.0.0.1:{plan.ports.etcd}"
    peer = f"https://127.0.0.1:{plan.ports.etcd_peer}"
    pki = plan.layout.pki
    return [
        f"--data-dir={plan.layout.root / 'etcd'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        *_etcd_tls(pki, prefix=""),
        *_etcd_tls(pki, prefix="peer-"),
    ]


def _etcd_tls(pki: Path, *, prefix: str) -> list[str]:
    return [
        f"--{prefix}cert-file={pki / 'server.crt'}",
        f"--{prefix}key-file={pki / 'server.key'}",
        f"--{prefix}trusted-ca-file={pki / 'ca.crt'}",
        f"--{prefix}client-cert-auth",
    ]


def _apiserver(plan: Plan) -> list[str]:
    pki = plan.layout.pki
    service_account = pki / "service-account.key"
    return [
        f"--etcd-servers=https://127.0.0.1:{plan.ports.etcd}",
        f"--etcd-cafile={pki / 'ca.crt'}",
        f"--etcd-certfile={pki / 'server.crt'}",
        f"--etcd-keyfile={pki / 'server.key'}",
        # Without it, a machine that has no default route has no address to advertise.
        f"--advertise-address={plan.address}",
        f"--service-account-key-file={service_account}",
        f"--service-account-signing-key-file={service_account}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={plan.layout.tokens}",
        "--authorization-mode=Node,RBAC",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--allow-privileged=true",
        *(_towards_nodes(plan) if plan.has_nodes else ["--endpoint-reconciler-type=none"]),
        *_serving(plan, "apiserver"),
        *_without_controllers(plan),
    ]


def _towards_nodes(plan: Plan) -> list[str]:
    pki = plan.layout.pki
    return [
        f"--kubelet-client-certificate={pki / 'server.crt'}",
        f"--kubelet-client-key={pki / 'server.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        # A test that loses a node waits for seconds, not for minutes.
        "--default-not-ready-toleration-seconds=5",
        "--default-unreachable-toleration-seconds=5",
    ]


def _without_controllers(plan: Plan) -> list[str]:
    # No one makes default service accounts then, and the plugin would refuse every pod.
    alone = "controller-manager" not in plan.components
    return ["--disable-admission-plugins=ServiceAccount"] if alone else []


def _controller_manager(plan: Plan) -> list[str]:
    return [
        f"--service-account-private-key-file={plan.layout.pki / 'service-account.key'}",
        f"--root-ca-file={plan.layout.ca}",
        "--use-service-account-credentials=true",
        *(["--node-monitor-grace-period=8s"] if plan.has_nodes else []),
        *_client(plan, "controller-manager"),
    ]


def _scheduler(plan: Plan) -> list[str]:
    return _client(plan, "scheduler")


def _client(plan: Plan, component: str) -> list[str]:
    return [
        f"--kubeconfig={plan.layout.kubeconfig(component)}",
        "--leader-elect=false",
        # With the default of 20 requests a second, starting the controllers alone takes 5 s.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        *_serving(plan, component),
    ]


def _serving(plan: Plan, component: str) -> list[str]:
    return [
        f"--bind-address={plan.address_of(component)}",
        f"--secure-port={plan.ports.of(component)}",
        f"--tls-cert-file={plan.layout.pki / 'server.crt'}",
        f"--tls-private-key-file={plan.layout.pki / 'server.key'}",
    ]


_ARGUMENTS: dict[str, Callable[[Plan], list[str]]] = {
    "etcd": _etcd,
    "apiserver": _apiserver,
    "controller-manager": _controller_manager,
    "scheduler": _scheduler,
}
