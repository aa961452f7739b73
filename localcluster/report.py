"""What `status` tells about a cluster, for people and for programs."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table

from .access import Access, run_kubectl
from .cluster import Cluster
from .errors import NotRunningError
from .node import states
from .node.commands import NodeState
from .standing import Standing, find


@dataclass(frozen=True)
class Component:
    """A process of the cluster."""

    name: str
    pid: int
    running: bool


@dataclass(frozen=True)
class Report:
    """The state of a cluster; its fields are those of ``status -o json``.

    Args:
        name: Name of the cluster, or the path of a foreign kubeconfig.
        source: ``localcluster`` if this package runs it, ``kubeconfig`` if someone else does.
        running: Whether it is up at all.
        ready: Whether the API server says so, and no component has ended.
        reason: Why it is not running or not ready; empty if it is.
        url: Address of the API server.
        kubeconfig: Path of an administrator's kubeconfig.
        started: When it became ready, as ISO 8601 in UTC; None for a foreign cluster.
        components: Its processes; none for a foreign cluster.
        nodes: Its nodes; not asked for of a foreign cluster.
    """

    name: str
    source: Literal["localcluster", "kubeconfig"] = "localcluster"
    running: bool = False
    ready: bool = False
    reason: str = ""
    url: str | None = None
    kubeconfig: str | None = None
    started: str | None = None
    components: tuple[Component, ...] = ()
    nodes: tuple[NodeState, ...] = ()


def report_named(name: str) -> Report:
    """Report on a cluster that `up` started, removing what a crashed one left behind."""
    try:
        standing = find(name)
    except NotRunningError as error:
        return Report(name, reason=str(error))
    components = tuple(
        Component(component, pid, standing.lives(component))
        for component, pid in standing.components.items()
    )
    nodes = states(standing.access)
    reason = _why_not_ready(standing, components, nodes)
    return Report(
        name,
        running=True,
        ready=not reason,
        reason=reason,
        url=standing.url,
        kubeconfig=str(standing.layout.kubeconfig()),
        started=standing.started,
        components=components,
        nodes=nodes,
    )


def report_foreign(cluster: Cluster) -> Report:
    """Report on a cluster that was not started here."""
    reason = _why_unreachable(cluster.access)
    path = str(cluster.kubeconfig)
    return Report(path, "kubeconfig", not reason, not reason, reason, cluster.url, path)


def _why_not_ready(
    standing: Standing, components: tuple[Component, ...], nodes: tuple[NodeState, ...]
) -> str:
    ended = [component.name for component in components if not component.running]
    if ended:
        return f"{', '.join(ended)} ended; see the logs in {standing.layout.logs}"
    if unready := [node.name for node in nodes if not node.ready]:
        return f"{', '.join(unready)} not Ready; see the logs in {standing.layout.root}/node-*"
    return _why_unreachable(standing.access)


def _why_unreachable(access: Access) -> str:
    answer = run_kubectl(access, "get", "--raw=/readyz", "--request-timeout=5s", check=False)
    return "" if answer.returncode == 0 else answer.stderr.strip() or "not ready"


def as_json(report: Report) -> str:
    """Return the report as a JSON object."""
    return json.dumps(dataclasses.asdict(report), indent=2)


def show(report: Report, console: Console) -> None:
    """Print the report for a person."""
    table = Table(box=None, show_header=False, pad_edge=False)
    rows = {
        "cluster": report.name,
        "state": _state(report),
        "url": report.url,
        "kubeconfig": report.kubeconfig,
        "started": report.started,
    }
    rows |= {component.name: _line(component) for component in report.components}
    rows |= {f"Node {node.name}": "Ready" if node.ready else "not Ready" for node in report.nodes}
    for label, value in rows.items():
        if value:
            table.add_row(label, value)
    console.print(table, markup=False, soft_wrap=True)


def _state(report: Report) -> str:
    if report.ready:
        return "ready"
    return f"not ready: {report.reason}" if report.running else report.reason


def _line(component: Component) -> str:
    return f"pid {component.pid}" if component.running else f"ended (was pid {component.pid})"
