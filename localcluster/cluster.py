"""A throw-away cluster as a Python object."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from . import binaries as _binaries
from .access import Access, read_kubeconfig, run_kubectl, start_kubectl
from .addresses import HOST
from .components import COMPONENTS, LOOPBACK, binary_of, in_order
from .controlplane import ControlPlane, prepare
from .errors import UsageError
from .layout import Layout, checked_name
from .node import Node, Nodes, take, why_not
from .progress import Reporter


class Cluster:
    """A Kubernetes API to test against.

    Made by `start`, or by `Cluster.from_kubeconfig` around one that runs elsewhere.
    Leaving its `with` block stops it.
    """

    def __init__(
        self,
        access: Access,
        *,
        folder: Path | None = None,
        plane: ControlPlane | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        self._access = access
        self._folder = folder
        self._plane = plane
        self._nodes = nodes

    @classmethod
    def from_kubeconfig(cls, kubeconfig: Path, *, reporter: Reporter | None = None) -> Self:
        """Use a cluster that runs elsewhere; stopping it only forgets it.

        The kubectl on PATH is used if there is one.

        Raises:
            UsageError: There is no such file, or its current context names no cluster.
            KubectlError: The file cannot be read.
        """
        kubectl = _any_kubectl(reporter)
        scratch = Path(tempfile.mkdtemp(prefix="rowlock-access-"))
        try:
            access = read_kubeconfig(kubeconfig, kubectl=kubectl, scratch=scratch)
        except BaseException:
            shutil.rmtree(scratch)
            raise
        return cls(access, folder=scratch)

    @property
    def access(self) -> Access:
        """Address and credentials in one piece."""
        return self._access

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator."""
        return self._access.kubeconfig

    @property
    def url(self) -> str:
        """Address of the API server."""
        return self._access.url

    @property
    def token(self) -> str:
        """Bearer token of the administrator; empty if the kubeconfig holds none."""
        return self._access.token

    @property
    def ca_file(self) -> Path | None:
        """Certificate that vouches for the API server; None if a public authority does."""
        return self._access.ca_file

    @property
    def components(self) -> tuple[str, ...]:
        """What was started here, in order; empty for a cluster that runs elsewhere."""
        return self._plane.plan.components if self._plane else ()

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002 - named as in subprocess.run
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator and return its output as text.

        Args:
            arguments: Arguments of kubectl.
            input: Text for its standard input, as for ``apply -f -``.
            check: Raise if it ends with an exit code other than 0.

        Raises:
            KubectlError: It failed and `check` is set.
        """
        return run_kubectl(self._access, *arguments, stdin=input, check=check)

    def start_kubectl(self, *arguments: str, output: IO[str]) -> subprocess.Popen[str]:
        """Start kubectl as administrator for what has no end, as ``get -w``.

        Args:
            arguments: Arguments of kubectl.
            output: Where its output goes.
        """
        return start_kubectl(self._access, *arguments, output=output)

    def stop_apiserver(self) -> None:
        """Kill the API server, as a fault; the stored objects stay.

        Raises:
            UsageError: This cluster was not started here.
        """
        self._started_here().stop_apiserver()

    def start_apiserver(self, *, within: float = 60) -> None:
        """Start the API server again on the same port and data, and return once it is ready.

        Args:
            within: Seconds that it may take.

        Raises:
            ComponentError: It ended or was not ready in time.
            UsageError: This cluster was not started here.
        """
        self._started_here().start_apiserver(within=within)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Its nodes that were started here and not destroyed."""
        return self._nodes.all if self._nodes else ()

    def add_node(self, *, within: float = 60) -> Node:
        """Start one more node and return it once it is Ready; images are to be loaded again.

        Raises:
            ComponentError: A part of it ended or was not ready in time.
            UsageError: This cluster was started without nodes, or has as many as it can have.
        """
        return self._with_nodes().add(self._access, within=within)

    def destroy_node(self, node: Node) -> None:
        """Kill a node with every container on it, as a power failure does."""
        self._with_nodes().destroy(node)

    def load_image(self, image: str) -> None:
        """Bring an image of buildah's store into every node.

        Raises:
            ImageError: There is no buildah, or no such image.
            UsageError: This cluster was started without nodes.
        """
        self._with_nodes().load(image)

    def stop(self) -> None:
        """Kill every process of this cluster and remove its files; the second time, do nothing."""
        if self._plane is not None:
            self._plane.processes.end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _started_here(self) -> ControlPlane:
        if self._plane is None:
            raise UsageError("faults can be made only in a cluster that was started here")
        return self._plane

    def _with_nodes(self) -> Nodes:
        if self._nodes is None:
            raise UsageError("this cluster was started without nodes: start(nodes=1)")
        return self._nodes


