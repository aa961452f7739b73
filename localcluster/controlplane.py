"""Bring a control plane up, and take its API server down and up again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .components import COMPONENTS, LOOPBACK, Plan, Ports, binary_of
from .credentials import write_credentials
from .layout import Layout
from .pki import write_pki
from .ports import reserved
from .processes import Processes
from .readiness import Prober


@dataclass(frozen=True)
class ControlPlane:
    """The running components of one cluster.

    Args:
        plan: What runs, and where.
        binaries: Paths by binary name.
        processes: The keeper that owns the components.
        prober: Asks whether they are ready.
        token: The admin's token.
    """

    plan: Plan
    binaries: Mapping[str, Path]
    processes: Processes
    prober: Prober
    token: str = field(repr=False)

    def start(self, *, within: float) -> None:
        """Start every component and return once all are ready.

        Args:
            within: Seconds that it may take.

        Raises:
            ComponentError: A component ended or was not ready in time.
        """
        until = time.monotonic() + within
        self._launch("etcd")
        # An API server that finds no etcd backs off for longer than etcd takes to start.
        self.prober.wait(["etcd"], until=until)
        others = self.plan.components[1:]
        for component in others:
            self._launch(component)
        self.prober.wait(others, until=until)

    def start_apiserver(self, *, within: float) -> None:
        """Start the API server again on its port and data, and return once it is ready."""
        self._launch("apiserver")
        self.prober.wait(["apiserver"], until=time.monotonic() + within)

    def stop_apiserver(self) -> None:
        """Kill the API server; etcd keeps its data."""
        self.processes.stop("apiserver")

    def _launch(self, component: str) -> None:
        binary = self.binaries[binary_of(component)]
        self.processes.start(component, [str(binary), *self.plan.arguments(component)])


def prepare(
    layout: Layout,
    *,
    name: str,
    binaries: Mapping[str, Path],
    components: tuple[str, ...],
    held: Sequence[int] = (),
    address: str = LOOPBACK,
) -> ControlPlane:
    """Write what the components need, start the keeper, and return a plane yet to be started.

    Args:
        layout: The cluster's folder, removed by the keeper at the end.
        name: Name of the cluster.
        binaries: Paths by binary name.
        components: Those to run, in starting order.
        held: Descriptors for the keeper to hold as long as it lives.
        address: Where the API server listens.
    """
    layout.make()
    write_pki(layout)
    # One port a component, and one more for etcd's peers.
    with reserved(len(COMPONENTS) + 1) as reservations:
        plan = Plan(layout, Ports(*reservations), components, address)
        token = write_credentials(layout, name=name, url=plan.url, nodes=plan.has_nodes)
        processes = Processes(layout, held=[*held, *reservations.values()])
    prober = Prober(plan, token=token, exit_codes=processes.exit_codes)
    return ControlPlane(plan, binaries, processes, prober, token)