def _any_kubectl(reporter: Reporter | None) -> Path:
    on_path = shutil.which("kubectl")
    if on_path is not None:
        return Path(on_path)
    return _binaries.provide(["kubectl"], reporter=reporter)["kubectl"]


@dataclass(frozen=True)
class Running:
    """A control plane that is ready, and how to reach it."""

    plane: ControlPlane
    access: Access
    nodes: Nodes | None = None


def start(
    *,
    name: str = "test",
    components: Sequence[str] = COMPONENTS,
    nodes: int = 0,
    within: float = 60,
    reporter: Reporter | None = None,
) -> Cluster:
    """Start a cluster of its own in a temporary folder and return it once it is ready.

    It ends with `Cluster.stop`, at the end of its `with` block, or when this process ends in
    whatever way.
    The first call on a machine builds the binaries, which takes minutes.

    Args:
        name: Shows in the folder's name and the kubeconfig's context; need not be unique.
        components: Some of `COMPONENTS`; etcd and the API server are always needed.
        nodes: How many nodes run its pods, at most `addresses.MOST_NODES`; they need root, and
            one cluster of a machine can have some.
        within: Seconds that starting may take, building left out.
        reporter: Told what takes long; by default standard error.

    Raises:
        UsageError: The name or a component is wrong, this is not Linux, or nodes cannot run here.
        AlreadyRunningError: Another cluster has nodes.
        BuildError: A binary could not be built or found.
        ToolchainError: There is no Go, and none could be installed.
        ComponentError: A component ended or was not ready in time.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"rowlock-{checked_name(name)}-"))
    try:
        running = run(
            Layout(folder),
            name=name,
            components=components,
            nodes=nodes,
            within=within,
            reporter=reporter,
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Cluster(running.access, folder=folder, plane=running.plane, nodes=running.nodes)


def run(
    layout: Layout,
    *,
    name: str,
    components: Sequence[str],
    nodes: int = 0,
    within: float,
    reporter: Reporter | None = None,
    held: Sequence[int] = (),
) -> Running:
    """Start a cluster in a folder of the caller's; what `start` and `up` have in common."""
    wanted = in_order(components)
    if nodes and (reason := why_not(nodes)):
        raise UsageError(reason)
    more = _binaries.OF_NODES if nodes else ()
    binaries = _binaries.provide([*map(binary_of, wanted), "kubectl", *more], reporter=reporter)
    runnable = tuple(component for component in wanted if binary_of(component) in binaries)
    with _place_for(nodes) as place:
        plane = prepare(
            layout,
            name=name,
            binaries=binaries,
            components=runnable,
            held=[*held, *place],
            address=HOST if nodes else LOOPBACK,
        )
    try:
        return _start(plane, nodes, within=within)
    except BaseException:
        plane.processes.end()
        raise


@contextmanager
def _place_for(nodes: int) -> Iterator[list[int]]:
    """Take the place for nodes, which the keeper goes on holding after this block."""
    locks = [take()] if nodes else []
    try:
        yield locks
    finally:
        for lock in locks:
            os.close(lock)


def _start(plane: ControlPlane, nodes: int, *, within: float) -> Running:
    layout, kubectl = plane.plan.layout, plane.binaries["kubectl"]
    cache = layout.root / "kubectl"
    access = Access(layout.kubeconfig(), plane.plan.url, plane.token, layout.ca, kubectl, cache)
    if not nodes:
        plane.start(within=within)
        return Running(plane, access)
    joined = Nodes(plane, plane.binaries)
    # The API server listens on the network of the nodes, so that comes first.
    joined.join_host()
    plane.start(within=within)
    joined.start(nodes, access, within=within)
    return Running(plane, access, joined)
